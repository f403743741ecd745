"""Writes shards, part by part."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert.arrays.arrow import arrow_array

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
