"""Progress of long work: tqdm's bar on a terminal, a line every ten seconds in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 10.0


class _Lines:
    """The stream that tqdm writes to: each state of the bar becomes a line of standard error."""

    def write(self, text: str) -> None:
        if line := text.strip():
            print(line, file=sys.stderr, flush=True)

    def flush(self) -> None:
        pass


def progress(what: str, total: int | None, unit: str = "B", items: Iterable | None = None, done: int = 0) -> tqdm:
    """A progress meter over `items`; without items the caller counts: `with progress(...) as meter: meter.update(n)`.

    Work of less than ten seconds writes nothing to a log.

    Args:
        total: None if it is unknown.
        unit: of what is counted; "B" stands for bytes, which are shown as kB, MB ...
        done: what was finished before.
    """
    tqdm.monitor_interval = 0  # its thread would be copied into worker processes
    log: dict[str, Any] = dict(
        file=_Lines(), ncols=0, mininterval=_SECONDS_BETWEEN_LINES, miniters=1, delay=_SECONDS_BETWEEN_LINES
    )
    return tqdm(
        items,
        desc=what,
        total=total,
        initial=done,
        unit=unit if unit == "B" else f" {unit}",
        unit_scale=unit == "B",
        **({} if sys.stderr.isatty() else log),
    )


def megabytes(num_bytes: float) -> str:
    """12.3 MB; 17.8 GB from a thousand megabytes on; 12.3 kB below a tenth of a megabyte; 105 bytes below a kB."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= (size / 10 if unit == "MB" else size):
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes:.0f} bytes"
