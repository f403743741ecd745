"""Detects the encoding of text, decodes it, and divides it into lines."""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from io import IncrementalNewlineDecoder
from itertools import chain

from data.text import seven_bit
from data.text.charset_labels import declared_codec, is_latin, python_codec
from data.text.code_pages import check_language, guess
from data.text.counting_decoder import CountingDecoder
from data.text.text_check import check_magic, only_text

MAX_ROW_CHARACTERS = 256 << 20  # of what has to be parsed as a whole: a line of jsonl, a file of json
_SAMPLE_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 22  # that are decoded as one
_MIN_RATIO = 20  # UTF-8 characters for each byte in error of damaged UTF-8; bytes in error for each of a mixed file
_MIN_CHARACTERS = 10  # of UTF-8 that outweigh another alphabet that a page declares
_EAST_ASIAN = ("gb", "big5", "euc", "cp9", "shift", "johab", "iso2022", "hz")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LETTERS = b" abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ODD = bytes([0, *range(1, 8), *range(14, 27), *range(28, 32)])  # not in text in any encoding but UTF-16 and UTF-32
_COMMON = re.compile(
    "[\t-\r -~\xa0-\u024f\u0300-\u10ff\u1e00-\u1fff\u2010-\u2049\u20a0-\u20bf"
    "\u3000-\u312f\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef\U0001f300-\U0001faff\U00020000-\U0002ffff]"
)


def check_encoding(name: str) -> None:
    """Raise ValueError unless the name is "auto", a codec that can mark errors, or "auto:" and a codec."""
    remedy = (
        "use auto, or a name like utf-8, latin-1 or gb18030, or auto:cp1250 where only some files or lines are UTF-8"
    )
    if name == "auto":
        return
    name = name.removeprefix("auto:")
    try:
        is_text = codecs.lookup(python_codec(name))._is_text_encoding
    except (LookupError, ValueError) as error:
        raise ValueError(f"encoding={name!r} is not known to Python; {remedy}") from error
    try:
        if is_text:
            CountingDecoder(name).decode_piece(b"\xff\xfe\x00\x00a\x80", is_last=True)
    except (LookupError, ValueError):  # e.g. idna, which cannot mark errors
        is_text = False
    if not is_text:
        raise ValueError(f"encoding={name!r} must turn the bytes of any file into text, and does not; {remedy}")


@dataclass(frozen=True)
class Decoding:
    """How to decode a user's files; ValueError for an unknown encoding or language.

    Attributes:
        encoding: a codec; "auto": detected, file by file; "auto:CODEC": that one for what is not UTF-8.
        language: of the text, which tells code pages apart.
        header: whether the first line of CSV and TSV names the columns.
    """

    encoding: str = "auto"
    language: str = "en"
    header: bool = True

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        check_language(self.language)

    @classmethod
    def of(cls, *places: object) -> "Decoding":
        """The decoding in the first of these objects that has such an attribute which is not None."""
        values = {
            field.name: [v for place in places if (v := getattr(place, field.name, None)) is not None]
            for field in fields(cls)
        }
        return cls(**{name: said[0] for name, said in values.items() if said})


DETECTED = Decoding()


def code_page_of(encoding: str) -> str | None:
    """The codec in "auto:CODEC"; "" for "auto"; None for a codec that decodes all files."""
    auto, _, code_page = encoding.partition(":")
    return code_page if auto == "auto" else None


def remembered(encoding: str | None) -> str | None:
    """The encoding to remember for later files; None: detect it for each file."""
    code_page = (encoding or "auto").removeprefix("auto:")
    if code_page == "auto" or codecs.lookup(python_codec(code_page)).name.startswith("utf"):
        return None
    return f"auto:{code_page}"


@dataclass(frozen=True)
class Encoding:
    """Detected encoding: the codec, the length of the byte order mark, and how it was detected.

    Attributes:
        others: the codec of the lines that are not `name`, in a file that mixes both; "": all are.
        sample: of those lines.
    """

    name: str
    mark_bytes: int
    found_by: str
    others: str = ""
    sample: str = ""

    def code_page(self) -> str:
        """Codec of text that is not Unicode; "" if all is, or if the bytes are ASCII."""
        return self.others or ("" if self.name.startswith(("utf", *seven_bit.CODECS)) else self.name)


def detect(
    open_chunks: Callable[[], Iterable[bytes]], language: str = "en", code_page: str = "", declared: str = ""
) -> Encoding:
    """Detect the encoding of a file in a language; open_chunks reads its bytes from the start.

    The encoding that a page declares, if all of it decodes so, unless it is plainly UTF-8. UTF-8 if all is valid, or
    nearly all and it has many multi-byte characters. Otherwise the code page that is given, or that the lines which are
    not UTF-8 suggest. If other lines are UTF-8, each is read as what it is. ASCII is searched for escape sequences.
    """
    head = next(filter(None, open_chunks()), b"")[:_SAMPLE_BYTES]
    for mark, name in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return Encoding(name, len(mark), "byte order mark")
    if wide := _wide_without_mark(head):
        return Encoding(wide, 0, f"{'four' if '32' in wide else 'two'} bytes a character, no mark")
    seen, samples = Counter[str](), {"damaged": b"", "foreign": b""}  # of lines, most of which is UTF-8 or in error
    utf_8, escapes = CountingDecoder("utf-8"), dict[bytes, bytes]()
    for block in _whole_lines(open_chunks()):
        for sign in seven_bit.SIGNS:
            held = escapes.get(sign, b"")
            if len(held) < _SAMPLE_BYTES and (place := 0 if held else block.find(sign)) >= 0:
                start = block.rfind(b"\n", 0, place) + 1
                escapes[sign] = held + block[start : start + _SAMPLE_BYTES]
        for line in block.splitlines(keepends=True) if utf_8.decode(block)[1] else [block]:
            text, errors = utf_8.decode(line)
            kind = "clean" if not errors else "damaged" if errors <= _multibyte(text) else "foreign"
            seen[kind] += errors if kind == "foreign" else _multibyte(text)
            if errors:
                seen["damage"] += errors
                samples[kind] += line[: max(0, _SAMPLE_BYTES - len(samples[kind]))]
    if not seen.total():
        hidden = seven_bit.seven_bit_codec(escapes)
        return Encoding(hidden, 0, "by its escape sequences") if hidden else Encoding("utf-8", 0, "valid")
    if declared and _is_as_declared(open_chunks, declared, seen):
        return Encoding(declared, 0, "declared")
    if not seen["foreign"] and seen["clean"] + seen["damaged"] >= _MIN_RATIO * seen["damage"]:
        return Encoding("utf-8", 0, "valid but for some bytes" if seen["damage"] else "valid")
    found = code_page or guess(samples["foreign"] or samples["damaged"], language)
    by = "named, or found before" if code_page else "likeliest"
    if found is None or (not seen["foreign"] and seen["clean"] > seen["damaged"]):
        return Encoding("utf-8", 0, "no better guess")
    shares = 1 if found.startswith(_EAST_ASIAN) else _MIN_RATIO  # whose characters are UTF-8 by chance now and then
    if seen["foreign"] and shares * seen["clean"] >= seen["foreign"]:
        foreign, _ = CountingDecoder(found).decode(samples["foreign"])
        return Encoding("utf-8", 0, f"other lines {found}, {by}", found, foreign)
    return Encoding(found, 0, by)


def _is_as_declared(open_chunks: Callable[[], Iterable[bytes]], declared: str, seen: Counter) -> bool:
    """Whether a page decodes without error in its declared encoding. False if it is clearly UTF-8."""
    least = 1 if is_latin(declared) else _MIN_CHARACTERS
    if declared.startswith("utf") or (not seen["damage"] and seen["clean"] >= least):
        return False
    decoder = codecs.getincrementaldecoder(declared)()
    try:
        for chunk in chain(open_chunks(), [b""]):
            decoder.decode(chunk, final=not chunk)
    except UnicodeDecodeError:
        return False
    return True


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of bytes that end with a line, or with a space in a very long line."""
    rest = b""
    for chunk in chunks:
        data = rest + chunk
        is_long = len(data) > _MAX_LINE_BYTES
        end = data.rfind(b"\n") + 1 or is_long * (data.rfind(b" ") + 1 or len(data))
        yield data[:end]
        rest = data[end:]
    yield rest


def _multibyte(text: str) -> int:
    return 0 if text.isascii() else len(text) - len(text.encode("ascii", "ignore")) - text.count("\ufffd")


def _wide_without_mark(sample: bytes) -> str | None:
    """UTF-16 or UTF-32 without a byte order mark as a codec; None if the sample is neither.

    UTF-16 has NUL in every other byte, or control bytes that are plausible in one byte order only: Cyrillic has 0x04
    there, though it is also valid UTF-8, and Chinese low bytes of all values. A sample that is plausible in both orders
    (ASCII with NULs in between) or in neither is not UTF-16; nor is UTF-8 with control bytes anywhere, nor a sample of
    mostly Latin letters and spaces.
    """
    pairs = len(sample) // 2
    even, odd = sample[: 2 * pairs : 2], sample[1 : 2 * pairs : 2]
    if pairs < 4:
        return None
    for name, high, plane in (("utf-32-le", sample[3::4], sample[2::4]), ("utf-32-be", sample[::4], sample[1::4])):
        if not any(high) and max(plane, default=9) <= 2 and 0 < sample.count(0) < 0.8 * len(sample):
            return name
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
    """Text of a sample, which may end inside a character; None if the codec cannot decode it."""
    try:
        return codecs.getincrementaldecoder(name)().decode(sample)
    except UnicodeDecodeError:
        return None


def decoded(
    open_chunks: Callable[[], Iterable[bytes]],
    codec: str,
    language: str,
    counts: Counter,
    check: bool = True,
    is_page: bool = False,
) -> tuple[Encoding, Iterator[str]]:
    """The encoding and the decoded text; with `check` NotTextError for files that are not text.

    Args:
        codec: its name; "auto": detected; "auto:CODEC": that one for what is not UTF-8.
        is_page: whether it is HTML or XML, which may declare its encoding.
    """
    head = next(iter(open_chunks()), b"") if check or is_page else b""
    if check:
        check_magic(head)
    code_page, declared = code_page_of(codec), declared_codec(head) if is_page else ""
    if code_page is None:
        encoding = Encoding(python_codec(codec), 0, "as told")
    else:
        encoding = detect(open_chunks, language, python_codec(code_page), declared)
    pieces = decode(open_chunks(), encoding, counts)
    return encoding, only_text(pieces) if check else pieces


def decode(chunks: Iterable[bytes], encoding: Encoding, counts: Counter) -> Iterator[str]:
    """Decode the text in pieces, without byte order mark and NUL; undecodable bytes become U+FFFD."""
    for text, undecodable in (
        _by_lines(chunks, encoding.others, counts) if encoding.others else _by_chunks(chunks, encoding)
    ):
        counts["undecodable bytes"] += undecodable
        if "\x00" in text:
            counts["NUL characters removed"] += text.count("\x00")
            text = text.replace("\x00", "")
        if text:
            yield text


def _by_chunks(chunks: Iterable[bytes], encoding: Encoding) -> Iterator[tuple[str, int]]:
    decoder, skip = CountingDecoder(encoding.name), encoding.mark_bytes
    for chunk in chain(filter(None, chunks), [b""]):
        yield decoder.decode_piece(chunk[skip:], is_last=not chunk)
        skip = 0


def _by_lines(chunks: Iterable[bytes], code_page: str, counts: Counter) -> Iterator[tuple[str, int]]:
    """Decode each line as UTF-8, or in the code page if most of its bytes are invalid UTF-8."""
    utf_8, other = CountingDecoder("utf-8"), CountingDecoder(code_page)
    for block in _whole_lines(chunks):
        block = block.removeprefix(codecs.BOM_UTF8)
        text, errors = utf_8.decode(block)
        for line in block.splitlines(keepends=True) if errors else [block]:
            text, errors = utf_8.decode(line)
            if errors > _multibyte(text):
                counts["lines in another encoding than the rest"] += 1
                text, errors = other.decode(line)
            yield text, errors


def lines(chunks: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """(text without line end, whether the line ends here). Long lines come in pieces. LF, CR LF, CR end lines."""
    line_feeds = IncrementalNewlineDecoder(None, translate=True)
    for chunk in chain(filter(None, chunks), [""]):
        *whole, rest = line_feeds.decode(chunk, final=not chunk).split("\n")
        for line in whole:
            yield line, True
        if rest:
            yield rest, False


def whole_lines(chunks: Iterable[str]) -> Iterator[str | None]:
    """Complete lines; None for a line longer than MAX_ROW_CHARACTERS."""
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
