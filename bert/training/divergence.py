"""Detection of a diverged run: a finite loss that stays far above a uniform guess, or above where the run began.

A spike is judged by the losses just before it (`spike_detection`), which a loss that climbs slowly drags along. This
guard compares with two fixed values: the loss of a uniform guess, which no sound training from random weights exceeds
for long, and the loss of the run's first interval, which one from given weights does not.
"""

import math
from typing import Any

ABOVE_CHANCE, ABOVE_FIRST, MARGIN = 1.1, 1.5, 0.5  # the limit: factors, and nats that are added
WARN_AFTER, STOP_AFTER, LEAST_AT_END = 5, 20, 3  # intervals in a row
FAR = 2.0  # times the limit: one interval is enough at the end


class DivergenceGuard:
    """Follows the mean losses of the intervals.

    Args:
        chance_loss: of a uniform guess, in nats; None: nothing is followed.
        carried: `carried()` of the checkpoint that is resumed.
    """

    def __init__(self, chance_loss: float | None, carried: dict[str, Any] | None = None) -> None:
        carried = carried or {}
        self._chance = chance_loss
        self._first: float | None = carried.get("first")
        self._above: int = carried.get("above", 0)
        self._loss = math.nan

    def carried(self) -> dict[str, Any]:
        """The state that the next leg of the run needs."""
        return {} if self._chance is None else {"first": self._first, "above": self._above}

    def limit(self) -> float:
        """The loss above which an interval counts as diverged."""
        assert self._chance is not None
        limit = ABOVE_CHANCE * self._chance
        return MARGIN + (limit if self._first is None else min(limit, ABOVE_FIRST * self._first))

    def observe(self, loss: float) -> bool:
        """Take in the mean loss of an interval -> whether to warn now."""
        if self._chance is None or not math.isfinite(loss):
            return False
        self._first, self._loss = loss if self._first is None else self._first, loss
        self._above = self._above + 1 if loss > self.limit() else 0
        return self._above == WARN_AFTER

    def has_diverged(self, at_end: bool) -> bool:
        """Whether the run is to be ended; a run is not to end, as if it had succeeded, with a loss above the limit."""
        if self._above == 0:
            return False
        is_far = self._loss > FAR * self.limit()
        return self._above >= STOP_AFTER or (at_end and (self._above >= LEAST_AT_END or is_far))

    def __str__(self) -> str:
        began = "" if self._first is None else f", and the run began with {self._first:.4f}"
        return (
            f"the loss is {self._loss:.4f} and was above {self.limit():.2f} for {self._above} intervals, where a "
            f"uniform guess has {self._chance:.2f}{began}: the training has diverged"
        )
