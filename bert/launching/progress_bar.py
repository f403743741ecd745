"""The display of other processes' output, line by line."""

import sys
from pathlib import Path
from typing import IO

from bert.command_errors import discard_output
from bert.reporting.logs import Sink
from bert.reporting.progress import RunProgress


class Display:
    """Shows lines of a program on our output, above the bar if there is one, and keeps them in a file if there is one.

    A full disk or a closed terminal ends nothing: what fails is switched off with one line.
    """

    def __init__(self, log_file: Path | None, progress: RunProgress | None) -> None:
        self._keep, self._show = Sink(str(log_file)), Sink("console output")
        self._progress, self._log_file = progress, log_file
        self._file: IO[bytes] | None = None

    def __call__(self, line: bytes) -> None:
        if self._log_file is not None:
            self._keep(lambda: self._write(line))
        self._show(lambda: _print(line, self._progress))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, line: bytes) -> None:
        if self._file is None:
            assert self._log_file is not None
            self._log_file.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._log_file, "ab", buffering=0)  # errors are raised here and not later by `close`
        self._file.write(line)


def _print(line: bytes, progress: RunProgress | None) -> None:
    if progress is not None:
        progress.write(line.decode(errors="replace").rstrip("\n"))
        return
    try:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard_output()
        raise
