"""Reads the lines of files or of standard input in bounded memory, and what each line asks."""

import json
import os
import select
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from data.text.columns import PAIR_NAMES, TEXT_NAMES

RawRequest = str | Sequence[Any] | Mapping[str, Any]  # what TrainedModel.request takes
Keys = Sequence[tuple[str, ...]]  # of the texts in a JSON object, or columns of a table; the first that fit
QUESTION_KEYS: Keys = (("question", "context"),)
PAIR_KEYS: Keys = PAIR_NAMES
SINGLE_KEYS: Keys = tuple((name,) for name in TEXT_NAMES)
_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".tsv": "tsv", ".txt": "text"}
EMPTY = "the line is empty"
_LONGEST = 4 << 20  # bytes of a line
_READ = 1 << 16
_PAUSE_SECONDS = 0.2


class RawLine(NamedTuple):
    number: int  # from 1, as messages name it
    raw: RawRequest | ValueError  # the request, or why it cannot be read
    place: Mapping[str, Any]  # the fields `line`, `end` and `form` of `inputs.Position` after it
    fields: Mapping[str, Any] = MappingProxyType({})  # of a row that cannot be used: its columns


class Line(NamedTuple):
    number: int  # from 1
    text: str  # without the line end
    error: str = ""  # why it cannot be read
    end: int = 0  # the place after its line end, in bytes from the start of the input


def read_lines(descriptor: int, number: int = 0, end: int = 0) -> Iterator[Line | None]:
    """The lines of an open file, pipe or terminal; None when a pipe has nothing for 0.2 seconds.

    Args:
        number, end: of the line before the first one to read; the descriptor stands at `end`.
    """
    start, size = b"", 0  # of a line that has not ended: its bytes, no more once it is too long, and their number
    while True:
        if not select.select([descriptor], [], [], _PAUSE_SECONDS)[0]:
            yield None
            select.select([descriptor], [], [])
        data = os.read(descriptor, _READ)
        *endings, rest = data.split(b"\n")
        if size and not data:  # the last line has no end
            endings = [b""]
        for ending in endings:
            number, end = number + 1, end + size + len(ending) + bool(data)
            yield _line(number, start + ending, end)
            start, size = b"", 0
        if not data:
            return
        start, size = start if len(start) > _LONGEST else start + rest, size + len(rest)


def _line(number: int, raw: bytes, end: int) -> Line:
    if len(raw) > _LONGEST:
        return Line(number, "", f"the line is longer than {_LONGEST >> 20} MB; split it", end)
    try:
        return Line(number, raw.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r"), "", end)
    except UnicodeDecodeError as error:
        return Line(number, "", f"byte {raw[error.start]:#04x} is not UTF-8; save the file as UTF-8", end)


def kind_of(kind: str, path: Path | None) -> str:
    """The kind of an input by its flag, else by its name; auto if neither says it."""
    return _BY_SUFFIX.get(path.suffix.lower(), "auto") if kind == "auto" and path else kind


@dataclass
class LineFormat:
    """How the lines of one input are read."""

    kind: str  # auto, text, tsv or jsonl; auto: JSON lines if the first line begins with "{", else text
    splits_tabs: bool  # whether a tab in plain text separates two texts
    keys: Keys = ()  # a TSV whose first line has all of one tuple has a header
    columns: Sequence[str] = ()  # of the header

    def is_header(self, line: Line) -> bool:
        """Whether a line names the columns of those that follow."""
        if line.number == 1 and self.kind == "tsv":
            columns = [part.strip() for part in line.text.split("\t")]
            if any(set(names) <= set(columns) for names in self.keys):
                self.columns = columns
        return line.number == 1 and bool(self.columns)

    def parse(self, line: Line) -> RawRequest:
        """The request in a line."""
        text = line.text
        if line.error or not text.strip():
            raise ValueError(line.error or EMPTY)
        if self.kind == "auto":
            self.kind = "jsonl" if text.lstrip().startswith("{") else "text"
        if self.kind == "jsonl":
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"not JSON ({str(error)[:80]}); every line must be a JSON object") from None
            if not isinstance(value, (dict, str)):
                raise ValueError(f"JSON of another kind than an object: {text[:40]}")
            return value
        if self.kind != "tsv" and not self.splits_tabs:
            return text
        parts = [part.strip() for part in text.split("\t")]
        if not self.columns:
            return parts[0] if len(parts) == 1 else parts
        if len(parts) != len(self.columns):
            raise ValueError(f"{len(parts)} columns, but the header has {len(self.columns)}")
        return dict(zip(self.columns, parts, strict=True))


def raw_lines(descriptor: int, form: LineFormat, number: int = 0, end: int = 0) -> Iterator[RawLine | None]:
    """What the lines ask, without a header; the other arguments and None as of `read_lines`."""
    for line in read_lines(descriptor, number, end):
        if line is None:
            yield None
        elif not form.is_header(line):
            try:
                raw: RawRequest | ValueError = form.parse(line)
            except ValueError as error:
                raw = error
            inferred = {"kind": form.kind, "columns": form.columns}
            yield RawLine(line.number, raw, {"line": line.number, "end": line.end, "form": inferred})


def is_document(path: Path) -> bool:
    """Whether a file of JSON is one document, such as SQuAD's, rather than an object on each line."""
    with path.open("rb") as file:
        first = file.readline(_LONGEST)
    try:
        content = json.loads(first)
    except (ValueError, RecursionError):
        return bool(first)
    return isinstance(content["data"] if isinstance(content, dict) and "data" in content else content, list)


def texts_of(raw: RawRequest, keys: Keys) -> tuple[Any, ...]:
    """The texts of a request: a text, a sequence of texts, or an object with all of one tuple of the keys."""
    if not isinstance(raw, Mapping):
        return (raw,) if isinstance(raw, str) else tuple(raw)
    names = next((names for names in keys if all(name in raw for name in names)), None)
    if names is None:
        raise ValueError(f"the object has the keys {', '.join(raw) or 'none'}; it must have {' and '.join(keys[0])}")
    return tuple(raw[name] for name in names)
