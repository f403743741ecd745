"""Converts between token ids and the strings of LDDL's parquet columns, a column at a time."""

import io
from functools import cached_property

import numpy as np
import pyarrow as pa

from bert.arrays.compiled import HASH_PRIME, HASH_START, SPARE_BYTES, compiled, copied, copied_wide, inner
from bert.arrays.ragged import offsets_of, ragged_indices
from bert.tokenization.token_table import (
    ShortTokens,
    TokenTable,
    eight_bytes,
    find_short_token,
    find_token,
    short_tokens,
    token_table,
)
from bert.tokenization.vocabulary import Vocabulary

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


_HEADER_BYTES = 128


class TokenStrings:
    """Translates between token ids and tokens joined by one space; made once per vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.table = token_table(vocabulary.tokens)

    @cached_property
    def _short(self) -> ShortTokens:
        """The table of short tokens, made on first use: only reading needs it."""
        return short_tokens(self.table)

    def spaced(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(text uint8, byte offsets int64 [T + 1]): all tokens, each followed by a space, then SPARE_BYTES."""
        offsets = np.empty(len(ids) + 1, np.int64)
        spaced_offsets(ids, self.table.offsets, offsets)
        text = np.empty(offsets[-1] + SPARE_BYTES, np.uint8)
        spaced_text(ids, self.table.text, self.table.offsets, text)
        return text, offsets

    def join(self, ids: np.ndarray, offsets: np.ndarray) -> pa.Array:
        """Row i: the tokens ids[offsets[i]:offsets[i + 1]] joined by one space, as a string array."""
        ends = np.empty(len(offsets), np.int64)
        text_offsets(ids, offsets, self.table.offsets, ends)
        text = np.empty(ends[-1] + SPARE_BYTES, np.uint8)
        join_rows(ids, offsets, self.table.text, self.table.offsets, text)
        return string_array(ends, text)

    def split(self, texts: pa.Array, column: str) -> tuple[np.ndarray, np.ndarray]:
        """(ids [T], offsets int64 [n + 1]) of texts of space-joined tokens; ValueError names an unknown token."""
        if texts.null_count:
            raise ValueError(f"column {column!r} holds {texts.null_count} nulls; every sample needs a text")
        bounds, data = _buffers(texts)
        ids = np.empty((int(bounds[-1] - bounds[0]) + len(texts)) // 2 + 1, self.vocabulary.id_dtype())
        offsets = np.empty(len(texts) + 1, np.int64)
        row, start, stop = split_rows(data, bounds, self.table, self._short, ids, offsets)
        if row >= 0:
            word = data[start:stop].tobytes().decode("utf-8", "replace")
            raise ValueError(
                f"column {column!r}, sample {row}: token {word!r} is not in {self.vocabulary.source} "
                f"({len(self.vocabulary)} tokens); read the shards with the vocabulary they were made "
                "with"
            )
        return ids[: offsets[-1]], offsets


def string_array(offsets: np.ndarray, text: np.ndarray) -> pa.Array:
    """The texts text[offsets[i]:offsets[i + 1]] as a string array; ValueError if they are too large for one."""
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(
            f"the texts of a column come to {offsets[-1]} bytes, a column of a shard holds 2 GiB; use "
            "a smaller --block-size"
        )
    return pa.StringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(text[: offsets[-1]])
    )


def _buffers(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(bounds int32 [n + 1], bytes) of a string or binary array."""
    _, bounds, data = column.buffers()
    if len(column) == 0 or data is None:
        return np.zeros(len(column) + 1, np.int32), np.zeros(0, np.uint8)
    found = np.frombuffer(bounds, np.int32)[column.offset : column.offset + len(column) + 1]
    return found, np.frombuffer(data, np.uint8)


def encode_positions(positions: np.ndarray, offsets: np.ndarray) -> pa.Array:
    """Each row as the bytes that `np.save` writes for a uint16 array."""
    counts = np.diff(offsets)
    headers = np.zeros((int(counts.max()) + 1 if len(counts) else 1, _HEADER_BYTES), np.uint8)
    for count in np.unique(counts).tolist():
        headers[count] = np.frombuffer(_npy_header(count), np.uint8)
    starts = offsets_of(2 * counts + _HEADER_BYTES)
    data = np.empty(starts[-1], np.uint8)
    arrays_saved(positions.astype(np.uint16, copy=False), offsets, headers, data)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(counts), [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(data)]
    )


def _npy_header(count: int) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<u2", "fortran_order": False, "shape": (count,)})
    assert len(stream.getvalue()) == _HEADER_BYTES
    return stream.getvalue()


def decode_positions(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(positions uint16 [P], offsets int64 [n + 1]) of a column of `np.save` bytes."""
    if len(column) == 0:
        return np.zeros(0, np.uint16), np.zeros(1, np.int64)
    bounds, data = _buffers(column)
    first = column[0].as_py() or b""
    width = 10 + int.from_bytes(first[8:10], "little") if len(first) >= 10 else 0
    shape_at = first.find(b"'shape'")
    uniform = first[:8] == b"\x93NUMPY\x01\x00" and b"'<u2'" in first[:width] and shape_at > 0
    if uniform and int(np.diff(bounds).min()) >= width:
        heads = data[bounds[:-1, None] + np.arange(shape_at)]
        uniform = bool((heads == np.frombuffer(first[:shape_at], np.uint8)).all())
    else:
        uniform = False
    if not uniform:
        rows = [_load_npy(value, index) for index, value in enumerate(column.to_pylist())]
        return np.concatenate(rows), offsets_of([len(row) for row in rows])
    counts = (np.diff(bounds) - width) // 2
    payload = data[ragged_indices(bounds[:-1] + width, 2 * counts)]
    return payload.view("<u2"), offsets_of(counts)


def _load_npy(value: bytes | None, row: int) -> np.ndarray:
    try:
        array = np.load(io.BytesIO(value or b""), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(
            f"column 'masked_lm_positions', sample {row}: not the bytes of np.save ({error}); the shard "
            "is damaged or not LDDL's: make it again"
        ) from error
    return array.astype(np.uint16).reshape(-1)
