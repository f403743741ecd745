"""Recovery from loss spikes: warn, or roll back to the checkpoint before the spike and skip its batches."""

import logging
from collections.abc import Callable

from bert.checkpoints.state import Progress
from bert.reporting.logs import Log
from bert.training.health_checks import TrainingDiverged
from bert.training.interval_metrics import IntervalMetrics
from bert.training.spike_detection import SpikeGuard

logger = logging.getLogger(__name__)
MAX_ROLL_BACKS = 5  # of one leg of a run


class SpikeRecovery:
    """Watches the mean loss of each interval.

    Args:
        guard: the spike detection, with the state of the checkpoint that is resumed.
        step: where the leg starts.
        restore: restores the newest valid checkpoint up to a step -> its Progress; None if there is none.
        rolls_back: roll back after a spike; otherwise only log it.
    """

    def __init__(
        self, guard: SpikeGuard, step: int, restore: Callable[[int], Progress | None], rolls_back: bool
    ) -> None:
        self.guard = guard
        self._restore, self._rolls_back = restore, rolls_back
        self._interval_start, self._roll_backs = step, 0

    def observe(self, step: int, epoch: int, found: IntervalMetrics, complete: bool, log: Log) -> Progress | None:
        """Check the interval that ends at `step` -> Progress of the checkpoint if the run was rolled back, else None.

        Args:
            complete: whether a whole interval ends here, or only a leg of the run.
        Raises:
            TrainingDiverged: the loss jumped again after MAX_ROLL_BACKS roll backs.
        """
        spike = self.guard.observe(self._interval_start, step, found.loss_sum, found.micro_steps, complete)
        self._interval_start = step
        if spike is None:
            return None
        logger.warning("%s", spike)
        values = {"first_step": spike.first + 1, "loss_spike": spike.loss, "usual_loss": spike.usual}
        log.event("loss_spike", step, epoch, values)
        if not self._rolls_back:
            return None
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
        self.guard = self.guard.restored(progress.carried, (spike.first, spike.last))
        self._interval_start = progress.step
        logger.info(
            f"rolled back to step {progress.step}; the batches of steps {spike.first + 1}-{spike.last} will be skipped"
        )
        return progress
