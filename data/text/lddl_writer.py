"""Writes LDDL's source layout: FOLDER/source/<language>/N.txt, one document per line, its id first.

The files are written to a hidden folder as N.txt.part and published together when all are complete, so a killed run
leaves nothing that looks like a corpus.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bert.files import sync

MAX_FILE_BYTES = 64 << 20
PART_SUFFIX = ".part"
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")


def check_language(language: str) -> str:
    """Return the language; ValueError if it cannot be the name of a folder."""
    if not _LANGUAGE.fullmatch(language):
        raise ValueError(f"lang={language!r} must be a language code such as en, de or zh-min-nan")
    return language


def document_id(text: str) -> str:
    """The text as an id: without white space, and not empty."""
    return "_".join(text.split()) or "document"


def utf8(text: str) -> bytes:
    """The text in UTF-8; lone surrogates become U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


def document_line(identifier: str, text: str) -> bytes:
    """LDDL's line; white space of every kind becomes one space."""
    return utf8(f"{identifier} {' '.join(text.split())}\n")


@dataclass(frozen=True)
class WrittenFile:
    """Name, documents and bytes of one file."""

    name: str
    documents: int
    num_bytes: int


class SourceWriter:
    """Writes lines to 0.txt.part, 1.txt.part ..., none much longer than max_file_bytes; a line is never split."""

    def __init__(self, folder: Path, max_file_bytes: int = MAX_FILE_BYTES, prefix: str = "") -> None:
        self._folder, self._max_file_bytes, self._prefix = folder, max_file_bytes, prefix
        self._file: BinaryIO | None = None
        self._documents = self._bytes = 0
        self.files: list[WrittenFile] = []
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> SourceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, line: bytes | memoryview, is_start: bool = True, is_end: bool = True) -> None:
        """Write a line, or a part of one."""
        if self._file is None:
            self._file = open(self._folder / f"{self._prefix}{len(self.files)}.txt{PART_SUFFIX}", "wb")
        self._file.write(line)
        self._bytes += len(line)
        self._documents += is_start
        if is_end and self._bytes >= self._max_file_bytes:
            self.close()

    def close(self) -> None:
        """Finish the current file and flush it to the disk."""
        if self._file is None:
            return
        self._file.close()
        sync(self._file.name)
        name = Path(self._file.name).name.removesuffix(PART_SUFFIX)
        self.files.append(WrittenFile(name, self._documents, self._bytes))
        self._file, self._documents, self._bytes = None, 0, 0


def shuffle_documents(path: Path) -> None:
    """Put a file's documents into the order of the hash of their text, so that neighbours have nothing in common.

    A training reads shards that are cut from neighbouring documents one after the other. A file much larger than
    MAX_FILE_BYTES, whose last document is so long, stays as it is.
    """
    if path.stat().st_size > 2 * MAX_FILE_BYTES:
        return
    lines = path.read_bytes().split(b"\n")[:-1]
    lines.sort(key=lambda line: hashlib.sha256(line.partition(b" ")[2]).digest())
    with open(path, "wb") as file:
        file.writelines(line + b"\n" for line in lines)
    sync(path)


def publish(prepared: Path, final: Path) -> None:
    """Rename the files of a finished folder, then the folder itself to `final`.

    Raises:
        ValueError: `final` exists and is not empty.
    """
    check_free(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    for part in prepared.glob(f"*{PART_SUFFIX}"):
        part.rename(part.with_name(part.name.removesuffix(PART_SUFFIX)))
    if final.exists():
        final.rmdir()
    os.rename(prepared, final)
    sync(final.parent)


def check_free(final: Path) -> None:
    """ValueError if the folder exists and is not empty."""
    if final.exists() and any(final.iterdir()):
        raise ValueError(
            f"{final}: contains other text already, e.g. {sorted(path.name for path in final.iterdir())[0]}; "
            "choose another folder, or remove it"
        )


def fresh_folder(folder: Path) -> Path:
    """Make an empty folder, removing the files of an earlier run."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
