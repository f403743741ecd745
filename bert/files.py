"""Files and folders: written whole or not at all, hashed, locked."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Union

import xxhash

_PATIENCE = 2.0  # seconds: processes that end with a killed run let go of its lock a little later


@contextmanager
def atomic_path(path: Union[str, Path]) -> Iterator[Path]:
    """A temporary path beside `path`; what is written there gets the name `path` when the block ends without error."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        if temporary.exists():
            temporary.unlink()


def write_atomically(path: Union[str, Path], data: Union[bytes, memoryview]) -> None:
    """Write a file whole or not at all: a temporary file beside it, flushed to the disk, then renamed."""
    try:
        with atomic_path(path) as temporary:
            with open(temporary, "wb") as file:
                file.write(data)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk's names no file
        raise


def sha256_of(data: Union[bytes, memoryview]) -> str:
    """Hexadecimal sha256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def checksum_of(data: Union[bytes, memoryview]) -> str:
    """Hexadecimal XXH128 of bytes: against damage, at the speed of memory. sha256 was a tenth of the work of making
    shards, and more of reading them."""
    return xxhash.xxh3_128_hexdigest(data)


def checksum_of_file(path: Union[str, Path]) -> str:
    """`checksum_of` a file of any size."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Makes the folder and locks it; one that was made, and is left empty, is removed.

    The lock leaves no file and ends with the process, and its workers, however they end. Where a file system has no
    locks for folders (NFS), there is none.

    Raises:
        ValueError: another process holds the lock.
        OSError: the folder cannot be made or opened.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        with suppress(OSError):
            for path in made:
                path.rmdir()
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"{shown(folder)}: another run is writing to it; wait until it ends, or give this "
                    "one another folder"
                ) from error
        except OSError:
            return None
        time.sleep(0.1)


def shown(path: str | bytes | os.PathLike[str]) -> str:
    """The path as text that can be stored and printed: bytes of it that are not UTF-8 become \\xff."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
