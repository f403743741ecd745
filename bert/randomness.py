"""Random numbers as a function of (seed, purpose, position); there is no generator with a state.

The generator is a counter hashed with the splitmix64 finaliser (Steele et al., 2014), so any number can be
computed without the earlier ones, and no release of NumPy changes the stream.
"""

import hashlib

import numpy as np

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)


def stream_key(*parts: int | str) -> np.uint64:
    """A 64-bit key that names one stream, e.g. stream_key(seed, "dynamic masks", epoch)."""
    text = "\x1f".join(str(part) for part in parts)
    return np.uint64(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))


def hash64(key: np.uint64 | np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Uniform 64-bit numbers, independent for each position.

    Args:
        key: a stream key, or a uint64 array of keys that broadcasts against `positions`.
        positions: integers of any shape.
    Returns:
        uint64 array of the broadcast shape.
    """
    state = np.asarray(positions).astype(np.uint64)
    state += np.uint64(1)  # in place: arrays wrap around without the warning of NumPy's scalars
    state *= _INCREMENT
    state = np.add(state, key, out=state if np.ndim(key) == 0 else None)
    state ^= state >> _SHIFT_1
    state *= _MULTIPLIER_1
    state ^= state >> _SHIFT_2
    state *= _MULTIPLIER_2
    state ^= state >> _SHIFT_3
    return state


def uniform(key: np.uint64 | np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Uniform float64 numbers in [0, 1), one for each position."""
    return (hash64(key, positions) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers_below(key: np.uint64, positions: np.ndarray, bounds: np.ndarray | int) -> np.ndarray:
    """Uniform int64 numbers in [0, bound), one for each position; `bounds` (>= 1) broadcasts."""
    return np.minimum((uniform(key, positions) * bounds).astype(np.int64), np.asarray(bounds, np.int64) - 1)


def permutation(key: np.uint64, length: int) -> np.ndarray:
    """A random permutation of range(length), int64 [length]."""
    return np.argsort(hash64(key, np.arange(length, dtype=np.uint64)), kind="stable").astype(np.int64, copy=False)
