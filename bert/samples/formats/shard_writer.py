"""Writes shards part by part, and has code that the formats share."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert.interpreter import shell_command

MASK_COLUMNS = ("masked_lm_positions", "masked_lm_labels")
# Positions of the tokens that continue the previous token's word, where a word segmenter found the words. LDDL's
# loader does not know the column and reads the others.
WORD_COLUMN = "word_continuations"
Types = Mapping[str, list[pa.DataType]]
REMEDY = "the shard is damaged or written by another program: make it again"


@dataclass(frozen=True)
class ShardDescription:
    """Facts about a shard that need no decoding; `has_words`: it records words of a word segmenter."""

    num_samples: int
    max_num_tokens: int
    masked: bool
    has_words: bool = False


def check_columns(schema: pa.Schema, types: Types, mask_types: Sequence[list], word_types: list) -> pa.Schema:
    """Columns to read and their types; ValueError names the first missing or wrong one.

    Args:
        types: column -> its possible types; then the types of MASK_COLUMNS and WORD_COLUMN, which a shard may have.
    """
    types = dict(types)
    if any(name in schema.names for name in MASK_COLUMNS):
        types |= zip(MASK_COLUMNS, mask_types, strict=True)
    if WORD_COLUMN in schema.names:
        types[WORD_COLUMN] = word_types
    chosen = []
    for name, kinds in types.items():
        kind = schema.field(name).type if name in schema.names else "missing"
        chosen.append((name, kind if kind in kinds else kinds[-1]))
        if kind not in kinds and _content_type(kind) not in map(_content_type, kinds):
            raise ValueError(
                f"column {name!r} is {kind}, it must be {' or '.join(map(str, kinds))}; of {', '.join(types)} it "
                f"has {', '.join(schema.names)}: make it with {shell_command('data.preprocess_bert_pretrain')}"
            )
    return pa.schema(chosen)


def _content_type(kind: Any) -> str:
    """The type of a column's values, however polars, pandas and others store it."""
    if isinstance(kind, pa.DictionaryType):
        return _content_type(kind.value_type)
    if isinstance(kind, (pa.ListType, pa.LargeListType)):
        return f"list of {_content_type(kind.value_type)}"
    return re.sub(r"^u?int\d+$", "integer", str(kind).removeprefix("large_").removesuffix("_view"))


def refuse(wrong: np.ndarray, describe: Callable[[int], str]) -> None:
    """Raise ValueError that describes the first position where `wrong`, bool [n], is true."""
    if wrong.any():
        raise ValueError(f"{describe(int(np.argmax(wrong)))}; {REMEDY}")


def check_mask_counts(offsets: np.ndarray, label_offsets: np.ndarray) -> None:
    counts, labels = np.diff(offsets), np.diff(label_offsets)
    refuse(
        counts != labels,
        lambda row: (
            f"sample {row}: {counts[row]} masked_lm_positions but {labels[row]} masked_lm_labels; they must be as many"
        ),
    )


def check_positions(positions: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, kind: str = "masked") -> None:
    rows = np.repeat(np.arange(len(lengths)), np.diff(offsets))
    refuse(
        (positions < 1) | (positions >= lengths[rows]),
        lambda place: (
            f"sample {rows[place]}: {kind} position {positions[place]} is not inside its "
            f"{lengths[rows[place]]} tokens (0 is [CLS])"
        ),
    )


def continues_at(positions: np.ndarray, position_offsets: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Whether each token continues a word, bool [T], from WORD_COLUMN of n samples with `offsets` int64 [n + 1]."""
    check_positions(positions, position_offsets, np.diff(offsets), "word")
    continues = np.zeros(offsets[-1], bool)
    continues[np.repeat(offsets[:-1], np.diff(position_offsets)) + positions] = True
    return continues


class ShardWriter:
    """Writes a shard in parts, in LDDL's schema ("parquet") or our own ("arrow").

    A parquet file has one row group, like LDDL's files, unless it is larger than `row_group_bytes`, the memory limit.
    """

    def __init__(
        self, sink: object, output_format: str, bin_id: int | None, compression: str, row_group_bytes: int
    ) -> None:
        self._sink = str(sink) if isinstance(sink, Path) else sink
        self._format, self._bin_id, self._compression = output_format, bin_id, compression
        self._row_group_bytes = row_group_bytes
        self._writer: Any = None
        self._pending: list[pa.Table] = []

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind, *rest) -> None:
        if kind is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def write(self, columns: pa.Table) -> None:
        """Write a part; the first part fixes the schema."""
        if self._bin_id is not None and self._format == "parquet":
            columns = columns.append_column("bin_id", pa.array(np.full(len(columns), self._bin_id, np.int64)))
        self._pending.append(columns)
        if sum(table.nbytes for table in self._pending) > self._row_group_bytes:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        columns = pa.concat_tables(self._pending)
        self._pending = []
        if self._format == "arrow":
            self._writer = self._writer or pa.ipc.new_file(self._sink, columns.schema)
            self._writer.write_table(columns.combine_chunks())
            return
        self._writer = self._writer or pq.ParquetWriter(
            self._sink,
            columns.schema,
            compression=self._compression,
            use_dictionary=False,
            write_statistics=["num_tokens"],
            write_page_checksum=True,
        )
        self._writer.write_table(columns, row_group_size=max(1, len(columns)))
