"""Text files of users and of published tasks: decoded, or refused with the line and the remedy."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from data.text.encodings import MAX_ROW_CHARACTERS, check_encoding, decoded, detect, whole_lines
from data.text.inputs import read_chunks


def text_lines(path: Path, encoding: str | None = None) -> Iterator[str]:
    """The lines of a file without their line ends, LF or CR LF, and without a byte order mark.

    Args:
        encoding: as of `Decoding`; None: UTF-8, and another is refused.
    """
    if not path.is_file():
        raise ValueError(f"{path} does not exist or is not a file; check the path")
    if encoding is None:
        yield from _utf8_lines(path)
        return
    check_encoding(encoding)
    counts = Counter[str]()
    chunks = decoded(lambda: read_chunks(path, ""), encoding, "en", counts, check=False)[1]
    for number, text in enumerate(whole_lines(chunks), start=1):
        if text is None:
            raise ValueError(f"{path}:{number}: the line is longer than {MAX_ROW_CHARACTERS} characters; split it")
        yield text
    if replaced := counts["undecodable bytes"]:
        raise ValueError(f"{path}: {replaced} bytes are not {encoding}; check --encoding, or the file")


def _utf8_lines(path: Path) -> Iterator[str]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise ValueError(f"{path} is UTF-16; save it as UTF-8, e.g. with iconv -f UTF-16 -t UTF-8")
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                page = detect(lambda: read_chunks(path, "")).code_page() or "latin1"
                raise ValueError(
                    f"{path}:{number}: byte {line[error.start]:#04x} is not UTF-8 ({error.reason}); save it as UTF-8, "
                    f"e.g. with iconv -f {page} -t UTF-8, pass --encoding {page} for your own file, or copy it again "
                    "if it was truncated"
                ) from None
            if "\0" in text:
                raise ValueError(
                    f"{path}:{number}: a NUL character; the file is binary, or UTF-16: save it as UTF-8 text"
                )
            yield text.removesuffix("\n").removesuffix("\r")
