"""Where downloads are kept, and the lock under which one process fetches while the others wait."""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from bert.files import lock


def cache_folder() -> Path:
    """BERT_CACHE, or bert-on-paddle in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "bert-on-paddle"
    return Path(os.environ.get("BERT_CACHE") or default).expanduser().absolute()


def data_folder() -> Path:
    """Where the fine-tuning sets are: BERT_PREP_WORKING_DIR/download, without that variable in the cache."""
    data = os.environ.get("BERT_PREP_WORKING_DIR")
    return Path(data).expanduser().absolute() / "download" if data else cache_folder() / "data"


def mirrors() -> list[str] | None:
    """BERT_DATA_MIRROR, the URL of a folder with the files of all sets, instead of the published addresses."""
    mirror = os.environ.get("BERT_DATA_MIRROR")
    return [mirror] if mirror else None


@contextmanager
def one_at_a_time(folder: Path, what: str) -> Iterator[None]:
    """Hold the lock of a folder, which is made; others wait. Without locks (some NFS), go on: files appear whole.

    The lock is a file, because NFS has no locks for folders. Its owner removes it; whoever waited makes the next one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    while True:
        with open(path, "a") as file:
            try:
                lock(file)
            except BlockingIOError:
                print(f"waiting for another process that is fetching {what} to {folder}", file=sys.stderr, flush=True)
                lock(file, math.inf)
            if _is_at(file, path):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)  # without locks another may have removed it
                return


def _is_at(file: TextIO, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    return False
