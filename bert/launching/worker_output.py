"""Reads the output of ranks: lines of the first rank to show, and the reason of a failure."""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from bert.reporting.logs import Sink
from bert.reporting.progress import RunProgress
from bert.standard_output import discard_output

LAUNCHER_LOG, EXIT_CODE = "launcher.log", "exit_code"
FIRST_LOG = "workerlog.0"
_REFUSES = re.compile(rb"^error: ", re.MULTILINE)
_EXPLAINS = re.compile(rb"^(error: |Traceback |[A-Za-z.]*Error\b|.*C\+\+ Traceback)", re.MULTILINE)
# What Paddle writes in a process that is ended by SIGTERM: the launcher ends the other ranks so when one has failed.
_TERMINATION = re.compile(
    rb"^\n*-+\nC\+\+ Traceback [^\0]*?FatalError: `Termination signal`[^\0]*?\[SignalInfo: [^\n]*\n*", re.MULTILINE
)
_TRACEBACK = re.compile(rb"^\n*-+\nC\+\+ Traceback ", re.MULTILINE)
_FAILED = re.compile(rb"^Container rank \d+ status failed .* code (-?\d+) log ", re.MULTILINE)
_MOST_LINES = 20  # of a failed rank


class WorkerOutput:
    """The output that the ranks write from now on; the files may hold output of earlier starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts = {path.name: path.stat().st_size for path in folder.glob("*log*") if path.is_file()}
        self._position = self._starts.get(FIRST_LOG, 0)

    def new_lines(self, ended: bool = False) -> Iterator[bytes]:
        """Lines that the first rank wrote since the last call; if it `ended`, also its unfinished last line."""
        text = self._read(FIRST_LOG, self._position)
        if not ended:
            text = text[: text.rfind(b"\n") + 1]
            if (begun := _TRACEBACK.search(text)) and b"[SignalInfo: " not in text[begun.end() :]:
                text = text[: begun.start()]  # until all of it is there
        self._position += len(text)
        return iter(_TERMINATION.sub(b"", text).splitlines(keepends=True))

    def exit_code(self) -> int | None:
        """Exit code of the first rank that reported an error, else of a failed rank in the launcher's log; or None.

        A signal is a negative number. The launcher may note a rank that failed because it lost another.
        """
        match = re.match(rb"(\d+)", self._read(EXIT_CODE, 0)) or _FAILED.search(self._read(LAUNCHER_LOG))
        return int(match[1]) if match else None

    def unseen_reason(self) -> list[str]:
        """Last lines of the rank that explains a failure; empty for the first rank, whose output was shown.

        Where no rank wrote anything, the last lines of Paddle's launcher.
        """
        names = sorted(path.name for path in self._folder.glob("workerlog.*"))
        texts = {name: _TERMINATION.sub(b"", self._read(name)) for name in names}
        for pattern in (_REFUSES, _EXPLAINS):  # a rank that loses another has an error of its own
            if pattern.search(texts.get(FIRST_LOG, b"")):
                return []
            for name, text in texts.items():
                if pattern.search(text):
                    return [f"{self._folder / name}:", *_last_lines(text)]
        return [] if any(texts.values()) else _last_lines(self._read(LAUNCHER_LOG))

    def _read(self, name: str, position: int | None = None) -> bytes:
        """Read a file from a position, or from where this start began; empty before the file exists."""
        with contextlib.suppress(OSError), open(self._folder / name, "rb") as file:
            file.seek(self._starts.get(name, 0) if position is None else position)
            return file.read()
        return b""


def _last_lines(text: bytes) -> list[str]:
    return text.decode(errors="replace").splitlines()[-_MOST_LINES:]


class Display:
    """Shows lines of a program above the progress bar, if there is one, and appends them to a file.

    A full disk or a closed terminal ends nothing: what fails is switched off with one line.
    """

    def __init__(self, log_file: Path | None, progress: RunProgress | None) -> None:
        self._keep, self._show = Sink(str(log_file)), Sink("console output")
        self._progress, self._log_file = progress, log_file

    def __call__(self, line: bytes) -> None:
        if self._log_file is not None:
            self._keep(lambda: self._write(line))
        self._show(lambda: self._print(line))

    def _write(self, line: bytes) -> None:
        assert self._log_file is not None
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        with open(self._log_file, "ab") as file:
            file.write(line)

    def _print(self, line: bytes) -> None:
        if self._progress is not None:
            self._progress.write(line.decode(errors="replace").rstrip("\n"))
            return
        try:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            discard_output()
            raise
