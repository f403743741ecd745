"""A progress bar for a training that runs in other processes, and their output, passed on line by line."""

import contextlib
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from bert.launching.previous_run import read_json
from bert.reporting.logs import Sink


class PhaseProgress(threading.Thread):
    """Draws progress.json, which rank 0 replaces about once a second, until `close`."""

    def __init__(self, stage_dir: Path, title: str, interval_seconds: float = 0.5):
        super().__init__(daemon=True)
        self._file, self._title, self._interval = stage_dir / "progress.json", title, interval_seconds
        self._closing = threading.Event()
        self._bar: Any = None
        self._before = read_json(self._file)  # of an earlier run: drawn only once it changes
        self.start()

    def run(self) -> None:
        while not self._closing.wait(self._interval):
            self._draw()

    def write(self, line: str) -> None:
        """Print a line of the program above the bar."""
        tqdm.write(line, file=sys.stdout)

    def close(self) -> None:
        self._closing.set()
        self.join()
        self._draw()
        if self._bar is not None:
            self._bar.close()

    def _draw(self) -> None:
        values = read_json(self._file)
        if not values or values == self._before:
            return
        if self._bar is None:
            self._bar = tqdm(
                total=values["total_steps"],
                initial=values["first_step"],
                desc=self._title,
                unit="step",
                file=sys.stdout,
                dynamic_ncols=True,
                leave=True,
            )
        if values.get("loss") is not None:
            self._bar.set_postfix_str(f"loss {values['loss']:.3f}", refresh=False)
        self._bar.update(values["step"] - self._bar.n)


def pass_on(process: "subprocess.Popen[bytes]", log_file: Path | None, progress: PhaseProgress | None) -> None:
    """Copy the process's output to ours as it comes, above the bar if there is one, and to the log file if any.

    A full disk or a closed terminal ends neither the process nor the reading of its output.
    """
    assert process.stdout is not None
    keep, show = Sink(str(log_file)), Sink("console output")
    with contextlib.ExitStack() as stack:
        log: list[IO[bytes]] = []
        if log_file is not None:
            keep(lambda: log.append(stack.enter_context(_opened(log_file))))
        for line in process.stdout:
            for file in log:
                keep(partial(file.write, line))
            show(partial(_show, line, progress))


def _opened(log_file: Path) -> IO[bytes]:
    """Unbuffered, so that an error is raised by the write and not later by `close`."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    return open(log_file, "ab", buffering=0)


def _show(line: bytes, progress: PhaseProgress | None) -> None:
    if progress is not None:
        progress.write(line.decode(errors="replace").rstrip("\n"))
        return
    try:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python's own flush at exit would fail again
        raise
