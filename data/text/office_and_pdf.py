"""Reads the text of Office documents, PDF and e-books, in bounded memory and without following anything they name.

Word, OpenDocument and EPUB are zip files of XML, of which the text's elements are all that is needed: python-docx
leaves out content controls, text boxes and notes, and odfpy was last released in 2020. PDF, RTF and Excel are read by
the packages of the extra `office`.

kreuzberg 4.10.4, one library for all of these, HTML and mail, was tried on the 62 recorded cases of tests/data/text: it
reads 24 as expected. It loses text (`&amp;` in Word, all of the OpenDocument file, words beside inline elements of
HTML), and keeps text that was moved away. A file that is damaged, declares entities or is a decompression bomb gives an
empty document and no error. Quotations and addresses of mails stay. One e-book ended the process.
"""

import logging
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.parsers import expat

from data.text.columns import Row, TableForm, check_number_of_columns, first_items, numbered_names, row_size
from data.text.header_check import REPEATED_NAMES, ROWS_OF_TYPES, are_types, refuse_names_below, repeats_names
from data.text.html_text import text_of_html
from data.text.json_rows import with_text
from data.text.size_limits import TooMuchError, no_bomb, require_no_bomb
from data.text.text_check import NotTextError, only_text

_MOST_LISTED = 4 << 20  # bytes of an e-book's list of files
_CHUNK_BYTES = 1 << 16
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SPLIT_WORD = re.compile(r"(?<=\w)-\n(?=[a-z\u00df-\u00ff])")


_MARKUPS = {  # files in the archive; elements, by their names without namespaces, that hold text and that are left out
    "docx": (r"word/(document\d*|footnotes|endnotes)\.xml", {"t"}, {"Fallback", "moveFrom"}),
    "odt": (r"content\.xml", {"p", "h"}, {"tracked-changes", "annotation", "note-citation"}),
}
_BREAKS = frozenset("p h br cr tab s line-break".split())


def office_text(path: Path, kind: str, problem: Callable[[str], object]) -> Iterator[str]:
    """The text of a file in pieces.

    Args:
        problem: gets what of the file cannot be read.

    Raises:
        NotTextError: there is no text to read, or too much.
        Exception: of the parsers, for a damaged file.
    """
    if kind == "pdf":
        yield from _pdf_text(path, problem)
    elif kind == "rtf":
        from striprtf.striprtf import rtf_to_text

        content = path.read_bytes()
        if not content.lstrip().startswith(b"{\\rtf"):
            raise NotTextError("is not RTF: it does not begin with {\\rtf")
        yield rtf_to_text(content.decode("latin-1"), errors="replace")
    else:
        with _archive(path) as archive:
            yield from _epub_text(archive) if kind == "epub" else _markup_text(archive, *_MARKUPS[kind])


def _archive(path: Path) -> zipfile.ZipFile:
    """A zip file that may be unpacked."""
    with open(path, "rb") as file:
        if file.read(len(_OLE)) == _OLE:
            raise NotTextError("is protected by a password, or of an older Office; save it again without")
    archive = zipfile.ZipFile(path)
    try:
        require_no_bomb(path, (member.file_size for member in archive.infolist()))
    except TooMuchError:
        archive.close()
        raise
    return archive


def _markup_text(archive: zipfile.ZipFile, files: str, text: set[str], left_out: set[str]) -> Iterator[str]:
    """The text inside of the text elements; paragraphs, tabs and line breaks become line ends."""
    pieces: list[str] = []
    depth = Counter[str]()

    def start(name: str, _: dict[str, str]) -> None:
        depth[name.rpartition(" ")[2]] += 1

    def end(name: str) -> None:
        name = name.rpartition(" ")[2]
        depth[name] -= 1
        if name in _BREAKS:
            pieces.append("\n")
        elif name == "noBreakHyphen":
            pieces.append("-")

    def characters(data: str) -> None:
        if any(depth[name] for name in text) and not any(depth[name] for name in left_out):
            pieces.append(data)

    members = [name for name in archive.namelist() if re.fullmatch(files, name)]
    if not members:
        raise NotTextError("is a zip file without the text of a document")
    for member in members:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = start, end
        parser.CharacterDataHandler, parser.EntityDeclHandler = characters, _refuse_entities
        with archive.open(member) as file:
            while chunk := file.read(_CHUNK_BYTES):
                parser.Parse(chunk)
                yield "".join(pieces)
                pieces.clear()
        parser.Parse(b"", True)


def _refuse_entities(*_: object) -> None:
    raise NotTextError("declares XML entities, which no Office program does")


def _xml_of(archive: zipfile.ZipFile, member: str) -> ElementTree.Element:
    if archive.getinfo(member).file_size > _MOST_LISTED:
        raise NotTextError(f"has a list of contents of more than {_MOST_LISTED:,} bytes, which no book has")
    data = archive.read(member)
    if b"<!ENTITY" in data:
        _refuse_entities()
    return ElementTree.fromstring(data)


def _epub_text(archive: zipfile.ZipFile) -> Iterator[str]:
    """The chapters in the order of reading."""
    rootfile = _xml_of(archive, "META-INF/container.xml").find(".//{*}rootfile")
    name = "" if rootfile is None else rootfile.get("full-path", "")
    package = _xml_of(archive, name)
    places = {
        item.get("id"): posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(item.get("href", ""))))
        for item in package.iterfind(".//{*}manifest/{*}item")
        if "html" in item.get("media-type", "")
    }
    items = package.iterfind(".//{*}spine/{*}itemref")
    chapters = dict.fromkeys(places[id] for item in items if (id := item.get("idref")) in places)  # each is there once

    def pages() -> Iterator[str]:
        for chapter in chapters:
            data = archive.read(chapter)
            codec = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
            yield from text_of_html([data.decode(codec, "replace")])
            yield "\n"

    return only_text(pages())


def _pdf_text(path: Path, problem: Callable[[str], object]) -> Iterator[str]:
    """The text of each page; words that are hyphenated at a line's end are joined."""
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = PdfReader(path)
    if reader.is_encrypted and not reader.decrypt(""):
        raise NotTextError("is protected by a password; save it without")
    has_text, last_error = False, ""
    for number in range(1, len(reader.pages) + 1):
        try:
            text = reader.pages[number - 1].extract_text()
        except Exception as error:
            last_error = f"{type(error).__name__}: {error}"
            problem(f"page {number} cannot be read ({last_error})")
            continue
        has_text |= not (text.isspace() or text == "")
        yield _SPLIT_WORD.sub("", text) + "\n"
    if not has_text:
        raise NotTextError(last_error or "has pages without text, as a scan has; recognise its text (OCR) first")


def xlsx_rows(path: Path, form: TableForm, counts: Counter) -> Iterator[Row]:
    """The rows of all sheets, of which each begins with its columns' names, numbered on from sheet to sheet."""
    from openpyxl import load_workbook

    _archive(path).close()
    workbook = load_workbook(path, read_only=True, data_only=True)
    number, refusals = 0, []
    for sheet in workbook.worksheets:
        sheet.reset_dimensions()  # what a file says of its size is often wrong, and would cut it
        cells = enumerate(sheet.iter_rows(values_only=True), start=number + 1)
        try:
            for row in with_text(no_bomb(path, _sheet_rows(cells, number, counts), row_size), form):
                number = row.number
                yield row
        except NotTextError as error:
            error.args = (f"sheet {sheet.title!r} {error}",)
            refusals.append(error)
            if len(refusals) == len(workbook.worksheets):
                raise refusals[0] from None
            yield Row(number + 1, None, str(error))
        number += 1
    workbook.close()


def _sheet_rows(sheet: Iterator[tuple[int, Sequence[Any]]], above: int, counts: Counter) -> Iterator[Row]:
    """The rows below the names of the columns.

    Args:
        sheet: (number, cells) of each row of a sheet.
        above: rows of earlier sheets.
        counts: gets the number of rows that are none.
    """
    head = first_items(sheet, lambda _: 0)
    shown = [["" if cell is None else str(cell).strip() for cell in cells] for _, cells in head] or [[]]
    check_number_of_columns(len(shown[0]))
    below = [(number - above, cells) for (number, _), cells in zip(head[1:], shown[1:], strict=True)]
    refuse_names_below(shown[0], below, "row")
    width = max(len(row) for row in shown)  # cells may stand beside the named columns
    names = numbered_names([*shown[0], *[""] * (width - len(shown[0]))])
    is_first = True
    for number, cells in chain(head[1:], sheet):
        if all(cell is None for cell in cells):
            continue
        is_types, is_first = is_first and are_types(cells), False
        if is_types or repeats_names([*cells], shown[0]):
            counts[ROWS_OF_TYPES if is_types else REPEATED_NAMES] += 1
        else:
            yield Row(number, dict(zip(names, cells, strict=False)))
