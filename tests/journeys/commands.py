"""Commands as a user types them, in the root of a clone; each with everything that it starts."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from tests.support.suggestions import finished, start

SECONDS = 400  # of a command on a busy machine


def output_of(line: str, folder: Path, *parts: str, code: int = 0) -> str:
    """What a command prints that ends with the exit code; the `parts` are in it."""
    found, output = finished(start(line, folder), timeout=SECONDS)
    assert found == code and "Traceback" not in output, f"{line}\nended with {found}:\n{output[-4000:]}"
    missing = [part for part in parts if part not in output]
    assert not missing, f"{line}\n{missing} are not in\n{output[-4000:]}"
    return output


@contextmanager
def started(line: str, folder: Path) -> Iterator[subprocess.Popen]:
    """A command that runs in the block; nothing of it outlives the block."""
    process = start(line, folder)
    end = Timer(SECONDS, kill_all, [process])
    end.start()
    try:
        yield process
    finally:
        end.cancel()
        kill_all(process)
        process.wait()


def kill_all(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def read_until(process: subprocess.Popen, text: str) -> str:
    """What it prints up to the line that has the text."""
    seen = ""
    for line in process.stdout or ():
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"ended without {text!r}:\n{seen[-4000:]}")
