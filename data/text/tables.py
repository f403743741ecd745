"""Opens tables (CSV, TSV, JSON lines, JSON, Parquet, Excel) in bounded memory, except JSON documents.

Imports, training, prediction and probes read tables here, by the same rules. Every row gives a `Row`, in order. A row
that cannot be read has a problem and no values; the caller counts, names or refuses it.

CSV    the first line names the columns; separated by commas, semicolons, tabs or bars
TSV    separated by tabs; with or without a line of names
JSON   lines of objects, or a file that is one object or a list of them; a text stands for an object of one column
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bert.reporting.progress import progress
from data.text.columns import Row, TableForm, check_number_of_columns, parts_of, places_of, row_size
from data.text.compression import CHUNK_BYTES, damage_named
from data.text.contents import bounded, text_chunks
from data.text.delimited import DelimitedTable
from data.text.encodings import DETECTED, Decoding, Encoding, code_page_of, decode, whole_lines
from data.text.file_formats import Input, table_input
from data.text.findings import Findings
from data.text.header_check import REPEATED_NAMES, repeats_names
from data.text.json_rows import document_rows, json_rows, nested_rows, with_text
from data.text.size_limits import no_bomb, require_no_bomb
from data.text.text_check import NotTextError
from data.text.workbooks import xlsx_rows

if TYPE_CHECKING:  # loaded where a parquet file is read
    import pyarrow as pa
    import pyarrow.parquet as pq

KINDS = ("csv", "tsv", "jsonl", "json", "parquet", "xlsx")
_ROWS_AT_A_TIME = 16
_READ_BYTES = 1 << 16  # of a pipe


@dataclass(frozen=True)
class Table:
    """An open table; its rows are read once.

    Attributes:
        columns: the names in order; in JSON and Excel each row has its own; here the first row's or none.
        delimiter: of CSV and TSV; "" of others.
        findings: what is unusual about the file; complete after the last row.
    """

    rows: Iterator[Row]
    columns: Sequence[str] = ()
    delimiter: str = ""
    findings: Findings = field(default_factory=Findings)

    def byte_order_mark(self) -> str:
        """Byte order mark for a CSV of results like this table; empty for plain UTF-8."""
        is_plain = all(name.startswith("utf-8 (valid") for name in self.findings.encodings)
        return "" if is_plain else "\ufeff"


def open_table(
    source: Input, form: TableForm, findings: Findings, encoding: str = "auto", language: str = "en"
) -> Table:
    """Open a table of any format and encoding, plain or compressed.

    Raises:
        NotTextError: without the file's name; between rows too.
        DamagedError: between rows too.
    """
    if source.kind == "parquet":
        return _parquet_table(source.path, form, findings)
    if source.kind == "xlsx":
        return Table(bounded(source, xlsx_rows(source.path, form, findings.counts), Exception), findings=findings)
    return table_of_text(text_chunks(source, findings, encoding, language), source.kind, form, findings)


def table_of_text(chunks: Iterable[str], kind: str, form: TableForm, findings: Findings) -> Table:
    """A table of decoded text; kind is csv, tsv, jsonl or json. `findings` counts repairs."""
    if kind in ("json", "jsonl"):
        rows = document_rows(chunks, form) if kind == "json" else json_rows(whole_lines(chunks), form)
        return Table(with_text(_without_repeated_names(rows, findings.counts), form), findings=findings)
    table = DelimitedTable(whole_lines(chunks), kind, form, findings.counts)
    findings.repeated_names |= table.repeated_names
    return Table(table.rows(), table.names, table.delimiter, findings)


def _without_repeated_names(rows: Iterable[Row], counts: Counter) -> Iterator[Row]:
    """The rows but for those whose values are the names of their columns, as in tables that were joined and converted;
    they are counted."""
    for row in rows:
        if row.values and repeats_names([*row.values.values()], [*row.values]):
            counts[REPEATED_NAMES] += 1
        else:
            yield row


def user_table(path: Path, form: TableForm, kind: str = "auto", decoding: Decoding = DETECTED) -> Table:
    """Open a table that the user names for training, prediction or a probe; every ValueError names the file.

    Raises:
        NoHeaderError, NoColumnError: the first line names no columns, or not the form's.
    """
    if not path.is_file():
        raise ValueError(f"{path} does not exist or is not a file; check the path")
    with _errors_name_file(path):
        table = open_table(table_input(path, kind), form, Findings(), decoding.encoding, decoding.language)
        first = list(islice(table.rows, 1))

    def rows() -> Iterator[Row]:
        with _errors_name_file(path), progress(f"reading {path.name}", None, "rows") as meter:
            for row in chain(first, table.rows):
                meter.update()
                yield row

    return replace(table, rows=rows(), columns=table.columns or [key for row in first for key in row.values or ()])


def piped_table(file: BinaryIO, form: TableForm, encoding: str = "auto") -> Table:
    """A CSV on standard input, in UTF-8 or the named encoding."""
    code_page = code_page_of(encoding)
    decoding = Encoding(encoding, 0, "") if code_page is None else Encoding("utf-8-sig", 0, "", code_page)
    replaced = Counter[str]()
    read = iter(lambda: file.read(_READ_BYTES), b"")
    table = table_of_text(decode(read, decoding, replaced), "csv", form, Findings())

    def rows() -> Iterator[Row]:
        for row in table.rows:
            if replaced["undecodable bytes"]:
                raise ValueError("standard input is not UTF-8; pass --encoding, or name the file: it is then detected")
            yield row

    return replace(table, rows=rows())


@contextmanager
def _errors_name_file(path: Path) -> Iterator[None]:
    """Context manager that puts the file's name before errors without it."""
    try:
        yield
    except NotTextError as error:
        error.args = (f"{path} {error}",)
        raise


def _parquet_table(path: Path, form: TableForm, findings: Findings) -> Table:
    import pyarrow.parquet as pq

    with damage_named(path):
        file = pq.ParquetFile(path, page_checksum_verification=True, buffer_size=CHUNK_BYTES)
        groups = (file.metadata.row_group(number) for number in range(file.num_row_groups))
        require_no_bomb(path, (group.total_byte_size for group in groups))
        names = file.schema_arrow.names
        check_number_of_columns(len(names))
        paths = [path for path in form.paths() if path not in names]
        nested = [name for name in names if any(path.startswith((f"{name}.", f"{name}[]")) for path in paths)]
        if nested:  # a text inside of structs and lists is read as of JSON
            rows = _nested_parquet_rows(path, file, form, nested)
            return Table(with_text(no_bomb(path, rows, row_size), form), names, findings=findings)
        columns = [*places_of(names, form.all_columns(names, _parquet_sample(file)), form.optional)]
    rows = _without_repeated_names(_parquet_rows(path, file, columns), findings.counts)
    return Table(no_bomb(path, rows, row_size), names, findings=findings)


def _parquet_rows(path: Path, file: "pq.ParquetFile", columns: Sequence[Any]) -> Iterator[Row]:
    number = 0
    with damage_named(path):
        for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=columns, use_threads=False):
            for row in range(len(batch)):
                number += 1
                yield _parquet_row(number, batch, row, columns)


def _nested_parquet_rows(path: Path, file: "pq.ParquetFile", form: TableForm, nested: Sequence[str]) -> Iterator[Row]:
    """Rows with nested fields by their paths; each item of a list may give one."""
    names, paths = file.schema_arrow.names, form.paths()
    named = {part for column in form.wanted() for part in parts_of(column, names)}
    columns = names if form.columns is None else [name for name in names if name in {*nested, *named}]
    for row in _parquet_rows(path, file, columns):
        if row.values is None:
            yield row
        else:
            yield from (row._replace(values=values) for values in nested_rows(row.values, paths))


def _parquet_row(number: int, batch: "pa.RecordBatch", row: int, columns: Sequence[Any]) -> Row:
    values = {}
    for column in columns:
        try:
            values[column] = batch.column(column)[row].as_py()
        except UnicodeDecodeError as error:
            return Row(number, None, f"field {column!r} is not UTF-8 ({error.reason})")
    return Row(number, values)


def _parquet_sample(file: "pq.ParquetFile") -> Iterator[dict[str, Any]]:
    """Texts of the first rows, also in structs; read only if names of columns decide nothing."""
    import pyarrow as pa

    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_struct, pa.types.is_list)
    texts = [column.name for column in file.schema_arrow if any(is_kind(column.type) for is_kind in kinds)]
    for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=texts, use_threads=False):
        with suppress(UnicodeDecodeError):
            yield from batch.to_pylist()
        return
