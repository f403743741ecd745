"""Reads documents from files of all formats, plain or compressed, in pieces of limited size."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from bert.files import shown
from bert.tokenization.equal_letters import continues_letter, first_of_letter, normal_form
from bert.tokenization.segmentation import ZERO_WIDTH_SPACE
from data.text.columns import Row, TableForm, TextColumn
from data.text.compression import CHUNK_BYTES, read_chunks
from data.text.contents import bounded, text_chunks
from data.text.encodings import lines
from data.text.file_formats import OFFICE_KINDS, SOURCE_TEXT, Input
from data.text.findings import Findings
from data.text.html_text import text_of_html
from data.text.mail import read_mails
from data.text.notebooks import notebook_text, subtitle_text
from data.text.notices import DocumentNotices
from data.text.office_and_pdf import office_text
from data.text.size_limits import no_bomb
from data.text.tables import KINDS, open_table

_MADE_EQUAL = "documents with letters in two code points, ligatures or soft hyphens, made NFC"
# What tells a terminal of colours, of its title and of the place of the cursor; and one that has begun.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,999}(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\^-~])")
_ESCAPE_BEGUN = re.compile(r"\x1b(?:\[[0-?]{0,99}[ -/]{0,99}|\][^\x07\x1b]{0,999}\x1b?|[ -/]{0,99})\Z")
_SOFT_HYPHEN = "\u00ad"
_HYPHENED = re.compile("(?<=[^\\W\\d_])\u00ad[ \t]*\r?\n[ \t]*(?=[^\\W\\d_])")  # where a line ends inside of a word
SEPARATORS = ("file", "line", "blank-line")
_MARKUP = ("code", "log", "ipynb", "html", "epub")  # in which tags of HTML may be what is written about
_LEVELS = "trace|debug|info|notice|warn|warning|error|err|crit|critical|fatal|severe|alert|emerg|panic"
_STAMPS = re.compile(  # dates, times and levels that begin a line of a log
    r"\A\s*(?:[\[(<]?(?:\d{4}[-/.]\d\d[-/.]\d\d|\d\d?[-/.](?:\d\d?|[A-Z][a-z]{2})[-/.]\d{2,4}|[IWEF]\d{4}(?= \d\d:)"
    r"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d\d?(?= )"
    r"|\d\d?:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|GMT|AM|PM|[+-]\d\d:?\d\d))?(?: \d{4})?| *\d+\.\d+(?=\])"
    rf"|(?:{_LEVELS.upper()})\b)[\])>]?(?:[\s:|,-]|T(?=\d))*|\[(?i:{_LEVELS})\][\s:-]*)+"
)


@dataclass(frozen=True)
class Reading:
    """Settings for reading files.

    Attributes:
        text_field, id_field: of rows; text_field as for `TextColumn`.
        group_by: what keeps documents together when some are held out: "folder" (that of the file), "folder:N" (the
            first N folders of its path), or a column or field.
    """

    language: str = "en"
    encoding: str = "auto"  # "auto" or the name of a codec
    separator: str = "file"  # separator of documents in .txt files
    text_field: str | None = None
    id_field: str | None = None
    group_by: str | None = None
    source_code: bool = False  # whether source code in folders is read
    strip_log_stamps: bool = False  # whether times and levels in log files are removed

    def folders(self) -> int | None:
        """Number of leading folders in a path that form the group, 0 for all; None: grouped by a column, or not."""
        name, colon, number = (self.group_by or "").partition(":")
        if name != "folder" or (colon and not number.isdecimal()):
            return None
        return int(number or 0)


@dataclass(frozen=True)
class Piece:
    """A part of a document's text. `ends` marks the last part, which may be empty. `group` is None without a group."""

    id: str
    text: str
    ends: bool
    group: str | None = None


def read_pieces(source: Input, reading: Reading, findings: Findings) -> Iterator[Piece]:
    """The documents of a file in order, in normalised pieces.

    Raises:
        NotTextError: the file is not text, or has no field of the name given.
    """
    folders = reading.folders()
    group = "/".join(source.name.split("/")[:-1][: folders or None])
    noticed = DocumentNotices(findings.notices, source.kind in _MARKUP, source.kind not in KINDS)
    is_changed = False  # the document
    pieces = _without_escapes(_pieces(source, reading, findings), findings.counts)
    for piece in _with_whole_letters(pieces):
        text = normal_form(_HYPHENED.sub("", piece.text) if _SOFT_HYPHEN in piece.text else piece.text)
        is_changed |= text != piece.text
        if piece.ends and is_changed:
            findings.counts[_MADE_EQUAL] += 1
            is_changed = False
        if ZERO_WIDTH_SPACE in text:  # it separates the words of some scripts
            text = text.replace(ZERO_WIDTH_SPACE, " ")
        noticed.add(piece.id, text, piece.ends)
        group_of_piece = piece.group if folders is None else group or None
        yield replace(piece, text=text, group=group_of_piece)


def _without_escapes(pieces: Iterable[Piece], counts: Counter) -> Iterator[Piece]:
    """Remove and count terminal escape sequences, also those that span two pieces."""
    begun = ""
    for piece in pieces:
        text, begun = begun + piece.text, ""
        if "\x1b" in text:
            if not piece.ends and (tail := _ESCAPE_BEGUN.search(text)):
                text, begun = text[: tail.start()], tail[0]
            text, number = _ESCAPES.subn("", text)
            counts["escape sequences of a terminal removed"] += number
        yield replace(piece, text=text) if text is not piece.text else piece


def _with_whole_letters(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Move the beginning of an incomplete letter at a piece's end to the next piece."""
    last: Piece | None = None
    for piece in pieces:
        if last is not None:
            if piece.text and continues_letter(piece.text[0]):
                start = first_of_letter(last.text)
                last, piece = replace(last, text=last.text[:start]), replace(piece, text=last.text[start:] + piece.text)
            yield last
        last = None if piece.ends else piece
        if piece.ends:
            yield piece
    if last is not None:
        yield last


def _pieces(source: Input, reading: Reading, findings: Findings) -> Iterator[Piece]:
    if source.kind in KINDS:
        columns = [reading.id_field] if reading.id_field else []
        optional = reading.group_by if reading.folders() is None else None
        form = TableForm(columns, text=TextColumn(reading.text_field), optional=optional)
        table = open_table(source, form, findings, reading.encoding, reading.language)
        return _row_pieces(source, table.rows, form, findings)
    if source.kind in OFFICE_KINDS:
        text = office_text(
            source.path,
            source.kind,
            findings.counts,
            lambda problem: findings.problem(f"{shown(source.path)}: {problem}"),
        )
        return _txt_pieces(source, no_bomb(source.path, bounded(source, text, Exception), len), "file")
    if source.kind in ("mbox", "eml"):
        content = read_chunks(source.path, source.compression)
        mails = read_mails(content, source.kind, reading.encoding, reading.language, findings.counts)
        form = TableForm((), text=TextColumn(None), optional="thread")
        return _row_pieces(source, bounded(source, mails, TimeoutError), form, findings)
    if source.kind == SOURCE_TEXT:
        return _source_pieces(text_chunks(source, findings, "auto", reading.language))
    chunks = text_chunks(source, findings, reading.encoding, reading.language)
    if source.kind == "log" and reading.strip_log_stamps:
        chunks = (_STAMPS.sub("", _ESCAPES.sub("", text)) + "\n" * ends for text, ends in lines(chunks))
    if source.kind == "html":
        return _txt_pieces(source, bounded(source, text_of_html(chunks), TimeoutError), "file")
    if source.kind in ("ipynb", "srt"):
        text = notebook_text(chunks, findings.counts) if source.kind == "ipynb" else subtitle_text(chunks)
        return _txt_pieces(source, text, "file")
    return _txt_pieces(source, chunks, reading.separator)


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


def _source_pieces(chunks: Iterator[str]) -> Iterator[Piece]:
    """Documents of source text: each line is one, and its first word its id."""
    identifier, opening = "", ""  # of the document that is open; what was read of a line before its id is complete
    for text, ends in lines(chunks):
        if not identifier:
            opening = (opening + text).lstrip()
            words = opening.split(None, 1)
            if not ends and len(words) < 2:
                continue
            opening = ""
            if not words:
                continue  # a blank line
            identifier, text = words[0], "".join(words[1:])
        yield Piece(identifier, text, ends)
        if ends:
            identifier = ""
    if identifier or opening:
        yield Piece(identifier or opening.strip(), "", True)


def _row_pieces(source: Input, rows: Iterable[Row], form: TableForm, findings: Findings) -> Iterator[Piece]:
    """Text of each row; bad rows are counted and named."""
    text_column, id_column = form.text, next(iter(form.columns or ()), None)
    assert text_column is not None
    is_noted = False
    for number, values, problem in rows:
        if text_column.guess is not None and not is_noted:
            findings.guess(source.path, text_column.guess, text_column.unused)
            is_noted = True
        row = values or {}
        name, text = text_column.value(row)
        identifier: Any = f"{source.name}:{number}"
        if not problem and not isinstance(text, str):
            holds = "no text" if text is None else f"a {type(text).__name__}"
            problem = f"field {name!r} holds {holds}"
        if not problem and id_column:
            identifier = row.get(id_column)
            problem = "" if isinstance(identifier, str | int) else f"field {id_column!r} holds no id"
        if problem:
            findings.bad_row(source.path, number, problem)
            continue
        if "\x00" in text:
            findings.counts["NUL characters removed"] += text.count("\x00")
            text = text.replace("\x00", "")
        group = row.get(form.optional)
        for start in range(0, len(text), CHUNK_BYTES):
            yield Piece(str(identifier), text[start : start + CHUNK_BYTES], False)
        yield Piece(str(identifier), "", True, None if group in (None, "") else str(group))
