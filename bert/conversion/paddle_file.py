"""Reads the tensors of Paddle's .pdparams: a pickled dictionary of numpy arrays."""

from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion.numpy_pickles import BUILDERS, PickledArray
from bert.conversion.pickle_machine import PickleMachine
from bert.conversion.raw_tensors import BFLOAT16, ConversionError, RawTensors, check_volume, count_elements, map_file

_NAME_TABLE = "StructuredToParameterName@@"
_SPLIT_TABLE = "UnpackBigParamInfor@@"  # arrays above 1 GB, written in slices by protocols 2 and 3


def read_pdparams(path: Path) -> RawTensors:
    """All tensors of one file, as written by `paddle.save` of a state dictionary or by `paddle.static.save`.

    Raises:
        ConversionError: not such a file, incomplete, or one that would run code.
    """
    data = map_file(path)
    value = PickleMachine(str(path), BUILDERS).load(data)
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
    return RawTensors(tensors, path, "paddle", {"format": "pd"}, notes)


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
