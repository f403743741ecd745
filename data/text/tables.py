"""Reads tables row by row: CSV, TSV, JSON lines, JSON and Parquet, in bounded memory but for a JSON document.

Every row gives a `Row`, in order. A row that cannot be read has a problem and no values; the caller counts, names or
refuses it.

CSV    the first line names the columns; separated by commas, semicolons, tabs or bars
TSV    separated by tabs; with or without a line of names
JSON   lines of objects, or a file that is one object or a list of them; a text stands for an object of one column
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from data.text.columns import (
    SAMPLE_CHARACTERS,
    SAMPLE_ROWS,
    NoColumnError,
    NoHeaderError,
    TextColumn,
    is_without_header,
)
from data.text.encodings import MAX_ROW_CHARACTERS, NotTextError, whole_lines
from data.text.inputs import CHUNK_BYTES, damage_named

KINDS = ("csv", "tsv", "jsonl", "json", "parquet")
LOOSE_MARKS = "rows with a quotation mark that quotes nothing"
LOOSE_DELIMITERS = "rows whose unquoted text has the delimiter"
_ROWS_AT_A_TIME = 16
csv.field_size_limit(MAX_ROW_CHARACTERS)  # instead of 131,072 characters
_DELIMITERS = {"csv": ",;\t|", "tsv": "\t"}
_MAX_SHOWN = 60  # characters of a row in a message
_TOO_LONG = f"is longer than {MAX_ROW_CHARACTERS} characters"

T = TypeVar("T")
Column = str | int  # its name, or in a table without a line of names its position from 0
_Fields = tuple[int, list[str], str]  # number of the first line, fields (none of a blank line), problem


@dataclass(frozen=True)
class TableForm:
    """What to read of a table, and how.

    Attributes:
        quotes: how CSV and TSV are quoted. "none": marks are text; a row must have as many fields as the first line,
            and a blank line is a row of one empty field, but not at the end. "loose" loses no text: a mark that quotes
            nothing is text, and a delimiter after the beginning of the last column too; trailing fields may be missing,
            and blank lines are no rows. "cells": as "loose", but a row may not have more fields than the first line,
            and in a table of one column a blank line is an empty field, but not at the end.
    """

    columns: Sequence[Column] | None  # None: all that the table names
    header: bool = True  # whether the first line of CSV and TSV names the columns
    quotes: Literal["none", "cells", "loose"] = "loose"
    text: TextColumn | None = None  # what chooses one more column, of text; None: `columns` are all
    optional: str | None = None  # one more column, where a table has it

    def all_columns(self, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> list[Column]:
        """The columns to read of a table with these names; `rows` are its first ones."""
        return [
            *([self.text.choose(names, rows)] if self.text else []),
            *(names if self.columns is None else self.columns),
        ]


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        values: by column: texts of CSV and TSV, otherwise what JSON or Parquet holds, in JSON of all its keys. A field
            that the row does not have is left out. None if the row cannot be read; where all columns are read, one with
            too many fields has the first of them, and a problem.
    """

    number: int  # of its first line in the file, from 1; in a JSON document and in Parquet, of the row
    values: dict[Any, Any] | None
    problem: str = ""  # why it cannot be read; "" if it can


def rows_of_chunks(chunks: Iterable[str], kind: str, form: TableForm, counts: Counter) -> Iterator[Row]:
    """The rows of decoded text; kind is not parquet. `counts` gets what was repaired."""
    if kind == "json":
        return with_text(_document_rows(chunks, form), form)
    return rows_of_lines(whole_lines(chunks), kind, form, counts)


def rows_of_lines(lines: Iterable[str | None], kind: str, form: TableForm, counts: Counter) -> Iterator[Row]:
    """The rows of lines without their ends, of which None was too long; kind is csv, tsv or jsonl."""
    if kind == "jsonl":
        return with_text(_json_rows(lines, form), form)
    return _Table(iter(lines), kind, form, counts).rows()


def _first(items: Iterator[T], size: Callable[[T], int], is_enough: Callable[[T], bool] | None = None) -> list[T]:
    """The first items, which are taken from the iterator: a sample of bounded size, or until one is enough."""
    taken, characters = list[T](), 0
    for item in items:
        taken.append(item)
        characters += size(item)
        if len(taken) == SAMPLE_ROWS or characters > SAMPLE_CHARACTERS or (is_enough is not None and is_enough(item)):
            break
    return taken


def with_text(rows: Iterator[Row], form: TableForm) -> Iterator[Row]:
    """The rows of JSON, after the form's text column was chosen by the first ones."""
    if form.text is None:
        return rows
    text, names = form.text, form.text.names
    head = _first(rows, lambda row: len(str(row.values)), lambda row: text.among(row.values or ()) is not None)
    if objects := [row.values for row in head if row.values]:
        try:
            chosen = text.choose(list(dict.fromkeys(key for row in objects for key in row)), objects)
            text.names = list(dict.fromkeys([*names, chosen]))  # objects differ in their keys
        except NoColumnError as error:
            later = next(rows, None)
            if later is None:
                raise
            return _unless_refused(chain(head, [later], rows), text, error)
    return chain(head, rows)


def _unless_refused(rows: Iterator[Row], text: TextColumn, refusal: NoColumnError) -> Iterator[Row]:
    """The rows; at their end the refusal of the first ones is raised, unless a later one has a text."""
    has_text = False
    for row in rows:
        has_text = has_text or text.among(row.values or ()) is not None
        yield row
    if not has_text:
        raise refusal


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
    columns = [*(form.text.names[:1] if form.text else ()), *(form.columns or ())]
    if isinstance(content, str) and len(columns) == 1:
        return Row(number, {columns[0]: content})
    if isinstance(content, dict):
        return Row(number, content)
    return Row(number, None, f"is a {type(content).__name__}, not an object")


def _document_rows(chunks: Iterable[str], form: TableForm) -> Iterator[Row]:
    """The rows of a JSON document, or of JSON lines by the name of one; the first column is required."""
    text = ""
    for chunk in chunks:
        text += chunk
        if len(text) > MAX_ROW_CHARACTERS:
            raise NotTextError(f"is JSON of more than {MAX_ROW_CHARACTERS} characters; write JSON Lines (.jsonl)")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        of_lines = _json_rows(whole_lines([text]), form)
        first = next(of_lines, None)
        if first is None or first.problem:
            raise NotTextError(f"is not JSON ({error})") from error
        yield first
        yield from of_lines
        return
    items = content if isinstance(content, list) else [content]
    rows = [_json_row(number, item, form) for number, item in enumerate(items, start=1)]
    if form.text is None and form.columns and not any(form.columns[0] in (row.values or ()) for row in rows):
        names = list(dict.fromkeys(name for row in rows for name in row.values or ()))
        raise NoColumnError(f"is JSON without a field {form.columns[0]!r}", form.columns[0], names)
    yield from rows


def parquet_rows(path: Path, form: TableForm) -> Iterator[Row]:
    """The rows of a Parquet file."""
    with damage_named(path):
        file = pq.ParquetFile(path, page_checksum_verification=True, buffer_size=CHUNK_BYTES)
        names = file.schema_arrow.names
        columns = list(_places(names, form.all_columns(names, _parquet_sample(file)), form.optional))
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


def _parquet_sample(file: pq.ParquetFile) -> Iterator[dict[str, Any]]:
    """The texts of the first rows; they are read only where the columns' names decide nothing."""
    texts = [column.name for column in file.schema_arrow if column.type in (pa.string(), pa.large_string())]
    for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=texts, use_threads=False):
        with suppress(UnicodeDecodeError):
            yield from batch.to_pylist()
        return


def _places(names: Sequence[str], columns: Sequence[Column], optional: str | None) -> dict[Column, int]:
    """The position of each column; the optional one is last, where a table has it."""
    places: dict[Column, int] = {}
    for column in columns:
        if isinstance(column, int):
            places[column] = column
        elif names.count(column) == 1:
            places[column] = names.index(column)
        else:
            number = f"{names.count(column)} columns" if column in names else "no column"
            raise NoColumnError(f"has {number} {column!r}, only {list(names[:20])}", column, names)
    if optional is not None and optional in names:
        places.setdefault(optional, names.index(optional))
    return places


def delimiter_in(line: str, kind: str) -> str:
    """What separates the names in the first line of a table: that which gives the most of them."""
    return max(_DELIMITERS[kind], key=lambda delimiter: len(next(csv.reader([line], delimiter=delimiter), [])))


def _opens_a_quote(line: str, delimiter: str) -> bool:
    """Whether a field of the line goes on in the next one."""
    try:
        next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    return False


class _Table:
    """CSV or TSV; the first line decides the delimiter and the number of columns."""

    def __init__(self, lines: Iterator[str | None], kind: str, form: TableForm, counts: Counter) -> None:
        opening = next(lines, None)
        if opening is None:
            raise NoHeaderError("is empty; its first line must name the columns")
        self._form, self._counts = form, counts
        self._delimiter, names = self._header(opening, _DELIMITERS[kind])
        self._width = len(names)
        if form.header and form.quotes != "none" and _opens_a_quote(opening, self._delimiter):
            raise NoHeaderError("has a line break in the name of a column; write the first row on one line")
        if form.columns is None:  # an unnamed column, or the second of a name, is called by its number
            names = [n if n and n not in names[:at] else f"column {at + 1}" for at, n in enumerate(names)]
        head = [] if form.text is None or form.text.among(names) else _first(lines, lambda line: len(line or ""))
        sample = csv.reader((f"{line}\n" for line in head if line is not None), delimiter=self._delimiter)
        rows = [dict(zip(names, row, strict=False)) for row in sample]
        if is_without_header(rows):
            raise NoHeaderError("has no names of columns in its first line, which is a row; add a line of names")
        columns = form.all_columns(names, rows)
        self._lines = chain(head, lines) if form.header else chain([opening], lines)
        self._places = _places(names, columns, form.optional)
        self._last_place = max((self._places[column] for column in columns), default=-1)  # but for the optional one

    def _header(self, line: str, delimiters: str) -> tuple[str, list[str]]:
        """(delimiter, names of the columns) of the first line."""
        form, names_by_delimiter = self._form, {}
        for delimiter in delimiters:
            fields = line.split(delimiter) if form.quotes == "none" else next(csv.reader([line], delimiter=delimiter))
            names = names_by_delimiter[delimiter] = [name.strip() for name in fields]
            has_text = form.text is None or form.text.among(names) is not None
            if form.header and form.columns is not None and has_text and set(form.columns) <= set(names):
                return delimiter, names
        return max(names_by_delimiter.items(), key=lambda item: len(item[1]))

    def rows(self) -> Iterator[Row]:
        for number, fields, problem in self._without_blanks():
            problem, reads_all = problem or self._fit(fields), self._form.columns is None
            is_kept = not problem or (reads_all and fields)
            if reads_all:  # a row may leave out its last fields; the columns are those of the first row
                fields = [*fields, *[""] * (self._width - len(fields))]
            values = {column: fields[place] for column, place in self._places.items() if place < len(fields)}
            yield Row(number, values if is_kept else None, problem)

    def _fit(self, fields: list[str]) -> str:
        """Join what an unquoted last column lost to the delimiter; returns the problem of another wrong number."""
        surplus, is_quoted = any(fields[self._width :]), self._form.quotes != "none"
        last = self._width - 1
        if surplus and self._form.quotes == "loose" and self._last_place == last:
            fields[last:] = [self._delimiter.join(fields[last:])]
            self._counts[LOOSE_DELIMITERS] += 1
        elif surplus or (not is_quoted and len(fields) != self._width):
            remedy = f"; quote a text with {self._delimiter!r} in it" if is_quoted else ""
            row = self._delimiter.join(fields)[:_MAX_SHOWN]
            return f"has {len(fields)} fields, the first row {self._width}{remedy}: {row!r}"
        return ""

    def _without_blanks(self) -> Iterator[_Fields]:
        """The rows that have fields; a blank one has an empty field, if the form says so and another row follows."""
        quotes = self._form.quotes
        are_cells = quotes == "none" or (quotes == "cells" and self._width == 1)
        rows = self._quoted_rows()
        if quotes == "none":
            rows = (
                (number, line.split(self._delimiter) if line else [], _TOO_LONG if line is None else "")
                for number, line in enumerate(self._lines, 1 + self._form.header)
            )
        blanks: list[_Fields] = []
        for number, fields, problem in rows:
            if fields or problem:
                yield from blanks
                blanks = []
                yield number, fields, problem
            elif are_cells:
                blanks.append((number, [""], ""))

    def _quoted_rows(self) -> Iterator[_Fields]:
        number = 1 + self._form.header
        while True:
            fields, is_bad, taken = list[str](), False, list[str | None]()
            try:
                fields = next(csv.reader(self._take(taken), delimiter=self._delimiter, strict=True))
            except StopIteration:
                return
            except csv.Error:
                is_bad = True
            if is_bad or self._is_misread(fields, taken):
                for place, line in enumerate(taken, number):
                    yield place, [] if line is None else self._fields_of_line(line), _TOO_LONG if line is None else ""
            else:
                yield number, fields, ""
            number += len(taken)

    def _take(self, taken: list[str | None]) -> Iterator[str]:
        """The lines of a row, which are appended to `taken`."""
        size = 0
        for line in self._lines:
            taken.append(line)
            size += len(line or "")
            if line is None or (len(taken) > 1 and size > MAX_ROW_CHARACTERS):
                raise csv.Error(_TOO_LONG)
            yield line + "\n"

    def _is_misread(self, fields: list[str], lines: list[str | None]) -> bool:
        """Whether a row of several lines is rather several rows, the first of which begins with a loose mark."""
        if len(lines) == 1 or not fields:
            return False
        are_rows = all((line or "").count(self._delimiter) == self._width - 1 for line in lines)
        return any(fields[self._width :]) or (len(fields) < self._width and are_rows)

    def _fields_of_line(self, line: str) -> list[str]:
        """The fields that a line has in itself, as many as the columns if that can be."""
        try:
            fields = next(csv.reader([line], delimiter=self._delimiter, strict=True), [])
            if not fields or len(fields) == self._width:
                return fields
        except csv.Error:
            pass
        self._counts[LOOSE_MARKS] += 1
        fields, lenient = line.split(self._delimiter), next(csv.reader([line], delimiter=self._delimiter), [])
        return lenient if len(lenient) == self._width != len(fields) else fields
