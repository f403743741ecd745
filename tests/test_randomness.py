"""The random generator compared with splitmix64 in plain integers, and functions of its numbers."""

import hashlib

import numpy as np
import pytest

from bert.randomness import hash64, integers_below, permutation, stream_key, uniform

MASK = 2**64 - 1


def splitmix64(state: int) -> int:
    """Return one output of Steele et al. (2014), of a state that was already advanced."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def number_at(key: int, position: int) -> int:
    return splitmix64((key + (position + 1) * 0x9E3779B97F4A7C15) & MASK)


def test_the_stream_of_key_0_is_the_published_one():
    """The expected values are the first outputs of splitmix64 for the seed 0."""
    assert [hex(number) for number in hash64(np.uint64(0), np.arange(3)).tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_a_number_is_a_function_of_key_and_position():
    key, positions = np.uint64(2**64 - 3), np.array([[0, 1, 7], [2**40, 5, 123_456_789]])
    numbers = hash64(key, positions)
    assert numbers.dtype == np.uint64 and numbers.shape == (2, 3)
    assert numbers.tolist() == [[number_at(int(key), place) for place in row] for row in positions.tolist()]
    unsigned = np.arange(3, dtype=np.uint64)
    hash64(key, unsigned)
    assert unsigned.tolist() == [0, 1, 2], "the positions of the caller are left alone"
    keys = np.array([[3], [4]], np.uint64)
    assert hash64(keys, np.arange(2)).tolist() == [[number_at(key, place) for place in range(2)] for key in (3, 4)]


def test_the_key_of_a_stream_is_the_beginning_of_a_sha256():
    expected = int.from_bytes(hashlib.sha256(b"42\x1fbins\x1f0").digest()[:8], "little")
    assert stream_key(42, "bins", 0) == expected and stream_key(42, "bins", 0).dtype == np.uint64
    assert len({int(stream_key(*parts)) for parts in [(1, 23), (12, 3), (123,), ("1", "2", "3")]}) == 4


def test_uniform_numbers_are_the_upper_53_bits():
    numbers = uniform(np.uint64(9), np.arange(1000))
    assert numbers.tolist() == [(number_at(9, place) >> 11) / 2**53 for place in range(1000)]
    assert 0 <= numbers.min() and numbers.max() < 1 and abs(numbers.mean() - 0.5) < 0.05


@pytest.mark.parametrize("bound", [1, 2, 7, 2**40])
def test_integers_below_a_bound_are_shares_of_it(bound):
    places = np.arange(200)
    numbers = integers_below(np.uint64(5), places, bound)
    assert numbers.dtype == np.int64
    assert numbers.tolist() == [int((number_at(5, place) >> 11) / 2**53 * bound) for place in range(200)]
    if bound < 10:
        assert set(numbers.tolist()) == set(range(bound))
    assert integers_below(np.uint64(5), places[:2], np.array([1, bound])).tolist() == [0, numbers[1]]


def test_a_permutation_is_the_order_of_the_numbers():
    order = permutation(np.uint64(11), 50)
    assert order.dtype == np.int64
    assert order.tolist() == sorted(range(50), key=lambda place: number_at(11, place))
    assert permutation(np.uint64(11), 0).tolist() == [] and permutation(np.uint64(11), 1).tolist() == [0]
    assert permutation(np.uint64(12), 50).tolist() != order.tolist()
