"""The remaining time of a start (--finish-in, or a file FINISH), and the updates that fit in it.

Every rank has a `TimeLimit`. Clocks differ between ranks, so rank 0's numbers are used on all of them.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bert.checkpoints.writer import SaveTimes
from bert.config.training_settings import RunSettings
from bert.training.metrics import Throughput

SPEED_WINDOW = 0.25  # of the time to fill with updates: their speed is the mean of so much time before
SPEED_IS_MEASURED = 0.05  # of the leg's time, after which the speed counts
SECONDS_TO_EXIT = 0.5  # summary, logs, leaving the group


@dataclass(frozen=True)
class Pause:
    """A regular interruption of training: `seconds` after each `every` updates."""

    every: int
    seconds: float


def updates_within(
    seconds: float, seconds_per_update: float, step: int, most: int, pauses: Sequence[Pause] = ()
) -> int:
    """Number of updates after `step` that fit in `seconds`, from 0 to `most`, with pauses between them."""

    def needed_seconds(updates: int) -> float:
        before_last = max(step, step + updates - 1)
        paused = sum(pause.seconds * (before_last // pause.every - step // pause.every) for pause in pauses)
        return updates * seconds_per_update + paused

    number_that_fit = bisect_right(range(most + 1), seconds, key=needed_seconds)  # of 0, 1, 2 ... `most` updates
    return max(0, number_that_fit - 1)


class TimeLimit:
    """The deadline of a start, if any, and measured times of the work that must fit before it.

    Args:
        throughput: measures the speed of the updates.
        clock: in seconds; the deadline is a time of this clock.
    """

    def __init__(self, run: RunSettings, throughput: Throughput, clock: Callable[[], float]) -> None:
        self._run, self._throughput, self._clock = run, throughput, clock
        self._leg_start = clock()
        self._deadline: float | None = None
        self._decay_seconds = 0.0
        self._evaluation_seconds: float | None = None
        self._save_seconds = 0.0  # for which training waits
        self._background_seconds = 0.0  # in which a thread writes a save while training continues

    def is_set(self) -> bool:
        return self._deadline is not None

    def set_deadline(self, deadline: float, decay_seconds: float) -> None:
        """End the start by `deadline`, with the decay in its last `decay_seconds`."""
        self._deadline, self._decay_seconds = deadline, decay_seconds

    def decay_now(self, seconds: float) -> None:
        """End the start in `seconds`, all of them for the decay."""
        self.set_deadline(self._clock() + seconds, math.inf)

    def evaluated(self, seconds: float) -> None:
        """Record the time of the latest evaluation."""
        self._evaluation_seconds = seconds

    def saved(self, times: SaveTimes) -> None:
        """Record the times of the latest save."""
        in_background = self._run.async_checkpoint
        self._save_seconds = times.wait_seconds + times.copy_seconds
        if not in_background:
            self._save_seconds += times.write_seconds
        self._background_seconds = times.write_seconds if in_background else 0.0

    def needs_evaluation(self) -> bool:
        """Whether an evaluation must fit before the deadline but none was timed yet."""
        return self.is_set() and self._evaluation_seconds is None

    def speed_is_measured(self) -> bool:
        """Whether enough time has passed to trust the speed of updates; False without a deadline."""
        if self._deadline is None:
            return False
        return self._clock() - self._leg_start >= SPEED_IS_MEASURED * (self._deadline - self._leg_start)

    def seconds_left(self, for_updates: float) -> float:
        """Time until the deadline, if the remaining updates take `for_updates`."""
        if self._deadline is None:
            return for_updates
        return max(0.0, min(for_updates, self._deadline - self._clock()))

    def updates_before_decay(self, step: int) -> int | None:
        """Number of updates after `step` before the decay must begin; None if unlimited or unknown."""
        if self._deadline is None:
            return None
        return self._updates_within(self._deadline - self._clock() - self._decay_seconds, step)

    def updates_before_end(self, step: int) -> int | None:
        """Number of updates after `step` before the deadline; None if unlimited or unknown."""
        if self._deadline is None:
            return None
        last_pause = max(self._evaluation_seconds or 0.0, self._background_seconds)  # both at the same time
        at_end = self._save_seconds + last_pause + SECONDS_TO_EXIT
        return self._updates_within(self._deadline - self._clock() - at_end, step)

    def _updates_within(self, seconds: float, step: int) -> int | None:
        seconds_per_update = self._throughput.seconds_per_update(SPEED_WINDOW * seconds)
        if seconds_per_update is None:
            return None
        pauses = [Pause(self._run.num_steps_per_checkpoint, self._save_seconds)]
        if self._run.eval_freq and self._evaluation_seconds:
            pauses.append(Pause(self._run.eval_freq, self._evaluation_seconds))
        return updates_within(seconds, seconds_per_update, step, self._run.max_steps - step, pauses)
