"""Rows of different lengths in one flat array: offsets and indices."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def ragged_indices(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Indices start, start + 1, ... of every row, one row after the other: int64 [sum(lengths)]."""
    lengths = np.asarray(lengths, np.int64)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    shifts = np.asarray(starts, np.int64) - (ends - lengths)
    return np.arange(total, dtype=np.int64) + np.repeat(shifts, lengths)


def offsets_of(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
    """Offsets of rows with these lengths: int64 [n + 1], 0 followed by the running sums."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def positions_in_rows(offsets: np.ndarray) -> np.ndarray:
    """Position of every element in its row, counted from 0: int64 [offsets[-1]]."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


def numpy_array(values: "pa.Array", column: str) -> np.ndarray:
    """The Arrow values as a NumPy array [n]; ValueError if values are missing or of another type."""
    from pyarrow import types  # here: nearly all who import this have arrays already

    if values.null_count:
        raise ValueError(
            f"column {column!r}: {values.null_count} of {len(values)} values are missing, which is not allowed; "
            "the shard is damaged: make it again"
        )
    if not (types.is_integer(values.type) or types.is_boolean(values.type)):
        raise ValueError(
            f"column {column!r} holds values of type {values.type}, not integers; the shard is damaged or "
            "written by another program: make it again"
        )
    start, stop = values.offset, values.offset + len(values)
    data = values.buffers()[1] or b""
    if types.is_boolean(values.type):
        return np.unpackbits(np.frombuffer(data, np.uint8), count=stop, bitorder="little")[start:].view(bool)
    return np.frombuffer(data, np.dtype(str(values.type)))[start:stop]
