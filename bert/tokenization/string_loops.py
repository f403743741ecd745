"""Compiled loops that convert between token ids and strings of tokens joined by one space."""

import numpy as np

from bert.arrays.compiled import HASH_PRIME, HASH_START, compiled, copied, copied_wide, inner
from bert.tokenization.token_table import ShortTokens, TokenTable, eight_bytes, find_short_token, find_token

_SPACE = np.uint8(ord(" "))
_ONE = np.uint64(1)
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_SPACES = np.uint64(0x2020202020202020)


@compiled
def text_offsets(ids: np.ndarray, offsets: np.ndarray, token_offsets: np.ndarray, ends: np.ndarray) -> None:
    """Fill ends, int64 [n + 1], with the start of the text of each row ids[offsets[i]:offsets[i + 1]]."""
    ends[0] = 0
    for row in range(len(offsets) - 1):
        size = max(0, offsets[row + 1] - offsets[row] - 1)  # spaces
        for place in range(offsets[row], offsets[row + 1]):
            size += token_offsets[ids[place] + 1] - token_offsets[ids[place]]
        ends[row + 1] = ends[row] + size


@compiled
def join_rows(
    ids: np.ndarray, offsets: np.ndarray, token_text: np.ndarray, token_offsets: np.ndarray, text: np.ndarray
) -> None:
    """Fill text (SPARE_BYTES longer) with the tokens of each row, a space between two of them."""
    end = np.int64(0)
    for row in range(len(offsets) - 1):
        for place in range(offsets[row], offsets[row + 1]):
            if place > offsets[row]:
                text[end] = _SPACE
                end += 1
            end = copied_wide(text, end, token_text, token_offsets[ids[place]], token_offsets[ids[place] + 1])


@compiled
def spaced_offsets(ids: np.ndarray, token_offsets: np.ndarray, offsets: np.ndarray) -> None:
    """Fill offsets, int64 [T + 1], with the start of each token in a text where a space follows every token."""
    offsets[0] = 0
    for place in range(len(ids)):
        offsets[place + 1] = offsets[place] + token_offsets[ids[place] + 1] - token_offsets[ids[place]] + 1


@compiled
def spaced_text(ids: np.ndarray, token_text: np.ndarray, token_offsets: np.ndarray, text: np.ndarray) -> None:
    """Fill text (SPARE_BYTES longer) with all tokens, each followed by a space."""
    end = np.int64(0)
    for token in ids:
        end = copied_wide(text, end, token_text, token_offsets[token], token_offsets[token + 1])
        text[end] = _SPACE
        end += 1


@compiled
def split_rows(
    text: np.ndarray, bounds: np.ndarray, table: TokenTable, short: ShortTokens, ids: np.ndarray, offsets: np.ndarray
) -> tuple[int, int, int]:
    """Token ids of texts of tokens joined by one space.

    Args:
        bounds: [n + 1], the texts are text[bounds[i]:bounds[i + 1]].
        ids: filled, room for (bytes + n) // 2 + 1; offsets: int64 [n + 1], filled: the start of each text's ids.
    Returns:
        (-1, 0, 0), or row, start and end of the first unknown token.
    """
    number = 0
    offsets[0] = 0
    for row in range(len(bounds) - 1):
        place, stop = int(np.int64(bounds[row])), int(np.int64(bounds[row + 1]))
        is_open = stop > place
        while is_open:
            token, end = _short_token(text, place, stop, table, short)
            if token < 0:
                token, end = _token(text, place, stop, table)
            if token < 0:
                return row, place, end
            ids[number] = token
            number += 1
            is_open = end < stop
            place = end + 1
        offsets[row + 1] = number
    return -1, 0, 0


@inner
def _short_token(text: np.ndarray, place: int, stop: int, table: TokenTable, short: ShortTokens) -> tuple[int, int]:
    """(id, end) of the token at `place`; id -1 if it is unknown, longer than 8 bytes or within 8 bytes of the end."""
    if place + 8 > len(text):
        return -1, place
    value = eight_bytes(text, place)
    differences = value ^ _SPACES  # zero bytes where spaces are; the lowest of them is the lowest that `ends` marks
    ends = (differences - _ONES) & ~differences & _HIGHS
    if stop - place < 8:
        ends |= np.uint64(0x80) << np.uint64(8 * (stop - place))
    if ends == 0:
        return -1, place
    before = ((ends & (~ends + _ONE)) >> np.uint64(7)) - _ONE  # all bits of the bytes before the end
    length = int(np.int64(((before & _ONES) * _ONES) >> np.uint64(56)))
    return find_short_token(table, short, value & before, length), place + length


@inner
def _token(text: np.ndarray, place: int, stop: int, table: TokenTable) -> tuple[int, int]:
    """(id, end) of the token at `place`; id -1 if it is unknown."""
    end, state = place, HASH_START
    while end < stop and text[end] != _SPACE:
        state = (state ^ np.uint64(text[end])) * HASH_PRIME
        end += 1
    return find_token(table, state, False, text, place, end), end


@compiled
def arrays_saved(values: np.ndarray, offsets: np.ndarray, headers: np.ndarray, data: np.ndarray) -> None:
    """Fill data with each row values[offsets[i]:offsets[i + 1]] behind the header for its length.

    Args:
        values: uint16; headers: uint8 [longest + 1, bytes of a header].
    """
    end = np.int64(0)
    for row in range(len(offsets) - 1):
        header = headers[offsets[row + 1] - offsets[row]]
        end = copied(data, end, header, np.int64(0), len(header))
        for place in range(offsets[row], offsets[row + 1]):
            data[end], data[end + 1] = values[place] & 0xFF, values[place] >> 8
            end += 2
