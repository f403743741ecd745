"""Rows of different lengths, unit vectors and compiled helpers against plain Python."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.arrays.compiled import (
    HASH_PRIME,
    HASH_START,
    below_at,
    compiled,
    copied,
    hash_at,
    hash_of,
    same_bytes,
    slot_of,
    uniform_at,
)
from bert.arrays.ragged import numpy_array, offsets_of, positions_in_rows, ragged_indices
from bert.arrays.vectors import unit
from bert.randomness import hash64, integers_below, stream_key, uniform

_ROWS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(_ROWS)
def test_indices_of_rows(rows):
    starts, lengths = [start for start, _ in rows], [length for _, length in rows]
    places = [place for start, length in rows for place in range(start, start + length)]
    assert ragged_indices(np.array(starts, np.int32), np.array(lengths, np.int32)).tolist() == places
    offsets = [sum(lengths[:number]) for number in range(len(rows) + 1)]
    assert offsets_of(lengths).tolist() == offsets and offsets_of(np.array(lengths)).dtype == np.int64
    assert positions_in_rows(np.array(offsets)).tolist() == [place for n in lengths for place in range(n)]


@pytest.mark.parametrize("size", [None, 2])
def test_unit_vectors_have_the_direction_and_the_length_1(size):
    vectors = np.array([[3.0, 4.0, 12.0], [0.0, 0.0, 0.0], [1e-3, 0.0, 0.0]], np.float32)
    expected = {None: [[3 / 13, 4 / 13, 12 / 13], [0, 0, 0], [1, 0, 0]], 2: [[0.6, 0.8], [0, 0], [1, 0]]}[size]
    assert unit(vectors, size) == pytest.approx(np.array(expected), abs=1e-6)
    assert unit(vectors[None], size).shape == (1, 3, size or 3)


def test_an_array_of_a_type_that_is_no_integer_or_with_gaps_is_refused():
    for values, text in (
        (pa.array(["1"]), "column 'A' holds values of type string, not integers"),
        (pa.array([1, None]), "column 'A': 1 of 2 values are missing"),
        (pa.array([None, True]), "column 'A': 1 of 2 values are missing"),
    ):
        with pytest.raises(ValueError, match=text):
            numpy_array(values, "A")


@compiled
def drawn_at(key, positions, bounds, hashes, uniforms, integers):
    for place in range(len(positions)):
        position = np.uint64(positions[place])
        hashes[place], uniforms[place] = hash_at(key, position), uniform_at(key, position)
        integers[place] = below_at(key, position, bounds[place])


def splitmix64(key: int, position: int) -> int:
    """Return the counter's value under the finaliser of Steele et al. (2014)."""
    state = ((position + 1) * 0x9E3779B97F4A7C15 + key) % 2**64
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
    return state ^ state >> 31


def test_random_numbers_are_the_published_hashes_in_compiled_loops_and_in_arrays():
    key, positions = stream_key(3, "test"), np.array([0, 1, 7, 2**32, 2**62])
    bounds = np.array([1, 2, 10, 1000, 2**40])
    hashes, uniforms, integers = np.zeros(5, np.uint64), np.zeros(5), np.zeros(5, np.int64)
    drawn_at(key, positions, bounds, hashes, uniforms, integers)
    expected = [splitmix64(int(key), place) for place in positions.tolist()]
    assert hashes.tolist() == hash64(key, positions).tolist() == expected
    assert uniforms.tolist() == uniform(key, positions).tolist() == [(value >> 11) / 2**53 for value in expected]
    below = [int((value >> 11) / 2**53 * bound) for value, bound in zip(expected, bounds.tolist(), strict=True)]
    assert integers.tolist() == integers_below(key, positions, bounds).tolist() == below


@compiled
def facts_of(data, other, start, stop, target):
    state = hash_of(HASH_START, data, start, stop)
    return (
        state,
        slot_of(state, 1023),
        same_bytes(data, start, other, 1, stop - start),
        copied(target, 2, data, start, stop),
    )


def fnv1a(data: bytes) -> int:
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def test_hashes_comparisons_and_copies_of_bytes():
    assert (int(HASH_START), int(HASH_PRIME)) == (0xCBF29CE484222325, 0x100000001B3)
    data = np.frombuffer(b"the river runs", np.uint8)
    for other, is_same in (b"xriver", True), (b"xrivet", False), (b"xdiver", False):
        target = np.zeros(9, np.uint8)
        state, slot, same, end = facts_of(data, np.frombuffer(other, np.uint8), 4, 9, target)
        expected = fnv1a(b"river")
        assert (state, slot, same, end) == (expected, (expected ^ expected >> 32) % 1024, is_same, 7)
        assert target.tobytes() == b"\0\0river\0\0"
