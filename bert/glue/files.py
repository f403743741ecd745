"""Finds and reads GLUE's files: UTF-8, tab-separated; quotation marks are part of the text."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bert.labels.table import Split
from data.text.columns import NoColumnError, Row, TableForm
from data.text.compression import read_chunks
from data.text.delimited import DelimitedTable
from data.text.encodings import detect
from data.text.header_check import NoHeaderError


def published_rows(path: Path, split: Split, notes: list[str]) -> Iterator[Row]:
    """Rows of a split of a GLUE file, with its columns, in bounded memory; there are no notes."""
    form = TableForm(split.columns(), split.header, "none")
    try:
        yield from DelimitedTable(_utf8_lines(path), "tsv", form, Counter()).rows()
    except NoHeaderError:
        raise ValueError(f"{path} is empty; download it again") from None
    except NoColumnError as error:
        raise ValueError(
            f"{path}:1: {str(error).removeprefix('has ')}. Is it the task's file? For files of your own, use "
            "--task-name custom with --text-column, --text-pair-column and --label-column"
        ) from None


def _utf8_lines(path: Path) -> Iterator[str]:
    """Lines that end only with a line feed: GLUE's texts contain carriage returns."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                encoding = detect(lambda: read_chunks(path, ""))
                raise ValueError(
                    f"{path}:{number}: byte {line[error.start]:#04x} is not UTF-8 ({error.reason}); save it as UTF-8, "
                    f"e.g. with iconv -f {encoding.code_page() or encoding.name} -t UTF-8, or download it again"
                ) from None
            if "\0" in text:
                raise ValueError(f"{path}:{number}: a NUL character; it is binary, or UTF-16: save it as UTF-8 text")
            yield text.removesuffix("\n").removesuffix("\r")


def find_file(directory: Path, split: Split) -> Path:
    """The first existing file of a split."""
    for name in split.files:
        if (directory / name).is_file():
            return directory / name
    present = sorted(path.name for path in directory.iterdir())[:12] if directory.is_dir() else []
    raise ValueError(
        f"{directory} has no {' or '.join(split.files)}; it has {', '.join(present) or 'nothing'}. "
        "--download fetches GLUE's files to a new --data-dir, or to the cache without that flag"
    )
