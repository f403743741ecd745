"""The compiled loops of `bert.samples.masking`; their random numbers equal those of `bert.randomness`."""

import numpy as np

from bert.arrays.compiled import compiled, inner
from bert.arrays.hash_loops import hash_at

_ONE, _HALF = np.uint64(1), np.uint64(32)


@inner
def uniform_at(key: np.uint64, position: np.uint64) -> float:
    """`bert.randomness.uniform` of one position."""
    return float(hash_at(key, position) >> np.uint64(11)) * 2.0**-53


@inner
def below_at(key: np.uint64, position: np.uint64, bound: int) -> int:
    """`bert.randomness.integers_below` of one position."""
    return min(int(uniform_at(key, position) * bound), bound - 1)


@compiled
def choose_in_rows(
    keys: np.ndarray,
    separators: np.ndarray,
    input_ids: np.ndarray,
    lengths: np.ndarray,
    counts: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
) -> int:
    """Draw counts[r] positions of each row, never a separator, sorted from left to right; returns their number.

    Args:
        keys: uint64 [b]; separators: bool [vocabulary size]; input_ids: integers [b, s]; lengths, counts: int64 [b].
        rows, columns: int64 [one more than the sum of counts], filled.
    """
    width = input_ids.shape[1]
    barred, taken = np.empty(width, np.bool_), np.zeros(width, np.bool_)
    end = 0
    for row in range(len(keys)):
        length = min(width, lengths[row])
        for column in range(length):
            barred[column] = separators[input_ids[row, column]]
        begin = end
        end += _choose(keys[row], barred[:length], counts[row], taken, columns[end:])
        rows[begin:end] = row
    return end


@compiled
def choose_in_pairs(
    keys: np.ndarray,
    first_lengths: np.ndarray,
    lengths: np.ndarray,
    counts: np.ndarray,
    positions: np.ndarray,
    offsets: np.ndarray,
) -> None:
    """Like `choose_in_rows`, for pairs [CLS] A [SEP] B [SEP] whose A ends before place first_lengths - 1.

    Args:
        positions: int64 [one more than the sum of counts], filled; offsets: int64 [b + 1], filled: where each row's
            start.
    """
    width = 0
    for length in lengths:
        width = max(width, length)
    barred, taken = np.zeros(width, np.bool_), np.zeros(width, np.bool_)
    barred[0] = True
    offsets[0] = 0
    for row in range(len(keys)):
        length, middle = lengths[row], first_lengths[row] - 1
        barred[middle] = barred[length - 1] = True
        begin = offsets[row]
        offsets[row + 1] = begin + _choose(keys[row], barred[:length], counts[row], taken, positions[begin:])
        barred[middle] = barred[length - 1] = False


@inner
def _choose(key: np.uint64, barred: np.ndarray, count: int, taken: np.ndarray, columns: np.ndarray) -> int:
    """Choose positions in one row: draw until `count` different ones are found, or the ones to leave out if fewer.

    Args:
        taken: bool [at least as long as `barred`], all False before and after.
        columns: filled, with room for count + 1.
    """
    length, allowed = np.uint64(len(barred)), 0
    for column in range(length):
        allowed += not barred[column]
    count = min(count, allowed)
    leave_out = 2 * count > allowed
    missing, draw = allowed - count if leave_out else count, np.uint64(0)
    while missing > 0:
        column = ((hash_at(key, draw) >> _HALF) * length) >> _HALF
        draw += _ONE
        if not barred[column] and not taken[column]:
            taken[column] = True
            missing -= 1
    found = 0
    for column in range(length):
        columns[found] = column  # overwritten unless the position is chosen
        found += (taken[column] != leave_out) & (not barred[column])
        taken[column] = False
    return found


@compiled
def corrupt_all(
    keys: np.ndarray,
    columns: np.ndarray,
    labels: np.ndarray,
    mask_id: int,
    replacements: np.ndarray,
    masked_share: float,
    replaced_share: float,
    shown: np.ndarray,
) -> None:
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
