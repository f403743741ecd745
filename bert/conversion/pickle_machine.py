"""Reads the data in a pickle without running it.

A pickle is a program for a small machine that may import and call anything. This machine knows the instructions that
build plain data, and calls nothing but the builders it is given by name; any other name stops it before the next
instruction. No module is imported, no attribute looked up, whatever the file says. `pickletools` of the standard
library parses the instructions (it executes none).
"""

import pickletools
from collections.abc import Callable, Mapping
from typing import Any

from bert.conversion.raw import ConversionError

# (module, name) -> what takes the arguments of the call and gives the value.
Builders = Mapping[tuple[str, str], Callable[..., Any]]


class Symbol(tuple):
    """A (module, name) that the pickle mentions; known to be in the builders."""


class Built:
    """A value that a pickle may still complete with `BUILD`."""

    def build(self, state: Any) -> None:
        raise ConversionError("the pickle sets the state of a value that has none")


class _Mark:
    pass


_MARK = _Mark()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset(
    (
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
    )
)
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_HANDLED = frozenset(
    (
        "LIST",
        "TUPLE",
        "DICT",
        "APPEND",
        "APPENDS",
        "SETITEM",
        "SETITEMS",
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
        "BUILD",
        "BINPERSID",
    )
)
_NOTHING = frozenset(("PROTO", "FRAME"))


class PickleMachine:
    """One pickle at a time from a file-like object, which is left after the pickle's end."""

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
        except (
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            AttributeError,
            OverflowError,
            RecursionError,
            UnicodeError,
        ) as error:
            raise ConversionError(
                f"{self.source} is damaged, or no pickle of tensors ({type(error).__name__}: "
                f"{str(error)[:200]}); fetch or make it again"
            ) from None
        raise ConversionError(f"{self.source} ends in the middle of a pickle; fetch or make it again")

    def _execute(self, name: str, argument: Any, position: int | None) -> None:
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            self.stack.append(tuple(self._pop_many(_TUPLES[name])))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name == "MARK":
            self.stack.append(_MARK)
        elif name not in _NOTHING:
            if name not in _HANDLED:
                raise ConversionError(
                    f"instruction {name} at byte {position} has no place in a pickle of tensors; it "
                    "was not made by a library that is read here, and nothing in it was run"
                )
            getattr(self, "_" + name.lower())(argument)

    # -- collections

    def _list(self, _: Any) -> None:
        self.stack.append(list(self._pop_to_mark()))

    def _tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._pop_to_mark()))

    def _dict(self, _: Any) -> None:
        items = self._pop_to_mark()
        self.stack.append({})
        self._set(items)

    def _append(self, _: Any) -> None:
        self._extend([self._pop()])

    def _appends(self, _: Any) -> None:
        self._extend(self._pop_to_mark())

    def _setitem(self, _: Any) -> None:
        self._set(self._pop_many(2))

    def _setitems(self, _: Any) -> None:
        self._set(self._pop_to_mark())

    def _extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ConversionError(f"the pickle appends to a {type(self.stack[-1]).__name__}")
        self.stack[-1].extend(items)

    def _set(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict or len(items) % 2:
            raise ConversionError(f"the pickle sets items of a {type(self.stack[-1]).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, int)):  # tuples of tuples of ... take for ever to hash
                raise ConversionError(f"the pickle has a {type(key).__name__} for a key, must be a name or a number")
            self.stack[-1][key] = value

    # -- names and calls

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._mention(module, name)

    def _stack_global(self, _: Any) -> None:
        module, name = self._pop_many(2)
        self._mention(module, name)

    def _mention(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str) or (module, name) not in self.builders:
            raise ConversionError(
                f"refers to {str(module)[:80]}.{str(name)[:80]}, which no checkpoint needs and which "
                "could run code; it was refused, and nothing in the file was run"
            )
        self.stack.append(Symbol((module, name)))

    def _reduce(self, _: Any) -> None:
        function, arguments = self._pop_many(2)
        if not isinstance(function, Symbol) or type(arguments) is not tuple:
            raise ConversionError(f"the pickle calls a {type(function).__name__}; only known builders may be called")
        self.stack.append(self.builders[function[0], function[1]](*arguments))

    def _build(self, _: Any) -> None:
        state = self._pop()
        if isinstance(self.stack[-1], Built):
            self.stack[-1].build(state)
        elif type(self.stack[-1]) is not dict:  # an OrderedDict's own attributes (torch's _metadata) are not data
            raise ConversionError(f"the pickle sets the state of a {type(self.stack[-1]).__name__}")

    def _binpersid(self, _: Any) -> None:
        if self.persistent is None:
            raise ConversionError("the pickle refers to data outside of itself")
        self.stack.append(self.persistent(self._pop()))

    # -- the stack

    def _pop(self) -> Any:
        (value,) = self._pop_many(1)
        return value

    def _pop_many(self, count: int) -> list[Any]:
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
