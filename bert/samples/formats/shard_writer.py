"""Writes shards, part by part."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert.arrays.ragged import arrow_array

MASK_COLUMNS = ("masked_lm_positions", "masked_lm_labels")
# Positions of the tokens that belong to the word of the one before, where a word segmenter found the words. LDDL's
# loader does not know the column and reads the others.
WORD_COLUMN = "word_continuations"


@dataclass(frozen=True)
class Description:
    """The facts of a shard that need no decoding: number of samples, longest sample, whether they are masked.

    has_words: whether they record the words that a word segmenter found.
    """

    num_samples: int
    max_num_tokens: int
    masked: bool
    has_words: bool = False


def check_mask_counts(offsets: np.ndarray, label_offsets: np.ndarray) -> None:
    wrong = np.flatnonzero(np.diff(offsets) != np.diff(label_offsets))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"sample {row}: {np.diff(offsets)[row]} masked_lm_positions but "
            f"{np.diff(label_offsets)[row]} masked_lm_labels; they must be as many: make the shard again"
        )


def check_positions(positions: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, kind: str = "masked") -> None:
    owners = np.repeat(np.arange(len(lengths)), np.diff(offsets))
    outside = np.flatnonzero((positions >= lengths[owners]) | (positions == 0))
    if len(outside):
        row = int(owners[outside[0]])
        raise ValueError(
            f"sample {row}: {kind} position {positions[outside[0]]} is not inside its {lengths[row]} "
            "tokens (0 is [CLS]); the shard is damaged: make it again"
        )


_ROW_GROUP_BYTES = 256 << 20


class ShardWriter:
    """Writes a shard part by part, in LDDL's schema ("parquet") or our own ("arrow").

    A parquet file has one row group, like LDDL's files, unless it is larger than `row_group_bytes`, the memory limit.
    """

    def __init__(
        self,
        sink: object,
        output_format: str,
        bin_id: int | None,
        compression: str,
        row_group_bytes: int = _ROW_GROUP_BYTES,
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
