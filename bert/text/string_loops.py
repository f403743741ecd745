"""Compiled loops between token ids and texts of tokens joined by one space."""

from __future__ import annotations

import numpy as np

from bert.text.compiled import HASH_PRIME, HASH_START, compiled, copied, copied_wide
from bert.text.token_table import TokenTable, find_token

_SPACE = np.uint8(ord(" "))


@compiled
def text_offsets(ids: np.ndarray, offsets: np.ndarray, token_offsets: np.ndarray, ends: np.ndarray) -> None:
    """Fill ends, int64 [n + 1], with where the text of each row ids[offsets[i]:offsets[i + 1]] starts."""
    ends[0] = 0
    for row in range(len(offsets) - 1):
        size = max(0, offsets[row + 1] - offsets[row] - 1)  # spaces
        for place in range(offsets[row], offsets[row + 1]):
            size += token_offsets[ids[place] + 1] - token_offsets[ids[place]]
        ends[row + 1] = ends[row] + size


@compiled
def join_rows(ids: np.ndarray, offsets: np.ndarray, token_text: np.ndarray, token_offsets: np.ndarray,
              text: np.ndarray) -> None:
    """Fill text (SPARE_BYTES longer) with the tokens of each row, a space between two of them."""
    end = 0
    for row in range(len(offsets) - 1):
        for place in range(offsets[row], offsets[row + 1]):
            if place > offsets[row]:
                text[end] = _SPACE
                end += 1
            end = copied_wide(text, end, token_text, token_offsets[ids[place]], token_offsets[ids[place] + 1])


@compiled
def spaced_offsets(ids: np.ndarray, token_offsets: np.ndarray, offsets: np.ndarray) -> None:
    """Fill offsets, int64 [T + 1], with where each token starts if a space follows every one."""
    offsets[0] = 0
    for place in range(len(ids)):
        offsets[place + 1] = offsets[place] + token_offsets[ids[place] + 1] - token_offsets[ids[place]] + 1


@compiled
def spaced_text(ids: np.ndarray, token_text: np.ndarray, token_offsets: np.ndarray, text: np.ndarray) -> None:
    """Fill text (SPARE_BYTES longer) with all tokens, a space behind each."""
    end = 0
    for token in ids:
        end = copied_wide(text, end, token_text, token_offsets[token], token_offsets[token + 1])
        text[end] = _SPACE
        end += 1


@compiled
def split_rows(text: np.ndarray, bounds: np.ndarray, table: TokenTable, ids: np.ndarray,
               offsets: np.ndarray) -> tuple[int, int, int]:
    """Token ids of texts of tokens joined by one space.

    Args:
        bounds: [n + 1], the texts are text[bounds[i]:bounds[i + 1]].
        ids: filled, room for (bytes + n) // 2 + 1; offsets: int64 [n + 1], filled: where the ids of each text start.
    Returns:
        (-1, 0, 0), or row, start and end of what is no token.
    """
    end = 0
    offsets[0] = 0
    for row in range(len(bounds) - 1):
        start, stop = bounds[row], bounds[row + 1]
        state = HASH_START
        for place in range(start, stop + (stop > start)):
            if place < stop and text[place] != _SPACE:
                state = (state ^ np.uint64(text[place])) * HASH_PRIME
                continue
            token = find_token(table, state, False, text, start, place)
            if token < 0:
                return row, start, place
            ids[end] = token
            end += 1
            start, state = place + 1, HASH_START
        offsets[row + 1] = end
    return -1, 0, 0


@compiled
def arrays_saved(values: np.ndarray, offsets: np.ndarray, headers: np.ndarray, data: np.ndarray) -> None:
    """Fill data with each row values[offsets[i]:offsets[i + 1]] behind the header for its length.

    Args:
        values: uint16; headers: uint8 [longest + 1, bytes of a header].
    """
    end = 0
    for row in range(len(offsets) - 1):
        header = headers[offsets[row + 1] - offsets[row]]
        end = copied(data, end, header, 0, len(header))
        for place in range(offsets[row], offsets[row + 1]):
            data[end], data[end + 1] = values[place] & 0xFF, values[place] >> 8
            end += 2
