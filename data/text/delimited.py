"""Reads CSV and TSV row by row in bounded memory; stray quotation marks and delimiters lose no text."""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from data.text.columns import Row, TableForm, check_number_of_columns, first_items, numbered_names, places_of
from data.text.encodings import MAX_ROW_CHARACTERS
from data.text.header_check import (
    REPEATED_NAMES,
    ROWS_OF_TYPES,
    NoHeaderError,
    are_types,
    refuse_names_below,
    refuse_without_header,
    repeats_names,
)

LOOSE_MARKS = "rows with a quotation mark that quotes nothing"
LOOSE_DELIMITERS = "rows whose unquoted text has the delimiter"
csv.field_size_limit(MAX_ROW_CHARACTERS)  # instead of 131,072 characters
_DELIMITERS = {"csv": ",;\t|", "tsv": "\t"}
_MAX_SHOWN = 60  # characters of a row in a message
_TOO_LONG = f"is longer than {MAX_ROW_CHARACTERS} characters"
_Fields = tuple[int, list[str], str]  # number of the first line, fields (none of a blank line), problem


def _opens_a_quote(line: str, delimiter: str) -> bool:
    """Whether a quoted field of the line continues in the next line."""
    try:
        next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    return False


def _numbered_fields(lines: list[str | None], delimiter: str, first: int) -> list[tuple[int, list[str]]]:
    """(line number, fields) of each row, for lines that begin with the line of that number."""
    reader = csv.reader((f"{line or ''}\n" for line in lines), delimiter=delimiter)
    return [(first + reader.line_num - 1, [field.strip() for field in fields]) for fields in reader if fields]


def _repeated_names(names: list[str]) -> dict[int, str]:
    """Repeated column names by column number, from 1; their values are read by that number."""
    known, repeated = set[str](), dict[int, str]()
    for number, name in enumerate(names, start=1):
        if name and name in known:
            repeated[number] = name
        known.add(name)
    return repeated


class DelimitedTable:
    """A CSV or TSV table; the first line decides the delimiter and the number of columns."""

    def __init__(self, lines: Iterator[str | None], kind: str, form: TableForm, counts: Counter) -> None:
        """kind: csv or tsv. `lines` have no line ends; None is a line that was too long."""
        opening = next(lines, None)
        told = re.fullmatch('("?)sep=(.)\\1', opening or "")  # Excel's line before the header
        if told is not None:
            opening = next(lines, None)
        if opening is None:
            raise NoHeaderError("is empty; its first line must name the columns")
        self._form, self._counts = form, counts
        delimiters = told[2] if told else _DELIMITERS[kind]
        self.delimiter, names = self._first_fields(opening, delimiters)
        check_number_of_columns(len(names))
        self._number = 1 + form.header + (told is not None)  # of the first row's line
        self._width = len(names)
        self.repeated_names = _repeated_names(names) if form.columns is None and form.header else {}
        if form.header and form.quotes != "none" and _opens_a_quote(opening, self.delimiter):
            raise NoHeaderError("has a line break in the name of a column; write the first row on one line")
        self._header = names if form.header and form.quotes != "none" else []
        is_named = not form.header or form.quotes == "none" or form.is_named_by(names)
        head = [] if is_named else first_items(lines, lambda line: len(line or ""))
        if head:
            for delimiter in delimiters if self._width <= 1 else self.delimiter:
                refuse_names_below(names, _numbered_fields(head, delimiter, self._number))
        if form.columns is None:
            names = numbered_names(names)
        sample = csv.reader((f"{line}\n" for line in head if line is not None), delimiter=self.delimiter)
        rows = [dict(zip(names, row, strict=False)) for row in sample if row and not repeats_names(row, self._header)]
        rows = rows[1:] if rows and are_types([*rows[0].values()]) else rows
        if form.header:
            refuse_without_header(rows, "--text-column" if form.text else form.flags)
        elif form.columns is None or form.columns:
            names = [f"column {at}" for at in range(1, len(names) + 1)]
        columns = form.all_columns(names, rows)
        self.names = names
        self._lines = chain(head, lines) if form.header else chain([opening], lines)
        self._places = places_of(names, columns, form.optional)
        needed = places_of(names, columns, None)
        self._last_place = max(needed.values(), default=-1)  # but for the optional one

    def _first_fields(self, line: str, delimiters: str) -> tuple[str, list[str]]:
        """(delimiter, fields) of the first line, by the delimiter that gives wanted names or most fields."""
        form, fields_by_delimiter = self._form, dict[str, list[str]]()
        for delimiter in delimiters:
            fields = (
                line.split(delimiter) if form.quotes == "none" else next(csv.reader([line], delimiter=delimiter), [])
            )
            fields = fields_by_delimiter[delimiter] = [field.strip() for field in fields]
            if form.header and form.is_named_by(fields):
                return delimiter, fields
        return max(fields_by_delimiter.items(), key=lambda item: len(item[1]))

    def rows(self) -> Iterator[Row]:
        is_first = bool(self._header)
        for number, fields, problem in self._without_blanks():
            if self._header and (repeats_names(fields, self._header) or (is_first and are_types(fields))):
                self._counts[REPEATED_NAMES if repeats_names(fields, self._header) else ROWS_OF_TYPES] += 1
                continue
            is_first = False
            problem, reads_all = problem or self._fit(fields), self._form.columns is None
            is_kept = not problem or (reads_all and fields)
            if reads_all:  # a row may leave out its last fields; the first row names the columns
                fields = [*fields, *[""] * (self._width - len(fields))]
            values = {column: fields[place] for column, place in self._places.items() if place < len(fields)}
            yield Row(number, values if is_kept else None, problem)

    def _fit(self, fields: list[str]) -> str:
        """Rejoin an unquoted last column that contains delimiters; returns the problem of another wrong count."""
        surplus, is_quoted = any(fields[self._width :]), self._form.quotes != "none"
        last = self._width - 1
        if surplus and self._form.quotes == "loose" and self._last_place == last:
            fields[last:] = [self.delimiter.join(fields[last:])]
            self._counts[LOOSE_DELIMITERS] += 1
        elif surplus or (not is_quoted and len(fields) != self._width):
            remedy = f"; quote a text with {self.delimiter!r} in it" if is_quoted else ""
            row = self.delimiter.join(fields)[:_MAX_SHOWN]
            return f"has {len(fields)} fields, the first row {self._width}{remedy}: {row!r}"
        return ""

    def _without_blanks(self) -> Iterator[_Fields]:
        """Rows without blank lines; a blank row has an empty field if the form says so."""
        quotes = self._form.quotes
        are_cells = quotes == "none" or (quotes == "cells" and self._width == 1)
        rows = self._quoted_rows()
        if quotes == "none":
            rows = (
                (number, line.split(self.delimiter) if line else [], _TOO_LONG if line is None else "")
                for number, line in enumerate(self._lines, self._number)
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
        number = self._number
        while True:
            fields, is_bad, taken = list[str](), False, list[str | None]()
            try:
                fields = next(csv.reader(self._take(taken), delimiter=self.delimiter, strict=True))
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
        """Read the lines of a row, and append them to `taken`."""
        size = 0
        for line in self._lines:
            taken.append(line)
            size += len(line or "")
            if line is None or (len(taken) > 1 and size > MAX_ROW_CHARACTERS):
                raise csv.Error(_TOO_LONG)
            yield line + "\n"

    def _is_misread(self, fields: list[str], lines: list[str | None]) -> bool:
        """Whether a row of several lines is really several rows, after a stray quotation mark."""
        if len(lines) == 1 or not fields:
            return False
        are_rows = all((line or "").count(self.delimiter) == self._width - 1 for line in lines)
        return any(fields[self._width :]) or (len(fields) < self._width and are_rows)

    def _fields_of_line(self, line: str) -> list[str]:
        """Fields of a line by itself, as many as the columns if possible."""
        try:
            fields = next(csv.reader([line], delimiter=self.delimiter, strict=True), [])
            if not fields or len(fields) == self._width:
                return fields
        except csv.Error:
            pass
        self._counts[LOOSE_MARKS] += 1
        fields, lenient = line.split(self.delimiter), next(csv.reader([line], delimiter=self.delimiter), [])
        return lenient if len(lenient) == self._width != len(fields) else fields
