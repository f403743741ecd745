"""The held-out loss over a run: the best evaluation, and whether the run has begun to overfit.

Its state is kept in the checkpoints, so a resumed run decides as the uninterrupted one would have.
"""

import math
from dataclasses import dataclass
from typing import Any

# A loss must lie this far above the best, relative to it, before it counts as overfitting: evaluations fluctuate.
TOLERANCE = 0.005


@dataclass(frozen=True)
class Verdict:
    """What an evaluation shows."""

    is_best: bool = False  # the lowest loss so far
    overfits: bool = False  # said once for every best loss
    stops: bool = False  # early stopping ends the training here


class HeldOutLoss:
    """Follows one metric of the evaluations, a loss.

    Args:
        metric: its name in the metrics of an evaluation; None: nothing is followed.
        overfitting_evaluations: a run overfits after this many evaluations in a row above its best; 0: never.
        early_stopping: it ends after this many without a new best, and the best is its result; 0: neither.
        counts_from: update before which no evaluation counts for the two: a rate that warms up may raise the loss.
        carried: `carried()` of the checkpoint that is resumed.
    """

    def __init__(
        self,
        metric: str | None,
        *,
        overfitting_evaluations: int = 0,
        early_stopping: int = 0,
        counts_from: int = 0,
        carried: dict[str, Any] | None = None,
    ) -> None:
        self.metric = metric
        self._overfitting, self._patience, self._counts_from = overfitting_evaluations, early_stopping, counts_from
        carried = carried or {}
        self.before: float | None = carried.get("before")  # of the weights that the run was given
        self.best: tuple[int, float] | None = tuple(carried["best"]) if carried.get("best") else None
        self._last: tuple[int, float] | None = tuple(carried["last"]) if carried.get("last") else None
        self._since_best: int = carried.get("since_best", 0)
        self._above: int = carried.get("above", 0)

    def carried(self) -> dict[str, Any]:
        """The state that the next leg of the run needs; empty before the first evaluation."""
        if self.before is None and self._last is None:
            return {}
        return {
            "before": self.before,
            "best": self.best,
            "last": self._last,
            "since_best": self._since_best,
            "above": self._above,
            "ends_with_best": self.ends_with_best,
        }

    @property
    def has_stopped(self) -> bool:
        """Whether early stopping has ended the training."""
        return 0 < self._patience <= self._since_best

    @property
    def ends_with_best(self) -> bool:
        """Whether the best weights are the run's result: early stopping is on, and the last ones are not as good."""
        if self.has_stopped:
            return self.best is not None
        is_worse = self.best is not None and self._last is not None and self._last[1] > self.best[1] * (1 + TOLERANCE)
        return self._patience > 0 and bool(is_worse)  # the losses may be NumPy's

    def forget_best(self) -> None:
        """Forget a best whose checkpoint is gone: the next evaluation is the best again."""
        self.best, self._since_best, self._above = None, 0, 0

    def restored(self, carried: dict[str, Any] | None) -> "HeldOutLoss":
        """The same with the state of a checkpoint, for a run that is rolled back to it."""
        return HeldOutLoss(
            self.metric,
            overfitting_evaluations=self._overfitting,
            early_stopping=self._patience,
            counts_from=self._counts_from,
            carried=carried,
        )

    def begin_again(self) -> None:
        """Count evaluations without a new best from 0, as a run does that is extended."""
        self._since_best = self._above = 0

    def observe(self, step: int, metrics: dict[str, float]) -> Verdict:
        """Take in the evaluation after update `step`; one that was taken in before changes nothing."""
        if self.metric is None or self.metric not in metrics or (self._last and step <= self._last[0]):
            return Verdict()
        loss = metrics[self.metric]
        if not math.isfinite(loss):
            loss = math.inf  # worse than any other
        if step == 0:
            self.before = loss
            return Verdict()
        self._last = (step, loss)
        if loss < (math.inf if self.best is None else self.best[1]):
            self.best, self._since_best, self._above = (step, loss), 0, 0
            return Verdict(is_best=True)
        if step < self._counts_from:
            return Verdict()
        self._since_best += 1
        self._above = self._above + 1 if self.best and loss > self.best[1] * (1 + TOLERANCE) else 0
        return Verdict(overfits=0 < self._overfitting == self._above, stops=self.has_stopped)

    def overfitting(self) -> str:
        """The warning of a run that overfits."""
        assert self.best is not None and self._last is not None
        return (
            f"overfitting: the held-out loss has been above its best, {self.best[1]:.4f} after update "
            f"{self.best[0]:,}, for {self._above} evaluations and is now {self._last[1]:.4f}; if the training loss "
            "falls, the model learns its text by heart: use more text or fewer updates, dynamic masking (--masking "
            f"dynamic) or a smaller model{'' if self._patience else ', or stop here (--early-stopping)'}; if it rises "
            f"too, lower --learning-rate{self._what_follows()}"
        )

    def _what_follows(self) -> str:
        if not self._patience:
            return ""
        return f". The best is kept; {self._patience} evaluations without a better one end the phase (--early-stopping)"

    def reason(self) -> str:
        """Why early stopping ended the run."""
        if self.best is None:
            return f"{self._since_best} evaluations without a finite held-out loss"
        return (
            f"{self._since_best} evaluations without a held-out loss below {self.best[1]:.4f}, that of update "
            f"{self.best[0]:,}"
        )

    def figures(self) -> dict[str, Any]:
        """What the summary says of it, by the names of the metric."""
        found: dict[str, Any] = {}
        if self.before is not None:
            found[f"initial_{self.metric}"] = self.before
        if self.best is not None:
            found |= {f"best_{self.metric}": self.best[1], "best_step": self.best[0]}
        if self.ends_with_best:
            found["ends_with_best"] = True
        if self.has_stopped:
            found |= {"stopped_early": True, "early_stopping": self._patience}
        return found
