"""A loss that jumps: noticed against the median of the intervals before it. No Paddle inside.

What is remembered travels in the checkpoints, so a resumed run notices what the uninterrupted one would have.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

WINDOW = 20  # intervals whose median is the measure
LEAST = 5  # fewer say nothing yet


@dataclass(frozen=True)
class Spike:
    """Updates `first` .. `last` - 1 (an interval between two log lines) had a loss far above what was usual."""

    first: int
    last: int
    loss: float
    usual: float

    def __str__(self) -> str:
        return (
            f"loss spike: {self.loss:.4f} in the updates of steps {self.first + 1}-{self.last}, "
            f"{self.loss / self.usual:.1f} times the usual {self.usual:.4f}"
        )


class SpikeGuard:
    """Compares the mean loss of each interval with the median of those before; `factor` 0: never."""

    def __init__(self, factor: float, carried: dict[str, Any] | None = None):
        self._factor = factor
        carried = carried or {}
        self._losses: list[float] = list(carried.get("losses", []))
        self._first, self._sum, self._passes = carried.get("pending", [None, 0.0, 0])
        self._skipped: list[tuple[int, int]] = [(first, last) for first, last in carried.get("skipped_batches", [])]

    def carried(self) -> dict[str, Any]:
        """What the next leg of the run needs to go on as this one would have."""
        return {
            "losses": self._losses,
            "pending": [self._first, self._sum, self._passes],
            "skipped_batches": [list(pair) for pair in self._skipped],
        }

    def observe(self, first: int, last: int, loss_sum: float, passes: float, complete: bool) -> Spike | None:
        """Add the passes of updates `first` .. `last` - 1; `complete` if an interval ends here, not only a leg."""
        self._first = first if self._first is None else self._first
        self._sum, self._passes = self._sum + loss_sum, self._passes + passes
        if not complete:
            return None
        begin, loss = self._first, self._sum / self._passes if self._passes else math.nan
        self._first, self._sum, self._passes = None, 0.0, 0
        if not math.isfinite(loss):
            return None
        usual = median(self._losses) if len(self._losses) >= LEAST else math.inf
        if self._factor and loss > self._factor * usual > 0:
            return Spike(begin, last, loss, usual)  # not remembered: what is usual must not follow it
        self._losses = [*self._losses, loss][-WINDOW:]
        return None

    def skip(self, ranges: Iterable[tuple[int, int]]) -> None:
        """From now on the batches of updates `first` .. `last` - 1 are passed over."""
        self._skipped = sorted({*self._skipped, *ranges})

    def skipped(self) -> list[tuple[int, int]]:
        return list(self._skipped)

    def skips(self, step: int) -> bool:
        return any(first <= step < last for first, last in self._skipped)
