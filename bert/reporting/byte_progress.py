"""Progress in bytes: a bar on a terminal; in a log a line now and then, with the rate and the time that is left."""

from __future__ import annotations

import sys
import time

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 10.0


def megabytes(num_bytes: float) -> str:
    """12.3 MB, or 17.8 GB from a thousand megabytes on."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.1f} MB"


class ByteMeter:
    """Shows how much of `total` bytes (None: unknown) is done; `done` of them were there before."""

    def __init__(self, what: str, total: int | None, done: int = 0) -> None:
        self._what, self._total, self._first = what, total, done
        self._done = done
        self._start = self._shown = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            tqdm.monitor_interval = 0  # its thread would be copied into worker processes
            self._bar = tqdm(desc=what, total=total, initial=done, unit="B", unit_scale=True)

    def __enter__(self) -> ByteMeter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._shown > self._start:  # a short transfer needs no line
            self._line(time.monotonic())

    def add(self, num_bytes: int) -> None:
        """So many more bytes are done."""
        self._done += num_bytes
        if self._bar is not None:
            self._bar.update(num_bytes)
            return
        now = time.monotonic()
        if now - self._shown >= _SECONDS_BETWEEN_LINES:
            self._shown = now
            self._line(now)

    def _line(self, now: float) -> None:
        rate = (self._done - self._first) / max(now - self._start, 1e-9)
        text = f"{self._what}: {megabytes(self._done)}"
        if self._total:
            text += f" of {megabytes(self._total)} ({100 * self._done / self._total:.0f}%)"
        text += f", {rate / 1e6:.2f} MB/s"
        if self._total and rate > 0 and self._done < self._total:
            text += f", {_duration((self._total - self._done) / rate)} left"
        print(text, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 100 else f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
