"""Numba decorators, and compiled loops: hashes, copies, and the random numbers of `bert.randomness`.

The machine code is cached beside the source (or in Numba's folder for the user, or nowhere if neither is writable), so
a machine compiles once. Compiled code does not check indices: callers must pass arrays that fit together. The hottest
loops count in uint64: Numba tests a signed index for being negative, which prevents vectorisation. Numba gives a
literal argument its own type and would compile the inner function again for it: hence np.int64(0).

Numba itself is loaded by the first call of a loop, or by `load_numba`: it takes half a second of CPU time, which a
`--help` or a launcher does not need.
"""

import sys
import threading
from collections.abc import Callable
from functools import lru_cache, update_wrapper
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

# These loops need neither C wrappers nor rewrites; without them compilation takes two thirds of the time.
_SETTINGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "no_rewrites": True}
_INNER_SETTINGS: dict[str, Any] = {**_SETTINGS, "no_cpython_wrapper": True}
HASH_START = np.uint64(0xCBF29CE484222325)  # 64-bit FNV-1a
HASH_PRIME = np.uint64(0x100000001B3)
SPARE_BYTES = 64  # copied at once; 16 and 32 were slower

_lock = threading.RLock()  # loops may be called first by several threads


def load_numba() -> None:
    """Load Numba now, before a process is forked or threads import other packages.

    SciPy's linear algebra is left out, which no loop uses: it costs 0.12 s and its threads busy-wait.
    """
    with _lock:
        name = "scipy.linalg"
        is_left_out = "numba.np.arraymath" not in sys.modules and name not in sys.modules
        if is_left_out:
            sys.modules[name] = None  # type: ignore[assignment]
        try:
            import numba.np.arraymath  # noqa: F401
        finally:
            if is_left_out:
                del sys.modules[name]


class Deferred:
    """A function definition that Numba compiles at its first use."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._made: Any = None

    def made(self) -> Any:
        with _lock:
            if self._make is not None:
                load_numba()
                self._made, self._make = self._make(), None
            return self._made


class Loop(Deferred):
    """A compiled function; calling it runs the machine code with the arguments of the source.

    Attributes:
        files: the source files of it and of the loops that it may call.
    """

    def __init__(self, function: Callable, make: Callable[["Loop"], Any]) -> None:
        super().__init__(lambda: make(self))
        self._call: Callable = self._first_call
        self.function = function
        loops = [value for value in function.__globals__.values() if isinstance(value, Loop)]
        self.files: frozenset[str] = frozenset([function.__code__.co_filename]).union(*(loop.files for loop in loops))
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def _first_call(self, *arguments: Any) -> Any:
        self._call = self.made()
        return self._call(*arguments)

    def source(self) -> FunctionType:
        """The Python function that Numba compiles, in which the loops that it calls are compiled functions too."""
        function = self.function
        values = {name: function.__globals__[name] for name in _names(function.__code__) & function.__globals__.keys()}
        values = {name: value.made() if isinstance(value, Deferred) else value for name, value in values.items()}
        own = {"__name__": function.__module__, "__builtins__": function.__globals__["__builtins__"]}
        source = FunctionType(function.__code__, own | values, function.__name__, function.__defaults__)
        source.__qualname__ = function.__qualname__
        return source


def _names(code: CodeType) -> set[str]:
    """Names of the globals that a function uses, including the functions defined in it."""
    inner_codes = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names, inner_codes))


def compiled(function: Callable) -> Any:
    """Decorator that compiles a function for the argument types of each call."""
    return Loop(function, _with_cache)


def _with_cache(loop: Loop) -> Any:
    from numba import njit
    from numba.core.caching import IndexDataCacheFile

    source = loop.source()
    try:
        made = njit(cache=True, **_SETTINGS)(source)
        cache, name = made._cache, made._cache._impl.filename_base
        # Numba watches only the function's own file, but the machine code also contains the functions it calls.
        digest = sha256("".join(map(_digest_of, sorted(loop.files))).encode()).hexdigest()
        cache._cache_file = IndexDataCacheFile(cache._cache_path, name, digest)
    except (RuntimeError, AttributeError, OSError):  # no folder for the machine code, or no source
        made = njit(**_SETTINGS)(source)
    return made


def inner(function: Callable) -> Any:
    """Like `compiled`, for a function that only compiled functions call; it becomes part of their machine code."""
    return Loop(function, _without_wrapper)


def _without_wrapper(loop: Loop) -> Any:
    from numba import njit

    return njit(**_INNER_SETTINGS)(loop.source())


@lru_cache(maxsize=None)
def _digest_of(file: str) -> str:
    return sha256(Path(file).read_bytes()).hexdigest()


@inner
def hash_of(state: np.uint64, data: np.ndarray, start: int, stop: int) -> np.uint64:
    """FNV-1a of data[start:stop], continued from `state`."""
    for place in range(np.uint64(start), np.uint64(stop)):
        state = (state ^ np.uint64(data[place])) * HASH_PRIME
    return state


@inner
def slot_of(state: np.uint64, mask: int) -> int:
    """The first slot to probe in a hash table of mask + 1 slots; the low bits of FNV alone are too weak."""
    return int(np.int64((state ^ (state >> np.uint64(32))) & np.uint64(mask)))


@inner
def same_bytes(first: np.ndarray, first_start: int, second: np.ndarray, second_start: int, length: int) -> bool:
    """Whether first[first_start:][:length] equals second[second_start:][:length]."""
    begin, other = np.uint64(first_start), np.uint64(second_start)
    for place in range(np.uint64(length)):
        if first[begin + place] != second[other + place]:
            return False
    return True


@inner
def copied(target: np.ndarray, target_start: int, source: np.ndarray, start: int, stop: int) -> int:
    """Copy source[start:stop] into the target; returns the position after the copy."""
    to, origin = np.uint64(target_start), np.uint64(start)
    for place in range(np.uint64(stop - start)):
        target[to + place] = source[origin + place]
    return target_start + stop - start


def _make_move() -> Any:
    """Numba intrinsic: target[target_start:][:SPARE_BYTES] = source[start:][:SPARE_BYTES] in the widest registers.

    LLVM would compile the same statement in Python to a loop over single bytes, as the arrays might overlap.
    """
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def move(typing_context: Any, target: Any, target_start: Any, source: Any, start: Any) -> tuple[Any, Callable]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            def pointer(kind: Any, array: Any, place: Any) -> Any:
                data = context.make_array(kind)(context, builder, array).data
                wide = ir.VectorType(ir.IntType(8), SPARE_BYTES)
                return builder.bitcast(builder.gep(data, [place]), wide.as_pointer())

            read = builder.load(pointer(signature.args[2], *arguments[2:]), align=1)
            builder.store(read, pointer(signature.args[0], *arguments[:2]), align=1)
            return context.get_dummy_value()

        return types.void(target, types.int64, source, types.int64), generate

    return move


_move: Any = Deferred(_make_move)


@inner
def copied_wide(target: np.ndarray, target_start: int, source: np.ndarray, start: int, stop: int) -> int:
    """Like `copied`, for bytes, `SPARE_BYTES` at a time; several times faster for short pieces.

    It overwrites up to `SPARE_BYTES` bytes after the copy. So copy from left to right, and make both arrays longer
    than their content by that number.
    """
    while start < stop:
        _move(target, target_start, source, start)
        size = min(SPARE_BYTES, stop - start)
        target_start, start = target_start + size, start + size
    return target_start


_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)

BLOCK = 1024  # elements drawn together: four to a hash, whose bits stay in the fastest cache
_HASHES, _DRAWS = np.uint64(BLOCK // 4), np.uint64(BLOCK)


@inner
def hash_at(key: np.uint64, position: np.uint64) -> np.uint64:
    """`bert.randomness.hash64` of one position."""
    state = (position + np.uint64(1)) * _INCREMENT + key
    state = (state ^ (state >> _SHIFT_1)) * _MULTIPLIER_1
    state = (state ^ (state >> _SHIFT_2)) * _MULTIPLIER_2
    return state ^ (state >> _SHIFT_3)


@inner
def uniform_at(key: np.uint64, position: np.uint64) -> float:
    """`bert.randomness.uniform` of one position."""
    return float(hash_at(key, position) >> np.uint64(11)) * 2.0**-53


@inner
def below_at(key: np.uint64, position: np.uint64, bound: int) -> int:
    """`bert.randomness.integers_below` of one position."""
    return min(int(uniform_at(key, position) * bound), bound - 1)


@compiled
def draw_at_least(key: np.uint64, threshold: np.uint16, drawn: np.ndarray) -> None:
    """Fill `drawn` with 1 where 16 random bits are at least `threshold`, else 0 (under 0.1 ns an element with AVX-512).

    Element i has bits 16 * (i % 4) and above of hash64(key, i // 4).

    Args:
        drawn: uint8 [n], n a multiple of BLOCK.
    """
    hashes = np.empty(BLOCK // 4, np.uint64)
    bits = hashes.view(np.uint16)
    for block in range(np.uint64(len(drawn)) // _DRAWS):
        for place in range(_HASHES):
            hashes[place] = hash_at(key, block * _HASHES + place)
        begin = block * _DRAWS
        for place in range(_DRAWS):
            drawn[begin + place] = bits[place] >= threshold
