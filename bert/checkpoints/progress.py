"""The content of a checkpoint besides its tensors: the run's position, and the state of its training loop."""

from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

STATE_VERSION = 2


@dataclass
class SpikeState:
    losses: list[float] = field(default_factory=list)  # mean losses of the last intervals
    pending: tuple[int | None, float, float] = (None, 0.0, 0.0)  # first update, loss sum, micro-steps since a log line
    skipped_batches: list[tuple[int, int]] = field(default_factory=list)  # updates first ... last - 1


@dataclass
class DivergenceState:
    first: float | None = None  # loss of the run's first interval
    above: int = 0  # intervals in a row whose loss is above the limit


@dataclass
class EvaluationState:
    """State of `bert.training.loss_guards.EvaluationGuard`. Values are pairs (step, value of the metric)."""

    before: float | None = None  # metric of the initial weights, before training
    metrics_before: dict[str, float] = field(default_factory=dict)  # all metrics of the initial weights
    best: tuple[int, float] | None = None
    last: tuple[int, float] | None = None
    since_best: int = 0  # number of evaluations since the best one
    above: int = 0  # evaluations in a row that are clearly worse than the best
    ends_with_best: bool = False  # whether the best weights are the result, not the last ones


@dataclass(frozen=True)
class Totals:
    """Sums over all ranks and all starts of a run."""

    sequences: float = 0.0
    tokens: float = 0.0
    flops: float = 0.0
    seconds: float = 0.0  # of training, without evaluations and checkpoints
    rank_seconds: float = 0.0  # `seconds` times the number of ranks, summed over the starts
    total_seconds: float = 0.0


@dataclass(frozen=True)
class DecayState:
    """State of the learning-rate decay of --lr-schedule wsd (`bert.training.decay`), last computed at `step`."""

    first: int  # the last step with the stable rate; the decay begins after it
    last: int  # the last step of the run
    step: int
    applied: int  # updates up to `step`, skipped ones not counted
    rate: float  # learning rate of the update after `step`


@dataclass
class LoopState:
    """The state of the training loop that is not on the device."""

    version: int = STATE_VERSION
    spikes: SpikeState = field(default_factory=SpikeState)
    divergence: DivergenceState = field(default_factory=DivergenceState)
    evaluations: EvaluationState = field(default_factory=EvaluationState)
    totals: Totals = Totals()
    warmup_steps: int | None = None  # of an extended run, if they differ from its settings
    started_from: str | None = None  # the initial weights of the run
    decay: DecayState | None = None  # None before the decay begins
    fitting: float = 1.0  # updates that fit in the time, out of the updates that the settings expect

    @staticmethod
    def read(values: dict[str, Any]) -> "LoopState":
        """Read the state from a checkpoint's JSON, including version 1, which did not record its version."""
        version = values.get("version", 1)
        if version > STATE_VERSION:
            raise ValueError(f"its training state has version {version}, this program reads {STATE_VERSION}")
        if version == 1:
            values = {"spikes": values, "evaluations": values.get("held_out", {}), **values}
        return _LOOP_STATE.validate_python({**values, "version": STATE_VERSION})


_LOOP_STATE = TypeAdapter(LoopState)


@dataclass(frozen=True)
class Progress:
    """A run's progress at the end of an update; together with the tensors, all that resuming needs.

    Dropout masks, masking and the order of samples are functions of (seed, step), so there is no generator state.
    Gradient-merge buffers are empty between updates, the only place a checkpoint is made.
    """

    stage: str  # phase1, phase2, squad ...
    step: int  # updates attempted = global batches consumed
    epoch: int
    seed: int
    global_batch_size: int
    data_fingerprint: str
    counters: dict[str, int]  # applied, skipped, consecutive skipped updates
    loss_scale: float | None
    loss_scale_counters: dict[str, int]
    settings: dict  # the resolved configuration, compared when a run is resumed
    carried: LoopState = field(default_factory=LoopState)
    num_examples: int | None = None  # examples in one epoch; None: not recorded by an earlier version
