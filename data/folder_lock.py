"""One writer at a time: two runs that write to one folder would mix their files."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from data.compressed import shown

_PATIENCE = 2.0  # seconds: processes that end with a killed run let go of its lock a little later


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
                raise ValueError(f"{shown(folder)}: another run is writing to it; wait until it ends, or give this "
                                 "one another folder") from error
        except OSError:
            return None
        time.sleep(0.1)
