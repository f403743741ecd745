"""A job is data: what a command line stands for, as steps in order. Making one reads, and never writes."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bert.config.setting_errors import check_all, usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED, NOT_SAVED, OK
from bert.jobs.record import JobRecord
from bert.launching.process_runner import Runner
from bert.launching.ranks import Ranks
from bert.launching.start_training import KILLED, was_stopped


class Step(ABC):
    """One step of a job. Subclasses are frozen dataclasses: their fields say all that the step does."""

    takes_time: ClassVar[bool] = True  # of --hours; showing results does not
    family: str = ""  # steps of one family are refused together

    @property
    @abstractmethod
    def title(self) -> str:
        """What it does, in a few words, for the plan and for the terminal."""

    @property
    def product(self) -> Path | None:
        """The file or folder that it leaves; None if it leaves none of its own."""
        return None

    def needs(self) -> Sequence["Step"]:
        """Steps that come first, unless this one is done already."""
        return ()

    def check(self) -> None:  # noqa: B027 - most steps refuse nothing
        """Raise ValueError for what the step would refuse on any machine: wrong settings, another run in its folder.

        Nothing is written.
        """

    def check_here(self) -> None:  # noqa: B027
        """Raise ValueError for what this machine lacks: devices, packages, data. Nothing is written."""

    def is_done(self, execution: "Execution") -> bool:
        """Whether its product is there already, made in the same way."""
        return False

    @abstractmethod
    def run(self, execution: "Execution") -> int:
        """Do it; returns an exit code. ValueError or OSError for an error that the user can mend."""

    def left(self, execution: "Execution") -> str:
        """What to say if the step ended well and is not finished, so that later steps must wait; "" if it is."""
        return ""


@dataclass(frozen=True)
class Job:
    """The steps of a command.

    Attributes:
        name: of the recipe or preset, or what else the command calls it.
        output_dir: where the record of the job is.
        steps: in order. What a step needs is run right before it.
        ranks: of all trainings; with several nodes each node executes the job.
        hours: the time of the whole command, all starts together; None: the lengths of the trainings decide.
        goes_on: a training that fails does not end the others, as with several seeds.
    """

    name: str
    output_dir: Path
    steps: tuple[Step, ...]
    ranks: Ranks = field(default_factory=Ranks)
    hours: float | None = None
    goes_on: bool = False

    def all_steps(self) -> Iterator[Step]:
        """The single steps with what they need, in the order in which they are run."""
        todo = list(self.steps)
        while todo:
            step = todo.pop(0)
            if isinstance(step, Group):
                todo[:0] = step.steps
            else:
                yield from step.needs()
                yield step

    def trainings_line(self, left: Sequence[Step]) -> str:
        """How many of several trainings are done, if these steps are left; "" for one training."""
        groups = [step for step in self.steps if isinstance(step, Group)]
        if not groups:
            return ""
        number = sum(step in left for step in groups)
        return f"{len(groups)} trainings in {self.output_dir}: {len(groups) - number} done, {number} left"

    def is_first_node(self) -> bool:
        return self.ranks.node_rank in (None, 0)

    def check(self) -> None:
        """Raise ValueError, one line for each mistake, for what the steps would refuse on any machine."""
        check_all(step.check for step in self.all_steps())

    def check_here(self) -> None:
        """Raise ValueError, one line for each mistake, for what this machine lacks."""
        check_all(step.check_here for step in self.all_steps())

    def lines(self) -> list[str]:
        """The steps in words, with their products; what several steps need is named once."""
        steps = [f"{step.title}: {step.product}" for step in self.all_steps() if step.product is not None]
        return [f"{number}. {step}" for number, step in enumerate(dict.fromkeys(steps), 1)]


@dataclass(frozen=True)
class Group(Step):
    """Steps that end with one training among several, such as that of one seed."""

    name: str
    steps: tuple[Step, ...]
    family: str = ""

    @property
    def title(self) -> str:
        return self.name

    def is_done(self, execution: "Execution") -> bool:
        return all(step.is_done(execution) for step in self.steps if step.takes_time)

    def run(self, execution: "Execution") -> int:
        print(f"\n==== {self.name}", flush=True)
        for step in self.steps:
            if code := execution.run(step):
                return code
        return OK


class Execution:
    """One start of a job, as its steps see it.

    Attributes:
        record: of the job.
        runner: runs one process at a time, and passes signals on to it.
        has_worked: whether a step of this start did more than showing what is there.
    """

    def __init__(self, job: Job, record: JobRecord, runner: Runner | None = None) -> None:
        self.job, self.record, self._runner = job, record, runner
        self.has_worked, self._begun = False, time.monotonic()

    @property
    def runner(self) -> Runner:
        """It takes over the signals of this process when it is made."""
        self._runner = self._runner or Runner()
        return self._runner

    def steps_left(self) -> list[Step]:
        """The steps of the job that are not done. To tell reads whole checkpoints, so ask once."""
        return [step for step in self.job.steps if not step.is_done(self)]

    def seconds(self) -> float:
        """Of this start."""
        return self.record.used_now() or time.monotonic() - self._begun

    def seconds_left(self) -> float | None:
        """Of --hours; None without."""
        return None if self.job.hours is None else 3600 * self.job.hours - self.record.used()

    def run(self, step: Step) -> int:
        """Run a step and what it needs, unless it is done; the exit code, INTERRUPTED after a request to stop."""
        if step.is_done(self):
            return OK
        for needed in step.needs():
            if code := self.run(needed):
                return code
        if self.runner.stop_requested:
            return INTERRUPTED
        self.has_worked |= step.takes_time
        try:
            with usage_errors():
                return step.run(self)
        except SystemExit as ended:  # after the lines of an error
            return ended.code if isinstance(ended.code, int) else BAD_INPUT

    def command(self, words: Sequence[str]) -> int:
        """Run a command and report how it ended, unless it succeeded or reported its error itself; its exit code."""
        code = self.runner.run(words)
        if was_stopped(code, self.runner):
            print(f"interrupted ({self.runner.stopped_by}); the same command resumes", file=sys.stderr)
            return INTERRUPTED
        if code not in (OK, BAD_INPUT, NOT_SAVED):
            killed = ", killed, often because memory ran out" if code in KILLED else ""
            print(f"error: {' '.join(words[1:4])} ... ended with exit code {code}{killed}", file=sys.stderr)
        return code
