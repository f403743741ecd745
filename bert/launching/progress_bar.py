"""A progress bar for a training that runs in other processes, and the display of their output, line by line."""

import sys
import threading
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from bert.command_errors import discard_output
from bert.files import read_json
from bert.reporting.logs import Sink


class PhaseProgress(threading.Thread):
    """Draws progress.json, which rank 0 replaces about once a second, until `close`; before the first, the seconds."""

    def __init__(self, stage_dir: Path, title: str):
        super().__init__(daemon=True)
        self._file, self._title = stage_dir / "progress.json", title
        self._closing = threading.Event()
        self._bar: Any = None
        self._waiting: Any = tqdm(
            desc=title, bar_format="{desc}: preparing, {elapsed}", file=sys.stdout, leave=False, dynamic_ncols=True
        )
        self._before = read_json(self._file)  # of an earlier run: drawn only once it changes
        self.start()

    def run(self) -> None:
        while not self._closing.wait(0.5):
            self._draw()

    def write(self, line: str) -> None:
        """Print a line of the program above the bar."""
        tqdm.write(line, file=sys.stdout)

    def close(self) -> None:
        self._closing.set()
        self.join()
        self._draw()
        for bar in (self._bar, self._waiting):
            if bar is not None:
                bar.close()

    def _draw(self) -> None:
        values = read_json(self._file)
        if not values or values == self._before:
            self._waiting.refresh()
            return
        if self._bar is None:
            self._waiting.close()
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


class Display:
    """Shows lines of a program on our output, above the bar if there is one, and keeps them in a file if there is one.

    A full disk or a closed terminal ends nothing: what fails is switched off with one line.
    """

    def __init__(self, log_file: Path | None, progress: PhaseProgress | None) -> None:
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


def _print(line: bytes, progress: PhaseProgress | None) -> None:
    if progress is not None:
        progress.write(line.decode(errors="replace").rstrip("\n"))
        return
    try:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard_output()
        raise
