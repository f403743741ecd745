"""Reads documents from txt, jsonl or parquet files, plain or compressed, in pieces of bounded size."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from bert.files import shown
from data.text.compression import CHUNK_BYTES, COMPRESSIONS, damage_named, read_chunks
from data.text.encodings import decoded
from data.text.folder_files import files_below

FORMATS = ("txt", "jsonl", "parquet")
SEPARATORS = ("file", "line", "blank-line")
_SUFFIXES = {
    ".txt": "txt",
    ".text": "txt",
    ".md": "txt",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_SET_ASIDE = re.compile(r".*(~|\.(bak|orig|old|tmp|sw[op]))|#.*#", re.IGNORECASE | re.DOTALL)
_MAX_ROW_CHARACTERS = 256 << 20  # of one line of jsonl, which has to be parsed as a whole
_ROWS_AT_A_TIME = 16
_MAX_PROBLEMS = 50


@dataclass(frozen=True)
class Input:
    """A file: its path, its name in document ids, format and compression ("" or a suffix); named: given itself."""

    path: Path
    name: str
    kind: str
    compression: str
    named: bool = True


@dataclass(frozen=True)
class Piece:
    """A part of a document's text; `ends` marks the last one, which may be empty."""

    id: str
    text: str
    ends: bool


@dataclass
class Findings:
    """Counts, the first problems ("file:line: reason") and the encodings of the files read."""

    counts: Counter = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    encodings: Counter = field(default_factory=Counter)

    def bad_row(self, path: Path, row: int, reason: str) -> None:
        self.counts["bad rows"] += 1
        self.problem(f"{shown(path)}:{row}: {reason}")

    def problem(self, text: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(text)


def is_set_aside(name: Path) -> bool:
    """Whether a file is hidden or an editor's backup."""
    return any(part.startswith(".") for part in name.parts) or bool(_SET_ASIDE.fullmatch(name.name))


def list_inputs(paths: Iterable[Path], kind: str, findings: Findings) -> list[Input]:
    """The files given and those below the folders, sorted within each folder; there, other kinds of files are counted.

    Raises:
        ValueError: a path is missing, its name has no known format, or there is no file at all.
    """
    inputs: list[Input] = []
    for path in paths:
        if path.is_dir():
            for file in files_below(path, findings.counts):
                name = file.relative_to(path)
                found = None if is_set_aside(name) else _input(file, str(name), kind, False)
                if found is None:
                    findings.counts["files of other kinds left out"] += 1
                else:
                    inputs.append(found)
        elif path.is_file():
            found = _input(path, path.name, kind)
            if found is None:
                raise ValueError(
                    f"input={shown(path)}: the format is not known from the name; give --format {'|'.join(FORMATS)}"
                )
            inputs.append(found)
        else:
            raise ValueError(f"input={shown(path)}: no such file or folder")
    if not inputs:
        raise ValueError(
            f"input={' '.join(map(shown, paths))}: no file to read; names must end in "
            f"{' '.join(_SUFFIXES)}, perhaps with {' '.join(COMPRESSIONS)}, or pass --format"
        )
    once: dict[Path, Input] = {}
    for found in sorted(inputs, key=lambda found: found.path.is_symlink()):  # files come before links to them
        once.setdefault(found.path.resolve(), found)
    kept = [found for found in inputs if once[found.path.resolve()] is found]
    if len(kept) < len(inputs):
        findings.counts["files named or linked twice, read once"] += len(inputs) - len(kept)
    return kept


def _input(path: Path, name: str, kind: str, named: bool = True) -> Input | None:
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
    bare = path.with_suffix("") if compression else path
    found = _SUFFIXES.get(bare.suffix.lower()) if kind == "auto" else kind
    if found is None:
        return None
    if found == "parquet":
        compression = ""  # parquet is compressed internally
    for suffix in (compression, bare.suffix if bare.suffix.lower() in _SUFFIXES else ""):
        name = name[: len(name) - len(suffix)]
    return Input(path, shown(name), found, compression, named)


@dataclass(frozen=True)
class Reading:
    """Settings for reading files: encoding ("auto" or a codec), separator of txt, fields of jsonl and parquet."""

    language: str = "en"
    encoding: str = "auto"
    separator: str = "file"
    text_field: str = "text"
    id_field: str | None = None


def read_pieces(source: Input, reading: Reading, findings: Findings) -> Iterator[Piece]:
    """The documents of a file in order, each in one or more pieces.

    Raises:
        NotTextError: a txt file is not text.
        ValueError: the file is damaged, or not of the format given.
    """
    if source.kind == "parquet":
        return _parquet_pieces(source, reading, findings)
    chunks = _text_chunks(source, reading, findings)
    if source.kind == "jsonl":
        return _jsonl_pieces(source, chunks, reading, findings)
    return _txt_pieces(source, chunks, reading.separator)


def _text_chunks(source: Input, reading: Reading, findings: Findings) -> Iterator[str]:
    counts: Counter = Counter()
    try:
        encoding, chunks = decoded(
            lambda: read_chunks(source.path, source.compression),
            reading.encoding,
            reading.language,
            counts,
            check=source.kind == "txt",
        )
        findings.encodings[f"{encoding.name} ({encoding.found_by})"] += 1
        yield from chunks
    except UnicodeError as error:  # utf-16 and utf-32 require a byte order mark
        raise ValueError(
            f"{shown(source.path)}: cannot be read as {reading.encoding} ({error}); use --encoding auto, "
            f"or {reading.encoding}-le or {reading.encoding}-be"
        ) from error
    findings.counts.update(counts)
    if counts["undecodable bytes"]:
        findings.problem(f"{shown(source.path)}: {counts['undecodable bytes']} bytes are not {encoding.name}")


def lines(chunks: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """(text without its line end, whether the line ends here), long lines in pieces; LF, CR LF and CR end lines."""
    held = ""
    for chunk in chunks:
        chunk = held + chunk
        held = "\r" if chunk.endswith("\r") else ""  # its LF may be in the next chunk
        chunk = chunk[: len(chunk) - len(held)]
        if "\r" in chunk:
            chunk = chunk.replace("\r\n", "\n").replace("\r", "\n")
        *whole, rest = chunk.split("\n")
        for line in whole:
            yield line, True
        if rest:
            yield rest, False
    if held:
        yield "", True


def _txt_pieces(source: Input, chunks: Iterator[str], separator: str) -> Iterator[Piece]:
    if separator == "file":
        for chunk in chunks:
            yield Piece(source.name, chunk, False)
        yield Piece(source.name, "", True)
        return
    number, is_open, is_blank, begin = 1, False, True, 1
    for text, ends in lines(chunks):
        is_blank &= not text.strip()
        if not is_open and not is_blank:
            is_open, begin = True, number
        boundary = ends and (separator == "line" or is_blank)
        if is_open:
            yield Piece(f"{source.name}:{begin}", text + "\n" * ends, boundary)
            is_open = not boundary
        if ends:
            number, is_blank = number + 1, True
    if is_open:
        yield Piece(f"{source.name}:{begin}", "", True)


def _jsonl_pieces(source: Input, chunks: Iterator[str], reading: Reading, findings: Findings) -> Iterator[Piece]:
    for number, line in enumerate(_whole_lines(chunks), start=1):
        if line is None:
            findings.bad_row(source.path, number, f"is longer than {_MAX_ROW_CHARACTERS} characters")
            continue
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            findings.bad_row(source.path, number, f"is not JSON ({error})")
            continue
        if not isinstance(row, dict):
            findings.bad_row(source.path, number, f"is a {type(row).__name__}, not an object")
            continue
        yield from _row_pieces(
            source, number, row.get(reading.text_field), row.get(reading.id_field or ""), reading, findings
        )


def _whole_lines(chunks: Iterator[str]) -> Iterator[str | None]:
    """Complete lines; None for one longer than _MAX_ROW_CHARACTERS."""
    parts: list[str] = []
    size = 0
    for text, ends in lines(chunks):
        size += len(text)
        if size <= _MAX_ROW_CHARACTERS:
            parts.append(text)
        else:
            parts.clear()
        if ends:
            yield "".join(parts) if size <= _MAX_ROW_CHARACTERS else None
            parts, size = [], 0
    if size:
        yield "".join(parts) if size <= _MAX_ROW_CHARACTERS else None


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


def _parquet_pieces(source: Input, reading: Reading, findings: Findings) -> Iterator[Piece]:
    with damage_named(source.path):
        file = pq.ParquetFile(source.path, page_checksum_verification=True, buffer_size=CHUNK_BYTES)
        wanted = [name for name in (reading.text_field, reading.id_field) if name]
        missing = [name for name in wanted if name not in file.schema_arrow.names]
        if missing:
            raise ValueError(
                f"{shown(source.path)}: has no column {missing[0]!r}, only {file.schema_arrow.names}; "
                "name the right one with --text-field or --id-field"
            )
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


def total_bytes(inputs: Iterable[Input]) -> int:
    """Sum of the file sizes on disk."""
    return sum(os.path.getsize(source.path) for source in inputs)
