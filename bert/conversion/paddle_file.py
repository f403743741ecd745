"""Reads the tensors of Paddle's .pdparams: a pickled dictionary of numpy arrays."""

from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion import raw_tensors, untrusted_files
from bert.conversion.pickles import Builders, Built, ordered_dict, read_pickle
from bert.conversion.raw_tensors import BFLOAT16, RawTensors
from bert.conversion.untrusted_files import ConversionError, count_elements, excerpt

_NAME_TABLE = "StructuredToParameterName@@"
_SPLIT_TABLE = "UnpackBigParamInfor@@"  # arrays above 1 GB, written in slices by protocols 2 and 3
# Dtypes of plain numbers, by numpy's codes. Never "O": objects would have to be unpickled.
_DTYPES = frozenset(("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"))


def read_pdparams(path: Path) -> RawTensors:
    """All tensors of a file that `paddle.save` (of a state dictionary) or `paddle.static.save` wrote."""
    data = untrusted_files.map_file(path)
    value = read_pickle(str(path), data, len(data), _BUILDERS)
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
            # Paddle's bfloat16 is uint16
            tensors[name] = item.array.view(BFLOAT16) if item.array.dtype == np.uint16 else item.array
        else:
            others.append(excerpt(name))
    raw_tensors.check_volume(tensors, path, len(data))
    if split is not None:
        _join(tensors, split, path)
    notes = (f"{path.name}: left out, not tensors: {', '.join(others[:5])}",) if others else ()
    return RawTensors(tensors, path, {"format": "pd"}, notes)


def _join(tensors: dict[str, np.ndarray], table: Any, path: Path) -> None:
    """Join arrays that were saved in slices."""
    try:
        for name, entry in table.items():
            slices = [tensors.pop(part) for part in entry["slices"] if isinstance(part, str)]
            shape = tuple(entry["OriginShape"])
            if count_elements(shape) != sum(part.size for part in slices):
                raise ConversionError(f"the slices of {name} do not add up to {list(shape)}")
            tensors[name] = np.concatenate(slices).reshape(shape)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConversionError(f"{path}: its table of sliced arrays is damaged ({error}); fetch it again") from None


# ---- what a pickle may build of numpy --------------------------------------------------------------------------------


class PickledDtype(Built):
    """Stand-in for numpy.dtype("f4", False, True) in a pickle, completed by its byte order."""

    def __init__(self, name: Any, *_: Any):
        if not isinstance(name, str) or name not in _DTYPES:
            raise ConversionError(f"an array of dtype {excerpt(name)}; only plain numbers are read")
        self.dtype = np.dtype(name)

    def build(self, state: Any) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise ConversionError("a dtype of unknown byte order")
        self.dtype = self.dtype.newbyteorder(state[1])


class PickledArray(Built):
    """Stand-in for numpy's _reconstruct(ndarray, (0,), b"b"); completed by (version, shape, dtype, order, bytes)."""

    array: np.ndarray | None = None

    def __init__(self, *_: Any):
        pass

    def build(self, state: Any) -> None:
        _, shape, dtype, is_fortran, data = state
        self.array = _array(data, dtype, shape, "F" if is_fortran is True else "C")


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """An array over `data`; refuses a shape that does not fit the number of bytes."""
    if isinstance(data, str):  # protocol 2, written by Python 2
        data = data.encode("latin-1")
    if not isinstance(data, (bytes, bytearray)) or not isinstance(dtype, PickledDtype):
        raise ConversionError("an array that is not made of bytes and a dtype")
    if count_elements(shape) * dtype.dtype.itemsize != len(data):
        raise ConversionError(
            f"an array of shape {list(shape)} and {dtype.dtype} with {len(data)} bytes; they must agree"
        )
    return np.frombuffer(data, dtype.dtype).reshape(shape, order=order)


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> PickledArray:
    """Stand-in for numpy.core.numeric._frombuffer, which pickle protocol 5 calls."""
    pickled = PickledArray()
    pickled.array = _array(data, dtype, shape, order)
    return pickled


def _encode(text: str, encoding: Any) -> bytes:
    """Stand-in for _codecs.encode, by which pickle protocol 2 writes bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise ConversionError("bytes in an unknown encoding")
    return text.encode("latin-1")


_BUILDERS: Builders = {
    ("numpy", "ndarray"): None,  # an argument of _reconstruct
    ("numpy", "dtype"): PickledDtype,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): ordered_dict,
    ("builtins", "tuple"): tuple,
    ("__builtin__", "tuple"): tuple,
    **{
        (f"numpy.{core}.{module}", name): builder
        for core in ("core", "_core")  # numpy 1 and 2
        for module, name, builder in (
            ("multiarray", "_reconstruct", PickledArray),
            ("multiarray", "scalar", lambda dtype, data: _array(data, dtype, (), "C")[()]),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
}
