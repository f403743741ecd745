"""Reads the tensors of Paddle's .pdparams: a pickled dictionary of numpy arrays."""

from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion.pickle_machine import Builders, Built, PickleMachine, ordered_dict
from bert.conversion.raw_tensors import BFLOAT16, ConversionError, RawTensors, check_volume, count_elements, map_file

_NAME_TABLE = "StructuredToParameterName@@"
_SPLIT_TABLE = "UnpackBigParamInfor@@"  # arrays above 1 GB, written in slices by protocols 2 and 3
# Dtypes of plain numbers, by numpy's codes. Never "O": objects would have to be unpickled.
_DTYPES = frozenset(("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"))


def read_pdparams(path: Path) -> RawTensors:
    """All tensors of one file, as written by `paddle.save` of a state dictionary or by `paddle.static.save`.

    Raises:
        ConversionError: not such a file, incomplete, or one that would run code.
    """
    data = map_file(path)
    value = PickleMachine(str(path), _BUILDERS).load(data)
    if not isinstance(value, dict):
        raise ConversionError(f"{path} holds a {type(value).__name__}, must hold a dictionary of tensors")
    split = value.pop(_SPLIT_TABLE, None)
    value.pop(_NAME_TABLE, None)
    tensors: dict[str, np.ndarray] = {}
    others: list[str] = []
    for name, item in value.items():
        if isinstance(item, tuple) and len(item) == 2:  # (Paddle's name, array)
            item = item[1]
        if isinstance(name, str) and isinstance(item, PickledArray) and item.array is not None:
            tensors[name] = item.array
        else:
            others.append(str(name)[:60])
    if split is not None:
        _join(tensors, split, path)
    for name, array in tensors.items():
        if array.dtype == np.uint16:  # Paddle's bfloat16
            tensors[name] = np.ascontiguousarray(array).view(BFLOAT16)
    check_volume(tensors, path, len(data))
    notes = (f"{path.name}: left out, not tensors: {', '.join(others[:5])}",) if others else ()
    return RawTensors(tensors, path, {"format": "pd"}, notes)


def _join(tensors: dict[str, np.ndarray], table: Any, path: Path) -> None:
    """Join arrays that were written in slices."""
    try:
        for name, entry in table.items():
            slices = [tensors.pop(part) for part in entry["slices"]]
            shape = tuple(entry["OriginShape"])
            if count_elements(shape) != sum(part.size for part in slices):
                raise ConversionError(f"{path}: the slices of {name} do not add up to {list(shape)}; fetch it again")
            tensors[name] = np.concatenate(slices).reshape(shape)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ConversionError):
            raise
        raise ConversionError(f"{path}: its table of sliced arrays is damaged ({error}); fetch it again") from None


# ---- what a PickleMachine may build of numpy -------------------------------------------------------------------------


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


_BUILDERS: Builders = {
    ("numpy", "ndarray"): _not_called,
    ("numpy", "dtype"): PickledDtype,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): ordered_dict,
    ("builtins", "tuple"): _tuple,
    ("__builtin__", "tuple"): _tuple,
}
for _core in ("core", "_core"):  # numpy 1 and 2
    _BUILDERS |= {
        (f"numpy.{_core}.multiarray", "_reconstruct"): PickledArray,
        (f"numpy.{_core}.multiarray", "scalar"): _scalar,
        (f"numpy.{_core}.numeric", "_frombuffer"): _from_buffer,
    }
