"""The interface between a task and a training run: data, objective, evaluation, summary."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert.checkpoints.progress import Progress
from bert.config.training_settings import TrainingConfig
from bert.model.objectives import Objective
from bert.runtime.distributed import Group
from bert.samples.packing import Packing
from bert.training.devices import Device
from bert.training.loss_guards import NO_METRIC, BestMetric
from program import TrainingProgram


@dataclass(frozen=True)
class Session:
    """A rank's state after loading weights: device, program and progress."""

    device: Device
    program: TrainingProgram | None = None  # None without training
    progress: Progress | None = None  # progress at the start


class Evaluation:
    """A task's work on a rank besides training: evaluations, and the work after the last update."""

    def facts(self) -> dict[str, Any]:
        """Facts for the first line of the log."""
        return {}

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics after update `step`, with names that begin with `eval_`. All ranks call it; rank 0 has them."""
        raise NotImplementedError

    def finish(self, last_step: int | None) -> dict[str, Any]:
        """Do the work after the last update (None: nothing was trained) with the current weights; returns figures."""
        return {}

    def figures(self) -> dict[str, Any]:
        """First figures of the summary."""
        return {}


class Task:
    """Base class of tasks. The constructor opens and checks the data: ValueErrors come before programs are built."""

    config: TrainingConfig
    objective: Objective
    fingerprint: str = ""  # of the training data; must be equal to resume a checkpoint
    num_examples: int | None = None  # examples in an epoch of the training data, for messages
    trains: bool = True  # whether there is training to do
    evaluates: bool = False  # whether `Evaluation.evaluate` has data
    finishes: bool = False  # whether `Evaluation.finish` has work to do
    texts: dict[str, str] = {}  # files to keep in checkpoints, name -> content
    fitted: dict[str, np.ndarray] = {}  # parameters that evaluations fit, saved with the program's own
    best_metric: BestMetric = NO_METRIC  # metric that selects the best checkpoint and decides early stopping
    evaluates_first: bool = False  # whether initial weights are evaluated before the first update

    @classmethod
    def open(cls, config: Any, group: Group) -> "Task":
        return cls(config, group)  # type: ignore[call-arg]

    def epochs(self, step: int) -> float | None:
        """Number of epochs after update `step`; None: they are not logged."""
        return None

    def batches(self, step: int, packing: Packing | None = None) -> Generator[Any, None, None]:
        """Yield this rank's global batches from update `step` on."""
        raise NotImplementedError

    def evaluation(self, session: Session) -> Evaluation:
        """Build the programs of evaluation and prediction."""
        raise NotImplementedError
