"""Compiled loops, where NumPy would need many passes over the bytes: Numba's decorator, and the hash that tables use.

The machine code is kept beside the source (or in Numba's folder for the user, or nowhere if neither can be written),
so a machine compiles once. Compiled code does not check indices: its callers hand over arrays that agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

_SETTINGS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
HASH_START = np.uint64(0xCBF29CE484222325)  # 64-bit FNV-1a
HASH_PRIME = np.uint64(0x100000001B3)


def compiled(function: Callable) -> Any:
    """The function, to be compiled for the types it is first called with."""
    try:
        return njit(cache=True, **_SETTINGS)(function)
    except RuntimeError:  # no folder for the machine code
        return njit(**_SETTINGS)(function)


@compiled
def hash_of(state: np.uint64, data: np.ndarray, start: int, stop: int) -> np.uint64:
    """FNV-1a of data[start:stop], continued from `state`."""
    for place in range(start, stop):
        state = (state ^ np.uint64(data[place])) * HASH_PRIME
    return state


@compiled
def slot_of(state: np.uint64, mask: int) -> int:
    """Where to look first in a table of mask + 1 slots; FNV's low bits alone depend on too little."""
    return int(np.int64((state ^ (state >> np.uint64(32))) & np.uint64(mask)))


@compiled
def same_bytes(first: np.ndarray, first_start: int, second: np.ndarray, second_start: int, length: int) -> bool:
    """first[first_start:][:length] == second[second_start:][:length]."""
    for place in range(length):
        if first[first_start + place] != second[second_start + place]:
            return False
    return True


@compiled
def copied(target: np.ndarray, target_start: int, source: np.ndarray, start: int, stop: int) -> int:
    """Copy source[start:stop]; returns where it ends in the target."""
    for place in range(stop - start):
        target[target_start + place] = source[start + place]
    return target_start + stop - start
