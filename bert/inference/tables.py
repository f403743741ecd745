"""Tables in and out: rows as pre-training and fine-tuning read them, and the same table with the results as columns."""

import csv
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from bert.config.setting_errors import suggest
from bert.inference.lines import EMPTY, Keys, LineFormat, RawLine, RawRequest, is_document, kind_of, raw_lines
from data.text.columns import NoHeaderError, Row, TableForm
from data.text.inputs import COMPRESSIONS
from data.text.tables import Table, piped_table, user_table

_BATCH_ROWS = 2048
Record = dict[str, Any]


class TableInput:
    """The rows of a table, each with all of its columns.

    Args:
        path: None: a CSV on standard input, in UTF-8.
        keys: columns that it is likely to have.
    """

    def __init__(self, path: Path | None, descriptor: BinaryIO, kind: str, keys: Keys) -> None:
        self._path, self._kind, self._descriptor = path, kind, descriptor
        self._form = TableForm(None, quotes="cells", expected=keys)
        self._piped: Table | None = None

    def _table(self) -> Table:
        if self._path is not None:
            return user_table(self._path, self._form, self._kind)
        self._piped = self._piped or piped_table(self._descriptor, self._form)
        return self._piped

    def rows(self) -> Iterator[Row]:
        yield from self._table().rows

    def raw_lines(self, done: int = 0) -> Iterator[RawLine]:
        """What the rows ask; `done` of them are left out."""
        for number, row in islice(enumerate(self.rows(), start=1), done, None):
            place = {"line": number, "end": 0}
            if row.problem:
                yield RawLine(row.number, ValueError(row.problem), place, row.values or {})
            else:
                yield RawLine(row.number, row.values or {}, place)

    def has_columns(self, keys: Keys) -> bool:
        """Whether the first row has all texts of one tuple."""
        try:
            return any(set(names) <= set(self._table().columns) for names in keys)
        except NoHeaderError:
            return False

    def opening(self) -> tuple[str, str, list[str]]:
        """The delimiter of a CSV like the file, a byte order mark if it was not plain UTF-8, and a CSV's columns."""
        table = self._table()
        if not table.delimiter:
            return ",", "", []
        return table.delimiter if self._kind == "csv" else ",", table.byte_order_mark(), list(table.columns)


def kind_of_table(path: Path | None, kind: str) -> str:
    """csv, tsv, json, jsonl or parquet if an input is read as a table, by its flag or name; "": it is read as lines."""
    if path is None or kind not in ("auto", "csv"):
        return "csv" if kind == "csv" else ""
    if kind == "csv":
        return kind
    is_compressed = path.suffix.lower() in COMPRESSIONS
    suffix = Path(path.stem).suffix.lower() if is_compressed else path.suffix.lower()
    if suffix == ".json" and not is_compressed:
        return "json" if is_document(path) else ""
    kinds = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet"}
    return kinds.get(suffix, "jsonl" if is_compressed and suffix in (".jsonl", ".ndjson", ".json") else "")


def open_table(path: Path | None, file: BinaryIO, kind: str, keys: Keys) -> TableInput | None:
    """An input as a table; None for lines, of which a TSV without a header of the keys is one."""
    kind = kind_of_table(path, kind)
    table = TableInput(path, file, kind, keys) if kind else None
    return None if table is None or (kind == "tsv" and not table.has_columns(keys)) else table


def require_columns(row: Mapping[str, Any], keys: Keys, where: str) -> None:
    """Raise ValueError unless a row has all columns of one tuple."""
    if any(all(name in row for name in names) for names in keys):
        return
    if "data" in row and any("question" in names for names in keys):
        raise ValueError(f"{where} has no column 'question'; SQuAD's form is for run_squad.py --predict-file")
    hint = suggest(keys[0][0], map(str, row), "--text-column names the right one")
    raise ValueError(f"{where} has no column {' and '.join(map(repr, keys[0]))}, only {list(row)[:20]}; {hint}")


def checked_lines(
    path: Path, keys: Keys, check: Callable[[RawRequest], tuple[str, ...]], *, splits_tabs: bool = False
) -> Iterator[tuple[str, ...] | ValueError]:
    """The texts that `check` gives for each row or line of a file that is not empty, or the error, which names it."""
    with open(path, "rb") as file:
        table, form = open_table(path, file, "auto", keys), LineFormat(kind_of("auto", path), splits_tabs, keys)
        for line in raw_lines(file.fileno(), form) if table is None else table.raw_lines():
            if line is None or (isinstance(line.raw, ValueError) and str(line.raw) == EMPTY):
                continue
            try:
                if isinstance(line.raw, ValueError):
                    raise line.raw
                yield check(line.raw)
            except ValueError as error:
                yield ValueError(f"{path}:{line.number}: {error}")


def flat(result: Mapping[str, Any]) -> Record:
    """A result as columns: the probability of each class has its own, other lists become JSON."""
    columns: Record = {}
    for name, value in result.items():
        if isinstance(value, dict):
            columns |= {f"probability_{key}": number for key, number in value.items()}
        else:
            columns[name] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    return columns


def joined(record: Mapping[str, Any], result: Mapping[str, Any]) -> Record:
    """A record with a result; where it has a value of that name already, the result's is called predicted_NAME."""
    return {**record, **{free_name(name, record): value for name, value in result.items()}}


def free_name(name: str, taken: Container[str]) -> str:
    """The name, or else predicted_NAME, predicted_NAME_2 ..."""
    names = chain([name, f"predicted_{name}"], (f"predicted_{name}_{number}" for number in count(2)))
    return next(free for free in names if free not in taken)


def csv_lines(records: Sequence[Record], columns: Sequence[str], delimiter: str, *, header: bool) -> bytes:
    """Rows of a CSV or TSV, in UTF-8."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, delimiter=delimiter, lineterminator="\n", extrasaction="raise")
    try:
        if header:
            writer.writeheader()
        writer.writerows({name: _shown(value) for name, value in record.items()} for record in records)
    except ValueError as error:
        raise ValueError(f"{error}: the first row had {', '.join(columns)}; name a .jsonl as --output") from None
    return text.getvalue().encode(errors="backslashreplace")


def _shown(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value


def write_parquet(file: BinaryIO, source: Path, added: Mapping[str, Any]) -> None:
    """Replace JSON lines, one for each row of a Parquet file, by that file with the columns `added`.

    Args:
        added: name -> an example of the values.
    """
    kinds = {
        name: pa.from_numpy_dtype(type(value)) if isinstance(value, (int, float)) else pa.string()
        for name, value in added.items()
    }
    file.seek(0)
    with tempfile.TemporaryFile(dir=Path(file.name).parent) as whole:
        rows, writer = pq.ParquetFile(source), None
        for batch in rows.iter_batches(_BATCH_ROWS):
            results = [json.loads(next(file)) for _ in range(len(batch))]
            table = pa.Table.from_batches([batch])
            for name, kind in kinds.items():
                name = free_name(name, batch.schema.names)
                table = table.append_column(name, pa.array([result.get(name) for result in results], kind))
            writer = writer or pq.ParquetWriter(whole, table.schema)
            writer.write_table(table)
        if writer is None:
            raise ValueError(f"{source} has no rows; check the input")
        writer.close()
        whole.seek(0)
        file.seek(0)
        file.truncate()
        shutil.copyfileobj(whole, file)
