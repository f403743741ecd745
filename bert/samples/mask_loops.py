"""The compiled loops of `bert.samples.masking`: the numbers are those of `bert.randomness.hash64`."""

from __future__ import annotations

import numpy as np

from bert.text.compiled import compiled

MAX_WIDTH = (1 << 12) - 1
_COLUMN_MASK = np.uint64(MAX_WIDTH)
_BARRED = np.uint32(0xFFFFFFFF)
_BUCKET_SHIFT = np.uint32(25)
_NUM_BUCKETS = 128
_ONE = np.uint64(1)
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)


@compiled
def hash_at(key: np.uint64, position: np.uint64) -> np.uint64:
    """`bert.randomness.hash64` of one position."""
    state = (position + _ONE) * _INCREMENT + key
    state = (state ^ (state >> _SHIFT_1)) * _MULTIPLIER_1
    state = (state ^ (state >> _SHIFT_2)) * _MULTIPLIER_2
    return state ^ (state >> _SHIFT_3)


@compiled
def uniform_at(key: np.uint64, position: int) -> float:
    """`bert.randomness.uniform` of one position."""
    return float(hash_at(key, np.uint64(position)) >> np.uint64(11)) * 2.0**-53


@compiled
def below_at(key: np.uint64, position: int, bound: int) -> int:
    """`bert.randomness.integers_below` of one position."""
    return min(int(uniform_at(key, position) * bound), bound - 1)


@compiled
def choose_in_rows(keys: np.ndarray, barred: np.ndarray, counts: np.ndarray, rows: np.ndarray,
                   columns: np.ndarray) -> int:
    """The counts[r] places of each row with the smallest random numbers, from left to right; returns how many.

    Args:
        keys: uint64 [b]; barred: bool [b, s], places not to choose; counts: int64 [b].
        rows, columns: int64 [at least the sum of counts], filled.
    """
    numbers, members = np.empty(barred.shape[1], np.uint32), np.empty(barred.shape[1], np.uint32)
    buckets = np.zeros(_NUM_BUCKETS, np.int64)
    end = 0
    for row in range(len(keys)):
        begin = end
        end += _choose(keys[row], barred[row], counts[row], numbers, members, buckets, columns[end:])
        rows[begin:end] = row
    return end


@compiled
def choose_in_pairs(keys: np.ndarray, first_lengths: np.ndarray, lengths: np.ndarray, counts: np.ndarray,
                    positions: np.ndarray, offsets: np.ndarray) -> None:
    """As `choose_in_rows`, for pairs [CLS] A [SEP] B [SEP] whose A ends before place first_lengths - 1.

    Args:
        positions: int64 [at least the sum of counts], filled; offsets: int64 [b + 1], filled: where each row's start.
    """
    width = 0
    for length in lengths:
        width = max(width, length)
    numbers, members = np.empty(width, np.uint32), np.empty(width, np.uint32)
    buckets = np.zeros(_NUM_BUCKETS, np.int64)
    barred = np.zeros(width, np.bool_)
    barred[0] = True
    offsets[0] = 0
    for row in range(len(keys)):
        length, middle = lengths[row], first_lengths[row] - 1
        barred[middle] = barred[length - 1] = True
        begin = offsets[row]
        offsets[row + 1] = begin + _choose(keys[row], barred[:length], counts[row], numbers, members, buckets,
                                           positions[begin:])
        barred[middle] = barred[length - 1] = False


@compiled
def _choose(key: np.uint64, barred: np.ndarray, count: int, numbers: np.ndarray, members: np.ndarray,
            buckets: np.ndarray, columns: np.ndarray) -> int:
    """One row. The numbers are counted by their first bits; so only those of one bucket have to be compared."""
    width, allowed = len(barred), 0
    for column in range(width):
        number = (hash_at(key, np.uint64(column)) >> np.uint64(32)) & ~_COLUMN_MASK
        numbers[column] = np.uint32(number | np.uint64(column))
    for column in range(width):
        if barred[column]:
            numbers[column] = _BARRED
        else:
            buckets[numbers[column] >> _BUCKET_SHIFT] += 1
            allowed += 1
    count = min(count, allowed)
    limit, below = 0, 0
    while limit < _NUM_BUCKETS - 1 and below + buckets[limit] < count:
        below += buckets[limit]
        limit += 1
    largest = _smallest_of_bucket(numbers, width, np.uint32(limit), count - below, members)
    buckets[:] = 0
    found = 0
    for column in range(width):
        if numbers[column] <= largest and found < count:
            columns[found] = column
            found += 1
    return found


@compiled
def _smallest_of_bucket(numbers: np.ndarray, width: int, bucket: np.uint32, rank: int,
                        members: np.ndarray) -> np.uint32:
    """The rank-th smallest number of a bucket, counted from 1; `members` is room for them."""
    size = 0
    for column in range(width):
        if numbers[column] >> _BUCKET_SHIFT == bucket:
            members[size] = numbers[column]
            size += 1
    best = np.uint32(0)
    for _ in range(rank):
        place = 0
        for other in range(1, size):
            if members[other] < members[place]:
                place = other
        best = members[place]
        members[place] = _BARRED
    return best


@compiled
def corrupt_all(keys: np.ndarray, columns: np.ndarray, labels: np.ndarray, mask_id: int, replacements: np.ndarray,
                masked_share: float, replaced_share: float, shown: np.ndarray) -> None:
    """Fill `shown`: mask_id, a random replacement or the label.

    Args:
        keys: uint64 [n], of each mask's sample; columns, labels, shown: int64 [n].
    """
    for place in range(len(columns)):
        column = np.uint64(columns[place])
        action = uniform_at(keys[place], column + np.uint64(1 << 32))
        if action < masked_share:
            shown[place] = mask_id
        elif action < replaced_share:
            word = hash_at(keys[place], column + np.uint64(1 << 33)) % np.uint64(len(replacements))
            shown[place] = replacements[np.int64(word)]
        else:
            shown[place] = labels[place]
