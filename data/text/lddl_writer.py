"""Writes LDDL's source layout: FOLDER/source/<language>/N.txt, one document per line, its id first.

The files are written to a hidden folder and published together when all are complete, so a killed run leaves nothing
that looks like a corpus.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from bert.files import sync
from bert.reporting.progress import megabytes

REPORT_NAME = "report.json"  # beside the source
QUIET_COUNTS = "BERT_QUIET_COUNTS"  # environment variable: a launcher runs the command, and reports for it
MAX_FILE_BYTES = 64 << 20
_MOST_HELD, _LEAST_HELD = 32 << 20, 4 << 10  # bytes of all files and of one that ShuffledWriter has not written yet
_SPARE_BYTES, _SPARE_SHARE = 1 << 30, 0.02  # of a disk, the less of the two is left to other programs


def utf8(text: str) -> bytes:
    """Encode the text in UTF-8; lone surrogates become U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


def character_start(text: bytes, place: int) -> int:
    """The first position from here on where a UTF-8 character starts, or the end."""
    while place < len(text) and text[place] & 0xC0 == 0x80:
        place += 1
    return place


@dataclass(frozen=True)
class WrittenFile:
    """Name, number of documents and size of one file."""

    name: str
    documents: int
    num_bytes: int


class SourceWriter:
    """Writes lines to 0.txt, 1.txt ... of about max_file_bytes; a line is never divided."""

    def __init__(self, folder: Path, max_file_bytes: int = MAX_FILE_BYTES, prefix: str = "") -> None:
        self._folder, self._max_file_bytes, self._prefix = folder, max_file_bytes, prefix
        self._file: BinaryIO | None = None
        self._documents = self._bytes = 0
        self.files: list[WrittenFile] = []
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "SourceWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, line: bytes | memoryview, is_start: bool = True, is_end: bool = True) -> None:
        """Write a line or a part of one."""
        if self._file is None:
            self._file = open(self._folder / f"{self._prefix}{len(self.files)}.txt", "wb")
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
        self.files.append(WrittenFile(Path(self._file.name).name, self._documents, self._bytes))
        self._file, self._documents, self._bytes = None, 0, 0


class ShuffledWriter:
    """Writes documents ordered by a hash of their text, independent of the order of writing.

    A training reads shards that are cut from neighbouring documents one after the other. So the hash of how a document
    begins chooses one of `num_files` files, and each file is then put into the order of the hashes of its texts; one
    much larger than MAX_FILE_BYTES, which holds a document that is, keeps its order.
    """

    def __init__(self, folder: Path, num_files: int) -> None:
        self._folder = folder
        self._held = [bytearray() for _ in range(num_files)]
        self._most_held = max(_LEAST_HELD, _MOST_HELD // num_files)
        self._documents = [0] * num_files
        self._id, self._number = b"", 0
        self.files: list[WrittenFile] = []
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, line: bytes, is_start: bool = True, is_end: bool = True) -> None:
        """Write a document in parts: first its id, then its beginning."""
        if is_start:
            self._id = line
            return
        if self._id:
            self._number = int.from_bytes(hashlib.sha256(line).digest()[-8:], "big") % len(self._held)
            self._documents[self._number] += 1
        held = self._held[self._number]
        held += self._id + line
        self._id = b""
        if len(held) >= self._most_held:
            self._append(self._number)

    def close(self) -> None:
        """Finish and sort all files. Files without a document are left out."""
        for number, documents in enumerate(self._documents):
            if documents:
                self._append(number)
                path, name = self._path(number), f"{len(self.files)}.txt"
                _sort_documents(path)
                self.files.append(WrittenFile(name, documents, path.stat().st_size))
                path.rename(self._folder / name)

    def _append(self, number: int) -> None:
        with open(self._path(number), "ab") as file:  # closed again: there may be more files than can be open at once
            file.write(self._held[number])
        self._held[number].clear()

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.unsorted"


def _sort_documents(path: Path) -> None:
    if path.stat().st_size <= 2 * MAX_FILE_BYTES:
        lines = path.read_bytes().split(b"\n")[:-1]
        lines.sort(key=lambda line: hashlib.sha256(line.partition(b" ")[2]).digest())
        with open(path, "wb") as file:
            file.writelines(line + b"\n" for line in lines)
    sync(path)


def publish(prepared: Path, final: Path) -> None:
    """Rename a finished folder to `final`."""
    check_free(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        final.rmdir()
    os.rename(prepared, final)
    sync(final.parent)


def check_free(final: Path) -> None:
    """Raise ValueError if the folder exists and is not empty."""
    if final.exists() and any(final.iterdir()):
        raise ValueError(
            f"{final}: contains other text already, e.g. {sorted(path.name for path in final.iterdir())[0]}; "
            "choose another folder, or remove it"
        )


def check_room(folder: Path, needed: int = 0) -> None:
    """Raise the OSError of a full disk, naming the folder, unless that many bytes can be written there."""
    disk = shutil.disk_usage(folder)
    if disk.free < needed + min(_SPARE_BYTES, int(_SPARE_SHARE * disk.total)):
        more = f", and {megabytes(needed)} are to be written" if needed else ""
        raise OSError(errno.ENOSPC, f"{megabytes(disk.free)} of the disk are free{more}", str(folder))


def fresh_folder(folder: Path) -> Path:
    """Make an empty folder, removing the files of an earlier run."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def counts_line(counts: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in counts.items())


def print_counts(counts: Mapping[str, Any]) -> None:
    """Print one indented line for each count, unless the calling command shows its own summary."""
    if QUIET_COUNTS not in os.environ:
        for name, value in counts.items():
            print(f"  {name}: {value}")
