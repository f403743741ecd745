"""The step that trains: one configuration on the ranks of this node, resumed by the same command until it is done."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

from bert.checkpoints.directories import list_steps
from bert.config.setting_errors import Mistakes
from bert.config.training_settings import TrainingConfig
from bert.exit_codes import OK
from bert.jobs.job import Execution, Job, Step
from bert.launching.previous_run import is_done, newest_loop_state, refuse_other_run
from bert.launching.ranks import Ranks
from bert.launching.start_training import check_machine, launch, require_script
from bert.reporting.progress import duration

_FINISHED = "finished"  # name of a training -> the hours with which it ended, null without
LEAST_SECONDS = 5.0  # of a training with --hours
SUMMARY_PATIENCE_SECONDS = 60.0  # a file written by the first node may appear late on a shared file system


@dataclass(frozen=True, kw_only=True)
class Train(Step):
    """Trains, evaluates or predicts with one configuration.

    Attributes:
        script: the run_*.py that each rank runs.
        config: the settings that were asked for.
        start: settings of the start while there is no checkpoint, if that is not what was asked for.
        data: steps that make what it reads.
        share: its part of the time that --hours leaves to all trainings of the job.
        repeats: start the ranks also if it is done, because predictions or scores are made each time.
    """

    seconds_beside: ClassVar[float] = 8.0  # seconds of --hours for starting the ranks and for the results
    script: Path
    config: TrainingConfig
    ranks: Ranks
    start: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    data: tuple[Step, ...] = ()
    job_id: str | None = None
    log_file: Path | None = None
    share: float = 1.0
    repeats: bool = False

    @property
    def title(self) -> str:
        return f"training {self.config.display_name()}" if self.config.trains() else self.config.display_name()

    @property
    def product(self) -> Path:
        return self.config.checkpoint_dir() if self.config.trains() else self.config.log_dir()

    def needs(self) -> Sequence[Step]:
        return self.data

    def check(self, here: bool) -> None:
        mistakes, world_size = Mistakes(), self.ranks.world_size()
        with mistakes.noted():
            require_script(self.script)
        with mistakes.noted():
            refuse_other_run(self.config.with_known_steps(world_size), world_size)
        with mistakes.noted():
            self.config.check_benchmark()
        with mistakes.noted():
            if here:
                check_machine(self.config, self.ranks)
        with mistakes.noted():
            if here:
                self.config.check_data()
        mistakes.refuse()

    def is_done(self, execution: Execution) -> bool:
        return not self.repeats and self._is_over(execution)

    def _is_over(self, execution: Execution) -> bool:
        """Whether all updates were made, or as many as fit in the requested hours."""
        hours, had = execution.job.hours, execution.record.facts.get(_FINISHED, {}).get(self._name(execution))
        asks_for_more = hours is not None and had is not None and hours > had
        return is_done(self.settled(execution).config) and not asks_for_more

    def _name(self, execution: Execution) -> str:
        """Name of the step in the job's record, independent of the folder's place."""
        return os.path.relpath(self.config.stage_dir(), execution.job.output_dir)

    def settled(self, execution: Execution) -> Self:
        """The step with facts that are known only when it begins, such as the number of updates."""
        return replace(self, config=self.config.with_known_steps(self.ranks.world_size()))

    def run(self, execution: Execution) -> int:
        step, record = self.settled(execution), execution.record
        seconds = step.seconds(execution)
        code = step.launch(step.config if seconds is None else step.config.ending_in(seconds), execution)
        if code == OK and step.config.trains() and is_done(step.config):
            record.facts.setdefault(_FINISHED, {})[self._name(execution)] = execution.job.hours
        return code

    def launch(self, config: TrainingConfig, execution: Execution) -> int:
        """Start the ranks with these settings and wait for their end; returns the exit code."""
        return launch(
            self.script,
            config,
            self.ranks,
            execution.runner,
            start=self.start,
            job_id=self.job_id,
            log_file=self.log_file,
        )

    def seconds(self, execution: Execution) -> float | None:
        """Seconds of --hours for this start; None if updates, or a decay that has begun, decide the end.

        Raises:
            ValueError: the hours are used up.
        """
        left = execution.seconds_left()
        if left is None or not self.config.trains() or self._is_over(execution):
            return None
        name = self._name(execution)
        others = [step for step in trainings(execution.job) if step._name(execution) != name]
        todo = [step for step in others if not step.is_done(execution)]
        beside = self.seconds_beside + sum(step._seconds_beside_and_data(execution) for step in todo)
        part = part_of_time(self, [self, *todo])
        mine = (left - beside) * part
        if mine >= LEAST_SECONDS:
            return mine
        decay = newest_loop_state(self.config).get("decay")
        if decay and max(list_steps(self.config.checkpoint_dir())) < decay["last"]:  # it ends where it was planned
            return None
        hours, used = execution.job.hours or 0.0, execution.record.used()
        least = math.ceil((used + self.seconds_beside + beside + LEAST_SECONDS / part) / 36) / 100
        raise ValueError(
            f"hours={hours:g} leave no time for training: {duration(used)} were used; pass at least --hours "
            f"{least + 0.01:g}, which continues with what is there"
        )

    def _seconds_beside_and_data(self, execution: Execution) -> float:
        """Estimated seconds of a later training besides its updates: start, results, and making data."""
        data = [step.expected_seconds(execution) for step in self.data if not step.is_done(execution)]
        return self.seconds_beside + max(data, default=0.0)

    def left(self, execution: Execution) -> str:
        if self.config.run.benchmark or self.repeats or self._ends_here(execution):
            return ""
        return f"{self.config.display_name()} has steps left; the same command continues"

    def _ends_here(self, execution: Execution) -> bool:
        """Whether the training is over, as this node sees it."""
        waits = self.ranks.num_nodes > 1 and not self.config.run.steps_this_run
        deadline = time.monotonic() + (SUMMARY_PATIENCE_SECONDS if waits else 0.0)
        while not (is_over := self._is_over(execution)) and time.monotonic() < deadline:
            time.sleep(1.0)
        return is_over


def part_of_time(step: Train, todo: Sequence[Train]) -> float:
    """The fraction of the remaining hours for a training; `todo` are the remaining trainings, including it."""
    return step.share / math.fsum(one.share for one in todo)


def parts_of_time(job: Job) -> list[float]:
    """The fraction of the hours for each training of a job that has not begun."""
    todo = trainings(job)
    return [part_of_time(step, todo) for step in todo]


def trainings(job: Job) -> list[Train]:
    """All trainings of a job in order, including trainings in groups."""
    return [step for step in job.all_steps() if isinstance(step, Train)]
