"""Reads documents from files of rows: jsonl, json, csv, tsv and parquet; a field of each row is the text."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator

import pyarrow.parquet as pq

from data.text.compression import CHUNK_BYTES, damage_named
from data.text.encodings import NotTextError
from data.text.inputs import Findings, Input
from data.text.pieces import MAX_ROW_CHARACTERS, Piece, Reading, whole_lines

_ROWS_AT_A_TIME = 16
_MOST_GIVEN_BACK = 64 << 20  # characters of a table that were read in vain, because a quotation mark quoted nothing
_DELIMITERS = {"csv": ",;\t|", "tsv": "\t"}


class NoTextFieldError(NotTextError):
    """A file of rows has no field with the text; the message says which it has."""


def jsonl_pieces(source: Input, chunks: Iterator[str], reading: Reading, findings: Findings) -> Iterator[Piece]:
    """The rows of JSON Lines; bad ones are counted and named."""
    for number, line in enumerate(whole_lines(chunks), start=1):
        if line is None:
            findings.bad_row(source.path, number, f"is longer than {MAX_ROW_CHARACTERS} characters")
            continue
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            findings.bad_row(source.path, number, f"is not JSON ({error})")
            continue
        yield from _json_row(source, number, row, reading, findings)


def json_pieces(source: Input, chunks: Iterator[str], reading: Reading, findings: Findings) -> Iterator[Piece]:
    """The rows of a file of JSON: a list of objects or texts, one object, or JSON Lines by another name.

    Raises:
        NotTextError: the file is too long, or not JSON.
        NoTextFieldError: it is JSON of another form.
    """
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
        if not _is_object(text.lstrip().partition("\n")[0]):
            raise NotTextError(f"is not JSON ({error})") from error
        yield from jsonl_pieces(source, iter([text]), reading, findings)
        return
    rows = content if isinstance(content, list) else [content]
    if not any(isinstance(row, str) or (isinstance(row, dict) and reading.text_field in row) for row in rows):
        raise NoTextFieldError(f"is JSON without a field {reading.text_field!r}")
    for number, row in enumerate(rows, start=1):
        row = {reading.text_field: row} if isinstance(row, str) and not reading.id_field else row
        yield from _json_row(source, number, row, reading, findings)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _json_row(source: Input, number: int, row: object, reading: Reading, findings: Findings) -> Iterator[Piece]:
    if not isinstance(row, dict):
        findings.bad_row(source.path, number, f"is a {type(row).__name__}, not an object")
        return
    yield from _row_pieces(
        source, number, row.get(reading.text_field), row.get(reading.id_field or ""), reading, findings
    )


def table_pieces(source: Input, chunks: Iterator[str], reading: Reading, findings: Findings) -> Iterator[Piece]:
    """The rows of csv or tsv, whose first row names the columns.

    Raises:
        NoTextFieldError: there is no such column.
    """
    lines = _Lines((line or "") + "\n" for line in whole_lines(chunks))
    delimiter, columns = _header(next(lines, ""), source.kind, reading)
    text, given_id = columns.index(reading.text_field), columns.index(reading.id_field) if reading.id_field else None
    for number, row in enumerate(_table_rows(lines, delimiter, len(columns), findings), start=1):
        if any(row[len(columns) :]):
            if text != len(columns) - 1:
                found = f"has {len(row)} fields, the first row {len(columns)}; quote a text with {delimiter!r} in it"
                findings.bad_row(source.path, number, found)
                continue
            row[text:] = [delimiter.join(row[text:])]
            findings.counts["rows whose unquoted text has the delimiter"] += 1
        if not row:
            continue
        value = row[text] if text < len(row) else None
        identifier = row[given_id] if given_id is not None and given_id < len(row) else None
        yield from _row_pieces(source, number, value, identifier, reading, findings)


class _Lines:
    """The lines of a table, of which some can be given back."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._given_back: list[str] = []  # the next one last
        self.taken: list[str] = []  # for the row that is read
        self.num_given_back = self._num_taken = 0  # characters

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.taken.append(self._given_back.pop() if self._given_back else next(self._lines))
        self._num_taken += len(self.taken[-1])
        if len(self.taken) > 1 and self._num_taken > MAX_ROW_CHARACTERS:
            raise csv.Error(f"more than {MAX_ROW_CHARACTERS} characters")
        return self.taken[-1]

    def begin_row(self) -> None:
        self.taken.clear()
        self._num_taken = 0

    def give_back(self) -> str:
        """Give back all lines of the row but the first -> the first."""
        first, *rest = self.taken
        self._given_back += reversed(rest)
        self.num_given_back += self._num_taken - len(first)
        return first


def _table_rows(lines: _Lines, delimiter: str, num_columns: int, findings: Findings) -> Iterator[list[str]]:
    """The rows; a quotation mark that stands at the beginning of a field and quotes nothing is a part of the text.

    It seems to quote the lines up to the next mark. So a row is read from its first line alone if that mark does not
    end a field, or if the fields of a row of several lines are not as many as those of the first row, while those of
    its lines are. Where too much was read in vain, marks quote nothing any more.
    """
    csv.field_size_limit(MAX_ROW_CHARACTERS)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        lines.begin_row()
        try:
            tries = lines.num_given_back < _MOST_GIVEN_BACK
            row = next(reader) if tries else next(lines).rstrip("\n").split(delimiter)
        except StopIteration:
            return
        except csv.Error:
            row = []
        if (not row and lines.taken != ["\n"]) or _is_misread(row, lines.taken, delimiter, num_columns):
            row = _row_of_line(lines.give_back().rstrip("\n"), delimiter, num_columns)
            findings.counts["rows with a quotation mark that quotes nothing"] += 1
        yield row


def _is_misread(row: list[str], taken: list[str], delimiter: str, num_columns: int) -> bool:
    if len(taken) == 1 or (len(row) >= num_columns and not any(row[num_columns:])):
        return False
    return len(row) > num_columns or all(line.count(delimiter) == num_columns - 1 for line in taken)


def _row_of_line(line: str, delimiter: str, num_columns: int) -> list[str]:
    """The fields of a line as they stand; those that its marks make if only they are as many as the columns."""
    row = line.split(delimiter)
    if len(row) == num_columns:
        return row
    try:
        quoted = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return row
    return quoted if len(quoted) == num_columns else row


def _header(line: str, kind: str, reading: Reading) -> tuple[str, list[str]]:
    """(delimiter, names of the columns) of the first row."""
    wanted = {name for name in (reading.text_field, reading.id_field) if name}
    found = {mark: next(csv.reader([line], delimiter=mark), []) for mark in _DELIMITERS[kind]}
    for mark, names in found.items():
        names[:] = [name.strip() for name in names]
        if wanted <= set(names):
            return mark, names
    columns = max(found.values(), key=len)
    missing = sorted(wanted.difference(columns))
    raise NoTextFieldError(f"has no column {missing[0]!r}, only {columns[:20]}")


def parquet_pieces(source: Input, reading: Reading, findings: Findings) -> Iterator[Piece]:
    """The rows of a parquet file.

    Raises:
        NoTextFieldError: there is no such column.
        ValueError: the file is damaged.
    """
    with damage_named(source.path):
        file = pq.ParquetFile(source.path, page_checksum_verification=True, buffer_size=CHUNK_BYTES)
        wanted = [name for name in (reading.text_field, reading.id_field) if name]
        missing = [name for name in wanted if name not in file.schema_arrow.names]
        if missing:
            raise NoTextFieldError(f"has no column {missing[0]!r}, only {file.schema_arrow.names}")
        number = 0
        for batch in file.iter_batches(batch_size=_ROWS_AT_A_TIME, columns=wanted, use_threads=False):
            for row in range(len(batch)):
                number += 1
                given = batch.column(reading.id_field)[row].as_py() if reading.id_field else None
                try:
                    text = batch.column(reading.text_field)[row].as_py()
                except UnicodeDecodeError as error:
                    findings.bad_row(source.path, number, f"field {reading.text_field!r} is not UTF-8 ({error.reason})")
                    continue
                yield from _row_pieces(source, number, text, given, reading, findings)


def _row_pieces(
    source: Input, number: int, text: object, given_id: object, reading: Reading, findings: Findings
) -> Iterator[Piece]:
    if not isinstance(text, str):
        what = "no text" if text is None else f"a {type(text).__name__}"
        findings.bad_row(source.path, number, f"field {reading.text_field!r} holds {what}")
        return
    if reading.id_field and not isinstance(given_id, (str, int)):
        findings.bad_row(source.path, number, f"field {reading.id_field!r} holds no id")
        return
    name = str(given_id) if reading.id_field else f"{source.name}:{number}"
    if "\x00" in text:
        findings.counts["NUL characters removed"] += text.count("\x00")
        text = text.replace("\x00", "")
    for start in range(0, len(text), CHUNK_BYTES):
        yield Piece(name, text[start : start + CHUNK_BYTES], False)
    yield Piece(name, "", True)
