"""The forms of run_predict.py's output: rows with their results as JSON lines, CSV, TSV, a .npy or Parquet."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert.finetuning.prediction_files import csv_ends, line_ends
from bert.inference.records import Record, flat, free_name, joined
from bert.inference.rows import Row, Rows

_BATCH_ROWS = 2048


class JsonLines:
    """A line for each row."""

    is_converted = False  # whether the file gets its form from `convert`

    def row_ends(self, file: BinaryIO) -> Iterator[int]:
        """Where the whole rows of a file end."""
        return line_ends(file)

    def record(self, row: Row, result: Mapping[str, Any]) -> Record:
        return joined(row.record, result)

    def begin(self, rows: Rows) -> None:
        """Takes the form of the input, after its first rows were read."""

    def content(self, records: Sequence[Record], *, is_first: bool) -> bytes:
        """What records append; `is_first`: they are the first ones."""
        lines = "".join(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records)
        return lines.encode(errors="backslashreplace")  # half of a surrogate pair in a bad line, as JSON escapes it

    def end(self, rows: Rows, num_rows: int, num_bad: int) -> bytes:
        """What stands behind all rows; raises ValueError for an output without any."""
        return b""

    def finish(self, file: BinaryIO, num_rows: int) -> None:
        """Completes a file."""

    def convert(self, file: BinaryIO, target: Path) -> None:
        """Write the last form of a file to a path."""
        raise NotImplementedError


class Table(JsonLines):
    """A CSV or TSV with the columns of the input and those of the results.

    Args:
        columns: those of the results.
        delimiter: None: that of the input.
    """

    def __init__(self, columns: Sequence[str], delimiter: str | None) -> None:
        self._of_results, self._delimiter = columns, delimiter
        self._mark, self._columns = "", list[str]()

    def row_ends(self, file: BinaryIO) -> Iterator[int]:
        return csv_ends(file)

    def record(self, row: Row, result: Mapping[str, Any]) -> Record:
        return joined(row.record, flat(result))

    def begin(self, rows: Rows) -> None:
        if not self._columns:
            self._begin(rows, rows.columns or ["text"])

    def _begin(self, rows: Rows, own: Sequence[str]) -> None:
        self._mark, self._delimiter = rows.mark, self._delimiter or rows.delimiter
        self._columns = [*own, *(free_name(name, own) for name in (*self._of_results, "error"))]

    def content(self, records: Sequence[Record], *, is_first: bool) -> bytes:
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, delimiter=self._delimiter or ",", lineterminator="\n")
        try:
            if is_first:
                text.write(self._mark)
                writer.writeheader()
            writer.writerows(map(self._cells, records))
        except ValueError as error:
            raise ValueError(
                f"{error}: the first row had {', '.join(self._columns)}; name a .jsonl as --output"
            ) from None
        return text.getvalue().encode(errors="backslashreplace")

    def _cells(self, record: Record) -> Record:
        """The values of a row, whose number is no column."""
        return {
            name: json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value
            for name, value in record.items()
            if name in self._columns or name != "line"
        }

    def end(self, rows: Rows, num_rows: int, num_bad: int) -> bytes:
        """Of a table without rows, the line of names."""
        if num_rows or rows.names is None:
            return b""
        self._begin(rows, rows.names or ["text"])
        return self.content([], is_first=True)


class Vectors(JsonLines):
    """A .npy of float32 [rows, width]; NaN for a row that cannot be used."""

    def __init__(self, width: int) -> None:
        self._width = width

    def row_ends(self, file: BinaryIO) -> Iterator[int]:
        size = file.seek(0, io.SEEK_END)
        row = 4 * self._width
        return iter(range(len(self._header(0)) + row, size + 1, row))

    def _header(self, rows: int) -> bytes:
        """What stands before the rows; as long for any number of them: numpy leaves room for it to grow."""
        header, shape = io.BytesIO(), (rows, self._width)
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        return header.getvalue()

    def content(self, records: Sequence[Record], *, is_first: bool) -> bytes:
        vectors = [record.get("vector", [np.nan] * self._width) for record in records]
        return (self._header(0) if is_first else b"") + np.array(vectors, "<f4").tobytes()

    def end(self, rows: Rows, num_rows: int, num_bad: int) -> bytes:
        if num_bad == num_rows:
            raise ValueError("no line has a vector; check the input")
        return b""

    def finish(self, file: BinaryIO, num_rows: int) -> None:
        file.seek(0)
        file.write(self._header(num_rows))


class Parquet(JsonLines):
    """A Parquet file with the columns of the results; JSON lines until all rows are known.

    Args:
        source: the Parquet file that is predicted.
        columns: those of the results, and their types.
    """

    is_converted = True

    def __init__(self, source: Path, columns: Mapping[str, type]) -> None:
        self._source, self._types = source, {**columns, "error": str}

    def record(self, row: Row, result: Mapping[str, Any]) -> Record:
        return joined(row.record, flat(result))

    def end(self, rows: Rows, num_rows: int, num_bad: int) -> bytes:
        if not num_rows:
            raise ValueError(f"{self._source} has no rows; check the input")
        return b""

    def convert(self, file: BinaryIO, target: Path) -> None:
        """Write the source with the columns of the results."""
        writer = None
        for batch in pq.ParquetFile(self._source).iter_batches(_BATCH_ROWS):
            results = [json.loads(next(file)) for _ in range(len(batch))]
            table = pa.Table.from_batches([batch])
            for name, kind in self._types.items():
                name = free_name(name, batch.schema.names)
                type_ = pa.string() if kind is str else pa.from_numpy_dtype(kind)
                table = table.append_column(name, pa.array([result.get(name) for result in results], type_))
            writer = writer or pq.ParquetWriter(target, table.schema)
            writer.write_table(table)
        assert writer is not None, "`end` has counted the rows"
        writer.close()


def output_of(form: str, columns: Mapping[str, type], width: int, source: Path | None) -> JsonLines:
    """The output of a form: csv, tsv, npy, parquet or jsonl.

    Args:
        columns: those of the results, and their types.
        width: numbers in a vector.
        source: the Parquet file that is predicted.
    """
    if form in ("csv", "tsv"):
        return Table(list(columns), "\t" if form == "tsv" else None)
    if form == "npy":
        return Vectors(width)
    if form == "parquet":
        assert source is not None, "the request was checked"
        return Parquet(source, columns)
    return JsonLines()
