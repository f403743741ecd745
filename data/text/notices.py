"""Finds problems that a reader sees at once: damage, markup read as words, and lines that all files share.

Nothing is changed. Each kind is counted with an example, and a warning says what mends it if there is much of it.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from bert.printable import printable

_CP1252 = bytes(range(0x80, 0xC0)).decode("cp1252", "ignore") + "".join(map(chr, range(0x80, 0xC0)))
_REST = f"[{re.escape(''.join(dict.fromkeys(_CP1252)))}]"  # what the second byte of a UTF-8 character becomes
_REST_1251 = f"[{re.escape(bytes(range(0x80, 0xC0)).decode('cp1251', 'ignore'))}]"
_QUOTES = "\u2018\u2019\u201c\u201d\u2013\u2014\u2026\u2122\xbb\xab"  # may stand behind any word
_PAIR = re.compile(f"[\xc2-\xf0]{_REST}|[\u0413\u0420\u0421\u0432]{_REST_1251}|[\u221a\u0102][^ -~]")
_TWICE_DECODED = re.compile(
    f"[\xc2\xc3](?![{_QUOTES}]){_REST}|[\xc2\xc3][{_QUOTES}](?=[a-z])"
    f"|\xe2(?:[\u20ac\x80]{_REST}|\u201a\xac|\u201e\xa2)|\xef\xbb\xbf|\xf0[\x9f\u0178]{_REST}{{2}}"
    f"|(?<=[a-z])[\xc4\xc5]{_REST}|[\xc4\xc5]{_REST}(?=[a-z])"
    f"|(?:[\xd0\xd1]{_REST}){{2,}}|(?:[\xce\xcf]{_REST}){{2,}}|(?:[\xd8\xd9]{_REST}){{2,}}|(?:\xd7{_REST}){{2,}}"
    f"|(?<=[a-z])\u0413{_REST_1251}|\u0413{_REST_1251}(?=[a-z])|\u0432\u0402{_REST_1251}"
    "|\u0102[\xa4\xb6\u013d\u017a\xa9\xa8\xad\xa7\xb3]"
    f"|(?:[\xe0-\xed]{_REST}{{2}}){{2,}}|(?:[\u0420\u0421]{_REST_1251}){{3,}}"
    "|(?<=[a-z])\u221a[\xa9\xae\u2020\xb0\xa2\xa3\xa7\u2022\xb6\xdf\u2122\xb4\xa8\u2260\xc6\u221e\xb1\u2264\u2265\xa5\xb5\xba\u2202\xfc]"
)
_ACCENTS_ALONE = re.compile("(?<![A-Za-z\xc0-\xff])[\xc0-\xd6\xd8-\xf6\xf8-\xff]{5,}(?![A-Za-z\xc0-\xff])")
_CONTROLS = re.compile("[\x80-\x84\x86-\x9f]")
_TAG = re.compile(
    "</?(?:p|br|div|span|a|b|i|u|em|strong|font|li|ul|ol|table|tr|td|th|h[1-6]|html|body|head|meta|img|hr|pre|code)"
    r"(?:\s[^<>]{0,500})?/?>|&(?:nbsp|amp|lt|gt|quot|apos|[a-z]{1,6}(?:uml|acute|grave|circ|tilde|cedil|lig)|#\d{2,6});",
    re.IGNORECASE,
)
_GUTENBERG = re.compile(r"\*\*\* ?(?:START|END) OF (?:THE|THIS) PROJECT GUTENBERG", re.IGNORECASE)
_MOST_CHARACTERS = 1 << 20  # of a file that are searched for damage and markup
_EXAMPLE_CHARACTERS = 20  # on each side
_LEAST_LINE, _FIRST_LINES, _LAST_LINES, _TAIL_CHARACTERS = 40, 60, 300, 30_000
_LONGEST_LINE = 500  # characters of it that are compared
_MOST_LINES = 300_000  # different ones that are remembered
_LEAST_DOCUMENTS, _SHARE_OF_DOCUMENTS = 3, 0.05  # that have a repeated line


@dataclass(frozen=True)
class _Kind:
    """A kind of notice: name of its count, share of characters that makes it a warning, remedy."""

    name: str
    share: float
    remedy: str


LOST = _Kind("characters lost before (U+FFFD in the text)", 1e-4, "save the files again from their source")
WRONG = _Kind(
    "words decoded wrongly before (such as UTF-8 read as cp1252)",
    5e-4,
    "save the files again from their source, or turn them back, e.g. with iconv -f utf-8 -t cp1252",
)
TAGS = _Kind("HTML tags and entities read as words", 1e-3, "name text files *.html, or remove the tags from the column")
KINDS = (LOST, WRONG, TAGS)


@dataclass
class Notices:
    """Notices about the documents of all files."""

    counts: Counter = field(default_factory=Counter)  # number of characters by the kind's name
    examples: dict[str, str] = field(default_factory=dict)  # the first example of each kind, with its document
    characters: int = 0
    documents: int = 0
    lines: Counter = field(default_factory=Counter)  # line hash -> number of documents that begin or end with it
    repeated: dict[int, str] = field(default_factory=dict)  # lines that several documents have

    def sentences(self) -> Iterator[str]:
        """One line for each kind, as a warning if there is much of it."""
        for kind in KINDS:
            if number := self.counts[kind.name]:
                line = f"{kind.name}: {number:,}, e.g. {self.examples[kind.name]}"
                is_much = number > kind.share * self.characters
                yield f"warning: {line}; {kind.remedy}" if is_much else line
        least = max(_LEAST_DOCUMENTS, _SHARE_OF_DOCUMENTS * self.documents)
        often = {line: self.lines[key] for key, line in self.repeated.items() if self.lines[key] >= least}
        books = self.counts["books"]
        if books:
            example = "cut what stands before '*** START OF' and behind '*** END OF'"
            yield f"warning: documents with the licence of Project Gutenberg: {books:,}; {example}"
        others = {line: number for line, number in often.items() if not books or "gutenberg" not in line.lower()}
        if others:
            line, number = max(others.items(), key=lambda item: item[1])
            yield (
                f"lines that {self.documents:,} documents begin or end with, each in over "
                f"{max(_SHARE_OF_DOCUMENTS, least / max(1, self.documents)):.0%}: {len(others):,}, e.g. {line!r} "
                f"(in {number:,}); remove them if they are no text"
            )


class DocumentNotices:
    """Checks the documents of one file, piece by piece."""

    def __init__(self, notices: Notices, has_markup: bool, has_lines: bool) -> None:
        """has_markup: tags may be part of the text. has_lines: lines are compared with other documents'."""
        self._notices, self._has_markup, self._has_lines = notices, has_markup, has_lines
        self._first: list[str] = []
        self._tail = deque[str]()  # the last pieces, of _TAIL_CHARACTERS at least if there are so many
        self._tail_characters = 0
        self._is_book = False
        self._searched = 0  # characters of the file

    def add(self, document: str, text: str, ends: bool) -> None:
        """Check the next piece of a document."""
        if self._searched < _MOST_CHARACTERS:
            self._searched += len(text)
            self._search(document, text)
        if self._has_lines:
            if len(self._first) < _FIRST_LINES:
                lines = text[:_TAIL_CHARACTERS].splitlines()
                self._first += [line[:_LONGEST_LINE] for line in lines[: _FIRST_LINES - len(self._first)]]
            self._add_to_tail(text[-_TAIL_CHARACTERS:])
            self._is_book |= "***" in text and _GUTENBERG.search(text) is not None
        if ends:
            self._end()

    def _add_to_tail(self, text: str) -> None:
        self._tail.append(text)
        self._tail_characters += len(text)
        while self._tail_characters - len(self._tail[0]) > _TAIL_CHARACTERS:
            self._tail_characters -= len(self._tail.popleft())

    def _search(self, document: str, text: str) -> None:
        self._notices.characters += len(text)
        if not text.isascii():
            self._note(
                LOST, document, text, [at for at, one in enumerate(text) if one == "\ufffd"] if "\ufffd" in text else []
            )
            self._note(WRONG, document, text, list(_wrongly_decoded(text)))
        if not self._has_markup:
            self._note(TAGS, document, text, [found.start() for found in _TAG.finditer(text)])

    def _note(self, kind: _Kind, document: str, text: str, places: list[int]) -> None:
        if not places:
            return
        self._notices.counts[kind.name] += len(places)
        if kind.name not in self._notices.examples:
            start = max(0, places[0] - _EXAMPLE_CHARACTERS)
            example = " ".join(text[start : places[0] + _EXAMPLE_CHARACTERS].split())
            self._notices.examples[kind.name] = printable(f"{example!r} in {document}")

    def _end(self) -> None:
        notices = self._notices
        notices.documents += 1
        notices.counts["books"] += self._is_book
        last = "".join(self._tail).splitlines()[-_LAST_LINES:]
        lines = {line[:_LONGEST_LINE].strip() for line in [*self._first, *last]}
        for line in lines:
            if len(line) < _LEAST_LINE:
                continue
            key = hash(line)
            if key in notices.lines:
                notices.lines[key] += 1
                notices.repeated.setdefault(key, printable(line[:_LEAST_LINE]))
            elif len(notices.lines) < _MOST_LINES:
                notices.lines[key] = 1
        self._first, self._is_book = [], False
        self._tail.clear()
        self._tail_characters = 0


def _wrongly_decoded(text: str) -> Iterator[int]:
    """Positions of characters that result from a wrong encoding and occur in no language."""
    if _PAIR.search(text):
        yield from (found.start() for found in _TWICE_DECODED.finditer(text))
    yield from (found.start() for found in _ACCENTS_ALONE.finditer(text))
    yield from (found.start() for found in _CONTROLS.finditer(text))
