"""Converts between token ids and the strings of LDDL's parquet columns, a column at a time."""

import io
from functools import cached_property

import numpy as np
import pyarrow as pa

from bert.arrays.compiled import SPARE_BYTES
from bert.arrays.ragged import offsets_of, ragged_indices
from bert.tokenization.string_loops import (
    arrays_saved,
    join_rows,
    spaced_offsets,
    spaced_text,
    split_rows,
    text_offsets,
)
from bert.tokenization.token_table import ShortTokens, short_tokens, token_table
from bert.tokenization.vocabulary import Vocabulary

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
