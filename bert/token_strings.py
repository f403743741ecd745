"""Token ids <-> the strings of LDDL's parquet columns, whole columns at a time."""

from __future__ import annotations

import io
from typing import Optional, Tuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bert.samples import offsets_of, ragged_indices
from bert.tokenization import Vocabulary


class TokenStrings:
    """Translates between token ids and tokens joined by one space; made once per vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        # A token inside a text brings the space after it along; the last one has none.
        self._table = pa.array([*(token + " " for token in vocabulary.tokens), *vocabulary.tokens], pa.large_string())
        encoded = [token.encode() for token in vocabulary.tokens]
        self.vocabulary_text = b"".join(encoded)
        self.vocabulary_offsets = offsets_of([len(token) for token in encoded])

    def spaced(self, ids: np.ndarray) -> Tuple[bytes, np.ndarray]:
        """(text, byte offsets int64 [T + 1]): the tokens one after the other, each with a space behind it."""
        pieces = self._table.take(pa.array(ids.astype(np.int64)))
        _, byte_offsets, data = pieces.buffers()
        offsets = np.frombuffer(byte_offsets, np.int64)[pieces.offset:pieces.offset + len(pieces) + 1]
        return data.to_pybytes() if data is not None else b"", offsets

    def join(self, ids: np.ndarray, offsets: np.ndarray) -> pa.Array:
        """Row i: the tokens ids[offsets[i]:offsets[i + 1]] joined by one space, as a string array."""
        indices = ids.astype(np.int64)
        ends = offsets[1:][np.diff(offsets) > 0] - 1
        indices[ends] += len(self.vocabulary)
        pieces = self._table.take(pa.array(indices))
        _, byte_offsets, data = pieces.buffers()
        starts = np.frombuffer(byte_offsets, np.int64)[pieces.offset:pieces.offset + len(pieces) + 1]
        joined = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(starts[offsets]), data)
        return joined.cast(pa.string())

    def split(self, texts: pa.Array, column: str) -> Tuple[np.ndarray, np.ndarray]:
        """(ids [T], offsets int64 [n + 1]) of texts of space-joined tokens; ValueError names an unknown token."""
        texts = texts.cast(pa.large_string())
        if texts.null_count:
            raise ValueError(f"column {column!r} holds {texts.null_count} nulls; every sample needs a text")
        _, byte_offsets, buffer = texts.buffers()
        bounds = np.frombuffer(byte_offsets, np.int64)[texts.offset:texts.offset + len(texts) + 1]
        data = np.frombuffer(buffer, np.uint8)[:bounds[-1]] if buffer is not None else np.zeros(0, np.uint8)
        starts = np.zeros(len(data) + 1, bool)
        starts[1:] = data == ord(" ")
        starts[bounds] = True
        starts[-1] = False
        positions = np.flatnonzero(starts)
        positions = positions[np.searchsorted(positions, bounds[0]):]
        words = pa.LargeStringArray.from_buffers(len(positions), pa.py_buffer(np.append(positions, len(data))),
                                                 buffer)
        ids = pc.index_in(words, value_set=self._table)
        if ids.null_count:
            row = pc.index(pc.is_null(ids), True).as_py()
            sample = int(np.searchsorted(bounds, positions[row], side="right")) - 1
            raise ValueError(f"column {column!r}, sample {sample}: token {words[row].as_py().strip()!r} is not in "
                             f"{self.vocabulary.source} ({len(self.vocabulary)} tokens); read the shards with the "
                             "vocabulary they were made with")
        flat = ids.to_numpy() % len(self.vocabulary)
        return flat.astype(self.vocabulary.id_dtype()), np.searchsorted(positions, bounds)


def encode_positions(positions: np.ndarray, offsets: np.ndarray) -> pa.Array:
    """Each row as the bytes that `np.save` writes for a uint16 array."""
    counts = np.diff(offsets)
    headers = {count: _npy_header(count) for count in np.unique(counts).tolist()}
    data = positions.astype("<u2").tobytes()
    ends = (2 * offsets[1:]).tolist()
    parts, start = [], 2 * int(offsets[0])
    for count, end in zip(counts.tolist(), ends, strict=True):
        parts.append(headers[count])
        parts.append(data[start:end])
        start = end
    sizes = 2 * counts + (len(next(iter(headers.values()))) if headers else 0)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(counts),
        [None, pa.py_buffer(offsets_of(sizes)), pa.py_buffer(b"".join(parts))]).cast(pa.binary())


def _npy_header(count: int) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<u2", "fortran_order": False, "shape": (count,)})
    assert len(stream.getvalue()) == 128
    return stream.getvalue()


def decode_positions(column: pa.Array) -> Tuple[np.ndarray, np.ndarray]:
    """(positions uint16 [P], offsets int64 [n + 1]) of a column of `np.save` bytes."""
    column = column.cast(pa.large_binary())
    if len(column) == 0:
        return np.zeros(0, np.uint16), np.zeros(1, np.int64)
    bounds = np.frombuffer(column.buffers()[1], np.int64)[column.offset:column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2], np.uint8)
    first = column[0].as_py()
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


def _load_npy(value: Optional[bytes], row: int) -> np.ndarray:
    try:
        array = np.load(io.BytesIO(value or b""), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"column 'masked_lm_positions', sample {row}: not the bytes of np.save ({error}); the shard "
                         "is damaged or not LDDL's: make it again") from error
    return array.astype(np.uint16).reshape(-1)
