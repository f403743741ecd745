"""Reads documents from files for an index: their texts, places, and the values of table columns to filter by."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert.files import shown
from bert.printable import printable
from bert.search.manifest import Source
from bert.search.passages import TokenCounts, passages
from bert.search.segments import Passage, Value, text_of
from data.text.columns import TableForm, TextColumn, is_blank
from data.text.compression import DamagedError
from data.text.encodings import Decoding
from data.text.file_formats import SOURCE_TEXT, Input
from data.text.findings import Findings
from data.text.inputs import list_inputs
from data.text.readers import Piece, Reading, read_pieces
from data.text.tables import KINDS, open_table
from data.text.text_check import NotTextError

_WITH_LINES = ("txt", "log", "code", "srt")  # text as it is in the file
_ID = "id"  # the usual name of the column of ids
_MOST_COLUMNS = 64
_HALF_PAIR = re.compile("[\ud800-\udfff]")  # half of a surrogate pair, which JSON can escape, is no text
_NAMED = 3  # examples of what is left out


@dataclass(frozen=True)
class Document:
    """A text that was read from a file: a row of a table, or a document of a text file.

    Attributes:
        line: the line of the file where the text begins; None if the format has no lines, such as PDF.
        is_row: whether the text is a row of a table; all passages of a row have the row's line.
        has_id: whether the id comes from the table's column of ids.
    """

    id: str
    text: str
    source: str
    line: int | None = None
    is_row: bool = False
    has_id: bool = False
    columns: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class TableColumns:
    """Names of the columns of a table that hold text, ids and values to filter by.

    None: text and ids are found by the usual names, and all other columns are kept.
    """

    text: str | None = None
    id: str | None = None
    kept: tuple[str, ...] | None = None


class _ColumnError(NotTextError):
    """Error of a table that lacks a column named by a flag, or has too many columns; the message has the remedy."""


@dataclass
class LeftOut:
    """Counts the texts that are left out of the index, by reason, and keeps the first examples of each reason."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, example: str) -> None:
        self.counts[reason] += 1
        if len(named := self.examples.setdefault(reason, [])) < _NAMED:
            named.append(printable(example))

    def lines(self) -> list[str]:
        """One line for each reason, with its count and its examples."""
        found = sorted(self.counts.items())
        return [f"left out: {reason}: {number:,} ({'; '.join(self.examples[reason])})" for reason, number in found]


@dataclass(frozen=True)
class NamedInput:
    """A file to read, its name in the index, and the settings that it is read with."""

    name: str
    input: Input
    form: str = ""

    def state(self) -> Source:
        """The present path, size and modification time of the file, and its settings."""
        stat = self.input.path.stat()
        return Source(str(self.input.path.resolve()), stat.st_size, stat.st_mtime_ns, form=self.form)


def inputs_of(
    paths: Sequence[Path], decoding: Decoding, columns: TableColumns, known: Mapping[str, Source], findings: Findings
) -> list[NamedInput]:
    """List the files of `paths` and of all folders below, with the name of each file in the index.

    A file in a folder gets the folder's name and the path below it. A file that is in the index keeps its name.

    Args:
        known: the files in the index, by name.
    Raises:
        ValueError: there is no such file, none can be read, or two have one name.
    """
    names = {source.path: name for name, source in known.items()}
    found: dict[str, Input] = {}
    for path in paths:
        for source in list_inputs([path], "auto", findings, flag="text"):
            name = path.name if source.path == path else shown(Path(path.resolve().name, source.path.relative_to(path)))
            place = source.path.resolve()
            name = names.get(str(place), name)
            other = found.setdefault(name, source).path.resolve()
            if other == place and name in known and (before := Path(known[name].path)).exists():
                other = before
            if other != place:
                raise ValueError(
                    f"{shown(other)} and {shown(place)} have one name, {name}; name the folder that has both, or make "
                    "another index"
                )
    forms = {True: f"{decoding} {columns}", False: str(decoding)}
    return [NamedInput(name, source, forms[source.kind in KINDS]) for name, source in found.items()]


class DocumentReader:
    """Reads files of all formats.

    Attributes:
        findings: what is unusual about the files; complete after the last document.
        left_out: ids and values that are not used; complete after the last document.
    """

    def __init__(self, decoding: Decoding, columns: TableColumns, findings: Findings) -> None:
        self._decoding, self._columns = decoding, columns
        self.findings, self.left_out = findings, LeftOut()

    def documents(self, source: NamedInput) -> Iterator[Document]:
        """Read the documents of a file, in order. ValueError if the user named the file and it cannot be read."""
        number = 0
        try:
            found = self._rows(source) if source.input.kind in KINDS else self._texts(source)
            for document in found:
                number += 1
                yield document
        except (NotTextError, DamagedError) as error:
            self.findings.refuse(source.input, error, number)

    def _texts(self, source: NamedInput) -> Iterator[Document]:
        """Read the documents of a text file; most files are one document."""
        reading = Reading(self._decoding.language, self._decoding.encoding)
        has_lines, parts = source.input.kind in _WITH_LINES, list[Piece]()
        for piece in read_pieces(source.input, reading, self.findings):
            parts.append(piece)
            if not piece.ends:
                continue
            text = "".join(part.text for part in parts)
            parts.clear()
            identifier = piece.id
            if source.input.kind != SOURCE_TEXT:  # the lines of source text begin with an id
                identifier = source.name + piece.id.removeprefix(source.input.name)
            yield Document(identifier, text, source.name, 1 if has_lines else None)

    def _rows(self, source: NamedInput) -> Iterator[Document]:
        """Read the rows of a table as documents."""
        text_column = TextColumn(self._columns.text)
        form = TableForm(None, self._decoding.header, "cells", text=text_column, flags="--text-column")
        table = open_table(source.input, form, self.findings, self._decoding.encoding, self._decoding.language)
        is_noted = False
        for number, values, problem in table.rows:
            if text_column.guess is not None and not is_noted:
                self.findings.guess(source.input.path, text_column.guess, text_column.unused)
                is_noted = True
            row = values or {}
            name, text = text_column.value(row)
            if not problem and not isinstance(text, str):
                problem = f"field {name!r} holds {'no text' if text is None else f'a {type(text).__name__}'}"
            problem = problem or _half_pair(row)
            if problem:
                self.findings.bad_row(source.input.path, number, problem)
                continue
            own_id = self._id(row, source, number)
            others = {key: value for key, value in row.items() if key not in (name, own_id and own_id[0])}
            yield Document(
                own_id[1] if own_id else f"{source.name}:{number}",
                text,
                source.name,
                number,
                is_row=True,
                has_id=own_id is not None,
                columns=self._values(others, source, number),
            )

    def _id(self, row: dict[str, Any], source: NamedInput, number: int) -> tuple[str, str] | None:
        """(name of the column of ids, id) of a row; None if the row has no id."""
        column = self._columns.id or _ID
        if column not in row:
            if self._columns.id:
                raise _ColumnError(f"has no column {column!r}, only {list(row)[:20]}; correct --id-column")
            return None
        value = row[column]
        if is_blank(value) or not isinstance(value, str | int | float):
            self.left_out.add(
                "ids that are empty or no text; the row's number stands for it", f"{source.name}:{number}"
            )
            return None
        return column, text_of(value)

    def _values(self, row: dict[Any, Any], source: NamedInput, number: int) -> dict[str, Value]:
        """The values of a row to filter by; lists and objects are left out."""
        kept = self._columns.kept
        if (
            kept is not None
            and (missing := [name for name in kept if name not in row])
            and source.input.kind not in ("json", "jsonl")
        ):
            raise _ColumnError(f"has no column {missing[0]!r}, only {list(row)[:20]}; correct --columns")
        values: dict[str, Value] = {}
        for name, value in row.items():
            if (kept is not None and name not in kept) or is_blank(value):
                continue
            if isinstance(value, str | int | float | bool):
                values[str(name)] = value
            elif hasattr(value, "isoformat"):  # a date of Parquet or Excel
                values[str(name)] = value.isoformat()
            else:
                self.left_out.add("values to filter by that are lists or objects", f"{source.name}:{number}, {name!r}")
        if len(values) > _MOST_COLUMNS:
            raise _ColumnError(
                f"has {len(values)} columns besides its text; name at most {_MOST_COLUMNS} with --columns"
            )
        return values


def _half_pair(row: Mapping[Any, Any]) -> str:
    """The error of a row with half of a surrogate pair, which UTF-8 cannot encode; "" for any other row."""
    broken = [
        key for key, value in row.items() if _HALF_PAIR.search(f"{key}{value}" if isinstance(value, str) else str(key))
    ]
    return f"field {broken[0]!r} has half of a surrogate pair" if broken else ""


class PassageCutter:
    """Cuts documents into passages; equal passages of a file are kept once, unless their rows have ids.

    Args:
        count: function that counts the tokens of texts.
        room: most tokens of a passage that the model reads.
    Attributes:
        left_out: counts the texts that do not become passages.
    """

    def __init__(self, count: TokenCounts, room: int, language: str, left_out: LeftOut) -> None:
        self._count, self._room, self._language, self.left_out = count, room, language, left_out
        self._source, self._texts, self._ids = "", set[int](), set[int]()

    def passages(self, document: Document) -> list[Passage]:
        """Cut a document into passages; empty if the document has no text, or the id of an earlier one."""
        if document.source != self._source:
            self._source, self._texts, self._ids = document.source, set(), set()
        text, place = _HALF_PAIR.sub("\ufffd", document.text.replace("\0", "")), document.id
        identity = hash(document.id)
        if identity in self._ids:
            self.left_out.add("rows with the id of an earlier row", f"{document.source}: {place}")
            return []
        self._ids.add(identity)
        found, line, counted = list[Passage](), document.line, 0
        for part in passages(
            text, self._count, self._room, self._language, by_line=line is not None and not document.is_row
        ):
            piece = text[part.start : part.end]
            if line is not None and not document.is_row:
                line, counted = line + text.count("\n", counted, part.start), part.start
            if not document.has_id and self._is_known(piece, document):
                self.left_out.add("texts that their file has before", f"{document.source}: {piece[:40]}")
                continue
            number = len(found)
            found.append(Passage(document.id, piece, number, document.source, line, document.columns))
        if not found and not text.strip():
            self.left_out.add("documents without text", place)
        return found

    def _is_known(self, text: str, document: Document) -> bool:
        """Whether an earlier passage of the file has the same text and the same values to filter by."""
        key = hash((text, *sorted((name, str(value)) for name, value in document.columns.items())))
        is_known = key in self._texts
        self._texts.add(key)
        return is_known
