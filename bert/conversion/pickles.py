"""Reads the data in a pickle without executing it.

A pickle is a program that may import and call anything. This unpickler executes only the instructions that build plain
data, and calls only the builders that it is given by name: it imports no module and looks up no attribute. The file's
size bounds time and memory. Keys must be names or numbers, because a tuple of shared tuples takes for ever to hash, and
builders get no more items than the file has bytes, however often it refers to one of them. The base is the standard
library's unpickler in Python: that in C allocates a table as large as the file says.
"""

import pickle
import pickletools
from collections.abc import Callable, Mapping
from typing import Any

from bert.conversion.untrusted_files import ConversionError

# (module, name) -> the function to call for this global, or a value that only `persistent` reads.
Builders = Mapping[tuple[str, str], Any]


class Built:
    """A value that a pickle completes with the opcode `BUILD`."""

    def build(self, state: Any) -> None:
        raise NotImplementedError


class _Dictionary(dict):
    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, (str, int)):
            raise ConversionError(f"the pickle has a {type(key).__name__} for a key; it must be a name or a number")
        super().__setitem__(key, value)


def ordered_dict(pairs: Any = ()) -> dict:
    """Stand-in for collections.OrderedDict; its items come as a list of pairs, or later from SETITEMS."""
    dictionary = _Dictionary()
    for key, value in pairs:
        dictionary[key] = value
    return dictionary


def read_pickle(
    source: str, file: Any, num_bytes: int, builders: Builders, persistent: Callable[[Any], Any] | None = None
) -> Any:
    """Read the next pickle of an open file of `num_bytes`; `persistent` maps persistent ids to values."""
    try:
        return _Unpickler(file, num_bytes, builders, persistent).load()
    except ConversionError as error:
        raise ConversionError(f"{source}: {error}") from None
    except EOFError:
        raise ConversionError(f"{source} ends in the middle of a pickle; fetch or make it again") from None
    except Exception as error:  # a damaged pickle is a damaged program
        raise ConversionError(
            f"{source} is damaged, or not a pickle of tensors ({type(error).__name__}: "
            f"{str(error)[:200]}); fetch or make it again"
        ) from None


_Base: Any = pickle._Unpickler  # typeshed knows it as that in C


class _Unpickler(_Base):
    def __init__(self, file: Any, num_bytes: int, builders: Builders, persistent: Callable[[Any], Any] | None) -> None:
        super().__init__(file, encoding="latin-1")  # of strings that Python 2 has written
        # Protocol 2 of Python 3 encodes bytes as text: each counts twice, as an argument and as a state.
        self._items_left, self._builders, self._persistent = 3 * num_bytes, builders, persistent

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._builders:
            raise ConversionError(
                f"refers to {module[:80]}.{name[:80]}, which no checkpoint needs and which could run code; it was "
                "refused, and nothing in the file was run. Of a model of your own save the tensors alone, state_dict()"
            )
        return self._builders[module, name]

    def persistent_load(self, identity: Any) -> Any:
        if self._persistent is None:
            raise ConversionError("the pickle refers to data outside of itself")
        return self._persistent(identity)

    def load_empty_dictionary(self) -> None:
        self.append(_Dictionary())

    def load_bytearray8(self) -> None:
        self.append(self.read(int.from_bytes(self.read(8), "little")))  # allocates no more than there is

    def load_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        self._count_items(arguments)
        self.append(function(*arguments))

    def load_build(self) -> None:
        state, value = self.stack.pop(), self.stack[-1]
        if isinstance(value, Built):
            self._count_items(state)
            value.build(state)
        elif type(value) is not _Dictionary:  # an OrderedDict's own attributes (torch's _metadata) are not data
            raise ConversionError(f"the pickle sets the state of a {type(value).__name__}")

    def _count_items(self, arguments: Any) -> None:
        if type(arguments) is not tuple or len(arguments) > _MOST_ARGUMENTS:
            raise ConversionError(f"the pickle calls a builder with a {type(arguments).__name__}, or too many values")
        self._items_left -= sum(len(argument) for argument in arguments if hasattr(argument, "__len__"))
        if self._items_left < 0:
            raise ConversionError("the pickle builds more than it holds, which no checkpoint needs")


_MOST_ARGUMENTS = 16
_ALLOWED = (
    "PROTO FRAME STOP MARK MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET NONE NEWTRUE NEWFALSE "
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES "
    "SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_TUPLE TUPLE TUPLE1 "
    "TUPLE2 TUPLE3 EMPTY_LIST LIST EMPTY_DICT APPEND APPENDS SETITEM SETITEMS GLOBAL STACK_GLOBAL REDUCE BUILD "
    "BINPERSID"
).split()


def _executing(opcode: Any) -> Callable[[Any], None]:
    def refuse(_: Any) -> None:
        raise ConversionError(
            f"instruction {opcode.name} has no place in a pickle of tensors; it was not made by a library that is read "
            "here, and nothing in it was run"
        )

    method = _Base.dispatch[ord(opcode.code)].__name__
    return getattr(_Unpickler, method) if opcode.name in _ALLOWED else refuse


_Unpickler.dispatch = {ord(opcode.code): _executing(opcode) for opcode in pickletools.opcodes}
