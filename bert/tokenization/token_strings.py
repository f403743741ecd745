"""Converts between token ids and the strings of LDDL's parquet columns, a column at a time."""

import numpy as np
import pyarrow as pa

from bert.arrays.compiled import HASH_PRIME, HASH_START, SPARE_BYTES, compiled, copied_wide, inner
from bert.tokenization.byte_table import ByteTable, byte_table, find_row
from bert.tokenization.vocabulary import Vocabulary

_SPACE = np.uint8(ord(" "))


@compiled
def _join(
    ids: np.ndarray, starts: np.ndarray, stops: np.ndarray, table: ByteTable, text: np.ndarray, offsets: np.ndarray
) -> None:
    """Fill `text` with the tokens of each row, separated by spaces, and `offsets` with the start of each row."""
    end = np.int64(0)
    offsets[0] = 0
    for row in range(len(starts)):
        for place in range(starts[row], stops[row]):
            if place > starts[row]:
                text[end] = _SPACE
                end += 1
            end = copied_wide(text, end, table.text, table.offsets[ids[place]], table.offsets[ids[place] + 1])
        offsets[row + 1] = end


@compiled
def _split(
    text: np.ndarray, bounds: np.ndarray, table: ByteTable, ids: np.ndarray, offsets: np.ndarray
) -> tuple[int, int, int]:
    """Token ids of texts in which tokens are separated by one space.

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
def _token(text: np.ndarray, place: int, stop: int, table: ByteTable) -> tuple[int, int]:
    """(id, end) of the token at `place`; id -1 if it is unknown."""
    end, state = place, HASH_START
    while end < stop and text[end] != _SPACE:
        state = (state ^ np.uint64(text[end])) * HASH_PRIME
        end += 1
    return find_row(table, state, text, place, end)[1], end


class TokenStrings:
    """Converts between token ids and tokens joined by one space; made once per vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.table = byte_table([token.encode() for token in vocabulary.tokens])

    def join(self, ids: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> pa.Array:
        """String array whose row i is ids[starts[i]:stops[i]] joined by one space; rows do not overlap."""
        sizes = np.diff(self.table.offsets)
        text = np.empty(int(sizes[ids].sum()) + len(ids) + SPARE_BYTES, np.uint8)  # what is not used stays unmapped
        offsets = np.empty(len(starts) + 1, np.int64)
        _join(ids, starts, stops, self.table, text, offsets)
        if offsets[-1] > np.iinfo(np.int32).max:
            raise ValueError(
                f"the texts of a column come to {offsets[-1]} bytes, a column of a shard holds 2 GiB; write smaller "
                "shards: a smaller --block-size, or with data.import_shards more --num-shards"
            )
        buffers = pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(text[: offsets[-1]])
        return pa.StringArray.from_buffers(len(starts), *buffers)

    def split(self, texts: pa.Array, column: str) -> tuple[np.ndarray, np.ndarray]:
        """Convert texts of tokens to (ids [T], offsets int64 [n + 1]). ValueError names an unknown token."""
        if texts.null_count:
            raise ValueError(f"column {column!r} holds {texts.null_count} nulls; every sample needs a text")
        bounds, data = string_buffers(texts)
        ids = np.empty((int(bounds[-1] - bounds[0]) + len(texts)) // 2 + 1, self.vocabulary.id_dtype())
        offsets = np.empty(len(texts) + 1, np.int64)
        row, start, stop = _split(data, bounds, self.table, ids, offsets)
        if row >= 0:
            word = data[start:stop].tobytes().decode("utf-8", "replace")
            raise ValueError(
                f"column {column!r}, sample {row}: token {word!r} is not in {self.vocabulary.source} "
                f"({len(self.vocabulary)} tokens); read the shards with the vocabulary they were made with"
            )
        return ids[: offsets[-1]], offsets


def string_buffers(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Buffers of a string or binary array: (bounds int32 [n + 1], bytes)."""
    _, bounds, data = column.buffers()
    if len(column) == 0 or data is None:
        return np.zeros(len(column) + 1, np.int32), np.zeros(0, np.uint8)
    return np.frombuffer(bounds, np.int32)[column.offset :][: len(column) + 1], np.frombuffer(data, np.uint8)
