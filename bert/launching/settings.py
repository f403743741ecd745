"""Settings of a launch, and `LaunchPlan`: the trainings that a command line requests."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from bert.config.command_line import Question, answered
from bert.config.settings_base import Settings
from bert.config.training_settings import derive
from bert.help_parser import wrapped
from bert.launching.ranks import Ranks


class JobTime(Settings):
    hours: float | None = Field(
        None, gt=0, description="time of the whole command, over all its starts (default: no limit)"
    )


class LaunchSettings(Settings):
    """The settings of every launch. A task adds sections; the help lists the section `start` beside --config."""

    time: JobTime = JobTime()
    nodes: Ranks = Ranks()


@dataclass(frozen=True)
class LaunchPlan:
    """The plan of a command line: consecutive trainings on the same ranks.

    Attributes:
        warnings: what a start and a dry run print, each in a line with its remedy.
    """

    name: str  # name of the preset or recipe
    phases: Sequence[Any]  # settings of each training; fine-tuning has one
    launch: Any  # the task's LaunchSettings
    questions: Sequence[Question] = ()  # if there are any, they are answered instead of training
    warnings: Sequence[str] = ()

    @property
    def ranks(self) -> Ranks:
        ranks: Ranks = self.launch.nodes
        return ranks

    @property
    def hours(self) -> float | None:
        """Hours of the whole command (--hours)."""
        hours: float | None = self.launch.time.hours
        return hours

    def world_size(self) -> int:
        return self.ranks.world_size()

    def shown_in_time(self, shares: Sequence[float]) -> "LaunchPlan":
        """For a dry run: the plan whose phases end after their shares of --hours; unchanged without --hours.

        Args:
            shares: of the trainings of the job, of which the phases are the first.
        """
        if self.hours is None:
            return self
        parts = zip(self.phases, shares, strict=False)
        phases = [derive(config, finish_in=max(1.0, 3600 * self.hours * share)) for config, share in parts]
        return replace(self, phases=phases)

    def refuse_schedule(self) -> None:
        """Raise ValueError for --hours with a schedule that needs the number of updates."""
        for config in self.phases if self.hours is not None else ():
            if (schedule := config.optimizer.lr_schedule) != "wsd":
                raise ValueError(
                    f"lr_schedule={schedule} needs the number of updates, which --hours={self.hours:g} leaves open; "
                    "drop --hours, or pass --lr-schedule wsd, whose decay can begin at any update"
                )

    def warn(self) -> None:
        """Print the warnings on standard error."""
        for warning in self.warnings:
            print(wrapped(f"warning: {warning}"), file=sys.stderr, flush=True)

    def answers(self) -> bool:
        """Answer the user's questions about the settings, and return whether there was one."""
        return answered(self.questions, self.phases, self.world_size())
