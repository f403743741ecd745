"""Refuses files that are not text, by signature, undecodable or control characters, and base64."""

import re
from collections.abc import Iterator
from itertools import chain

_SAMPLE_CHARACTERS = 1 << 16
_MAGIC = {
    b"PK\x03\x04": "zip, docx, odt or epub",
    b"%PDF-": "PDF",
    b"\x1f\x8b": "gzip",
    b"\x7fELF": "ELF",
    b"\x89PNG\r\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PAR1\x15": "parquet",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"SQLite format 3\x00": "SQLite",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an older Office document",
}
_MIN_STRANGE = 32  # characters; fewer are no evidence
_MAX_UNDECODABLE, _MAX_CONTROL = 0.25, 0.05
_CONTROL = re.compile("[\x01-\x07\x0e-\x1a\x7f-\x84\x86-\x9f]")  # without white space, NUL, backspace and escape
_BASE64_WORD, _BASE64 = 48, re.compile(r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/]+={0,2}")


class NotTextError(ValueError):
    """The file is not text; the caller adds the file's name and the remedy to the message."""


def base64_characters(text: str) -> int:
    """Number of characters in words of base64, such as lines of encoded files."""
    return sum(len(word) for word in text.split() if len(word) >= _BASE64_WORD and _BASE64.fullmatch(word))


def is_mostly_base64(base64: int, characters: int) -> bool:
    """Whether a text is mostly base64, from its size and the number of characters in words of base64."""
    return 2 * base64 > characters


def check_magic(head: bytes) -> None:
    """Raise NotTextError if the bytes begin with the signature of another file format."""
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            raise NotTextError(f"is not text ({kind} signature)")
    if head[257:262] == b"ustar":
        raise NotTextError("is not text (tar signature)")


def only_text(pieces: Iterator[str]) -> Iterator[str]:
    """Yield the pieces; NotTextError if too many of the first characters are undecodable or controls."""
    held = []
    for piece in pieces:
        held.append(piece)
        if sum(map(len, held)) >= _SAMPLE_CHARACTERS:
            break
    sample = "".join(held)[:_SAMPLE_CHARACTERS]
    for count, limit, what in (
        (sample.count("\ufffd"), _MAX_UNDECODABLE, "undecodable"),
        (len(_CONTROL.findall(sample)), _MAX_CONTROL, "control characters"),
    ):
        if count >= _MIN_STRANGE and count > limit * len(sample):
            raise NotTextError(
                f"is not text: {count} of its first {len(sample)} characters are {what}, more than {limit:.0%}"
            )
    return chain(held, pieces)
