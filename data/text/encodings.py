"""Decodes text of unknown encoding: detects the encoding and counts undecodable bytes."""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from charset_normalizer import from_bytes

_SAMPLE_BYTES = 1 << 16
_MIN_RATIO = 20  # multi-byte characters per error; with more it is damaged UTF-8, with fewer another encoding
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CODE_PAGES = {
    **dict.fromkeys(("pl", "cs", "sk", "hu", "sl", "hr", "bs", "ro", "sq"), "cp1250"),
    **dict.fromkeys(("lt", "lv", "et"), "cp1257"),
    **dict.fromkeys(("tr", "az"), "cp1254"),
}
_LETTERS = b" abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ODD = bytes([0, *range(1, 8), *range(14, 27), *range(28, 32)])  # not in text in any encoding but UTF-16 and UTF-32
_COMMON = re.compile(
    "[\t-\r -~\xa0-\u024f\u0300-\u10ff\u1e00-\u1fff\u2010-\u2049\u20a0-\u20bf"
    "\u3000-\u312f\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef\U0001f300-\U0001faff\U00020000-\U0002ffff]"
)
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
_HANDLER = "replace and count"
_undecodable: Counter = Counter()


def _replace_and_count(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    _undecodable["bytes"] += error.end - error.start
    return "\ufffd", error.end


codecs.register_error(_HANDLER, _replace_and_count)


def check_encoding(name: str) -> str:
    """Returns the name; ValueError unless it is "auto" or a codec that decodes any bytes, marking errors."""
    remedy = "use auto, or a name like utf-8, latin-1 or gb18030"
    try:
        is_text = name == "auto" or codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError) as error:
        raise ValueError(f"encoding={name!r} is not known to Python; {remedy}") from error
    try:
        if is_text and name != "auto":
            codecs.getincrementaldecoder(name)(_HANDLER).decode(b"\xff\xfe\x00\x00a\x80", True)
    except (LookupError, ValueError):  # e.g. idna, which cannot mark errors
        is_text = False
    if not is_text:
        raise ValueError(f"encoding={name!r} must turn the bytes of any file into text, and does not; {remedy}")
    return name


@dataclass(frozen=True)
class Encoding:
    """The codec's name, the length of the byte order mark, and how it was found."""

    name: str
    mark_bytes: int
    found_by: str


def detect(open_chunks: Callable[[], Iterable[bytes]], language: str = "en") -> Encoding:
    """Detect the encoding of a file in that language; each call of open_chunks reads its bytes from the start.

    UTF-8 if all of it is valid, or nearly all and it has many multi-byte characters; otherwise charset-normalizer's
    guess on 64 KiB around the first byte that is not UTF-8.
    """
    check = _Utf8Check()
    for chunk in open_chunks():
        if check.first is None:
            for mark, name in _MARKS:
                if chunk.startswith(mark):
                    return Encoding(name, len(mark), "byte order mark")
            wide = _wide_without_mark(chunk[:_SAMPLE_BYTES])
            if wide:
                return Encoding(wide, 0, "two bytes a character, no mark")
        check.add(chunk)
    check.end()
    if check.is_utf8():
        return Encoding("utf-8", 0, "valid" if not check.errors else "valid but for some bytes")
    guess = _guess(check.sample, language)
    return Encoding(guess, 0, "charset-normalizer") if guess else Encoding("utf-8", 0, "no better guess")


def _guess(sample: bytes, language: str) -> str | None:
    """charset-normalizer's guess; among equally likely code pages, the one for the language."""
    matches = from_bytes(sample)
    best = matches.best()
    if best is None or best.encoding in ("utf_8", "ascii"):
        return None
    wanted = _CODE_PAGES.get(language, "cp1252")
    for match in matches:
        equal = match.chaos <= best.chaos + 0.01 and match.coherence >= best.coherence - 0.05
        if equal and wanted in (match.encoding, *match.could_be_from_charset):
            return wanted
    return codecs.lookup(best.encoding).name


def _wide_without_mark(sample: bytes) -> str | None:
    """The codec of UTF-16 without a byte order mark; None if the sample is something else.

    UTF-16 has NUL in every other byte, or control bytes that are plausible in one byte order only: Cyrillic has 0x04
    there, though it is also valid UTF-8, and Chinese low bytes of all values. A sample that is plausible in both orders
    (ASCII with NULs in between) or in neither is not UTF-16; nor is UTF-8 with control bytes anywhere, nor a sample of
    mostly Latin letters and spaces.
    """
    pairs = len(sample) // 2
    if pairs < 4:
        return None
    even, odd = sample[: 2 * pairs : 2].count(0), sample[1 : 2 * pairs : 2].count(0)
    if odd > 0.4 * pairs and even < 0.05 * pairs:
        return "utf-16-le"
    if even > 0.4 * pairs and odd < 0.05 * pairs:
        return "utf-16-be"
    if len(sample) - len(sample.translate(None, _ODD)) < 0.01 * len(sample):
        return None
    if _is_utf8(sample):
        controls = max(sum(byte < 0x20 for byte in sample[first : 2 * pairs : 2]) for first in (0, 1))
        if controls < 0.9 * pairs:  # of alphabets, one byte of every character
            return None
    elif len(sample.translate(None, _LETTERS)) < 0.5 * len(sample):
        return None
    names = ("utf-16-le", "utf-16-be")
    little, big = (_common_share(sample[: 2 * pairs], name) for name in names)
    return names[big > little] if max(little, big) > 0.95 and min(little, big) < 0.8 else None


def _is_utf8(sample: bytes) -> bool:
    """Whether the sample is valid UTF-8, except for a character cut off at its end."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True


def _common_share(sample: bytes, name: str) -> float:
    """Share of characters from common scripts and signs; 0 if the codec cannot decode the sample."""
    try:
        text = codecs.getincrementaldecoder(name)().decode(sample)
    except UnicodeDecodeError:
        return 0.0
    return len(_COMMON.findall(text)) / max(1, len(text))


class _Utf8Check:
    """Counts the errors and the multi-byte characters of UTF-8; keeps the bytes around the first error."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(_HANDLER)
        self.first: bytes | None = None
        self.sample = b""
        self.errors = self._longer = 0

    def add(self, chunk: bytes, final: bool = False) -> None:
        if self.first is None:
            self.first = chunk[:_SAMPLE_BYTES]
        before = _undecodable["bytes"]
        text = self._decoder.decode(chunk, final)
        errors = _undecodable["bytes"] - before
        if errors and not self.errors:
            place = max(0, len(text[: text.find("\ufffd")].encode()) - _SAMPLE_BYTES // 4)
            self.sample = chunk[place : place + _SAMPLE_BYTES] or self.first
        self.errors += errors
        self._longer += len(text) - len(text.encode("ascii", "ignore")) - text.count("\ufffd")

    def end(self) -> None:
        self.add(b"", True)

    def is_utf8(self) -> bool:
        return not self.errors or self._longer >= _MIN_RATIO * self.errors


class NotTextError(ValueError):
    """The file is not text; the message says why, the caller adds the file name and the remedy."""


def check_magic(head: bytes) -> None:
    """NotTextError if the bytes begin with the signature of another file format."""
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            raise NotTextError(f"is not text ({kind} signature)")
    if head[257:262] == b"ustar":
        raise NotTextError("is not text (tar signature)")


def only_text(pieces: Iterator[str]) -> Iterator[str]:
    """Yield the pieces; NotTextError if too many of the first characters are undecodable or control characters."""
    held = []
    for piece in pieces:
        held.append(piece)
        if sum(map(len, held)) >= _SAMPLE_BYTES:
            break
    sample = "".join(held)[:_SAMPLE_BYTES]
    for count, limit, what in (
        (sample.count("\ufffd"), _MAX_UNDECODABLE, "undecodable"),
        (len(_CONTROL.findall(sample)), _MAX_CONTROL, "control characters"),
    ):
        if count >= _MIN_STRANGE and count > limit * len(sample):
            raise NotTextError(
                f"is not text: {count} of its first {len(sample)} characters are {what}, more than {limit:.0%}"
            )
    return chain(held, pieces)


def decoded(
    open_chunks: Callable[[], Iterable[bytes]], told: str, language: str, counts: Counter, check: bool = True
) -> tuple[Encoding, Iterator[str]]:
    """The encoding (`told`, or detected if that is "auto") and the text; with `check`, NotTextError for other files."""
    if check:
        check_magic(next(iter(open_chunks()), b""))
    encoding = detect(open_chunks, language) if told == "auto" else Encoding(told, 0, "as told")
    pieces = decode(open_chunks(), encoding, counts)
    return encoding, only_text(pieces) if check else pieces


def decode(chunks: Iterable[bytes], encoding: Encoding, counts: Counter) -> Iterator[str]:
    """The text in pieces, without its byte order mark and without NUL; undecodable bytes become U+FFFD."""
    decoder = codecs.getincrementaldecoder(encoding.name)(_HANDLER)
    skip = encoding.mark_bytes
    for chunk in _and_end(chunks):
        before = _undecodable["bytes"]
        text = decoder.decode(chunk[skip:] if skip else chunk, final=not chunk)
        counts["undecodable bytes"] += _undecodable["bytes"] - before
        skip = 0
        if "\x00" in text:
            counts["NUL characters removed"] += text.count("\x00")
            text = text.replace("\x00", "")
        if text:
            yield text


def _and_end(chunks: Iterable[bytes]) -> Iterator[bytes]:
    yield from filter(None, chunks)
    yield b""
