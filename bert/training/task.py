"""The interface between a task and a training run: data, objective, evaluation, figures for the summary."""

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
    """A rank with weights in its scope."""

    device: Device
    program: TrainingProgram | None = None  # None if nothing is trained
    progress: Progress | None = None  # where the training starts


class Evaluation:
    """What a task does on a rank beside training: evaluations, and the work after the last update."""

    def facts(self) -> dict[str, Any]:
        """For the first line of the log."""
        return {}

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics after update `step`, their names beginning with `eval_`. Every rank calls it; rank 0 has them."""
        raise NotImplementedError

    def finish(self, last_step: int | None) -> dict[str, Any]:
        """Do the work after the last update (None: nothing was trained). Return figures. The scope has the weights."""
        return {}

    def figures(self) -> dict[str, Any]:
        """The first figures of the summary."""
        return {}


class Task:
    """Base of all tasks. Making one opens and checks its data: ValueErrors come before any program is built."""

    config: TrainingConfig
    objective: Objective
    fingerprint: str = ""  # of the training data; a checkpoint is resumed only with an equal one
    num_examples: int | None = None  # of a pass over the training data, for the message where they are others
    trains: bool = True  # there is training to do
    evaluates: bool = False  # `Evaluation.evaluate` has anything to evaluate
    finishes: bool = False  # `Evaluation.finish` has work to do after training
    texts: dict[str, str] = {}  # files to keep in checkpoints, name -> content
    fitted: dict[str, np.ndarray] = {}  # parameters that evaluations fit, to keep beside the program's own
    best_metric: BestMetric = NO_METRIC  # decides the best checkpoint and early stopping
    evaluates_first: bool = False  # given weights are evaluated before the first update

    @classmethod
    def open(cls, config: Any, group: Group) -> "Task":
        return cls(config, group)  # type: ignore[call-arg]

    def epochs(self, step: int) -> float | None:
        """Passes over the training data after update `step`; None: they are not logged."""
        return None

    def batches(self, step: int, packing: Packing | None = None) -> Generator[Any, None, None]:
        """This rank's global batches from update `step` on."""
        raise NotImplementedError

    def evaluation(self, session: Session) -> Evaluation:
        """Build the programs of evaluation and prediction."""
        raise NotImplementedError
