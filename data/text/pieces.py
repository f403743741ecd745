"""Pieces of documents, the settings of reading them, and lines cut from pieces of text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_ROW_CHARACTERS = 256 << 20  # of what has to be parsed as a whole: a line of jsonl, a file of json


@dataclass(frozen=True)
class Piece:
    """A part of a document's text; `ends` marks the last one, which may be empty."""

    id: str
    text: str
    ends: bool


@dataclass(frozen=True)
class Reading:
    """Settings for reading files: encoding ("auto" or a codec), separator of txt, fields of rows."""

    language: str = "en"
    encoding: str = "auto"
    separator: str = "file"
    text_field: str = "text"
    id_field: str | None = None


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


def whole_lines(chunks: Iterable[str]) -> Iterator[str | None]:
    """Complete lines; None for one longer than MAX_ROW_CHARACTERS."""
    parts: list[str] = []
    size = 0
    for text, ends in lines(chunks):
        size += len(text)
        if size <= MAX_ROW_CHARACTERS:
            parts.append(text)
        else:
            parts.clear()
        if ends:
            yield "".join(parts) if size <= MAX_ROW_CHARACTERS else None
            parts, size = [], 0
    if size:
        yield "".join(parts) if size <= MAX_ROW_CHARACTERS else None
