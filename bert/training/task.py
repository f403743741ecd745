"""The interface between a task and a training run: data, objective, evaluation, figures for the summary."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from bert.checkpoints.state import Progress
from bert.config.training_settings import TrainingConfig
from bert.model.objectives import Objective
from bert.reporting.logs import Log
from bert.training.devices import Device
from bert.training.held_out_loss import HeldOutLoss
from program import TrainingProgram


@dataclass(frozen=True)
class Session:
    """A rank with weights in its scope.

    Attributes:
        program: None if nothing is trained.
        progress: where the training starts.
    """

    device: Device
    log: Log
    program: TrainingProgram | None = None
    progress: Progress | None = None


class Task:
    """Base of all tasks. Making one opens and checks its data: ValueErrors come before any program is built.

    Attributes:
        config: the settings, completed by what the data says.
        objective: the network, its inputs, its loss and its metrics.
        fingerprint: of the training data; a checkpoint is resumed only with an equal one.
        trains: whether there is training to do.
        evaluates: whether `evaluate` has anything to evaluate.
        finishes: whether `finish` has work to do after training.
        texts: files to keep in checkpoints, name -> content.
        num_samples: of the training data, one epoch; 0: epochs are not logged.
        keeps_best: whether the checkpoint with the best held-out loss is kept, whatever --keep-checkpoints.
    """

    config: TrainingConfig
    objective: Objective
    fingerprint: str = ""
    trains: bool = True
    evaluates: bool = False
    finishes: bool = False
    texts: Mapping[str, str] = {}
    num_samples: int = 0
    keeps_best: bool = False

    def batches(self, step: int) -> Generator[Any, None, None]:
        """This rank's global batches from update `step` on."""
        raise NotImplementedError

    def prepare(self, session: Session) -> dict[str, Any]:
        """Build what evaluation needs; returns facts for the log."""
        return {}

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics after update `step`, their names beginning with `eval_`. Every rank calls it; rank 0 has them."""
        raise NotImplementedError

    def held_out_loss(self, carried: dict[str, Any] | None) -> HeldOutLoss:
        """The loss that decides the best checkpoint and early stopping, with the state of a resumed checkpoint."""
        return HeldOutLoss(None)

    def is_complete(self) -> bool:
        """Whether an earlier run of this task left nothing to do after its last update, as rank 0 sees it."""
        return False

    def finish(self, last_step: int | None) -> dict[str, Any]:
        """Work after the last update (None: nothing was trained), with the weights in the scope -> figures."""
        return {}

    def figures(self) -> dict[str, Any]:
        """The first figures of the summary."""
        return {}
