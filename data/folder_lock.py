"""One writer at a time: two runs that write to one folder would mix their files."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.compressed import shown


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Makes the folder and locks it. The lock leaves no file and ends with the process, however that ends.

    Raises:
        ValueError: another process holds the lock.
        OSError: the folder cannot be made or opened.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"{shown(folder)}: another run is writing to it; wait until it ends, or give this one "
                             "another folder") from error
        except OSError:
            pass  # a file system that has no locks for folders, e.g. NFS
        yield
    finally:
        os.close(descriptor)
