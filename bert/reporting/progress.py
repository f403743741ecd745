"""The progress bar: on a terminal a bar, in a log a line every ten seconds; also for a run in other processes."""

import math
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bert.files import read_json
from bert.printable import printable

if TYPE_CHECKING:
    from tqdm import tqdm

PROGRESS_FILE = "progress.json"
_SHARES = ("accuracy", "f1", "precision", "recall", "mfu")


def metric_form(name: str, all_names: Mapping[str, object] | None = None) -> str:
    """Format of a metric: `,.0f` for counts, `.1%` for shares, `.2f` for SQuAD's percentages, else `.4f`.

    Args:
        all_names: the metrics that come with it; SQuAD's have an exact match.
    """
    if name.endswith(("sequences", "total")):
        return ",.0f"
    if any("exact" in other for other in (name, *(all_names or ()))):
        return ".4f" if name.endswith("loss") else ".2f"
    return ".1%" if name.endswith(_SHARES) else ".4f"


def metrics_line(metrics: Mapping[str, float]) -> str:
    """Metrics in one line: `masked_lm_loss 5.6250  masked_lm_accuracy 17.4%`."""
    figures = (
        f"{name.removeprefix('eval_')} {figure(value, metric_form(name, metrics))}" for name, value in metrics.items()
    )
    return "  ".join(figures)


def figure(value: float | None, form: str) -> str:
    """Format a value; `-` for None, NaN and infinity."""
    return "-" if value is None or not math.isfinite(value) else format(value, form)


def duration(seconds: float) -> str:
    """Format seconds: `45 seconds`, `6.7 minutes`, `3.5 hours`, `4.2 days`; `unknown` without a value."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 60:
        return f"{seconds:.0f} second{'' if round(seconds) == 1 else 's'}"
    if seconds < 5400:
        return f"{seconds / 60:.1f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


_SECONDS_BETWEEN_LINES = 10.0


class _Lines:
    """Stream for tqdm that writes each state of the bar as a line to standard error."""

    def write(self, text: str) -> None:
        if line := text.strip():
            print(line, file=sys.stderr, flush=True)

    def flush(self) -> None:
        pass


def progress(
    what: str,
    total: int | None,
    unit: str = "B",
    items: Iterable | None = None,
    done: int = 0,
    terminal: IO[str] | None = None,
) -> "tqdm":
    """Progress meter over `items`; without items the caller counts: `with progress(...) as meter: meter.update(n)`.

    Work of less than ten seconds writes nothing to a log.

    Args:
        total: None if it is unknown.
        unit: of what is counted; "B" stands for bytes, which are shown as kB, MB ...
        done: what was finished before.
        terminal: where to draw the bar; None: standard error, which may be a log.
    """
    from tqdm import tqdm  # not for --help

    tqdm.monitor_interval = 0  # its thread would be copied into worker processes
    place: dict[str, Any] = dict(file=terminal, dynamic_ncols=True)
    if terminal is None and not sys.stderr.isatty():
        place = dict(
            file=_Lines(), ncols=0, mininterval=_SECONDS_BETWEEN_LINES, miniters=1, delay=_SECONDS_BETWEEN_LINES
        )
    return tqdm(
        items,
        desc=what,
        total=total,
        initial=done,
        unit=unit if unit == "B" else f" {unit}",
        unit_scale=unit == "B",
        **place,
    )


def announce(action: str, paths: Iterable[str | Path]) -> None:
    """Print a line on standard error before a long reading, such as `reading a.csv, 4.4 MB ...`."""
    names = []
    for path in map(Path, paths):
        size = f", {megabytes(path.stat().st_size)}" if path.is_file() else ""
        names.append(f"{printable(str(path))}{size}")
    if names:
        print(f"{action} {'; '.join(names)} ...", file=sys.stderr, flush=True)


class RunProgress(threading.Thread):
    """Thread that draws a stage's progress.json, which rank 0 replaces about once a second, on standard output.

    What an earlier run left in it is not drawn.
    """

    def __init__(self, stage_dir: Path, title: str):
        super().__init__(daemon=True)
        self.file, self._title = stage_dir / PROGRESS_FILE, title
        self._closing, self._has_steps = threading.Event(), False
        self._earlier = read_json(self.file)
        self._bar = progress(f"{title}, preparing", None, "steps", terminal=sys.stdout)
        self.start()

    def run(self) -> None:
        while not self._closing.wait(0.5):
            self._draw()

    def write(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.write(line, file=sys.stdout)

    def close(self) -> None:
        self._closing.set()
        self.join()
        self._draw()
        self._bar.close()

    def _draw(self) -> None:
        values = read_json(self.file)
        if not values or values == self._earlier:
            self._bar.refresh()
            return
        if not self._has_steps:
            self._has_steps = True
            self._bar.reset()
            self._bar.set_description(self._title, refresh=False)
            self._bar.initial = self._bar.n = values["first_step"]
        self._bar.total = values["total_steps"]
        figures = [] if values.get("loss") is None else [f"loss {values['loss']:.3f}"]
        if values["total_steps"] is None and values["eta_seconds"] is not None:
            figures.append(f"{duration(values['eta_seconds'])} left")
        self._bar.set_postfix_str(", ".join(figures), refresh=False)
        self._bar.update(values["step"] - self._bar.n)


def megabytes(num_bytes: float) -> str:
    """Format a number of bytes: 12.3 MB, 17.8 GB, 12.3 kB or 105 bytes."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= (size / 10 if unit == "MB" else size):
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes:.0f} bytes"
