"""The length of a training on the user's text: the request, and the resulting updates and seconds."""

import dataclasses
import math
from collections.abc import Callable

from bert.own_text import constants
from bert.reporting.progress import duration

LEAST_SECONDS = 5.0  # of a training


@dataclasses.dataclass(frozen=True)
class Length:
    """The requested length (one of the first three fields), otherwise `EPOCHS` passes in at most `MOST_HOURS`.

    Attributes:
        hours: of the whole command, data and results included, all starts added up.
        epochs: passes over the text.
        max_steps: updates.
        finish_in: seconds that this start has, whatever the others say; two lengths are equal without it.
    """

    hours: float | None = None
    epochs: float | None = None
    max_steps: int | None = None
    finish_in: float | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        flags = [f"--{name.replace('_', '-')}={value:g}" for name, value in self._limits().items() if value is not None]
        if len(flags) > 1:
            raise ValueError(f"{flags[0]} and {flags[1]} both decide how long to train; give one of them")

    def _limits(self) -> dict[str, float | None]:
        return {"hours": self.hours, "epochs": self.epochs, "max_steps": self.max_steps}

    def is_by_time(self) -> bool:
        """Whether hours decide the end, either requested ones or the maximum."""
        return self.epochs is None and self.max_steps is None

    def seconds(self) -> float:
        """Seconds of the whole command if hours decide; otherwise None."""
        return 3600 * (self.hours or constants.MOST_HOURS)

    def end_seconds(self, slowness: float) -> float:
        """Seconds reserved for the report, which starts Paddle again."""
        return constants.END_SECONDS * max(1.0, min(slowness, self.seconds() / constants.MOST_ENDS))

    def refuse_schedule(self, schedule: str) -> None:
        """Raise ValueError for --hours with a schedule that needs the number of updates."""
        if schedule != "wsd" and self.hours is not None:
            raise ValueError(
                f"lr_schedule={schedule} needs the number of updates, which --hours={self.hours:g} leaves open; pass "
                "--max-steps or --epochs, or drop --lr-schedule"
            )

    def training_seconds(self, seconds_of_a_pass: float, other_seconds: float) -> float:
        """Expected seconds of the updates, before the data are made; --max-steps is ignored.

        Args:
            seconds_of_a_pass: over the text.
            other_seconds: of data, start and end.
        """
        if self.epochs is not None:
            return self.epochs * seconds_of_a_pass
        left = self.seconds() - other_seconds
        if self.hours is None:
            return max(LEAST_SECONDS, min(constants.EPOCHS * seconds_of_a_pass, left))
        if left < LEAST_SECONDS:
            raise ValueError(
                f"hours={self.hours:g} leave no time for training: what is before and after it takes about "
                f"{duration(other_seconds)}; pass at least --hours {math.ceil(other_seconds * 2 / 36) / 100:g}"
            )
        return left

    def updates(self, expected: int, expected_seconds: float, updates_of: Callable[[float], int | None]) -> int:
        """Number of updates of the whole run. With --hours it is a limit that is never reached in time.

        Args:
            expected, expected_seconds: updates and seconds of the recorded plan, made perhaps for fewer --hours.
            updates_of: passes over the text -> their updates; None while the samples are not made.
        """
        if self.max_steps is not None:
            return self.max_steps
        if self.hours is None:
            return updates_of(self.epochs or constants.EPOCHS) or expected
        longer = max(1.0, self.seconds() / expected_seconds)
        return math.ceil(constants.MOST_UPDATES * expected * longer)

    def seconds_left(self, used: float, end_seconds: float) -> float | None:
        """Seconds for the training from the start of its ranks; None if updates decide.

        Args:
            used: by all starts until now.
            end_seconds: kept for the results.
        """
        if self.finish_in is not None:
            return self.finish_in
        return self.seconds() - used - end_seconds if self.is_by_time() else None

    def refuse_used_up(self, used: float, used_here: float, other_seconds: float) -> None:
        """Raise ValueError if the hours are used up; it suggests enough hours for another start."""
        least = math.ceil((used + used_here + 2 * other_seconds) / 36) / 100
        raise ValueError(
            f"hours={self.seconds() / 3600:g} leave no time for training: {duration(used)} were used; pass at least "
            f"--hours {least:g}, which continues with what is there, or --finish-in 5m to end with what was learned"
        )

    def is_reached(self, finished: "Length | None") -> bool:
        """Whether a finished training had at least this length."""
        if finished is None:
            return False
        before = finished._limits()
        for name, requested in self._limits().items():
            trained = before[name]
            if requested is not None and (trained is None or requested > trained):
                return False
        return True

    def doubled(self, hours: float) -> tuple[str, str]:
        """The flag and value for a training twice as long; `hours` are the planned or used hours."""
        if self.epochs is not None:
            return "--epochs", f"{2 * self.epochs:g}"
        if self.max_steps is not None:
            return "--max-steps", str(2 * self.max_steps)
        return "--hours", f"{2 * max(self.hours or 0, hours):.2g}"
