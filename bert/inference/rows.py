"""Reads input rows for predictions: tables, plain lines and JSON lines, from files or standard input.

A file is opened once, when its rows begin; memory is bounded by the longest row.
"""

import json
import os
import select
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from bert.config.setting_errors import suggest
from bert.inference.records import Record, joined
from bert.printable import printable
from data.text.columns import PAIR_NAMES, TEXT_NAMES, TableForm, fitting, joined_parts, value_of
from data.text.compression import COMPRESSIONS, read_chunks
from data.text.encodings import DETECTED, Decoding, code_page_of, detect
from data.text.header_check import NoHeaderError
from data.text.json_rows import nested_rows
from data.text.tables import Table, piped_table, user_table

RawRequest = str | Sequence[Any] | Mapping[str, Any]  # what TrainedModel.request takes
Request = tuple[str, ...]  # a text, a pair of texts, or a question and its context
Keys = Sequence[tuple[str, ...]]  # keys of a JSON object or columns of a table that hold the texts; the first that fit
QUESTION_KEYS: Keys = (("question", "context"),)
PAIR_KEYS: Keys = PAIR_NAMES
SINGLE_KEYS: Keys = tuple((name,) for name in TEXT_NAMES)
# Number of the row from 1; its request, or the error; its fields if it is a row of a table.
_RawRow = tuple[int, RawRequest | ValueError, Mapping[str, Any]]
_KINDS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet", ".txt": "text"}
_KINDS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl")
EMPTY = "the line is empty"
_LONGEST = 4 << 20  # bytes of a line
_READ = 1 << 16
_PAUSE_SECONDS = 0.2


class InputRow(NamedTuple):
    """A row of a table, or a line."""

    record: Record  # fields that the output repeats, with the error of an unusable row
    texts: Request  # texts to predict; empty for an unusable row
    error: str  # why the row is unusable; "" if it is usable
    where: str  # FILE:LINE


@dataclass(frozen=True)
class RowForm:
    """Describes where the texts of an input row are.

    Attributes:
        check: returns the texts of a request; raises ValueError if they cannot be predicted.
        kind: auto, text, tsv, csv or jsonl. auto: by the file's name, else by its first line.
        splits_tabs: whether a tab in plain text separates two texts.
        names: names that the texts of a plain line get in its record.
        hidden: key of a JSON line that is not repeated in its record.
    """

    keys: Keys
    check: Callable[[RawRequest], Request]
    kind: str = "auto"
    splits_tabs: bool = False
    names: tuple[str, ...] = ("text", "text_pair")
    hidden: str = ""
    decoding: Decoding = DETECTED


class Rows:
    """Iterates over the rows of files or of standard input; yields None when a pipe pauses for 0.2 seconds.

    Attributes (they describe the input that was read so far):
        columns: names of the columns of the first row, in order.
        names: column names of a CSV or TSV, also without rows; empty for other tables; None if there is no table.
        delimiter: separator of the table's columns.
        mark: byte order mark of the table; "" for plain UTF-8.
        num_bytes: bytes of lines.
    """

    def __init__(self, paths: Sequence[Path], form: RowForm) -> None:
        self.paths, self._form = paths, form
        self.columns: Sequence[str] = ()
        self.names: Sequence[str] | None = None
        self.delimiter, self.mark, self.num_bytes = ",", "", 0

    def __iter__(self) -> Iterator[InputRow | None]:
        paths: Sequence[Path | None] = self.paths or [None]
        for path in paths:
            name = str(path or "standard input")
            table = self._table(path)
            for raw in self._lines(path) if table is None else self._table_rows(table, name):
                yield raw and self._row(raw, name, is_cells=table is not None)

    def _table(self, path: Path | None) -> Table | None:
        """Open the input as a table; None if it consists of lines. A TSV without known columns is read as lines."""
        (kind, is_table), form = kind_of(path, self._form.kind), table_form(self._form.keys, self._form.decoding.header)
        is_list = kind == "jsonl" and any("[]" in name for name in form.paths())  # a line may give several rows
        if not is_table and not (is_list and path):
            return None
        try:
            if path is None:
                table = piped_table(_standard_input(), form, self._form.decoding.encoding)
            else:
                table = user_table(path, form, kind, self._form.decoding)
        except NoHeaderError:
            if kind != "tsv":
                raise
            return None
        if kind == "tsv" and not form.is_named_by(table.columns):
            return None
        for line in table.findings.encoding_lines():
            print(printable(f"{path}: {line}"), file=sys.stderr)
        if not self.columns:
            self.names = table.columns if table.delimiter else ()
            self.delimiter = table.delimiter if kind == "csv" else ","
            self.mark = table.byte_order_mark() if table.delimiter else ""
        return table

    def _table_rows(self, table: Table, name: str) -> Iterator[_RawRow]:
        is_first = True
        for number, values, problem in table.rows:
            if is_first and values and not problem:
                self._require_columns(values, name)
            is_first = False
            yield number, ValueError(problem) if problem else values or {}, values or {}

    def _require_columns(self, row: Mapping[str, Any], name: str) -> None:
        """Raise ValueError if the first row of a table lacks the columns of the texts."""
        keys = self._form.keys
        if fitting(keys, row) is not None:
            return
        if "data" in row and any("question" in names for names in keys):
            raise ValueError(f"{name} has no column 'question'; SQuAD's form is for run_squad.py --predict-file")
        missing = next((part for name in keys[0] for part in joined_parts(name) if part not in row), keys[0][0])
        hint = suggest(
            missing, map(str, row), "--text-column names the right one, and --no-header reads a table without names"
        )
        wanted = " and ".join(repr(part) for name in keys[0] for part in joined_parts(name) or (name,))
        raise ValueError(f"{name} has no column {wanted}, only {list(row)[:20]}; {hint}")

    def _lines(self, path: Path | None) -> Iterator[_RawRow | None]:
        parser = _LineParser(kind_of(path, self._form.kind)[0], self._form)
        with open(path, "rb", buffering=0) if path else _standard_input() as file:
            codecs = _codecs_of(path, self._form.decoding)
            for line in read_lines(file.fileno(), self._count_bytes, codecs):
                if line is None:
                    yield None
                elif not parser.is_header(line):
                    yield line.number, parser.request(line), {}

    def _count_bytes(self, number: int) -> None:
        self.num_bytes += number

    def _row(self, raw: _RawRow, name: str, *, is_cells: bool) -> InputRow:
        number, request, record = raw
        texts, problem = Request(), ""
        try:
            if isinstance(request, ValueError):
                raise request
            if isinstance(request, Mapping):
                record = {key: request[key] for key in request if is_cells or key != self._form.hidden}
            texts = self._form.check(texts_of(request, self._form.keys))
            if not isinstance(request, Mapping):
                record = dict(zip(self._form.names, texts, strict=False))
        except ValueError as error:
            problem = str(error)
        if not self.columns and (is_cells or not problem):
            self.columns = list(record)
        if problem:
            record = joined(record, {**({} if is_cells else {"line": number}), "error": problem})
        return InputRow(dict(record), texts, problem, f"{name}:{number}")


def _standard_input() -> BinaryIO:
    """Standard input without a buffer, because a buffer would wait until it is full."""
    return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)


class Line(NamedTuple):
    number: int  # number of the line, from 1
    text: str  # content without the line end
    error: str = ""  # why the line cannot be read


def _codecs_of(path: Path | None, decoding: Decoding) -> Sequence[str]:
    """The codecs with which a line is decoded; the first that fits is used."""
    code_page = code_page_of(decoding.encoding)
    if code_page is None:
        return [decoding.encoding]
    if path is not None and not code_page:
        code_page = detect(lambda: read_chunks(path, ""), decoding.language).code_page()
        if code_page:
            note = f"{path}: read as {code_page} where it is not UTF-8; --encoding names another"
            print(printable(note), file=sys.stderr)
    return ["utf-8", code_page] if code_page else ["utf-8"]


def read_lines(
    descriptor: int, count_bytes: Callable[[int], None] = lambda number: None, codecs: Sequence[str] = ("utf-8",)
) -> Iterator[Line | None]:
    """Yield the lines of an open file, pipe or terminal; None when a pipe has no data for 0.2 seconds."""
    number, start = 0, b""  # `start`: bytes of a line that has not ended; no more are added once it is too long
    while True:
        if not select.select([descriptor], [], [], _PAUSE_SECONDS)[0]:
            yield None
            select.select([descriptor], [], [])
        data = os.read(descriptor, _READ)
        count_bytes(len(data))
        *endings, rest = data.split(b"\n")
        if start and not data:  # the last line has no end
            endings = [b""]
        for ending in endings:
            number += 1
            yield _line(number, start + ending, codecs)
            start = b""
        if not data:
            return
        start = start if len(start) > _LONGEST else start + rest


def _line(number: int, raw: bytes, codecs: Sequence[str]) -> Line:
    if len(raw) > _LONGEST:
        return Line(number, "", f"the line is longer than {_LONGEST >> 20} MB; split it")
    raw, problem = raw.removeprefix(BOM_UTF8) if number == 1 else raw, ""
    for codec in codecs:
        try:
            return Line(number, raw.decode(codec).removesuffix("\r"))
        except UnicodeDecodeError as error:
            problem = f"byte {raw[error.start]:#04x} is not {codec.upper()}; pass its --encoding, or save it as UTF-8"
    return Line(number, "", problem)


class _LineParser:
    """Parses the lines of one input into requests.

    Args:
        kind: auto, text, tsv or jsonl; auto: JSON lines if the first line begins with "{", else text.
    """

    def __init__(self, kind: str, form: RowForm) -> None:
        self._kind, self._form = kind, form
        self._columns: Sequence[str] = ()  # names in the header of a TSV

    def is_header(self, line: Line) -> bool:
        """Whether a line is the header of a TSV."""
        if line.number == 1 and self._kind == "tsv":
            columns = [part.strip() for part in line.text.split("\t")]
            if fitting(self._form.keys, columns) is not None:
                self._columns = columns
        return line.number == 1 and bool(self._columns)

    def request(self, line: Line) -> RawRequest | ValueError:
        """The request in a line, or the error if the line cannot be read."""
        try:
            return self._parsed(line)
        except ValueError as error:
            return error

    def _parsed(self, line: Line) -> RawRequest:
        text = line.text
        if line.error or not text.strip():
            raise ValueError(line.error or EMPTY)
        if self._kind == "auto":
            self._kind = "jsonl" if text.lstrip().startswith("{") else "text"
        if self._kind == "jsonl":
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"not JSON ({str(error)[:80]}); every line must be a JSON object") from None
            if not isinstance(value, (dict, str)):
                raise ValueError(f"JSON of another kind than an object: {text[:40]}")
            rows = [value] if isinstance(value, str) else list(nested_rows(value, table_form(self._form.keys).paths()))
            if len(rows) != 1:
                raise ValueError(f"{len(rows)} texts in one line; write each on a line, or name a file")
            return rows[0]
        if self._kind != "tsv" and not self._form.splits_tabs:
            return text
        parts = [part.strip() for part in text.split("\t")]
        if not self._columns:
            return parts[0] if len(parts) == 1 else parts
        if len(parts) != len(self._columns):
            raise ValueError(f"{len(parts)} columns, but the header has {len(self._columns)}")
        return dict(zip(self._columns, parts, strict=True))


def filled_rows(path: Path, form: RowForm) -> Iterator[InputRow]:
    """The rows of a file, without empty lines."""
    return (row for row in Rows([path], form) if row is not None and row.error != EMPTY)


def texts_of(raw: RawRequest, keys: Keys) -> tuple[Any, ...]:
    """The texts of a request: a text, a sequence of texts, or an object that has all keys of one tuple."""
    if not isinstance(raw, Mapping):
        if not isinstance(raw, Iterable):
            raise ValueError(f"{raw!r} must be text; replace what is missing, or leave it out")
        return (raw,) if isinstance(raw, str) else tuple(raw)
    names = fitting(keys, raw)
    if names is None:
        wanted = " and ".join(part for name in keys[0] for part in joined_parts(name) or (name,))
        raise ValueError(f"the object has the keys {', '.join(raw) or 'none'}; it must have {wanted}")
    return tuple(value_of(raw, name) for name in names)


def table_form(keys: Keys, header: bool = True) -> TableForm:
    """The form in which a table is read: all columns, with the keys as expected names."""
    return TableForm(None, header, "cells", expected=keys)


def kind_of(path: Path | None, kind: str) -> tuple[str, bool]:
    """(kind, is_table) of an input: by the flag, otherwise by the file's name, otherwise auto."""
    if kind != "auto" or path is None:
        return kind, kind == "csv"
    is_compressed = path.suffix.lower() in COMPRESSIONS
    suffix = Path(path.stem if is_compressed else path.name).suffix.lower()
    if suffix == ".json" and not is_compressed and _is_document(path):
        return "json", True
    kind = _KINDS.get(suffix, "auto")
    return kind, kind in ("csv", "tsv", "parquet") or (kind == "jsonl" and is_compressed)


def _is_document(path: Path) -> bool:
    """Whether a JSON file is one document, as in SQuAD, rather than one object on each line."""
    with path.open("rb") as file:
        first = file.readline(_LONGEST)
    try:
        content = json.loads(first)
    except (ValueError, RecursionError):
        return bool(first)
    return isinstance(content["data"] if isinstance(content, dict) and "data" in content else content, list)
