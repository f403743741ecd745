"""One uninterrupted training, and a server of trainings, for all rows of a process."""

import atexit
import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from unittest import mock

from tests.faults import sabotage
from tests.faults.trainings import Data, Server, digest, must_end, trainings


@dataclass(frozen=True)
class Reference:
    """The uninterrupted run, with which all others are compared."""

    output: Path
    digest: str
    seconds: float
    boundaries: int  # in all its saves


@lru_cache(maxsize=1)
def reference() -> tuple[Server, Data, Reference]:
    """A server and an uninterrupted run, made once for all rows; both go when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="fault-reference-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    stack = ExitStack()
    atexit.register(stack.close)
    server, data = stack.enter_context(trainings(folder / "trainings"))
    whole, counted = folder / "whole", folder / "boundaries"
    begin = time.monotonic()
    with mock.patch.dict(os.environ):
        os.environ.pop(sabotage.VARIABLE, None)  # what is compared with is the real thing, whatever is broken now
        must_end(server.run(data.argv(whole), whole, boundaries_file=str(counted)))
    seconds = time.monotonic() - begin
    return server, data, Reference(whole, digest(data, whole), seconds, int(counted.read_text()))
