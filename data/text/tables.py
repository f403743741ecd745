"""Reads tables row by row: CSV, TSV, JSON lines, JSON and Parquet, in bounded memory but for a JSON document.

`read_table` reads a file, whose suffixes name format and compression; `rows_of_chunks` and `rows_of_lines` read text
that the caller has decoded. All give a `Row` for every row, in order. A row that cannot be read has a problem and no
values; the caller counts, names or refuses it.

CSV    the first line names the columns; separated by commas, semicolons, tabs or bars; quoted where needed
TSV    separated by tabs; with or without a line of names; quotation marks are as in CSV, or plain text
JSON   lines of objects, or a file that is one object or a list of them; a text stands for an object of one column
"""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from data.text.encodings import NotTextError, decoded
from data.text.inputs import CHUNK_BYTES, damage_named, format_of, read_chunks
from data.text.pieces import MAX_ROW_CHARACTERS, whole_lines

KINDS = ("csv", "tsv", "jsonl", "json", "parquet")
LOOSE_MARKS = "rows with a quotation mark that quotes nothing"
LOOSE_DELIMITERS = "rows whose unquoted text has the delimiter"
_ROWS_AT_A_TIME = 16
_DELIMITERS = {"csv": ",;\t|", "tsv": "\t"}
_MAX_SHOWN = 60  # characters of a row in a message
_TOO_LONG = f"is longer than {MAX_ROW_CHARACTERS} characters"

Column = str | int  # its name, or in a table without a line of names its position from 0
_Fields = tuple[int, list[str], str]  # number of the first line, fields (none of a blank line), problem


@dataclass(frozen=True)
class TableForm:
    """What to read of a table, and how.

    Attributes:
        columns: None for all.
        header: whether the first line of CSV and TSV names the columns.
        exact: whether a row must have as many fields as the first line, and correct quotation. Blank lines are rows of
            one empty field then, but not at the end and not in CSV of several columns. Without it no text is lost: a
            mark that quotes nothing is text, and a delimiter after the beginning of the last column too; trailing
            fields may be missing, and blank lines are no rows.
        quotes: whether fields of CSV and TSV may be quoted.
    """

    columns: Sequence[Column] | None = None
    header: bool = True
    exact: bool = False
    quotes: bool = True


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        number: of its first line in the file, from 1; in a JSON document and in Parquet, of the row.
        values: by column: texts of CSV and TSV, otherwise what JSON or Parquet holds, in JSON of all its keys. A field
            that the row does not have is left out. None if the row cannot be read.
        problem: why it cannot be read; "" if it can.
    """

    number: int
    values: dict[Any, Any] | None
    problem: str = ""


class NoColumnError(NotTextError):
    """The table lacks a column, or has several of that name; the message says which columns there are."""


def read_table(
    path: Path, form: TableForm, *, encoding: str = "auto", after: int = 0, counts: Counter | None = None
) -> Iterator[Row]:
    """The rows of a file.

    Args:
        encoding: of all but Parquet; auto: detected. Bytes that it does not decode become U+FFFD and are counted.
        after: rows up to this number are left out, to resume.
        counts: gets what was replaced or repaired.
    Raises:
        NotTextError: the file is not a table.
        NoColumnError: it lacks a column.
        ValueError: it is damaged.
    """
    kind, compression = format_of(path)
    if kind not in KINDS:
        raise NotTextError("is of no format of tables; name it *.csv, *.tsv, *.jsonl, *.json or *.parquet")
    if kind == "parquet":
        rows = parquet_rows(path, form)
    else:
        counts = Counter() if counts is None else counts
        _, chunks = decoded(lambda: read_chunks(path, compression), encoding, "en", counts)
        rows = rows_of_chunks(chunks, kind, form, counts)
    return (row for row in rows if row.number > after) if after else rows


def rows_of_chunks(chunks: Iterable[str], kind: str, form: TableForm, counts: Counter) -> Iterator[Row]:
    """The rows of decoded text; kind is not parquet."""
    if kind == "json":
        return _document_rows(chunks, form)
    return rows_of_lines(whole_lines(chunks), kind, form, counts)


def rows_of_lines(lines: Iterable[str | None], kind: str, form: TableForm, counts: Counter) -> Iterator[Row]:
    """The rows of lines without their ends, of which None was too long; kind is csv, tsv or jsonl."""
    return _json_rows(lines, form) if kind == "jsonl" else _table_rows(iter(lines), kind, form, counts)


def _json_rows(lines: Iterable[str | None], form: TableForm) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if line is None:
            yield Row(number, None, _TOO_LONG)
        elif line.strip():
            try:
                content = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield Row(number, None, f"is not JSON ({error})")
            else:
                yield _json_row(number, content, form)


def _json_row(number: int, content: object, form: TableForm) -> Row:
    if isinstance(content, str) and form.columns and len(form.columns) == 1:
        return Row(number, {form.columns[0]: content})
    if isinstance(content, dict):
        return Row(number, content)
    return Row(number, None, f"is a {type(content).__name__}, not an object")


def _document_rows(chunks: Iterable[str], form: TableForm) -> Iterator[Row]:
    """The rows of a JSON document, or of JSON lines by the name of one; the first column is required."""
    parts: list[str] = []
    size = 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_ROW_CHARACTERS:
            raise NotTextError(f"is JSON of more than {MAX_ROW_CHARACTERS} characters; write JSON Lines (.jsonl)")
    text = "".join(parts)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        first = next(_json_rows(whole_lines([text]), form), None)
        if first is None or first.problem:
            raise NotTextError(f"is not JSON ({error})") from error
        yield from _json_rows(whole_lines([text]), form)
        return
    items = content if isinstance(content, list) else [content]
    rows = [_json_row(number, item, form) for number, item in enumerate(items, start=1)]
    if form.columns and not any(form.columns[0] in (row.values or ()) for row in rows):
        raise NoColumnError(f"is JSON without a field {form.columns[0]!r}")
    yield from rows


def parquet_rows(path: Path, form: TableForm) -> Iterator[Row]:
    """The rows of a Parquet file."""
    with damage_named(path):
        file = pq.ParquetFile(path, page_checksum_verification=True, buffer_size=CHUNK_BYTES)
        columns = list(_places(file.schema_arrow.names, form.columns))
        number = 0
        for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=columns, use_threads=False):
            for row in range(len(batch)):
                number += 1
                values = {}
                try:
                    for column in columns:
                        values[column] = batch.column(column)[row].as_py()
                except UnicodeDecodeError as error:
                    yield Row(number, None, f"field {column!r} is not UTF-8 ({error.reason})")
                else:
                    yield Row(number, values)


def _places(names: Sequence[str], columns: Sequence[Column] | None) -> dict[Column, int]:
    """The position of each column."""
    places: dict[Column, int] = {}
    for column in names if columns is None else columns:
        if isinstance(column, int):
            places[column] = column
        elif names.count(column) == 1:
            places[column] = names.index(column)
        else:
            number = f"{names.count(column)} columns" if column in names else "no column"
            raise NoColumnError(f"has {number} {column!r}, only {list(names[:20])}")
    return places


def _table_rows(lines: Iterator[str | None], kind: str, form: TableForm, counts: Counter) -> Iterator[Row]:
    opening = next(lines, None)
    if opening is None:
        raise NoColumnError("is empty")
    delimiter, names = _header(opening, kind, form)
    places = _places(names, form.columns if form.header or form.columns else range(len(names)))
    if not form.header:
        lines = chain([opening], lines)
    width, last = len(names), max(places.values())
    rows = _numbered_fields(lines, 1 + form.header, delimiter, width, form, counts)
    for number, fields, problem in _without_blanks(rows, form.exact and (width == 1 or not form.quotes)):
        if any(fields[width:]) and last == width - 1 and not form.exact:
            fields[last:] = [delimiter.join(fields[last:])]
            counts[LOOSE_DELIMITERS] += 1
        if not problem and (len(fields) != width if form.exact else any(fields[width:])):
            problem = _wrong_number(fields, width, delimiter, form)
        values = {column: fields[place] for column, place in places.items() if place < len(fields)}
        yield Row(number, None if problem else values, problem)


def _without_blanks(rows: Iterator[_Fields], are_cells: bool) -> Iterator[_Fields]:
    """The rows that have fields; with `are_cells`, a blank one that another follows has an empty field."""
    blanks: list[_Fields] = []
    for number, fields, problem in rows:
        if fields or problem:
            yield from blanks
            blanks = []
            yield number, fields, problem
        elif are_cells:
            blanks.append((number, [""], ""))


def _wrong_number(fields: list[str], width: int, delimiter: str, form: TableForm) -> str:
    remedy = f"; quote a text with {delimiter!r} in it" if form.quotes and len(fields) > width else ""
    return f"has {len(fields)} fields, the first row {width}{remedy}: {delimiter.join(fields)[:_MAX_SHOWN]!r}"


def _header(line: str | None, kind: str, form: TableForm) -> tuple[str, list[str]]:
    """(delimiter, names of the columns) of the first line."""
    line = line or ""
    names_by_delimiter = {
        delimiter: next(csv.reader([line], delimiter=delimiter), [""]) if form.quotes else line.split(delimiter)
        for delimiter in _DELIMITERS[kind]
    }
    for delimiter, names in names_by_delimiter.items():
        names[:] = [name.strip() for name in names]
        if form.columns and form.header and set(form.columns) <= set(names):
            return delimiter, names
    return max(names_by_delimiter.items(), key=lambda item: len(item[1]))


def _numbered_fields(
    lines: Iterator[str | None], number: int, delimiter: str, width: int, form: TableForm, counts: Counter
) -> Iterator[_Fields]:
    """The rows, of which the first begins at line `number`."""
    if not form.quotes:
        for place, line in enumerate(lines, number):
            yield place, line.split(delimiter) if line else [], _TOO_LONG if line is None else ""
        return
    taken: list[str | None] = []  # the lines of the row that is read
    size = 0  # in characters

    def take() -> str:
        nonlocal size
        taken.append(line := next(lines))
        size += len(line or "")
        if line is None or (len(taken) > 1 and size > MAX_ROW_CHARACTERS):
            raise csv.Error(_TOO_LONG)
        return line + "\n"

    csv.field_size_limit(MAX_ROW_CHARACTERS)  # instead of 131,072 characters
    reader = csv.reader(iter(take, None), delimiter=delimiter, strict=True)
    while True:
        taken.clear()
        size, problem, fields = 0, "", list[str]()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f"is not CSV ({error}); double the marks in a quoted field, and close it"
        if not form.exact and (problem or _is_misread(fields, taken, delimiter, width)):
            for place, line in enumerate(taken, number):
                repaired = _fields_of_line(line, delimiter, width, counts) if line is not None else []
                yield place, repaired, _TOO_LONG if line is None else ""
        else:
            yield number, fields, problem
        number += len(taken)


def _is_misread(fields: list[str], lines: list[str | None], delimiter: str, width: int) -> bool:
    """Whether a row of several lines is rather several rows, the first of which begins with a loose mark."""
    if len(lines) == 1 or not fields:
        return False
    are_rows = all((line or "").count(delimiter) == width - 1 for line in lines)
    return any(fields[width:]) or (len(fields) < width and are_rows)


def _fields_of_line(line: str, delimiter: str, width: int, counts: Counter) -> list[str]:
    """The fields that a line has in itself, as many as the columns if that can be."""
    try:
        fields = next(csv.reader([line], delimiter=delimiter, strict=True), [])
        if not fields or len(fields) == width:
            return fields
    except csv.Error:
        pass
    counts[LOOSE_MARKS] += 1
    fields, lenient = line.split(delimiter), next(csv.reader([line], delimiter=delimiter), [])
    return lenient if len(lenient) == width != len(fields) else fields
