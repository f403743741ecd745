"""Atomic writes, hashes and locks of files and folders."""

import errno
import fcntl
import hashlib
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import xxhash

from bert.printable import printable

_SECONDS_FOR_WORKERS = 2.0  # the workers of a killed run release its lock a little later than the run itself


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Context manager: a temporary path that is renamed to `path` if the block ends without an error."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.tmp")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is None and "requested and" in str(error):  # NumPy's, of a full disk
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        error.filename = error.filename or str(path)  # the error of a full disk names no file
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: str | Path, data: bytes | memoryview) -> None:
    """Write a file atomically: to a temporary file beside it, which is flushed to the disk and renamed."""
    with atomic_path(path) as temporary:
        with open(temporary, "wb") as file:
            file.write(data)


def sync(path: str | Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def json_of(content: str | bytes) -> Any:
    """Parse JSON of any origin. ValueError also for endless nesting, where the library raises RecursionError."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file is missing or holds no object."""
    try:
        values = json_of(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def sha256_of(data: bytes | memoryview) -> str:
    """Hexadecimal sha256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: str | Path) -> str:
    """Hexadecimal sha256 of a file of any size."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_of(data: bytes | memoryview) -> str:
    """Hexadecimal XXH128 of bytes, which detects damage at the speed of memory.

    sha256 took a tenth of the time of preprocessing, and more of the time of reading shards.
    """
    return xxhash.xxh3_128_hexdigest(data)


def checksum_of_file(path: str | Path) -> str:
    """`checksum_of` a file of any size."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def lock(file: BinaryIO | TextIO | int, wait_seconds: float = 0.0) -> bool:
    """Take the exclusive lock of an open file or folder until it is closed or the processes that use it end.

    The kernel releases the lock, however the process and its children end.

    Returns:
        False if the file system has no locks, as Lustre without `flock`, or none for folders, as NFS.

    Raises:
        BlockingIOError: another process still holds the lock after `wait_seconds` (math.inf: wait without a limit).
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        except OSError:
            return False
        time.sleep(0.1)


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """A new folder for temporary files, which is removed at the end.

    Folders of this kind that a killed process of this user left are removed first. A process holds the lock of its
    folder while it lives, so a folder without it belongs to nobody. Without locks (some NFS) they stay.
    """
    prefix = f"bert-{kind}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            _remove_if_left(left)
    folder, descriptor = _locked_folder(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _remove_if_left(folder: Path) -> None:
    """Remove a temporary folder of this user, unless a process has locked it (OSError)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid == os.getuid() and lock(descriptor):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _locked_folder(prefix: str) -> tuple[Path, int]:
    """A new temporary folder, and the open descriptor of its lock if the file system has locks."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        with suppress(FileNotFoundError):  # before the lock was taken, another start took it for one that was left
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            lock(descriptor, math.inf)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)


@contextmanager
def waiting_lock(path: Path, other: str) -> Iterator[None]:
    """Wait for the lock of an empty file and hold it; `other` names its owner. No effect without locks (some NFS)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        try:
            lock(file)
        except BlockingIOError:
            print(f"waiting for another {other}", file=sys.stderr, flush=True)
            lock(file, math.inf)
        yield


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Lock a folder, creating it if necessary; on exit, remove folders that it created and that are empty.

    The lock leaves no file. Where the file system has no locks for folders (NFS), the folder is not locked.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            lock(descriptor, _SECONDS_FOR_WORKERS)
        except BlockingIOError as error:
            raise ValueError(
                f"{shown(folder)}: another run is writing to it; wait until it ends, or give this one another folder"
            ) from error
        yield
    finally:
        with suppress(OSError):
            for path in made:
                path.rmdir()
        os.close(descriptor)


def refuse_busy(folder: Path) -> None:
    """Raise ValueError if another run is writing to the folder. Creates nothing."""
    if folder.is_dir():
        with only_writer(folder):
            pass


def require_writable(folder: Path) -> None:
    """Make a folder if it does not exist; OSError, naming it, if files cannot be written there."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(folder)) from None


def refuse_read_only(folder: Path) -> None:
    """Raise OSError if files cannot be created in the folder, or in its nearest existing parent.

    Nothing is written: `require_writable` also finds what only an attempt shows, as a full disk.
    """
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def shown(path: str | bytes | os.PathLike[str]) -> str:
    """The path as printable text; bytes that are not UTF-8 become \\xff."""
    return printable(os.fsencode(path).decode("utf-8", "backslashreplace"))


def unset_variable(path: Path) -> str:
    return f" (the environment variable in {path} is not set)" if "$" in str(path) else ""
