"""Guards: observers of the training loop that warn, roll back to a checkpoint, or end an unhealthy run.

Each keeps its state in `LoopState`, which checkpoints carry: a resumed run decides as the uninterrupted one would have.
Those that look at the device are in `device_guards`.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from bert.checkpoints.progress import EvaluationState, LoopState, Progress
from bert.config.optimizer_settings import OptimizerSettings
from bert.config.training_settings import RunSettings
from bert.exit_codes import DIVERGED, Failure

logger = logging.getLogger(__name__)


class TrainingDiverged(Failure):
    """Too many updates in a row had non-finite gradients, or the loss is far too high."""

    exit_code = DIVERGED


@dataclass(frozen=True)
class Interval:
    """The updates between two log lines, over all ranks."""

    step: int
    epoch: int
    complete: bool  # whether it is a whole interval, not cut short by the end of a start
    metrics: dict[str, float]
    loss_sum: float  # divided by micro_steps: the mean loss
    micro_steps: float


class Guard:
    """Base class: methods that the training loop calls. A method ends the run by raising a Failure."""

    def skips(self, step: int) -> bool:
        """Whether to skip the batch of the update after `step`."""
        return False

    def after_update(self, step: int) -> None:
        """Called on every rank after update `step`."""

    def after_interval(self, interval: Interval) -> Progress | None:
        """Check an interval; returns the checkpoint's progress if the run was rolled back."""
        return None

    def before_save(self) -> None:
        """Called before the state of the device is saved."""


# ---- divergence ------------------------------------------------------------------------------------------------------

ABOVE_CHANCE, ABOVE_FIRST, MARGIN = 1.1, 1.5, 0.5  # the limit: factors, and nats that are added
WARN_AFTER, STOP_AFTER, LEAST_AT_END = 5, 20, 3  # intervals in a row
FAR = 2.0  # times the limit: one interval is enough at the end


class DivergenceGuard(Guard):
    """Warns if a finite loss stays far too high; ends the run if it lasts, or at the end of the training.

    `SpikeGuard` judges by the losses just before, which a loss that climbs slowly drags along. This guard compares with
    two fixed values: the loss of a uniform guess, which no sound training from random weights exceeds for long, and the
    loss of the run's first interval, which one from given weights does not.

    Args:
        chance_loss: of a uniform guess, in nats.
    """

    def __init__(self, state: LoopState, chance_loss: float, optimizer: OptimizerSettings, max_steps: int) -> None:
        self._loop, self._chance, self._optimizer, self._max_steps = state, chance_loss, optimizer, max_steps
        self._loss = math.nan  # the last finite one

    def after_interval(self, interval: Interval) -> None:
        """Raise TrainingDiverged before the last checkpoint is saved."""
        state, loss = self._loop.divergence, interval.metrics["loss"]
        if math.isfinite(loss):
            state.first = loss if state.first is None else state.first
            self._loss = loss
            state.above = state.above + 1 if loss > self._limit() else 0
        # A run must not end, as if it had succeeded, with a loss above the limit.
        last = self._loop.decay.last if self._loop.decay else self._max_steps
        is_far, at_end = self._loss > FAR * self._limit(), interval.step >= last
        if state.above >= STOP_AFTER or (at_end and state.above > 0 and (state.above >= LEAST_AT_END or is_far)):
            raise TrainingDiverged(str(self))
        if math.isfinite(loss) and state.above == WARN_AFTER:
            logger.warning("%s", self)

    def _limit(self) -> float:
        """The loss above which an interval counts as diverged."""
        limit, first = ABOVE_CHANCE * self._chance, self._loop.divergence.first
        return MARGIN + (limit if first is None else min(limit, ABOVE_FIRST * first))

    def __str__(self) -> str:
        state, optimizer = self._loop.divergence, self._optimizer
        began = "" if state.first is None else f", and the run began with {state.first:.4f}"
        return (
            f"the loss is {self._loss:.4f} and was above {self._limit():.2f} for {state.above} intervals, where a "
            f"uniform guess has {self._chance:.2f}{began}: the training has diverged; lower --learning-rate (now "
            f"{optimizer.learning_rate:g}) or lengthen the warm-up (--warmup-proportion, now "
            f"{optimizer.warmup_proportion:g}), check the data, and start in another --output-dir"
        )


# ---- loss spikes -----------------------------------------------------------------------------------------------------

WINDOW = 20  # intervals whose median is the usual loss
LEAST = 5  # intervals before a spike can be detected
MAX_ROLL_BACKS = 5  # of one leg of a run


@dataclass(frozen=True)
class Spike:
    """Updates `first` .. `last` - 1 (an interval between two log lines) with a loss far above the usual one."""

    first: int
    last: int
    loss: float
    usual: float

    def __str__(self) -> str:
        return (
            f"loss spike: {self.loss:.4f} in the updates of steps {self.first + 1}-{self.last}, "
            f"{self.loss / self.usual:.1f} times the usual {self.usual:.4f}"
        )


class SpikeGuard(Guard):
    """Compares the mean loss of an interval with the median of earlier intervals.

    After a spike it logs, or rolls back to the checkpoint before the spike, whose batches are then skipped.

    Args:
        start: step at which the leg starts.
        restore: restores the newest valid checkpoint up to a step -> its Progress; None if there is none.
    """

    def __init__(
        self,
        state: LoopState,
        run: RunSettings,
        start: int,
        restore: Callable[[int], Progress | None],
        log_event: Callable[[str, int, int, dict], None],
    ) -> None:
        self._factor, self._rolls_back = run.loss_spike_factor, run.loss_spike_action == "rollback"
        self._loop, self._interval_start, self._restore, self._log_event = state, start, restore, log_event
        self._roll_backs = 0

    def skips(self, step: int) -> bool:
        return any(first <= step < last for first, last in self._loop.spikes.skipped_batches)

    def after_interval(self, interval: Interval) -> Progress | None:
        spike = self.detect(interval)
        self._interval_start = interval.step
        if spike is None:
            return None
        logger.warning("%s", spike)
        values = {"first_step": spike.first + 1, "loss_spike": spike.loss, "usual_loss": spike.usual}
        self._log_event("loss_spike", interval.step, interval.epoch, values)
        return self._roll_back(spike) if self._rolls_back else None

    def detect(self, interval: Interval) -> Spike | None:
        """Add the updates since the last call, and check the interval if it is complete."""
        state = self._loop.spikes
        first, loss_sum, micro_steps = state.pending
        first = self._interval_start if first is None else first
        loss_sum, micro_steps = loss_sum + interval.loss_sum, micro_steps + interval.micro_steps
        state.pending = (None, 0.0, 0.0) if interval.complete else (first, loss_sum, micro_steps)
        loss = loss_sum / micro_steps if micro_steps else math.nan
        if not interval.complete or not math.isfinite(loss):
            return None
        usual = median(state.losses) if len(state.losses) >= LEAST else math.inf
        if self._factor and loss > self._factor * usual > 0:
            return Spike(first, interval.step, loss, usual)  # not kept: the usual loss must not follow it
        state.losses = [*state.losses, loss][-WINDOW:]
        return None

    def _roll_back(self, spike: Spike) -> Progress | None:
        if self._roll_backs == MAX_ROLL_BACKS:
            raise TrainingDiverged(
                f"{spike}, after {MAX_ROLL_BACKS} roll backs already; lower --learning-rate or lengthen the warm-up, "
                "check the data, and continue from the last checkpoint"
            )
        progress = self._restore(spike.first)
        if progress is None:
            logger.warning(
                f"no valid checkpoint from before step {spike.first + 1} is left to roll back to; training continues "
                "(--keep-checkpoints, --num-steps-per-checkpoint)"
            )
            return None
        self._roll_backs += 1
        self._interval_start, restored = progress.step, progress.carried.spikes
        skipped = {*self._loop.spikes.skipped_batches, *restored.skipped_batches, (spike.first, spike.last)}
        restored.skipped_batches = sorted(skipped)
        logger.info(
            f"rolled back to step {progress.step}; the batches of steps {spike.first + 1}-{spike.last} will be skipped"
        )
        return progress


# ---- evaluations -----------------------------------------------------------------------------------------------------

# A held-out loss must lie this far above the best, relative to it, before it counts as overfitting: it fluctuates.
TOLERANCE = 0.005


@dataclass(frozen=True)
class BestMetric:
    """The evaluation metric that selects the best weights.

    Attributes:
        is_result: the best weights are the result of the training; otherwise the last are, without early stopping.
        counts_from: first update whose evaluation counts for overfitting and early stopping, of those expected.
    """

    name: str
    larger_is_better: bool = False
    keeps: bool = True  # whether the best checkpoint is saved and never pruned
    is_result: bool = False
    overfitting_evaluations: int = 0  # warn after so many evaluations in a row worse than the best; 0: never
    early_stopping: int = 0  # end after so many evaluations without a new best, and use the best; 0: never
    counts_from: int = 0


NO_METRIC = BestMetric("", keeps=False)


def is_trained(run: RunSettings, step: int, since_best: int, last_step: int | None = None) -> bool:
    """Whether a training is over, after all its updates or by early stopping.

    Args:
        since_best: evaluations without a better one.
        last_step: of the decay that has begun; None: --max-steps.
    """
    return step >= (last_step or run.max_steps) or 0 < run.patience() <= since_best


class EvaluationGuard:
    """Follows one evaluation metric: best weights, overfitting, early stopping."""

    def __init__(self, state: LoopState, metric: BestMetric) -> None:
        self._loop, self._metric = state, metric
        self.state.ends_with_best = self._ends_with_best()

    @property
    def state(self) -> EvaluationState:
        return self._loop.evaluations

    @property
    def has_stopped(self) -> bool:
        return 0 < self._metric.early_stopping <= self.state.since_best

    def _ends_with_best(self) -> bool:
        """Whether the best weights are the result; with early stopping the last ones are, if nearly as good."""
        state, stops_early = self.state, self._metric.early_stopping > 0
        if state.best is None:
            return False
        is_worse = state.last is not None and bool(state.last[1] > state.best[1] * (1 + TOLERANCE))
        return self._metric.is_result or self.has_stopped or (stops_early and is_worse)

    def forget_best(self) -> None:
        """Forget a best evaluation whose checkpoint is gone; the next evaluation becomes the best."""
        self.state.best, self.state.since_best, self.state.above = None, 0, 0

    def observe(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Record the evaluation after update `step`; returns whether it is the best so far.

        An evaluation that was already recorded is ignored. Logs overfitting, once for every best, and early stopping.
        """
        metric, state = self._metric, self.state
        if metric.name not in metrics or (state.last and step <= state.last[0]):
            return False
        value, worst = float(metrics[metric.name]), -math.inf if metric.larger_is_better else math.inf
        if not math.isfinite(value):
            value = worst
        if step == 0:
            state.before, state.metrics_before = value, {key: float(number) for key, number in metrics.items()}
            return False
        state.last = (step, value)
        best = worst if state.best is None else state.best[1]
        # Among equal scores the later weights are surer; a loss has no equals.
        is_best = math.isfinite(value) and (value >= best if metric.larger_is_better else value < best)
        if is_best:
            state.best, state.since_best, state.above = (step, value), 0, 0
        elif step >= metric.counts_from * self._loop.fitting:
            self._count_worse(step, value, best)
        state.ends_with_best = self._ends_with_best()
        return is_best

    def _count_worse(self, step: int, value: float, best: float) -> None:
        metric, state = self._metric, self.state
        state.since_best += 1
        state.above = state.above + 1 if state.best and value > best * (1 + TOLERANCE) else 0
        if 0 < metric.overfitting_evaluations == state.above:
            logger.warning("%s", self._overfitting())
        if self.has_stopped:
            what, better = (metric.name.removeprefix("eval_").replace("_", " "), "above")
            if not metric.larger_is_better:
                what, better = "held-out loss", "below"
            reason = f"finite {what}"
            if state.best is not None:
                reason = f"{what} {better} {state.best[1]:.4f}, the value of update {state.best[0]:,}"
            evaluations = f"{state.since_best} evaluations without a {reason}"
            logger.info(f"early stopping after update {step:,}: {evaluations}")

    def _overfitting(self) -> str:
        state, patience = self.state, self._metric.early_stopping
        assert state.best is not None and state.last is not None
        follows = f"The best is kept; {patience} evaluations without a better one end the phase (--early-stopping)"
        return (
            f"overfitting: the held-out loss has been above its best, {state.best[1]:.4f} after update "
            f"{state.best[0]:,}, for {state.above} evaluations and is now {state.last[1]:.4f}; if the training loss "
            "falls, the model learns its text by heart: use more text or fewer updates, dynamic masking (--masking "
            f"dynamic) or a smaller model{'' if patience else ', or stop here (--early-stopping)'}; if it rises "
            f"too, lower --learning-rate{f'. {follows}' if patience else ''}"
        )

    def figures(self) -> dict[str, Any]:
        """Entries of the summary about the metric."""
        state, name = self.state, self._metric.name
        figures: dict[str, Any] = {f"initial_{key}": number for key, number in state.metrics_before.items()}
        if state.before is not None:
            figures[f"initial_{name}"] = state.before
        if state.best is not None:
            figures |= {f"best_{name}": state.best[1], "best_step": state.best[0]}
        if self._ends_with_best():
            figures["ends_with_best"] = True
        if self.has_stopped:
            figures |= {"stopped_early": True, "early_stopping": self._metric.early_stopping}
        return figures
