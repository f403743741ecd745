"""Where downloads are kept, and the lock under which one process fetches while the others wait."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from bert.files import lock

_LOCK_FILE = ".lock"


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

    The lock leaves no file, and a folder that was made and is left empty by an error is removed.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    lock_file = folder / _LOCK_FILE
    file = _locked(lock_file, what)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            lock_file.unlink()
            for path in made:
                path.rmdir()
        raise
    finally:
        lock_file.unlink(missing_ok=True)
        file.close()


def _locked(lock_file: Path, what: str) -> TextIO:
    """The open lock file. Whoever held it before has removed it: then it is made again."""
    told = False
    while True:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = open(lock_file, "a")
        except FileNotFoundError:  # another process has just removed the folder
            continue
        try:
            if not lock(file):
                return file
        except BlockingIOError:
            if not told:
                print(f"waiting for another process that is fetching {what} to {lock_file.parent}", file=sys.stderr)
                told = True
            lock(file, math.inf)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(lock_file), os.fstat(file.fileno())):
                return file
        file.close()
