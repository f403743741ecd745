"""Reads documents from files of all formats, plain or compressed, in pieces of bounded size."""

from collections import Counter
from collections.abc import Iterable, Iterator

from bert.files import shown
from data.text.compression import CHUNK_BYTES, read_chunks
from data.text.encodings import NotTextError, decoded
from data.text.html_text import text_of_html
from data.text.inputs import Findings, Input
from data.text.pieces import Piece, Reading, lines
from data.text.tables import KINDS, Row, TableForm, parquet_rows, rows_of_chunks

SEPARATORS = ("file", "line", "blank-line")


def read_pieces(source: Input, reading: Reading, findings: Findings) -> Iterator[Piece]:
    """The documents of a file in order, each in one or more pieces.

    Raises:
        NotTextError: the file is not text, or has no field of the name given.
    """
    form = TableForm([name for name in (reading.text_field, reading.id_field) if name])
    if source.kind == "parquet":
        return _row_pieces(source, parquet_rows(source.path, form), reading, findings)
    chunks = _text_chunks(source, reading, findings)
    if source.kind in KINDS:
        rows = rows_of_chunks(chunks, source.kind, form, findings.counts)
        return _row_pieces(source, rows, reading, findings)
    if source.kind == "html":
        return _txt_pieces(source, text_of_html(chunks), "file")
    return _txt_pieces(source, chunks, reading.separator)


def _text_chunks(source: Input, reading: Reading, findings: Findings) -> Iterator[str]:
    counts: Counter = Counter()
    try:
        encoding, chunks = decoded(
            lambda: read_chunks(source.path, source.compression),
            reading.encoding,
            reading.language,
            counts,
            check=source.kind != "jsonl",
        )
        findings.encodings[f"{encoding.name} ({encoding.found_by})"] += 1
        yield from _no_script(chunks) if "." not in source.path.name else chunks
    except UnicodeError as error:  # utf-16 and utf-32 require a byte order mark
        raise ValueError(
            f"{shown(source.path)}: cannot be read as {reading.encoding} ({error}); use --encoding auto, "
            f"or {reading.encoding}-le or {reading.encoding}-be"
        ) from error
    findings.counts.update(counts)
    if counts["undecodable bytes"]:
        findings.problem(f"{shown(source.path)}: {counts['undecodable bytes']} bytes are not {encoding.name}")


def _no_script(chunks: Iterator[str]) -> Iterator[str]:
    """The chunks; NotTextError if the first begins with #!, as programs without a suffix do."""
    for number, chunk in enumerate(chunks):
        if number == 0 and chunk.startswith("#!"):
            raise NotTextError("is a program (#!)")
        yield chunk


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


def _row_pieces(source: Input, rows: Iterable[Row], reading: Reading, findings: Findings) -> Iterator[Piece]:
    """The text of each row; bad rows are counted and named."""
    for number, values, problem in rows:
        text, identifier = "", f"{source.name}:{number}"
        if values is not None:
            content = values.get(reading.text_field)
            if isinstance(content, str):
                text = content
            else:
                holds = "no text" if content is None else f"a {type(content).__name__}"
                problem = f"field {reading.text_field!r} holds {holds}"
            if reading.id_field and not problem:
                name = values.get(reading.id_field)
                identifier = str(name)
                problem = "" if isinstance(name, str | int) else f"field {reading.id_field!r} holds no id"
        if problem:
            findings.bad_row(source.path, number, problem)
            continue
        if "\x00" in text:
            findings.counts["NUL characters removed"] += text.count("\x00")
            text = text.replace("\x00", "")
        for start in range(0, len(text), CHUNK_BYTES):
            yield Piece(identifier, text[start : start + CHUNK_BYTES], False)
        yield Piece(identifier, "", True)
