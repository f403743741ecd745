"""Writes rows with their results in the formats of run_predict.py: JSON lines, CSV, TSV, a .npy or Parquet."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from bert.finetuning.prediction_files import csv_ends, line_ends
from bert.inference.records import Record, flat, free_name, joined
from bert.inference.rows import InputRow, Rows

_BATCH_ROWS = 2048


class Output:
    """Converts rows and their results to the bytes of an output file.

    Args:
        form: format of the file: csv, tsv, jsonl, npy (float32 [rows, width], NaN for an unusable row) or parquet
            (JSON lines until `convert` writes the file; a vector is a list of float32).
        columns: names and types of the columns of results (see `records.flat`).
        width: dimensions of a vector.
        escapes: whether cells of a CSV that a spreadsheet takes for formulas become text.
    """

    def __init__(self, form: str, rows: Rows, columns: Mapping[str, type], width: int, escapes: bool = False) -> None:
        self._form, self._rows, self._results, self._width = form, rows, columns, width
        self._cell = _text_cell if escapes else _cell
        self._is_csv = form in ("csv", "tsv")
        self._columns: Sequence[str] = ()  # all columns of a CSV
        self._own: Sequence[str] = ()  # the columns of the input
        self.convert = self._write_parquet if form == "parquet" else None

    def row_ends(self, file: BinaryIO) -> Iterator[int]:
        """The byte offsets at which complete rows of a partial file end."""
        if self._form == "npy":
            header, row = len(npy_header(0, self._width)), 4 * self._width
            return iter(range(header + row, file.seek(0, io.SEEK_END) + 1, row))
        return csv_ends(file) if self._is_csv else line_ends(file)

    def record(self, row: InputRow, result: Mapping[str, Any]) -> Record:
        return joined(row.record, flat(result) if self._is_csv or self._form == "parquet" else result)

    def begin(self) -> None:
        """Fix the columns of the output, once the first rows of the input were read."""
        own = self._own = self._own or self._rows.columns or self._rows.names or ["text"]
        self._columns = self._columns or [*own, *(free_name(name, own) for name in (*self._results, "error"))]

    def content(self, records: Sequence[Record], *, is_first: bool) -> bytes:
        """Convert records to bytes that are appended to the file; `is_first` adds the header."""
        if self._form == "npy":
            import numpy as np  # not for --help

            vectors = [record.get("vector", [np.nan] * self._width) for record in records]
            return (npy_header(0, self._width) if is_first else b"") + np.array(vectors, "<f4").tobytes()
        if self._is_csv:
            return self._csv(records, is_first)
        lines = "".join(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records)
        return lines.encode(errors="backslashreplace")  # half of a surrogate pair in a bad line, as JSON escapes it

    def _csv(self, records: Sequence[Record], is_first: bool) -> bytes:
        text = io.StringIO()
        delimiter = "\t" if self._form == "tsv" else self._rows.delimiter
        writer = csv.DictWriter(text, self._columns, delimiter=delimiter, lineterminator="\n")
        try:
            if is_first:
                text.write(self._rows.mark)
                writer.writerow({name: self._cell(name) for name in self._columns})
            for record in records:
                cells = {name: self._cell(value) for name, value in record.items()}
                if "line" not in self._columns:  # the number of a bad line
                    cells.pop("line", None)
                writer.writerow(cells)
        except ValueError as error:
            columns = ", ".join(self._columns)
            raise ValueError(f"{error}: the first row had {columns}; name a .jsonl as --output") from None
        return text.getvalue().encode(errors="backslashreplace")

    def end(self, num_rows: int, num_bad: int) -> bytes:
        """The last bytes of the output: the header of a table without rows, otherwise nothing."""
        if self._form == "npy" and num_bad == num_rows:
            raise ValueError("no line has a vector; check the input")
        if self._form == "parquet" and not num_rows:
            raise ValueError(f"{self._rows.paths[0]} has no rows; check the input")
        if num_rows or not self._is_csv or self._rows.names is None:
            return b""
        self.begin()
        return self._csv([], True)

    def finish(self, file: BinaryIO, num_rows: int) -> None:
        """Complete the file: write the number of rows into the header of a .npy."""
        if self._form == "npy":
            file.seek(0)
            file.write(npy_header(num_rows, self._width))

    def _write_parquet(self, lines: BinaryIO, target: Path) -> None:
        """Write a Parquet file with the columns of the input, the results and the errors, from JSON lines of rows."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        writer = None
        for table, results in self._parts(lines):
            names = table.schema.names
            for name, kind in {**self._results, "error": str}.items():
                values = [result.get(free_name(name, names)) for result in results]
                type_: Any = pa.string() if kind is str else pa.from_numpy_dtype(kind)
                if name == "vector":
                    values = [value and json.loads(value) for value in values]
                    type_ = pa.list_(pa.float32())
                table = table.append_column(free_name(name, names), pa.array(values, type_))
            writer = writer or pq.ParquetWriter(target, table.schema)
            writer.write_table(table)
        assert writer is not None, "the rows were counted"
        writer.close()

    def _parts(self, lines: BinaryIO) -> Iterator[tuple[Any, list[Record]]]:
        """Yield blocks (columns of the input, results). A single .parquet keeps its types; otherwise cells are text."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if [path.suffix.lower() for path in self._rows.paths] == [".parquet"]:
            for batch in pq.ParquetFile(self._rows.paths[0]).iter_batches(_BATCH_ROWS):
                yield pa.Table.from_batches([batch]), [json.loads(next(lines)) for _ in range(len(batch))]
            return
        while results := [json.loads(line) for line in islice(lines, _BATCH_ROWS)]:
            columns = {name: [result.get(name) for result in results] for name in self._own}
            cells = {name: [_text_or_none(value) for value in values] for name, values in columns.items()}
            yield pa.table(cells, pa.schema([(name, pa.string()) for name in cells])), results


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(_cell(value))


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value


def _text_cell(value: Any) -> Any:
    """Convert a value to a cell, with ' before it if a spreadsheet would run it as a formula."""
    cell = _cell(value)
    is_formula = isinstance(cell, str) and re.match(r"[=@\t\r]|[+-](?![\d.,eE+-]*$)", cell)
    return f"'{cell}" if is_formula else cell


def npy_header(rows: int, width: int) -> bytes:
    """The header of a .npy file. Its length does not depend on `rows`, as NumPy leaves room for a larger number."""
    import numpy as np

    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})
    return header.getvalue()
