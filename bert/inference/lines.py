"""Reads the lines of files or of standard input in bounded memory, and what each line asks."""

import json
import os
import select
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Given = str | Sequence[Any] | Mapping[str, Any]  # what TrainedModel.request takes
QUESTION_KEYS = ("question", "context")
PAIR_KEYS = (("text", "text_pair"), ("sentence1", "sentence2"))  # of the texts in a JSON object; the first that fit
SINGLE_KEYS = (("text",), ("sentence",))
_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".tsv": "tsv", ".txt": "text"}
_LONGEST = 4 << 20  # bytes of a line
_READ = 1 << 16
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Line:
    """A line of an input.

    Attributes:
        number: from 1.
        text: without the line end; None if it cannot be read.
        error: why it cannot be read; "" if it can.
        end: the place after its line end, in bytes from the start of the input.
    """

    number: int
    text: str | None
    error: str = ""
    end: int = 0


def read_lines(descriptor: int, number: int = 0, end: int = 0) -> Iterator[Line | None]:
    """The lines of an open file, pipe or terminal; None when a pipe has nothing for 0.2 seconds.

    Args:
        number, end: of the line before the first one to read; the descriptor stands at `end`.
    """
    pending, skipped, is_skipped = b"", 0, False  # skipped: bytes of a line that is too long
    while True:
        if not select.select([descriptor], [], [], _PAUSE_SECONDS)[0]:
            yield None
            select.select([descriptor], [], [])
        data = os.read(descriptor, _READ)
        *whole, rest = (pending + data).split(b"\n") if data else ([pending] if pending or is_skipped else []) + [b""]
        for raw in whole:
            number, end = number + 1, end + skipped + len(raw) + bool(data)
            line = Line(number, None, _too_long()) if is_skipped else _decoded(number, raw)
            yield replace(line, end=end)
            skipped, is_skipped = 0, False
        if not data:
            return
        if is_skipped or len(rest) > _LONGEST:
            skipped, is_skipped, rest = skipped + len(rest), True, b""
        pending = rest


def _too_long() -> str:
    return f"the line is longer than {_LONGEST >> 20} MB; split it"


def _decoded(number: int, raw: bytes) -> Line:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        return Line(number, None, f"byte {raw[error.start]:#04x} is not UTF-8; save the file as UTF-8")
    return Line(number, text)


class LineFormat:
    """How the lines of one input are read.

    Args:
        kind: auto, text, tsv or jsonl; auto: by the file's name, else JSON lines if the first line begins with "{".
        splits_tabs: whether a tab in plain text separates two texts.
        keys: names of columns that a request can have; a TSV whose first line has all of one tuple has a header.
    """

    def __init__(self, kind: str, path: Path | None, splits_tabs: bool, keys: Sequence[tuple[str, ...]] = ()) -> None:
        self._kind = _kind(kind, path)
        self._splits_tabs = splits_tabs
        self._keys = keys
        self._columns: list[str] = []

    def state(self) -> dict[str, Any]:
        """What was inferred from the lines so far, for JSON."""
        return {"kind": self._kind, "columns": self._columns}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._kind, self._columns = state["kind"], list(state["columns"])

    def is_header(self, line: Line) -> bool:
        """Whether a line names the columns of those that follow."""
        if line.number == 1 and line.text and self._kind == "tsv":
            columns = [part.strip() for part in line.text.split("\t")]
            if any(set(names) <= set(columns) for names in self._keys):
                self._columns = columns
        return line.number == 1 and bool(self._columns)

    def parse(self, text: str) -> Given:
        """The request in a line."""
        if not text.strip():
            raise ValueError("the line is empty")
        if self._kind == "auto":
            self._kind = "jsonl" if text.lstrip().startswith("{") else "text"
        if self._kind == "jsonl":
            return _object(text)
        if self._kind == "tsv" or self._splits_tabs:
            parts = [part.strip() for part in text.split("\t")]
            if self._columns:
                if len(parts) != len(self._columns):
                    raise ValueError(f"{len(parts)} columns, but the header has {len(self._columns)}")
                return dict(zip(self._columns, parts, strict=True))
            return parts[0] if len(parts) == 1 else parts
        return text


def _kind(kind: str, path: Path | None) -> str:
    return _BY_SUFFIX.get(path.suffix.lower(), "auto") if kind == "auto" and path else kind


def refuse_documents(path: Path, kind: str) -> None:
    """Raise ValueError for a file that is not made of lines: a table with commas, or one JSON document."""
    suffix = path.suffix.lower()
    if suffix == ".csv" and kind == "auto":
        raise ValueError(
            f"{path} is separated by commas; write it as TSV or JSON lines, or pass --input-format text if "
            "every line is one text"
        )
    if suffix == ".json" and _kind(kind, path) == "jsonl":
        with path.open("rb") as file:
            first = file.readline(_LONGEST)
        try:
            is_document = isinstance(json.loads(first), list)
        except (ValueError, RecursionError):
            is_document = bool(first)
        if is_document:
            raise ValueError(
                f"{path} is one JSON document; write one object a line (of a list: "
                f"jq -c '.[]' {shlex.quote(str(path))}). SQuAD's form is for run_squad.py --predict-file"
            )


def _object(text: str) -> Given:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({str(error)[:80]}); every line must be a JSON object") from None
    if not isinstance(value, (dict, str)):
        raise ValueError(f"JSON of another kind than an object: {text[:40]}")
    return value


def texts_of(given: Given, keys: Sequence[tuple[str, ...]]) -> tuple[Any, ...]:
    """The texts of a request: a text, a sequence of texts, or an object with all of one tuple of the keys."""
    if isinstance(given, Mapping):
        names = next((names for names in keys if all(name in given for name in names)), None)
        if names is None:
            raise ValueError(
                f"the object has the keys {', '.join(given) or 'none'}; it must have {' and '.join(keys[0])}"
            )
        return tuple(given[name] for name in names)
    return (given,) if isinstance(given, str) else tuple(given)


def parsed_lines(
    path: Path, keys: Sequence[tuple[str, ...]], *, splits_tabs: bool
) -> Iterator[tuple[int, Given | ValueError]]:
    """The number of each line of a file that is not empty, and the request in it, or why there is none."""
    line_format = LineFormat("auto", path, splits_tabs, keys)
    with open(path, "rb") as file:
        for line in read_lines(file.fileno()):
            if line is None or line_format.is_header(line) or (line.text is not None and not line.text.strip()):
                continue
            try:
                yield line.number, ValueError(line.error) if line.text is None else line_format.parse(line.text)
            except ValueError as error:
                yield line.number, error
