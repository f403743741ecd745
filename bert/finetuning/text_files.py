"""Text files of users and of published tasks: decoded, or refused with the line and the remedy."""

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from data.text.encodings import MAX_ROW_CHARACTERS, check_encoding, decoded, detect, whole_lines
from data.text.inputs import read_chunks

_BLOCK = 1 << 20  # bytes that are decoded at a time


def text_lines(path: Path, encoding: str | None = None) -> Iterator[str]:
    """The lines of a file without their line ends, LF or CR LF, in bounded memory; `encoding`: None for UTF-8."""
    for block in decoded_blocks(path, encoding):
        for line in io.StringIO(block, newline="\n"):
            yield line.removesuffix("\n").removesuffix("\r")


def decoded_blocks(path: Path, encoding: str | None = None) -> Iterator[str]:
    """The text of a file, without its byte order mark and without NUL, in blocks of whole lines.

    Args:
        encoding: as of `Decoding`; None: UTF-8, and another is refused.
    """
    if not path.is_file():
        raise ValueError(f"{path} does not exist or is not a file; check the path")
    if encoding is not None:
        check_encoding(encoding)
        counts = Counter[str]()
        chunks = decoded(lambda: read_chunks(path, ""), encoding, "en", counts, check=False)[1]
        for number, text in enumerate(whole_lines(chunks), start=1):
            if text is None:
                raise ValueError(f"{path}:{number}: the line is longer than {MAX_ROW_CHARACTERS} characters; split it")
            yield f"{text}\n"
        if replaced := counts["undecodable bytes"]:
            raise ValueError(f"{path}: {replaced} bytes are not {encoding}; check --encoding, or the file")
        return
    line, encoding = 1, "utf-8-sig"
    with open(path, "rb") as file:
        while data := file.read(_BLOCK) + file.readline():
            if line == 1 and data.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise ValueError(f"{path} is UTF-16; save it as UTF-8, e.g. with iconv -f UTF-16 -t UTF-8")
            try:
                text = data.decode(encoding)
            except UnicodeDecodeError as error:
                line += data.count(b"\n", 0, error.start)
                page = detect(lambda: read_chunks(path, "")).code_page() or "latin1"
                raise ValueError(
                    f"{path}:{line}: byte {data[error.start]:#04x} is not UTF-8 ({error.reason}); save it as UTF-8, "
                    f"e.g. with iconv -f {page} -t UTF-8, pass --encoding {page} for your own file, or copy it again "
                    "if it was truncated"
                ) from None
            if "\0" in text:
                line += text.count("\n", 0, text.index("\0"))
                raise ValueError(
                    f"{path}:{line}: a NUL character; the file is binary, or UTF-16: save it as UTF-8 text"
                )
            yield text
            line, encoding = line + data.count(b"\n"), "utf-8"
