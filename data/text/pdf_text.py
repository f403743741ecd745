"""Reads text of PDF files, joins hyphenated words at line ends, and drops page headers and footers."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from data.text.text_check import NotTextError

REPEATED = "lines that pages of a PDF repeat, not read"
_HYPHENS = "\\-\u2010\u00ad\u058a"
_LETTER = "(?:[^\\W_]|[\u0300-\u036f\u0591-\u05c7\u064b-\u0655\u0900-\u0dff])"  # also marks, which \\w has not
_CUT = re.compile(rf"({_LETTER}+)([{_HYPHENS}])[ \t]*\n[ \t]*(?=({_LETTER}+))")
_WORD = re.compile(rf"{_LETTER}+(?:[-\u2010]{_LETTER}+)*(?![\w{_HYPHENS}])")
_LINE_END = re.compile(rf"[{_HYPHENS}][ \t]*\n")
# Behind a hyphen at a line's end these are words of their own: "Haus- und Hofarbeit", "two- or threefold".
_CONJUNCTIONS = frozenset(
    "und oder bzw sowie als bis and or to en of och eller og ja tai et ou és vagy oraz lub nebo или și sau või".split()
)
_NUMBER = re.compile(r"\d+|\b[ivxlc]+\b")
_MOST_HELD = 8 << 20  # characters of pages, among which repeated lines are searched
_LEAST_PAGES, _LEAST_SHARE = 3, 1 / 3  # that repeat a line: left and right pages may have different ones
_MOST_EDGE_LINES = 4


def pdf_text(path: Path, counts: Counter, problem: Callable[[str], object]) -> Iterator[str]:
    """Text of a file, in pieces.

    Args:
        problem: gets what of the file cannot be read.

    Raises:
        NotTextError: there is no text to read.
        Exception: of the parser, for a damaged file.
    """
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = PdfReader(path)
    if reader.is_encrypted and not reader.decrypt(""):
        raise NotTextError("is protected by a password; save it without")
    has_text, last_error = False, ""
    pages: list[list[str]] = []
    held = 0
    for number in range(1, len(reader.pages) + 1):
        try:
            text = reader.pages[number - 1].extract_text()
        except Exception as error:
            last_error = f"{type(error).__name__}: {error}"
            problem(f"page {number} cannot be read ({last_error})")
            continue
        has_text |= not (text.isspace() or text == "")
        pages.append(text.split("\n"))
        held += len(text)
        if held > _MOST_HELD:
            yield joined_pages(pages, counts)
            pages, held = [], 0
    if not has_text:
        raise NotTextError(last_error or "has pages without text, as a scan has; recognise its text (OCR) first")
    yield joined_pages(pages, counts)


def joined_pages(pages: Sequence[list[str]], counts: Counter) -> str:
    """Join the lines of pages without headers and footers, and with whole words at line ends."""
    lines = [line for page in without_repeated(pages, counts) for line in page]
    text = "\n".join(lines) + "\n"
    return with_whole_words(text) if _LINE_END.search(text) else text


def without_repeated(pages: Sequence[list[str]], counts: Counter) -> list[list[str]]:
    """Remove headers and footers: edge lines that repeat, except for numbers, on many pages."""
    pages = [[line for line in page if line.strip()] for page in pages]
    seen = Counter(
        key for page in pages for key in {_key(line) for line in [*page[:_MOST_EDGE_LINES], *page[-_MOST_EDGE_LINES:]]}
    )
    least = max(_LEAST_PAGES, _LEAST_SHARE * sum(map(bool, pages)))
    bodies = []
    for page in pages:
        first, last = 0, len(page)
        while first < min(last, _MOST_EDGE_LINES) and seen[_key(page[first])] >= least:
            first += 1
        while last > max(first, len(page) - _MOST_EDGE_LINES) and seen[_key(page[last - 1])] >= least:
            last -= 1
        if removed := len(page) - (last - first):
            counts[REPEATED] += removed
        bodies.append(page[first:last])
    return bodies


def _key(line: str) -> str:
    return _NUMBER.sub("0", " ".join(line.lower().split()))


def with_whole_words(text: str) -> str:
    """Remove the hyphens that divide a word at a line's end.

    A hyphen is removed before a small letter, or between letters of a script without capitals. It stays with the word
    where the same text has the word with it, before a capital and before a number; and with its line end before a
    conjunction.
    """
    words = frozenset(_WORD.findall(text))

    def joined(cut: re.Match[str]) -> str:
        before, hyphen, after = cut.groups()
        if hyphen == "\u00ad" or before + after in words:
            return before
        if f"{before}-{after}" in words:
            return f"{before}-"
        if after in _CONJUNCTIONS or (len(after) == 1 and after.islower()):
            return cut[0]
        is_cased = after[0].lower() != after[0].upper()
        if before[-1].isdigit() or after[0].isdigit() or after[0].isupper():
            return before + hyphen
        is_cased_before = before[-1].lower() != before[-1].upper()
        return before if is_cased == is_cased_before else cut[0]

    return _CUT.sub(joined, text)
