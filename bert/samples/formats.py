"""Bytes of one shard <-> SampleTable, for LDDL's parquet schema and our own Arrow schema.

All functions work on whole columns; none loops over samples. Arrow's own threads are never used: a process that has
started pyarrow 17's thread pool now and then aborts when it exits ("terminate called without an active exception").
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Optional

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert.arrays.arrow import arrow_array, numpy_array
from bert.arrays.ragged import offsets_of, ragged_indices
from bert.samples.table import SampleTable, StaticMasks, join_pairs
from bert.tokenization.token_strings import TokenStrings, decode_positions, encode_positions
from bert.tokenization.vocabulary import Vocabulary

_ROW_GROUP_BYTES = 256 << 20
_MASK_COLUMNS = ("masked_lm_positions", "masked_lm_labels")


def table_to_parquet(
    table: SampleTable, strings: TokenStrings, bin_id: Optional[int] = None, compression: str = "snappy"
) -> pa.Buffer:
    """The bytes of a shard in LDDL's schema: one row group, page checksums on."""
    lengths = table.lengths()
    starts = table.offsets[:-1]
    first, second = table.first_lengths.astype(np.int64) - 2, lengths - table.first_lengths - 1
    columns = {
        "A": strings.join(table.token_ids[ragged_indices(starts + 1, first)], offsets_of(first)),
        "B": strings.join(table.token_ids[ragged_indices(starts + table.first_lengths, second)], offsets_of(second)),
        "is_random_next": arrow_array(table.is_random_next),
        "num_tokens": arrow_array(lengths.astype(np.uint16)),
    }
    if table.masks:
        columns["masked_lm_positions"] = encode_positions(table.masks.positions, table.masks.offsets)
        columns["masked_lm_labels"] = strings.join(table.masks.labels, table.masks.offsets)
    return columns_to_parquet(pa.table(columns), bin_id, compression)


def columns_to_parquet(columns: pa.Table, bin_id: Optional[int] = None, compression: str = "snappy") -> pa.Buffer:
    """The bytes of a shard from its columns in LDDL's schema but for bin_id."""
    sink = pa.BufferOutputStream()
    with ShardWriter(sink, "parquet", bin_id, compression) as writer:
        writer.write(columns)
    return sink.getvalue()


class ShardWriter:
    """Writes a shard part by part, in LDDL's schema ("parquet") or our own ("arrow").

    Like LDDL's files, one of parquet has one row group, but for those of more than `row_group_bytes`, so that memory is
    bounded.
    """

    def __init__(
        self,
        sink: object,
        output_format: str,
        bin_id: Optional[int],
        compression: str,
        row_group_bytes: int = _ROW_GROUP_BYTES,
    ) -> None:
        self._sink = str(sink) if isinstance(sink, Path) else sink
        self._format, self._bin_id, self._compression = output_format, bin_id, compression
        self._row_group_bytes = row_group_bytes
        self._writer: Any = None
        self._pending: List[pa.Table] = []

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind, *rest) -> None:
        if kind is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def write(self, columns: pa.Table) -> None:
        """Add rows; the first part fixes the schema."""
        if self._bin_id is not None and self._format == "parquet":
            columns = columns.append_column("bin_id", arrow_array(np.full(len(columns), self._bin_id, np.int64)))
        self._pending.append(columns)
        if sum(table.nbytes for table in self._pending) > self._row_group_bytes:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        columns = pa.concat_tables(self._pending)
        self._pending = []
        if self._format == "arrow":
            if self._writer is None:
                self._writer = pa.ipc.new_file(self._sink, columns.schema)
            self._writer.write_table(columns.combine_chunks())
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._sink,
                columns.schema,
                compression=self._compression,
                use_dictionary=False,
                write_statistics=["num_tokens"],
                write_page_checksum=True,
            )
        self._writer.write_table(columns, row_group_size=max(1, len(columns)))


def check_parquet_schema(schema: pa.Schema) -> bool:
    """True if the schema is LDDL's with static masks, False without; ValueError names the first wrong column."""
    wanted = {"A": pa.string(), "B": pa.string(), "is_random_next": pa.bool_(), "num_tokens": pa.uint16()}
    masked = any(name in schema.names for name in _MASK_COLUMNS)
    if masked:
        wanted.update(masked_lm_positions=pa.binary(), masked_lm_labels=pa.string())
    for name, kind in wanted.items():
        if name not in schema.names:
            raise ValueError(
                f"has no column {name!r} (it has {', '.join(schema.names)}); a shard in LDDL's schema "
                f"has {', '.join(wanted)}: make it with data.preprocess_bert_pretrain"
            )
        if schema.field(name).type != kind:
            raise ValueError(
                f"column {name!r} is {schema.field(name).type}, it must be {kind}: make the shard with "
                "data.preprocess_bert_pretrain"
            )
        if not schema.field(name).nullable:  # LDDL's all are; by one flipped bit of a footer values would be misread
            raise ValueError(
                f"column {name!r} is required, in LDDL's schema it is optional; the footer is damaged: "
                "copy the shard again or make it again"
            )
    return masked


def parquet_to_table(source: pa.Buffer, strings: TokenStrings) -> SampleTable:
    """Decode a shard in LDDL's schema; ValueError if tokens, counts or masks do not agree."""
    with pq.ParquetFile(pa.BufferReader(source), page_checksum_verification=True) as file:
        masked = check_parquet_schema(file.schema_arrow)
        names = ["A", "B", "is_random_next", "num_tokens", *(_MASK_COLUMNS if masked else ())]
        read = file.read(names, use_threads=False)
    columns = {name: read.column(name).combine_chunks() for name in names}
    first_ids, first_offsets = strings.split(columns["A"], "A")
    second_ids, second_offsets = strings.split(columns["B"], "B")
    first, second = np.diff(first_offsets), np.diff(second_offsets)
    lengths = numpy_array(columns["num_tokens"], "num_tokens").astype(np.int64)
    wrong = np.flatnonzero(first + second + 3 != lengths)
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"sample {row}: num_tokens={lengths[row]} but A and B hold {first[row]} + {second[row]} "
            "tokens, and num_tokens must be their sum + 3; the shard is damaged: make it again"
        )
    vocabulary = strings.vocabulary
    ids, offsets = join_pairs(
        first_ids, first, second_ids, second, vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]")
    )
    masks = None
    if masked:
        positions, mask_offsets = decode_positions(columns["masked_lm_positions"])
        labels, label_offsets = strings.split(columns["masked_lm_labels"], "masked_lm_labels")
        _check_mask_counts(mask_offsets, label_offsets)
        _check_positions(positions, mask_offsets, lengths)
        masks = StaticMasks(mask_offsets, positions, labels)
    return SampleTable(
        ids, offsets, (first + 2).astype(np.int32), numpy_array(columns["is_random_next"], "is_random_next"), masks
    )


def _check_mask_counts(offsets: np.ndarray, label_offsets: np.ndarray) -> None:
    wrong = np.flatnonzero(np.diff(offsets) != np.diff(label_offsets))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"sample {row}: {np.diff(offsets)[row]} masked_lm_positions but "
            f"{np.diff(label_offsets)[row]} masked_lm_labels; they must be as many: make the shard again"
        )


def _check_positions(positions: np.ndarray, offsets: np.ndarray, lengths: np.ndarray) -> None:
    owners = np.repeat(np.arange(len(lengths)), np.diff(offsets))
    outside = np.flatnonzero((positions >= lengths[owners]) | (positions == 0))
    if len(outside):
        row = int(owners[outside[0]])
        raise ValueError(
            f"sample {row}: masked position {positions[outside[0]]} is not inside its {lengths[row]} "
            "tokens (0 is [CLS]); the shard is damaged: make it again"
        )


def table_to_arrow(table: SampleTable) -> pa.Buffer:
    """The bytes of a shard in our own schema: token ids in an uncompressed Arrow file, read without decoding."""
    return columns_to_arrow(arrow_columns(table))


def arrow_columns(table: SampleTable) -> pa.Table:
    """The columns of a shard in our own schema."""
    columns = {
        "input_ids": _lists(table.token_ids, table.offsets),
        "first_length": arrow_array(table.first_lengths.astype(np.uint16)),
        "is_random_next": arrow_array(table.is_random_next),
    }
    if table.masks:
        columns["masked_lm_positions"] = _lists(table.masks.positions.astype(np.uint16), table.masks.offsets)
        columns["masked_lm_labels"] = _lists(table.masks.labels, table.masks.offsets)
    return pa.table(columns)


def columns_to_arrow(columns: pa.Table) -> pa.Buffer:
    """The bytes of an uncompressed Arrow file of one record batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, columns.schema) as writer:
        writer.write_table(columns)
    return sink.getvalue()


def read_arrow(source: pa.NativeFile) -> pa.Table:
    """The columns of such a file; views of it if it is mapped into memory."""
    with pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False)) as file:
        return file.read_all()


def _lists(values: np.ndarray, offsets: np.ndarray) -> pa.Array:
    return pa.LargeListArray.from_arrays(arrow_array(offsets), arrow_array(values))


def arrow_to_table(source: pa.Buffer) -> SampleTable:
    """The shard that `table_to_arrow` wrote; its arrays are views of `source`. ArrowInvalid or ValueError if its
    structure is damaged; of its values `check_values` tells."""
    table = read_arrow(pa.BufferReader(source))
    _check_arrow_schema(table.schema)
    table.validate(full=True)  # a damaged file could lead outside of its buffers
    table = table.combine_chunks()
    columns = {
        name: column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for name, column in zip(table.column_names, table.columns, strict=False)
    }

    def flat(name: str) -> tuple[np.ndarray, np.ndarray]:
        offsets, values = numpy_array(columns[name].offsets, name), numpy_array(columns[name].values, name)
        if columns[name].null_count or offsets[0] or offsets[-1] != len(values):
            raise ValueError(
                f"column {name!r}: {columns[name].null_count} rows are missing, the others hold values "
                f"{offsets[0]} to {offsets[-1]} of {len(values)}; no row may be missing and each value "
                "belongs to one: make the shard again"
            )
        return offsets, values

    offsets, ids = flat("input_ids")
    masks = None
    if "masked_lm_positions" in columns:
        masks = StaticMasks(*flat("masked_lm_positions"), flat("masked_lm_labels")[1])
        _check_mask_counts(masks.offsets, flat("masked_lm_labels")[0])
    return SampleTable(
        ids,
        offsets,
        numpy_array(columns["first_length"], "first_length").astype(np.int32),
        numpy_array(columns["is_random_next"], "is_random_next"),
        masks,
    )


def check_values(table: SampleTable, vocabulary: Vocabulary) -> None:
    """ValueError if a sample is not [CLS] A [SEP] B [SEP] of ids of the vocabulary, or has a mask outside of it."""
    masks = table.masks
    for name, ids in (("input_ids", table.token_ids), *((("masked_lm_labels", masks.labels),) if masks else ())):
        if len(ids) and int(ids.view(f"u{ids.itemsize}").max()) >= len(vocabulary):  # a negative id is a large one
            raise ValueError(
                f"{name} reach from {ids.min()} to {ids.max()}, {vocabulary.source} has {len(vocabulary)} "
                "tokens; ids must be below that: use the vocabulary the shard was made with, or make the "
                "shard again if it is damaged"
            )
    starts, ends, lengths = table.offsets[:-1], table.offsets[1:], table.lengths()
    wrong = np.flatnonzero((table.first_lengths < 2) | (table.first_lengths >= lengths))
    if not len(wrong):
        cls_id, sep_id = vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]")
        wrong = np.flatnonzero(
            (table.token_ids[starts] != cls_id)
            | (table.token_ids[ends - 1] != sep_id)
            | (table.token_ids[starts + table.first_lengths - 1] != sep_id)
        )
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"sample {row}: its {lengths[row]} tokens with first_length={table.first_lengths[row]} are "
            "not [CLS] A [SEP] and B [SEP], as they must be; the shard is damaged, or made with another "
            "vocabulary: make it again"
        )
    if masks:
        _check_positions(masks.positions, masks.offsets, lengths)


def _check_arrow_schema(schema: pa.Schema) -> None:
    numbers = [pa.large_list(kind) for kind in (pa.uint16(), pa.int32())]
    wanted = {"input_ids": numbers, "first_length": [pa.uint16()], "is_random_next": [pa.bool_()]}
    if any(name in schema.names for name in _MASK_COLUMNS):
        wanted.update(masked_lm_positions=numbers[:1], masked_lm_labels=numbers)
    for name, kinds in wanted.items():
        if name not in schema.names or schema.field(name).type not in kinds:
            found = schema.field(name).type if name in schema.names else "missing"
            raise ValueError(
                f"column {name!r} is {found}, it must be {' or '.join(map(str, kinds))}; the shard is "
                "damaged or of another program: make it with data.preprocess_bert_pretrain"
            )
