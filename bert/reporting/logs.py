"""Logs of a training run: console, DLLogger lines, rows of JSON, scalars of trackers, progress.

A sink that fails (disk full, pipe closed, a server that is away) is named in one line on standard error, and the
training continues. The sink is switched off; files are tried again, and then get the lines that wait. Messages are
records of Python's logger `bert`; rank 0 shows them, the other ranks do not.
"""

import errno
import json
import logging
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from bert import MESSAGES
from bert.files import write_atomically
from bert.help_parser import WIDTH, wrapped
from bert.reporting.progress import duration, figure, metrics_line, progress
from bert.reporting.trackers import TRACKERS
from bert.standard_output import discard_output

QUIET_STEPS = "BERT_QUIET_STEPS"  # environment variable of the ranks: whoever started them shows the steps
_FINAL = (("steps", ","), ("final_loss", ".4f"), ("training_sequences_per_second", ",.1f"), ("e2e_train_time", ",.1f"))
CONSOLE_METRICS = (("epochs", ".2f"), ("loss", ".4f"), ("learning_rate", ".2e"), ("seqs_per_sec", ".1f"))


class Sink:
    """Calls functions that write logs; reports the first error, then stops or retries."""

    def __init__(self, name: str, is_on: bool = True, *, is_tried_again: bool = False) -> None:
        self._name, self._is_on, self._is_tried_again, self._has_failed = name, is_on, is_tried_again, False

    def __call__(self, action: Callable[[], Any]) -> bool:
        """Call the function; returns whether it succeeded."""
        if not self._is_on or (self._has_failed and not self._is_tried_again):
            return False
        try:
            action()
        except Exception as error:  # no error of a log sink may stop the run
            if isinstance(error, BrokenPipeError):  # no reader of standard output (`| head`)
                discard_output()
            if not self._has_failed:
                then = "will be tried again" if self._is_tried_again else "is switched off"
                with suppress(OSError):
                    print(f"warning: {self._name} failed and {then}: {error}", file=sys.stderr)
            self._has_failed = True
        else:
            self._has_failed = False
        return not self._has_failed


class _JsonLines:
    """A file of JSON lines. Lines that could not be written (the newest 10,000) are written later."""

    def __init__(self, path: Path, prefix: str = "", is_on: bool = True) -> None:
        self._path, self._prefix, self._sink = path, prefix, Sink(str(path), is_on, is_tried_again=True)
        self._waiting = deque[str](maxlen=10_000)

    def add(self, values: dict[str, Any]) -> None:
        self._waiting.append(f"{self._prefix}{to_json(values)}\n")
        self.write()

    def write(self) -> None:
        if self._waiting and self._sink(lambda: append(self._path, "".join(self._waiting))):
            self._waiting.clear()


class Messages(logging.Handler):
    """Collects messages of the logger `bert` in its block until a `Log` shows them and takes over."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._kept: list[str] = []
        self._show: Callable[[str], None] = self._kept.append

    def __enter__(self) -> "Messages":
        MESSAGES.addHandler(self)
        MESSAGES.setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        MESSAGES.removeHandler(self)

    def show(self, show: Callable[[str], None]) -> None:
        for message in self._kept:
            show(message)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        self._show(prefix + record.getMessage())


class Log:
    """The log of one stage of a run. Only rank 0 has a `directory`; other ranks log nothing.

    Files in `directory`: log.jsonl (DLLogger lines, appended), metrics.jsonl (flat rows, appended), events.jsonl
    (costs of saves, loss spikes), progress.json (replaced at most once a second: step, first_step, total_steps
    or null, eta_seconds, loss), summary.json; and what the trackers write, such as visualdl/. With `show_steps` off,
    the process that started this one shows the steps, from progress.json.
    """

    first_step = 0  # start of the progress bar; known once a checkpoint was read
    total_steps: int | None = 1  # end of the progress bar; None while the remaining time decides it

    def __init__(
        self,
        directory: Path | None = None,
        report_file: Path | None = None,
        *,
        total_steps: int = 1,
        trackers: Sequence[str] = (),
        show_steps: bool = True,
        stream: IO[str] | None = None,
        messages: Messages | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        is_on, self.total_steps = directory is not None, total_steps
        self._directory = directory = directory or Path()
        directory.mkdir(parents=True, exist_ok=True)
        self._clock, self._opened, self._progress_written = clock, time.perf_counter(), -math.inf
        self._stream = stream or sys.stdout or open(os.devnull, "w")  # a closed one is None
        self._lines = [_JsonLines(path, "DLLL ", is_on) for path in {directory / "log.jsonl", report_file} if path]
        self._rows = _JsonLines(directory / "metrics.jsonl", is_on=is_on)
        self._events = _JsonLines(directory / "events.jsonl", is_on=is_on)
        self._console = Sink("console output", is_on)
        self._progress = Sink("progress.json", is_on, is_tried_again=True)
        self._is_on = is_on
        self.trackers = [(Sink(TRACKERS[name].__name__, is_on), TRACKERS[name](directory)) for name in trackers]
        self._last_step, self._figures = 0, dict[str, Any]()
        self._bar: Any = None
        self._show_steps = show_steps
        if self._stream.isatty() and show_steps:
            self._console(self._open_bar)
        self._messages = messages or Messages()
        if is_on:
            self._messages.__enter__().show(self._show)

    def parameters(self, values: dict[str, Any]) -> None:
        self._line("PARAMETER", values)
        for _, shown in self.trackers:
            shown.hyper_parameters = values

    def train(self, step: int, epoch: int, metrics: dict[str, float], eta_seconds: float) -> None:
        self._metrics(step, epoch, metrics)
        logged = [(name, form) for name, form in CONSOLE_METRICS if name in metrics]
        figures = "  ".join(f"{name} {figure(metrics[name], form)}" for name, form in logged)
        if self._bar is not None:
            left = "" if self.total_steps else f"  {duration(eta_seconds)} left"
            self._console(lambda: self._bar.set_postfix_str(figures + left))
        elif self._show_steps:
            self._show(f"{self._position(step)}  {figures}  eta {duration(eta_seconds)}")

    def evaluation(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Log held-out metrics after update `step`; their names begin with `eval_`."""
        self._metrics(step, epoch, metrics)
        self._show(f"{self._position(step)}  held out: {metrics_line(metrics)}")

    def event(self, name: str, step: int, epoch: int, values: dict[str, Any]) -> None:
        """Log an event at a step, such as a save and its cost."""
        self._line([epoch, step], values)
        self._events.add({"event": name, "step": step, "epoch": epoch, **values})

    def advance(self, step: int, eta_seconds: float, loss: float | None) -> None:
        """Move the progress bar after an update and, at most once a second, replace progress.json."""
        if self._bar is not None:
            self._bar.total = self.total_steps
            self._console(lambda: self._bar.update(step - self._bar.n))
        if self._clock() - self._progress_written >= 1.0 or eta_seconds == 0:
            self._progress_written = self._clock()
            values = {
                "step": step,
                "first_step": self.first_step,
                "total_steps": self.total_steps,
                "eta_seconds": eta_seconds,
                "loss": loss,
            }
            self._progress(partial(_replace, self._directory / "progress.json", to_json(values) + "\n"))

    def summary(self, values: dict[str, Any]) -> None:
        self._line([], values)
        self._figures = values
        self.write_summary(values)
        figures = [f"{name} {figure(values[name], form)}" for name, form in _FINAL if values.get(name) is not None]
        if figures and self._show_steps:  # otherwise who started this process shows them
            self._show("  ".join(figures))

    def write_summary(self, values: dict[str, Any]) -> None:
        """Write the figures of the run so far to summary.json only."""
        summary = Sink("summary.json", self._is_on)  # of its own: the last summary is written even if an earlier failed
        text = to_json(values, indent=1) + "\n"
        summary(lambda: write_atomically(self._directory / "summary.json", text.encode()))

    def close(self) -> None:
        """Close the log; nothing may be logged afterwards."""
        self._messages.__exit__()
        if self._bar is not None:
            self._console(self._bar.close)
        for lines in (*self._lines, self._rows, self._events):
            lines.write()
        for sink, shown in self.trackers:
            sink(partial(shown.close, self._last_step, self._figures))

    def _metrics(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Write metrics to all files; to trackers first, because resumed curves begin with rows of metrics.jsonl."""
        self._line([epoch, step], metrics)
        self._last_step = step
        for sink, shown in self.trackers:
            sink(partial(shown.add, step, metrics, self.first_step))
        self._rows.add({"step": step, "epoch": epoch, **metrics})

    def _line(self, step: Any, data: dict[str, Any]) -> None:
        now = time.time()
        record = {
            "timestamp": f"{now:.6f}",
            "datetime": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)),
            "elapsedtime": f"{time.perf_counter() - self._opened:.6f}",
            "type": "LOG",
            "step": step,
            "data": data,
        }
        for lines in self._lines:
            lines.add(record)

    def _position(self, step: int) -> str:
        return f"step {step}/{self.total_steps}" if self.total_steps else f"step {step}"

    def _open_bar(self) -> None:
        self._bar = progress("", self.total_steps, "steps", terminal=self._stream)

    def _show(self, message: str) -> None:
        """Show a message on the console, above the progress bar if there is one."""
        if len(message) > WIDTH:  # others are as they are, such as the head of a table
            message = wrapped(message, indent="  ")
        write = partial(print, flush=True) if self._bar is None else self._bar.write
        self._console(lambda: write(message, file=self._stream))


def to_json(values: Any, indent: int | None = None) -> str:
    """Strict JSON: non-finite numbers become null, NumPy values and paths become plain values."""
    return json.dumps(_json_value(values), indent=indent, allow_nan=False)


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if hasattr(value, "item"):  # numpy scalars
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def append(path: Path, text: str) -> None:
    """Append complete lines, all or none. A truncated last line is ended first, so that the new lines stay valid."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+", buffering=0) as file:
        end = file.tell()
        if end and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n":
            text = "\n" + text
        content = text.encode()
        try:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with suppress(OSError):
                file.truncate(end)
            raise


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically for readers; without a flush, so a loss of power can lose its content."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)
