"""Rows of different lengths in one flat array: offsets and indices."""

from collections.abc import Sequence

import numpy as np


def ragged_indices(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """int64 [sum(lengths)]: start, start + 1, ... of every row, one row after the other."""
    lengths = np.asarray(lengths, np.int64)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    shifts = np.asarray(starts, np.int64) - (ends - lengths)
    return np.arange(total, dtype=np.int64) + np.repeat(shifts, lengths)


def offsets_of(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
    """int64 [n + 1]: 0 and the running sums of `lengths`."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def positions_in_rows(offsets: np.ndarray) -> np.ndarray:
    """int64 [offsets[-1]]: the position of every element in its row, counted from 0."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
