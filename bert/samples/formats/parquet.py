"""Reads and writes shards in LDDL's parquet schema: tokens as text, masks as the bytes of `np.save`."""

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert.arrays.ragged import numpy_array, offsets_of, ragged_indices
from bert.samples.formats.shard_writer import (
    MASK_COLUMNS,
    WORD_COLUMN,
    ShardDescription,
    check_columns,
    check_mask_counts,
    check_positions,
    continues_at,
    refuse,
)
from bert.samples.sample_table import SampleTable, Slices, StaticMasks, join_pairs, lengths_with_end, word_positions
from bert.tokenization.token_strings import TokenStrings, string_buffers

_TYPES = {"A": [pa.string()], "B": [pa.string()], "is_random_next": [pa.bool_()], "num_tokens": [pa.uint16()]}
_HEADER_BYTES = 128  # of np.save, for an array of one dimension


def describe(path: Path) -> ShardDescription:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        names = check_parquet_schema(file.schema_arrow).names
        # Not from the footer's statistics: they have no checksum, and damaged ones end the process.
        lengths = numpy_array(file.read(["num_tokens"], use_threads=False).column(0).combine_chunks(), "num_tokens")
        return ShardDescription(
            len(lengths), int(lengths.max(initial=0)), MASK_COLUMNS[0] in names, WORD_COLUMN in names
        )


def check_parquet_schema(schema: pa.Schema) -> pa.Schema:
    """Columns of LDDL's schema in a shard, with their types; ValueError names the first wrong one."""
    columns = check_columns(schema, _TYPES, ([pa.binary()], [pa.string()]), [pa.binary()])
    for name in columns.names:
        if not schema.field(name).nullable:  # LDDL's all are; a flipped bit of the footer would cause misread values
            raise ValueError(
                f"column {name!r} is required, in LDDL's schema it is optional; the footer is damaged: "
                "copy the shard again or make it again"
            )
    return columns


def parquet_columns(table: SampleTable, strings: TokenStrings) -> pa.Table:
    starts, ends = table.offsets[:-1], table.offsets[1:]
    second = starts + table.first_lengths
    columns = {
        "A": strings.join(table.token_ids, starts + 1, second - 1),
        "B": strings.join(table.token_ids, second, ends - 1),
        "is_random_next": pa.array(table.is_random_next),
        "num_tokens": pa.array(table.lengths().astype(np.uint16)),
    }
    if table.masks:
        offsets = table.masks.offsets
        columns["masked_lm_positions"] = _encoded(table.masks.positions, offsets)
        columns["masked_lm_labels"] = strings.join(table.masks.labels, offsets[:-1], offsets[1:])
    if table.continues is not None:
        columns[WORD_COLUMN] = _encoded(*word_positions(table.continues, table.offsets))
    return pa.table(columns)


def read(data: bytes, strings: TokenStrings) -> SampleTable:
    """Decode a shard in LDDL's schema; ValueError if tokens, counts or masks do not agree."""
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        schema = check_parquet_schema(file.schema_arrow)
        table = file.read(schema.names, use_threads=False).select(schema.names).cast(schema)
    columns = {name: table.column(name).combine_chunks() for name in schema.names}
    first_ids, first_offsets = strings.split(columns["A"], "A")
    second_ids, second_offsets = strings.split(columns["B"], "B")
    first, second = np.diff(first_offsets), np.diff(second_offsets)
    lengths = numpy_array(columns["num_tokens"], "num_tokens").astype(np.int64)
    refuse(
        first + 2 + lengths_with_end(second) != lengths,
        lambda row: (
            f"sample {row}: num_tokens={lengths[row]} but A and B hold {first[row]} + {second[row]} tokens, "
            "and num_tokens must be their sum + 3 (+ 2 where B is empty)"
        ),
    )
    cls_id, sep_id = (strings.vocabulary.id_of(token) for token in ("[CLS]", "[SEP]"))
    ids, offsets = join_pairs(
        Slices.of_rows(first_ids, first), Slices.of_rows(second_ids, second), cls_id, sep_id, single=True
    )
    masks = continues = None
    if MASK_COLUMNS[0] in columns:
        positions, mask_offsets = _decoded(columns["masked_lm_positions"], "masked_lm_positions")
        labels, label_offsets = strings.split(columns["masked_lm_labels"], "masked_lm_labels")
        check_mask_counts(mask_offsets, label_offsets)
        check_positions(positions, mask_offsets, lengths)
        masks = StaticMasks(mask_offsets, positions, labels)
    if WORD_COLUMN in columns:
        continues = continues_at(*_decoded(columns[WORD_COLUMN], WORD_COLUMN), offsets)
    is_random_next = numpy_array(columns["is_random_next"], "is_random_next")
    return SampleTable(ids, offsets, (first + 2).astype(np.int32), is_random_next, masks, continues)


def _header(count: int) -> bytes:
    """The header that `np.save` writes for a uint16 array of `count` elements."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<u2", "fortran_order": False, "shape": (count,)})
    assert len(stream.getvalue()) == _HEADER_BYTES
    return stream.getvalue()


def _encoded(positions: np.ndarray, offsets: np.ndarray) -> pa.Array:
    """Each row as the bytes that `np.save` writes for a uint16 array."""
    counts, data = np.diff(offsets), positions.astype("<u2").tobytes()
    headers = {count: _header(count) for count in np.unique(counts).tolist()}
    rows = b"".join([headers[stop - start] + data[2 * start : 2 * stop] for start, stop in pairwise(offsets.tolist())])
    starts = offsets_of(2 * counts + _HEADER_BYTES).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(starts), pa.py_buffer(rows)])


def _decoded(column: pa.Array, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Decode a column of `np.save` bytes: (positions uint16 [P], offsets int64 [n + 1])."""

    def describe(row: int) -> str:
        return f"column {name!r}, sample {row}: not the bytes of np.save of an array of uint16"

    bounds, data = string_buffers(column)
    sizes, prefix = np.diff(bounds), np.frombuffer(_header(0).partition(b"'shape'")[0], np.uint8)
    refuse(sizes < _HEADER_BYTES, describe)
    refuse((data[bounds[:-1, None] + np.arange(len(prefix))] != prefix).any(axis=1), describe)
    counts = (sizes - _HEADER_BYTES) // 2
    return data[ragged_indices(bounds[:-1] + _HEADER_BYTES, 2 * counts)].view("<u2"), offsets_of(counts)
