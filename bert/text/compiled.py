"""Compiled loops, where NumPy would need many passes over the bytes: Numba's decorator, and the hash that tables use.

The machine code is kept beside the source (or in Numba's folder for the user, or nowhere if neither can be written),
so a machine compiles once. Compiled code does not check indices: its callers hand over arrays that agree. The hottest
loops count in uint64: a signed index is tested for being negative each time, which keeps loops from being vectorised.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numba.core.dispatcher import Dispatcher

_SETTINGS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
HASH_START = np.uint64(0xCBF29CE484222325)  # 64-bit FNV-1a
HASH_PRIME = np.uint64(0x100000001B3)
SPARE_BYTES = 16


_files_of: dict[Any, frozenset[str]] = {}  # compiled function -> the files it and what it calls are written in


def compiled(function: Callable) -> Any:
    """The function, to be compiled for the types it is first called with."""
    files = frozenset([function.__code__.co_filename]).union(
        *(_files_of[value] for value in function.__globals__.values() if isinstance(value, Dispatcher)
          and value in _files_of))
    try:
        made = njit(cache=True, **_SETTINGS)(function)
        # Numba notices a change of the function's own file only; what it calls is part of its machine code too.
        made._cache._cache_file._source_stamp = _digest(files)
    except (RuntimeError, AttributeError):  # no folder for the machine code
        made = njit(**_SETTINGS)(function)
    _files_of[made] = files
    return made


def _digest(files: frozenset[str]) -> str:
    return sha256(b"".join(Path(file).read_bytes() for file in sorted(files))).hexdigest()


@compiled
def hash_of(state: np.uint64, data: np.ndarray, start: int, stop: int) -> np.uint64:
    """FNV-1a of data[start:stop], continued from `state`."""
    for place in range(np.uint64(start), np.uint64(stop)):
        state = (state ^ np.uint64(data[place])) * HASH_PRIME
    return state


@compiled
def slot_of(state: np.uint64, mask: int) -> int:
    """Where to look first in a table of mask + 1 slots; FNV's low bits alone depend on too little."""
    return int(np.int64((state ^ (state >> np.uint64(32))) & np.uint64(mask)))


@compiled
def same_bytes(first: np.ndarray, first_start: int, second: np.ndarray, second_start: int, length: int) -> bool:
    """first[first_start:][:length] == second[second_start:][:length]."""
    begin, other = np.uint64(first_start), np.uint64(second_start)
    for place in range(np.uint64(length)):
        if first[begin + place] != second[other + place]:
            return False
    return True


@compiled
def copied(target: np.ndarray, target_start: int, source: np.ndarray, start: int, stop: int) -> int:
    """Copy source[start:stop]; returns where it ends in the target."""
    to, origin = np.uint64(target_start), np.uint64(start)
    for place in range(np.uint64(stop - start)):
        target[to + place] = source[origin + place]
    return target_start + stop - start


@compiled
def copied_wide(target: np.ndarray, target_start: int, source: np.ndarray, start: int, stop: int) -> int:
    """As `copied`, of bytes, but 16 at once, so that what follows in the target is spoilt: copy from left to right,
    and let both arrays be `SPARE_BYTES` longer than what is used of them. Several times faster for short pieces."""
    while start < stop:
        to, origin = np.uint64(target_start), np.uint64(start)
        for place in range(np.uint64(SPARE_BYTES)):
            target[to + place] = source[origin + place]
        size = min(SPARE_BYTES, stop - start)
        target_start, start = target_start + size, start + size
    return target_start
