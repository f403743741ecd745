"""Bytes -> text: the encoding is detected, and what cannot be decoded is counted, not lost silently."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from charset_normalizer import from_bytes

_SAMPLE_BYTES = 1 << 16
_MIN_RATIO = 20  # UTF-8 with fewer errors than one in so many of its longer characters is UTF-8 that was damaged
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
          (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CODE_PAGES = {**dict.fromkeys(("pl", "cs", "sk", "hu", "sl", "hr", "bs", "ro", "sq"), "cp1250"),
               **dict.fromkeys(("lt", "lv", "et"), "cp1257"), **dict.fromkeys(("tr", "az"), "cp1254")}
_HANDLER = "replace and count"
_undecodable: Counter = Counter()


def _replace_and_count(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    _undecodable["bytes"] += error.end - error.start
    return "\ufffd", error.end


codecs.register_error(_HANDLER, _replace_and_count)


@dataclass(frozen=True)
class Encoding:
    """The codec's name, the length of the byte order mark, and how it was found."""

    name: str
    mark_bytes: int
    found_by: str


def detect(open_chunks: Callable[[], Iterable[bytes]], language: str = "en") -> Encoding:
    """The encoding of a file in that language, of which open_chunks gives the bytes from the first.

    UTF-8 if all of it is valid, or nearly all and the longer characters prove it; otherwise charset-normalizer's guess
    on 64 KiB around the first byte that is not UTF-8.
    """
    check = _Utf8Check()
    for chunk in open_chunks():
        if check.first is None:
            for mark, name in _MARKS:
                if chunk.startswith(mark):
                    return Encoding(name, len(mark), "byte order mark")
            wide = _wide_without_mark(chunk[:_SAMPLE_BYTES])
            if wide:
                return Encoding(wide, 0, "NUL in every other byte")
        check.add(chunk)
    check.end()
    if check.is_utf8():
        return Encoding("utf-8", 0, "valid" if not check.errors else "valid but for some bytes")
    guess = _guess(check.sample, language)
    return Encoding(guess, 0, "charset-normalizer") if guess else Encoding("utf-8", 0, "no better guess")


def _guess(sample: bytes, language: str) -> str | None:
    """charset-normalizer's guess; among code pages that it finds equally good, the one for the language."""
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
    """UTF-16 of mostly Latin text betrays itself by its NUL bytes."""
    pairs = len(sample) // 2
    if pairs < 4:
        return None
    even, odd = sample[:2 * pairs:2].count(0), sample[1:2 * pairs:2].count(0)
    if odd > 0.4 * pairs and even < 0.05 * pairs:
        return "utf-16-le"
    if even > 0.4 * pairs and odd < 0.05 * pairs:
        return "utf-16-be"
    return None


class _Utf8Check:
    """Counts the errors and the longer characters of UTF-8; keeps the bytes around the first error."""

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
            place = max(0, len(text[:text.find("\ufffd")].encode()) - _SAMPLE_BYTES // 4)
            self.sample = chunk[place:place + _SAMPLE_BYTES] or self.first
        self.errors += errors
        self._longer += len(text) - len(text.encode("ascii", "ignore")) - text.count("\ufffd")

    def end(self) -> None:
        self.add(b"", True)

    def is_utf8(self) -> bool:
        return not self.errors or self._longer >= _MIN_RATIO * self.errors


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
