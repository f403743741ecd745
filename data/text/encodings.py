"""Decodes text of unknown encoding, counts undecodable bytes, and cuts the text into lines."""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import IncrementalNewlineDecoder
from itertools import chain

from charset_normalizer import from_bytes

MAX_ROW_CHARACTERS = 256 << 20  # of what has to be parsed as a whole: a line of jsonl, a file of json
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


def check_encoding(name: str) -> None:
    """ValueError unless it is "auto" or a codec that decodes any bytes, marking errors."""
    remedy = "use auto, or a name like utf-8, latin-1 or gb18030"
    if name == "auto":
        return
    try:
        is_text = codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError) as error:
        raise ValueError(f"encoding={name!r} is not known to Python; {remedy}") from error
    try:
        if is_text:
            codecs.getincrementaldecoder(name)(_HANDLER).decode(b"\xff\xfe\x00\x00a\x80", True)
    except (LookupError, ValueError):  # e.g. idna, which cannot mark errors
        is_text = False
    if not is_text:
        raise ValueError(f"encoding={name!r} must turn the bytes of any file into text, and does not; {remedy}")


@dataclass(frozen=True)
class Encoding:
    """The codec's name, the length of the byte order mark, and how it was found."""

    name: str
    mark_bytes: int
    found_by: str


def detect(open_chunks: Callable[[], Iterable[bytes]], language: str = "en") -> Encoding:
    """Detect the encoding of a file in that language; open_chunks reads its bytes from the start.

    UTF-8 if all of it is valid, or nearly all and it has many multi-byte characters; otherwise charset-normalizer's
    guess on 64 KiB around the first byte that is not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(_HANDLER)
    sample, errors, multibyte = b"", 0, 0
    for number, chunk in enumerate(chain(filter(None, open_chunks()), [b""])):
        if number == 0:
            head = chunk[:_SAMPLE_BYTES]
            for mark, name in _MARKS:
                if head.startswith(mark):
                    return Encoding(name, len(mark), "byte order mark")
            if wide := _wide_without_mark(head):
                return Encoding(wide, 0, "two bytes a character, no mark")
        text, undecodable = _decode_chunk(decoder, chunk)
        if undecodable and not errors:
            place = max(0, len(text[: text.find("\ufffd")].encode()) - _SAMPLE_BYTES // 4)
            sample = chunk[place : place + _SAMPLE_BYTES] or head
        errors += undecodable
        multibyte += len(text) - len(text.encode("ascii", "ignore")) - text.count("\ufffd")
    if multibyte >= _MIN_RATIO * errors:
        return Encoding("utf-8", 0, "valid but for some bytes" if errors else "valid")
    guess = _guess(sample, language)
    return Encoding(guess, 0, "charset-normalizer") if guess else Encoding("utf-8", 0, "no better guess")


def _decode_chunk(decoder: codecs.IncrementalDecoder, chunk: bytes) -> tuple[str, int]:
    """(text, number of undecodable bytes); an empty chunk is the end."""
    before = _undecodable["bytes"]
    return decoder.decode(chunk, final=not chunk), _undecodable["bytes"] - before


def _guess(sample: bytes, language: str) -> str | None:
    """charset-normalizer's guess; among equally likely code pages, the one for the language."""
    matches = from_bytes(sample)
    best = matches.best()
    if best is None or best.encoding in ("utf_8", "ascii"):
        return None
    code_page = _CODE_PAGES.get(language, "cp1252")
    for match in matches:
        equal = match.chaos <= best.chaos + 0.01 and match.coherence >= best.coherence - 0.05
        if equal and code_page in (match.encoding, *match.could_be_from_charset):
            return code_page
    return codecs.lookup(best.encoding).name


def _wide_without_mark(sample: bytes) -> str | None:
    """The codec of UTF-16 without a byte order mark; None if the sample is something else.

    UTF-16 has NUL in every other byte, or control bytes that are plausible in one byte order only: Cyrillic has 0x04
    there, though it is also valid UTF-8, and Chinese low bytes of all values. A sample that is plausible in both orders
    (ASCII with NULs in between) or in neither is not UTF-16; nor is UTF-8 with control bytes anywhere, nor a sample of
    mostly Latin letters and spaces.
    """
    pairs = len(sample) // 2
    even, odd = sample[: 2 * pairs : 2], sample[1 : 2 * pairs : 2]
    if pairs < 4:
        return None
    for name, high, low in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if high.count(0) > 0.4 * pairs and low.count(0) < 0.05 * pairs:
            return name
    if len(sample) - len(sample.translate(None, _ODD)) < 0.01 * len(sample):
        return None
    if _beginning(sample, "utf-8") is not None:
        if max(sum(byte < 0x20 for byte in lane) for lane in (even, odd)) < 0.9 * pairs:
            return None  # of alphabets, one byte of every character is a control byte
    elif len(sample.translate(None, _LETTERS)) < 0.5 * len(sample):
        return None
    texts = {name: _beginning(sample[: 2 * pairs], name) or "" for name in ("utf-16-le", "utf-16-be")}
    shares = {name: len(_COMMON.findall(text)) / max(1, len(text)) for name, text in texts.items()}
    likelier = max(shares, key=shares.__getitem__)
    return likelier if shares[likelier] > 0.95 and min(shares.values()) < 0.8 else None


def _beginning(sample: bytes, name: str) -> str | None:
    """The text of a sample, which may end inside a character; None if the codec cannot decode it."""
    try:
        return codecs.getincrementaldecoder(name)().decode(sample)
    except UnicodeDecodeError:
        return None


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
    open_chunks: Callable[[], Iterable[bytes]], codec: str, language: str, counts: Counter, check: bool = True
) -> tuple[Encoding, Iterator[str]]:
    """The encoding (of that codec; "auto": detected) and the text; with `check`, NotTextError for other files."""
    if check:
        check_magic(next(iter(open_chunks()), b""))
    encoding = detect(open_chunks, language) if codec == "auto" else Encoding(codec, 0, "as told")
    pieces = decode(open_chunks(), encoding, counts)
    return encoding, only_text(pieces) if check else pieces


def decode(chunks: Iterable[bytes], encoding: Encoding, counts: Counter) -> Iterator[str]:
    """The text in pieces, without its byte order mark and without NUL; undecodable bytes become U+FFFD."""
    decoder = codecs.getincrementaldecoder(encoding.name)(_HANDLER)
    skip = encoding.mark_bytes
    for chunk in chain(filter(None, chunks), [b""]):
        text, undecodable = _decode_chunk(decoder, chunk[skip:] if chunk else b"")
        counts["undecodable bytes"] += undecodable
        skip = 0
        if "\x00" in text:
            counts["NUL characters removed"] += text.count("\x00")
            text = text.replace("\x00", "")
        if text:
            yield text


def lines(chunks: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """(text without its line end, whether the line ends here), long lines in pieces; LF, CR LF and CR end lines."""
    line_feeds = IncrementalNewlineDecoder(None, translate=True)
    for chunk in chain(filter(None, chunks), [""]):
        *whole, rest = line_feeds.decode(chunk, final=not chunk).split("\n")
        for line in whole:
            yield line, True
        if rest:
            yield rest, False


def whole_lines(chunks: Iterable[str]) -> Iterator[str | None]:
    """Complete lines; None for one longer than MAX_ROW_CHARACTERS."""
    parts: list[str] = []
    size = 0
    for text, ends in lines(chunks):
        parts.append(text)
        size += len(text)
        if size > MAX_ROW_CHARACTERS:
            parts.clear()
        if ends:
            yield "".join(parts) if size <= MAX_ROW_CHARACTERS else None
            parts, size = [], 0
    if size:
        yield "".join(parts) if size <= MAX_ROW_CHARACTERS else None
