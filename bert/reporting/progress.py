"""A progress bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

_Item = TypeVar("_Item")
_SECONDS_BETWEEN_LINES = 10.0


def progress(items: Iterable[_Item], total: int, what: str, unit: str) -> Iterator[_Item]:
    """The items, while their number is shown on standard error."""
    if sys.stderr.isatty():
        tqdm.monitor_interval = 0  # its thread would be copied into worker processes
        yield from tqdm(items, total=total, desc=what, unit=unit)
        return
    shown = start = time.monotonic()
    for number, item in enumerate(items, start=1):
        now = time.monotonic()
        if now - shown >= _SECONDS_BETWEEN_LINES or number == total:
            print(f"{what}: {number}/{total} {unit} in {now - start:.0f} s", file=sys.stderr, flush=True)
            shown = now
        yield item
