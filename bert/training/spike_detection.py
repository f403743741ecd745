"""Detection of loss spikes: the mean loss of an interval against the median of the intervals before it.

Its state is kept in the checkpoints, so a resumed run detects what the uninterrupted one would have.
"""

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

WINDOW = 20  # intervals whose median is the usual loss
LEAST = 5  # intervals before a spike can be detected


@dataclass(frozen=True)
class Spike:
    """Updates `first` .. `last` - 1 (an interval between two log lines) had a loss far above the usual one."""

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
    """Compares the mean loss of each interval with the median of those before it; a `factor` of 0 turns it off."""

    def __init__(self, factor: float, carried: dict[str, Any] | None = None):
        self._factor = factor
        carried = carried or {}
        self._losses: list[float] = list(carried.get("losses", []))
        self._first, self._sum, self._micro_steps = carried.get("pending", [None, 0.0, 0])
        self._skipped: list[tuple[int, int]] = [(first, last) for first, last in carried.get("skipped_batches", [])]

    def carried(self) -> dict[str, Any]:
        """The state that the next leg of the run needs."""
        return {
            "losses": self._losses,
            "pending": [self._first, self._sum, self._micro_steps],
            "skipped_batches": [list(pair) for pair in self._skipped],
        }

    def observe(self, first: int, last: int, loss_sum: float, micro_steps: float, complete: bool) -> Spike | None:
        """Add the micro-steps of updates `first` .. `last` - 1; `complete` if an interval ends here, not only a leg."""
        self._first = first if self._first is None else self._first
        self._sum, self._micro_steps = self._sum + loss_sum, self._micro_steps + micro_steps
        if not complete:
            return None
        begin, loss = self._first, self._sum / self._micro_steps if self._micro_steps else math.nan
        self._first, self._sum, self._micro_steps = None, 0.0, 0
        if not math.isfinite(loss):
            return None
        usual = median(self._losses) if len(self._losses) >= LEAST else math.inf
        if self._factor and loss > self._factor * usual > 0:
            return Spike(begin, last, loss, usual)  # not kept: the usual loss must not follow it
        self._losses = [*self._losses, loss][-WINDOW:]
        return None

    def restored(self, carried: dict[str, Any], spike: tuple[int, int]) -> "SpikeGuard":
        """The guard of a run that was rolled back; it skips the batches of updates spike[0] .. spike[1] - 1 too."""
        guard = SpikeGuard(self._factor, carried)
        guard._skipped = sorted({*self._skipped, *guard._skipped, spike})
        return guard

    def skips(self, step: int) -> bool:
        return any(first <= step < last for first, last in self._skipped)
