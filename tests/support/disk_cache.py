"""Folders that are made once in a test run, by the first process that needs them."""

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from pytest import TempPathFactory

from bert.files import lock


def made_once(factory: TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder `name` that `make(folder)` fills; the tests that share it must not change it."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each worker has a folder of its own in that of the run
        base = base.parent
    folder, complete = base / "shared" / name, base / "shared" / f"{name}.complete"
    folder.parent.mkdir(exist_ok=True)
    with open(folder.with_name(f"{name}.lock"), "w") as file:
        lock(file, math.inf)
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that ended in between
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder
