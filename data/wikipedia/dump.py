"""Reads the pages of a MediaWiki dump (*.xml.bz2, multistream or not, or *.xml) in spans and bounded memory.

A multistream dump is a sequence of bzip2 streams of a hundred pages. The compressed file is cut into spans by position
alone; a span owns the streams that start in it and the pages that start in these. So spans can be read in any order and
by any process. A dump that is a single stream belongs to one span.

Each page is cut out by its tags and parsed on its own. A document type with entities, which expansion attacks need, is
possible only before the first page, where it is refused.
"""

import bz2
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree

MAX_PAGE_BYTES = 32 << 20  # MediaWiki's limit of 2 MiB of text is at most some 12 MiB of XML
_READ_BYTES = 1 << 18
_HEADER_BYTES = 1 << 18
_STREAM = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_STREAM_BYTES = 10
_BEGIN, _END, _CLOSE = b"<page>", b"</page>", b"</mediawiki>"


class DumpError(ValueError):
    """The file is empty, truncated, damaged or not a dump."""


@dataclass(frozen=True)
class Page:
    """A page of the dump; `text` is the markup of its newest revision."""

    id: int
    namespace: int
    title: str
    is_redirect: bool
    model: str
    text: str


@dataclass(frozen=True)
class Span:
    """Bytes start..stop-1 of the file."""

    index: int
    start: int
    stop: int


def plan_spans(path: Path, span_bytes: int) -> tuple[Span, ...]:
    """Cut the file into spans of span_bytes, the last one smaller."""
    size = path.stat().st_size
    if size == 0:
        raise DumpError(f"{path}: is empty (0 bytes); remove it and download the dump again")
    return tuple(
        Span(index, start, min(size, start + span_bytes)) for index, start in enumerate(range(0, size, span_bytes))
    )


def read_namespaces(path: Path) -> dict[int, str]:
    """Local names of namespaces by number, from the dump's header."""
    head = b""
    with open(path, "rb") as file:
        for _, data in _segments(file, path, 0, path.stat().st_size):
            head += data
            if _BEGIN in head or len(head) > _HEADER_BYTES:
                break
    before, _, _ = head.partition(_BEGIN)
    if b"<mediawiki" not in before:
        raise DumpError(
            f"{path}: its first {len(before)} bytes hold no <mediawiki>; a dump of articles is wanted, "
            "e.g. enwiki-YYYYMMDD-pages-articles-multistream.xml.bz2"
        )
    if b"<!" in before.replace(b"<!--", b""):
        raise DumpError(
            f"{path}: declares a document type or entities, which no MediaWiki dump does; they can be used "
            "to exhaust the memory: do not use this file"
        )
    namespaces = re.findall(rb'<namespace key="(-?\d{1,9})"[^<>]*>([^<>]*)</namespace>', before)
    return {int(key): name.decode("utf-8", errors="replace") for key, name in namespaces}


class SpanReader:
    """Reads the pages of one span.

    Attributes:
        last: the XML of the last whole page that was read, b"" before the first.
        tail: the last bytes of the span's own streams, b"" if no stream begins in it.
    """

    def __init__(self, path: Path, span: Span, max_page_bytes: int = MAX_PAGE_BYTES) -> None:
        self._path, self._span, self._max_page_bytes = path, span, max_page_bytes
        self.last = self.tail = b""

    def pages(self) -> Iterator[bytes | None]:
        """XML of each page that begins in the span; None for one longer than max_page_bytes."""
        splitter = _Splitter(self._max_page_bytes)
        try:
            with open(self._path, "rb") as file:
                for is_past, data in _segments(file, self._path, self._span.start, self._span.stop):
                    if not is_past:
                        self.tail = (self.tail + data)[-64:]
                    for page in splitter.feed(data, is_past):
                        self.last = page or self.last
                        yield page
                    if is_past and splitter.is_done():
                        return
                if splitter.inside:
                    raise DumpError(f"{self._path}: ends at byte {file.tell()}, inside a page")
        except DumpError as error:
            raise DumpError(
                f"{error}; the last whole page before it is {self.last_name()}: the dump is cut off or "
                "damaged, download it again"
            ) from error

    def last_name(self) -> str:
        """Title and id of the last page, for messages."""
        if not self.last:
            return "in an earlier part"
        try:
            page = parse_page(self.last)
        except ValueError:
            return "one that is not well-formed"
        return f"{page.title!r} (id {page.id})"


def check_end(path: Path, tail: bytes, last_name: str) -> None:
    """Raise DumpError unless the dump ends with </mediawiki>."""
    if not tail.rstrip().endswith(_CLOSE):
        raise DumpError(
            f"{path}: ends at byte {path.stat().st_size} without </mediawiki>; the last whole page is "
            f"{last_name}: the dump is cut off, download it again"
        )


def parse_page(xml: bytes) -> Page:
    """Parse a page; ValueError if the XML is malformed or incomplete."""
    if b"<!" in xml:
        raise ValueError("a page holds a declaration, which no MediaWiki dump does")
    try:
        page = ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        raise ValueError(f"a page is not well-formed: {error}") from error
    revisions = page.findall("revision")
    newest = revisions[-1] if revisions else page
    return Page(
        id=int(page.findtext("id") or ""),
        namespace=int(page.findtext("ns") or 0),
        title=page.findtext("title") or "",
        is_redirect=page.find("redirect") is not None,
        model=newest.findtext("model") or "wikitext",
        text=newest.findtext("text") or "",
    )


class _Splitter:
    """Splits XML, given in parts, into pages, and holds at most one page; `inside`: one is unfinished."""

    def __init__(self, max_bytes: int) -> None:
        self._buffer = bytearray()
        self._own = 0  # bytes of the buffer in which a page may begin
        self._searched = 0
        self._max_bytes = max_bytes
        self._skipping = False
        self.inside = False

    def is_done(self) -> bool:
        """Whether no page can begin or end before more of the span is read."""
        return not self.inside and self._own <= 0

    def feed(self, data: bytes, is_past: bool) -> Iterator[bytes | None]:
        """Yield the pages that end in this piece; in a piece past the span no new page begins."""
        self._buffer += data
        if not is_past:
            self._own = len(self._buffer)
        while self._enter():
            stop = self._buffer.find(_END, self._searched)
            if stop < 0:
                self._searched = max(0, len(self._buffer) - len(_END) + 1)
                if len(self._buffer) > self._max_bytes:
                    self._skipping = True
                    self._drop(self._searched)
                return
            stop += len(_END)
            yield None if self._skipping or stop > self._max_bytes else bytes(self._buffer[:stop])
            self._drop(stop)
            self.inside = self._skipping = False

    def _enter(self) -> bool:
        """Advance to the next possible start of a page; False if there is none yet."""
        if not self.inside:
            start = self._buffer.find(_BEGIN, 0, max(0, self._own) + len(_BEGIN) - 1)
            self.inside = start >= 0
            self._drop(start if self.inside else max(0, len(self._buffer) - len(_BEGIN) + 1))
        return self.inside

    def _drop(self, num_bytes: int) -> None:
        del self._buffer[:num_bytes]
        self._own -= num_bytes
        self._searched = 0


def _segments(file: BinaryIO, path: Path, start: int, stop: int) -> Iterator[tuple[bool, bytes]]:
    """Decompressed bytes from the span's first stream to the file's end: (whether past the span, bytes)."""
    file.seek(0)
    if file.read(3) == b"BZh":
        yield from _streams(file, path, start, stop)
        return
    file.seek(start)
    while data := file.read(min(_READ_BYTES, stop - start) if start < stop else _READ_BYTES):
        yield start >= stop, data
        start += len(data)


def _streams(file: BinaryIO, path: Path, start: int, stop: int) -> Iterator[tuple[bool, bytes]]:
    position = _first_stream(file, start, stop)
    if position is None:
        return
    file.seek(position)
    data = b""
    while True:
        data += file.read(_STREAM_BYTES - len(data)) if len(data) < _STREAM_BYTES else b""
        if not data:
            return
        if not _STREAM.match(data):
            raise DumpError(f"{path}: the bytes from {position} on are not a bzip2 stream")
        decompressor = bz2.BZ2Decompressor()
        while not decompressor.eof:
            if decompressor.needs_input and not data:
                data = file.read(_READ_BYTES)
                if not data:
                    raise DumpError(
                        f"{path}: the bzip2 stream that begins at byte {position} is cut off at byte "
                        f"{file.tell()}, the end of the file"
                    )
            try:
                text = decompressor.decompress(data, _READ_BYTES)
            except OSError as error:
                raise DumpError(
                    f"{path}: the bzip2 stream that begins at byte {position} is damaged before byte "
                    f"{file.tell()} ({error})"
                ) from error
            data = b""
            if text:
                yield position >= stop, text
        data = decompressor.unused_data
        position = file.tell() - len(data)


def _first_stream(file: BinaryIO, start: int, stop: int) -> int | None:
    """Position of the first compressed stream in the span; None if there is none.

    The ten bytes sought occur inside a stream by chance once in 2^76 positions, and would then be found damaged.
    """
    file.seek(start)
    data = b""
    while start < stop and (more := file.read(_READ_BYTES)):
        data += more
        if match := _STREAM.search(data):
            position = start + match.start()
            return position if position < stop else None
        start += max(0, len(data) - _STREAM_BYTES + 1)
        data = data[-_STREAM_BYTES + 1 :]
    return None
