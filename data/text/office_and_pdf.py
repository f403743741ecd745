"""Reads text of Office documents, PDF and e-books in bounded memory, without opening anything they refer to.

Word, OpenDocument and EPUB are zip files of XML, of which the text's elements are all that is needed: python-docx
leaves out content controls, text boxes and notes, and odfpy was last released in 2020. PDF, RTF and Excel are read by
the packages of the extra `office`. What the author hid or deleted is left out of all of them, and counted.

kreuzberg 4.10.4, one library for all of these, HTML and mail, was tried on the 62 recorded cases of tests/data/text: it
reads 24 as expected. It loses text (`&amp;` in Word, all of the OpenDocument file, words beside inline elements of
HTML), and keeps text that was moved away. A file that is damaged, declares entities or is a decompression bomb gives an
empty document and no error. Quotations and addresses of mails stay. One e-book ended the process.
"""

import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.parsers import expat

from data.text.archives import open_archive, refuse_entities
from data.text.encodings import decoded
from data.text.hidden_text import OpenDocumentVisibility, WordVisibility, hidden_word_styles, local
from data.text.html_text import text_of_html
from data.text.pdf_text import pdf_text
from data.text.rtf_text import rtf_text
from data.text.text_check import NotTextError, only_text

_MOST_LISTED = 4 << 20  # bytes of an e-book's list of files
_CHUNK_BYTES = 1 << 16
_MARKUPS = {  # files in the archive; elements, by their names without namespaces, that hold text and that are left out
    "docx": (r"word/(document\d*|footnotes|endnotes)\.xml", {"t"}, {"Fallback", "moveFrom", "rt"}),
    "odt": (r"content\.xml", {"p", "h"}, {"tracked-changes", "annotation", "note-citation", "ruby-text"}),
}
_BREAKS = frozenset("p h br cr tab s line-break".split())


def office_text(path: Path, kind: str, counts: Counter, problem: Callable[[str], object]) -> Iterator[str]:
    """Text of a file, in pieces.

    Args:
        counts: gets how much was hidden, deleted or repeated, and is not read.
        problem: gets what of the file cannot be read.

    Raises:
        NotTextError: there is no text to read, or too much.
        Exception: of the parsers, for a damaged file.
    """
    if kind == "pdf":
        yield from pdf_text(path, counts, problem)
    elif kind == "rtf":
        yield from rtf_text(path, counts)
    else:
        with open_archive(path) as archive:
            if kind == "epub":
                yield from _epub_text(archive, counts)
            else:
                visibility = _word_visibility(archive, counts) if kind == "docx" else OpenDocumentVisibility(counts)
                yield from _markup_text(archive, visibility, *_MARKUPS[kind])


def _word_visibility(archive: zipfile.ZipFile, counts: Counter) -> WordVisibility:
    name = "word/styles.xml"
    styles = hidden_word_styles(_xml_of(archive, name)) if name in archive.namelist() else frozenset[str]()
    return WordVisibility(counts, styles)


def _markup_text(
    archive: zipfile.ZipFile,
    visibility: WordVisibility | OpenDocumentVisibility,
    files: str,
    text: set[str],
    left_out: set[str],
) -> Iterator[str]:
    """Text inside the text elements; paragraphs, tabs and line breaks become line ends."""
    pieces: list[str] = []
    depth = Counter[str]()

    def start(name: str, attributes: dict[str, str]) -> None:
        name = local(name)
        depth[name] += 1
        visibility.start(name, attributes)

    def end(name: str) -> None:
        name = local(name)
        depth[name] -= 1
        visibility.end(name)
        if name in _BREAKS:
            pieces.append("\n")
        elif name == "noBreakHyphen" and not visibility.is_hidden:
            pieces.append("-")

    def characters(data: str) -> None:
        is_text = any(depth[name] for name in text) and not any(depth[name] for name in left_out)
        if is_text and not visibility.is_hidden:
            pieces.append(data)

    members = [name for name in archive.namelist() if re.fullmatch(files, name)]
    if not members:
        raise NotTextError("is a zip file without the text of a document")
    for member in members:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = start, end
        parser.CharacterDataHandler, parser.EntityDeclHandler = characters, refuse_entities
        with archive.open(member) as file:
            while chunk := file.read(_CHUNK_BYTES):
                parser.Parse(chunk)
                yield "".join(pieces)
                pieces.clear()
        parser.Parse(b"", True)


def _xml_of(archive: zipfile.ZipFile, member: str) -> ElementTree.Element:
    if archive.getinfo(member).file_size > _MOST_LISTED:
        raise NotTextError(f"has a part {member} of more than {_MOST_LISTED:,} bytes, which no program writes")
    data = archive.read(member)
    if b"<!ENTITY" in data:
        refuse_entities()
    return ElementTree.fromstring(data)


def _epub_text(archive: zipfile.ZipFile, counts: Counter) -> Iterator[str]:
    """Chapters of an e-book in reading order, without pages that list them."""
    rootfile = _xml_of(archive, "META-INF/container.xml").find(".//{*}rootfile")
    name = "" if rootfile is None else rootfile.get("full-path", "")
    package = _xml_of(archive, name)
    places = {
        item.get("id"): posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(item.get("href", ""))))
        for item in package.iterfind(".//{*}manifest/{*}item")
        if "html" in item.get("media-type", "") and "nav" not in item.get("properties", "").split()
    }
    items = package.iterfind(".//{*}spine/{*}itemref")
    chapters = dict.fromkeys(places[id] for item in items if (id := item.get("idref")) in places)  # each is there once

    def pages() -> Iterator[str]:
        for chapter in chapters:
            data = archive.read(chapter)
            _, text = decoded(lambda page=data: [page], "auto", "en", counts, check=False, is_page=True)  # type: ignore[misc]
            yield from text_of_html(text)
            yield "\n"

    return only_text(pages())
