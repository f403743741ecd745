"""Reads the data in a pickle without running it.

A pickle is a program for a small machine that may import and call anything. This machine executes the instructions
that build plain data, and calls only the builders it is given by name. Any other name stops it before the next
instruction. It imports no module and looks up no attribute. `pickletools` of the standard library parses the
instructions and executes none. The standard library's own remedy, `pickle.Unpickler.find_class`, is not enough: a
pickle could still make it allocate tables of gigabytes and hash tuples for ever.
"""

import pickletools
from collections.abc import Callable
from typing import Any

from bert.conversion.raw_tensors import ConversionError

# (module, name) -> a function that takes the arguments of the call and returns the value.
Builders = dict[tuple[str, str], Callable[..., Any]]


def ordered_dict(pairs: Any = ()) -> dict:
    """collections.OrderedDict; its items come as a list of pairs, or later from SETITEMS."""
    if not isinstance(pairs, (list, tuple)) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], (str, int)) for pair in pairs
    ):
        raise ConversionError("an OrderedDict that is not made of names and values")
    return dict(pairs)


class Symbol(tuple):
    """A (module, name) that the pickle mentions; known to be in the builders."""


class Built:
    """A value that a pickle completes with `BUILD`."""

    def build(self, state: Any) -> None:
        raise NotImplementedError


_MARK = object()
_VALUES = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES "
    "SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8".split()
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}


class PickleMachine:
    """Reads pickles one at a time from a file-like object, which is left after the pickle's end."""

    def __init__(self, source: str, builders: Builders, persistent: Callable[[Any], Any] | None = None):
        self.source = source
        self.builders = builders
        self.persistent = persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def load(self, file: Any) -> Any:
        """The value of the next pickle.

        Raises:
            ConversionError: truncated, malformed, or in need of anything beyond plain data and the builders.
        """
        self.stack, self.memo = [], {}
        try:
            for opcode, argument, position in pickletools.genops(file):
                if opcode.name == "STOP":
                    (value,) = self.stack
                    return value
                self._execute(opcode.name, argument, position)
        except ConversionError as error:
            raise ConversionError(f"{self.source}: {error}") from None
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
            raise ConversionError(
                f"{self.source} is damaged, or not a pickle of tensors ({type(error).__name__}: "
                f"{str(error)[:200]}); fetch or make it again"
            ) from None
        raise ConversionError(f"{self.source} ends in the middle of a pickle; fetch or make it again")

    def _execute(self, name: str, argument: Any, position: int | None) -> None:
        stack = self.stack
        match name:
            case "PROTO" | "FRAME":
                pass
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "MARK":
                stack.append(_MARK)
            case "LIST":
                stack.append(self._pop_to_mark())
            case "TUPLE":
                stack.append(tuple(self._pop_to_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._pop(int(name[-1]))))
            case "DICT":
                items = self._pop_to_mark()
                stack.append({})
                self._set_items(items)
            case "APPEND":
                self._extend(self._pop(1))
            case "APPENDS":
                self._extend(self._pop_to_mark())
            case "SETITEM":
                self._set_items(self._pop(2))
            case "SETITEMS":
                self._set_items(self._pop_to_mark())
            case "GLOBAL":
                self._mention(*argument.split(" ", 1))
            case "STACK_GLOBAL":
                self._mention(*self._pop(2))
            case "REDUCE":
                self._call(*self._pop(2))
            case "BUILD":
                self._complete(*self._pop(1))
            case "BINPERSID":
                if self.persistent is None:
                    raise ConversionError("the pickle refers to data outside of itself")
                stack.append(self.persistent(*self._pop(1)))
            case _ if name in _VALUES:
                stack.append(argument)
            case _ if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            case _ if name in _EMPTY:
                stack.append(_EMPTY[name]())
            case _:
                raise ConversionError(
                    f"instruction {name} at byte {position} has no place in a pickle of tensors; it "
                    "was not made by a library that is read here, and nothing in it was run"
                )

    def _extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ConversionError(f"the pickle appends to a {type(self.stack[-1]).__name__}")
        self.stack[-1].extend(items)

    def _set_items(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict or len(items) % 2:
            raise ConversionError(f"the pickle sets items of a {type(self.stack[-1]).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, int)):  # tuples of tuples of ... take for ever to hash
                raise ConversionError(f"the pickle has a {type(key).__name__} for a key; it must be a name or a number")
            self.stack[-1][key] = value

    def _mention(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str) or (module, name) not in self.builders:
            raise ConversionError(
                f"refers to {str(module)[:80]}.{str(name)[:80]}, which no checkpoint needs and which "
                "could run code; it was refused, and nothing in the file was run"
            )
        self.stack.append(Symbol((module, name)))

    def _call(self, function: Any, arguments: Any) -> None:
        if not isinstance(function, Symbol) or type(arguments) is not tuple:
            raise ConversionError(f"the pickle calls a {type(function).__name__}; only known builders may be called")
        self.stack.append(self.builders[function[0], function[1]](*arguments))

    def _complete(self, state: Any) -> None:
        if isinstance(self.stack[-1], Built):
            self.stack[-1].build(state)
        elif type(self.stack[-1]) is not dict:  # an OrderedDict's own attributes (torch's _metadata) are not data
            raise ConversionError(f"the pickle sets the state of a {type(self.stack[-1]).__name__}")

    def _pop(self, count: int) -> list[Any]:
        values = self.stack[-count:]
        if len(values) < count or any(value is _MARK for value in values):
            raise ConversionError("the pickle takes more from its stack than is there")
        del self.stack[-count:]
        return values

    def _pop_to_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                values = self.stack[index + 1 :]
                del self.stack[index:]
                return values
        raise ConversionError("the pickle looks for a mark that it did not set")
