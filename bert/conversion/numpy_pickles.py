"""Reads numpy arrays in pickles: the builders that a PickleMachine may call for Paddle's .pdparams."""

from typing import Any

import numpy as np

from bert.conversion.pickle_machine import Builders, Built
from bert.conversion.raw_tensors import ConversionError, count_elements

# Dtypes of plain numbers, by numpy's codes. Never "O": objects would have to be unpickled.
_DTYPES = frozenset(("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"))


class PickledDtype(Built):
    """numpy.dtype("f4", False, True), completed by its byte order."""

    def __init__(self, name: Any, *_: Any):
        if name not in _DTYPES:
            raise ConversionError(f"an array of dtype {str(name)[:40]!r}; only plain numbers are read")
        self.dtype = np.dtype(name)

    def build(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "|", "="):
            raise ConversionError("a dtype of unknown byte order")
        self.dtype = self.dtype.newbyteorder(order)


class PickledArray(Built):
    """numpy's _reconstruct(ndarray, (0,), b"b"), completed by (version, shape, dtype, is_fortran, bytes)."""

    array: np.ndarray | None = None

    def __init__(self, *_: Any):
        pass

    def build(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise ConversionError("an array whose state is not that of numpy")
        _, shape, dtype, is_fortran, data = state
        self.array = _array(data, dtype, shape, "F" if is_fortran is True else "C")


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """The array over `data`, which must hold exactly as many bytes as the shape says."""
    if isinstance(data, str):  # protocol 2, written by Python 2
        data = data.encode("latin-1")
    if not isinstance(data, (bytes, bytearray)) or not isinstance(dtype, PickledDtype) or order not in ("C", "F"):
        raise ConversionError("an array that is not made of bytes and a dtype")
    count = count_elements(shape)
    if count * dtype.dtype.itemsize != len(data):
        raise ConversionError(
            f"an array of shape {list(shape)} and {dtype.dtype} with {len(data)} bytes; they must agree"
        )
    return np.frombuffer(data, dtype.dtype).reshape(shape, order=order)


def _scalar(dtype: Any, data: Any) -> Any:
    return _array(data, dtype, (), "C")[()]


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> PickledArray:
    """numpy.core.numeric._frombuffer, of protocol 5."""
    pickled = PickledArray()
    pickled.array = _array(data, dtype, shape, order)
    return pickled


def _encode(text: Any, encoding: Any) -> bytes:
    """_codecs.encode: how protocol 2 writes bytes."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ConversionError("bytes in an unknown encoding")
    return text.encode("latin-1")


def _not_called(*_: Any) -> Any:
    raise ConversionError("the pickle makes an array in a way that numpy does not")


def _tuple(items: Any = ()) -> tuple:
    return tuple(items) if isinstance(items, (tuple, list)) else _not_called()


def ordered_dict(pairs: Any = ()) -> dict:
    """collections.OrderedDict; its items come as a list of pairs, or later from SETITEMS."""
    if not isinstance(pairs, (list, tuple)) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], (str, int)) for pair in pairs
    ):
        raise ConversionError("an OrderedDict that is not made of names and values")
    return dict(pairs)


BUILDERS: Builders = {
    ("numpy", "ndarray"): _not_called,
    ("numpy", "dtype"): PickledDtype,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): ordered_dict,
    ("builtins", "tuple"): _tuple,
    ("__builtin__", "tuple"): _tuple,
}
for _core in ("core", "_core"):  # numpy 1 and 2
    BUILDERS |= {
        (f"numpy.{_core}.multiarray", "_reconstruct"): PickledArray,
        (f"numpy.{_core}.multiarray", "scalar"): _scalar,
        (f"numpy.{_core}.numeric", "_frombuffer"): _from_buffer,
    }
