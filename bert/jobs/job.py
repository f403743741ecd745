"""A job describes what a command line does, as steps in order. `start` plans a command line and executes its job.

Planning reads, and never writes. A job has one executor, one lock, one clock and one rule of what is done; the same
command continues where it stopped.
"""

import contextlib
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

from bert.config.setting_errors import check_all, explain, usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED, NOT_SAVED, OK
from bert.files import only_writer
from bert.help_parser import wrapped
from bert.jobs.record import JobRecord, command_began
from bert.launching.arguments import CommandLine
from bert.launching.ranks import Ranks
from bert.launching.settings import LaunchPlan
from bert.launching.start_training import KILLED, Runner, was_stopped

SECONDS_OF_DATA = 30.0  # the shards of the quickstart's phase 2 take about as long


class Step(ABC):
    """One step of a job. Subclasses are frozen dataclasses, whose fields describe the step completely."""

    takes_time: ClassVar[bool] = True  # whether it counts against --hours
    family: str = ""  # if one step of a family is refused, its later steps are skipped

    @property
    @abstractmethod
    def title(self) -> str:
        """Short description of the step, for the plan and the terminal."""

    @property
    def product(self) -> Path | None:
        """The file or folder that the step makes; None if it makes none."""
        return None

    def needs(self) -> Sequence["Step"]:
        """Steps to run first, unless this step is done already."""
        return ()

    def expected_seconds(self, execution: "Execution") -> float:
        """Seconds of --hours that the step is expected to take if it makes data for a training."""
        return SECONDS_OF_DATA

    def check(self, here: bool) -> None:  # noqa: B027 - most steps refuse nothing
        """Raise ValueError if the step would be refused, for wrong settings or another run in its folder.

        Nothing is written.

        Args:
            here: also for what this machine lacks (devices, packages, data), where the step is about to run.
        """

    def is_done(self, execution: "Execution") -> bool:
        """Whether the step's product exists and was made with the same settings."""
        return False

    @abstractmethod
    def run(self, execution: "Execution") -> int:
        """Run the step; returns an exit code. Raises ValueError or OSError for an error that the user can correct."""

    def left(self, execution: "Execution") -> str:
        """A message if the step ended without error but is unfinished, so that later steps must wait; otherwise ""."""
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
        """All steps, without groups and with the steps that they need, in the order of execution."""
        todo = list(self.steps)
        while todo:
            step = todo.pop(0)
            if isinstance(step, Group):
                todo[:0] = step.steps
            else:
                yield from step.needs()
                yield step

    def trainings_line(self, left: Sequence[Step]) -> str:
        """Progress of several trainings, given the steps that are left; "" for one training."""
        groups = [step for step in self.steps if isinstance(step, Group)]
        if not groups:
            return ""
        number = sum(step in left for step in groups)
        return f"{len(groups)} trainings in {self.output_dir}: {len(groups) - number} done, {number} left"

    def is_first_node(self) -> bool:
        return self.ranks.node_rank in (None, 0)

    def check(self, here: bool) -> None:
        """Raise ValueError with one line for each mistake of the steps. `here`: see `Step.check`."""
        check_all(partial(step.check, here) for step in self.all_steps())

    def lines(self) -> list[str]:
        """One line for each step with a product; a product that several steps need is named once."""
        steps = [f"{step.title}: {step.product}" for step in self.all_steps() if step.product is not None]
        return [f"{number}. {step}" for number, step in enumerate(dict.fromkeys(steps), 1)]


@dataclass(frozen=True)
class Group(Step):
    """Consecutive steps of one training among several, such as the training of one seed."""

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
    """One execution of a job, which its steps receive.

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
        """Runs the processes of the steps; it takes over this process's signals when it is created."""
        self._runner = self._runner or Runner()
        return self._runner

    def steps_left(self) -> list[Step]:
        """The unfinished steps of the job. This check reads whole checkpoints, so call it once."""
        return [step for step in self.job.steps if not step.is_done(self)]

    def seconds(self) -> float:
        """Seconds since this execution began."""
        return self.record.used_now() or time.monotonic() - self._begun

    def seconds_left(self) -> float | None:
        """Seconds left of --hours; None without --hours."""
        return None if self.job.hours is None else 3600 * self.job.hours - self.record.used()

    def run(self, step: Step) -> int:
        """Run a step after the steps it needs, unless it is done; returns the exit code, INTERRUPTED after a stop."""
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
        """Run a command, and report a failure that it has not reported itself; returns the exit code."""
        code = self.runner.run(words)
        if was_stopped(code, self.runner):
            print(f"interrupted ({self.runner.stopped_by}); the same command resumes", file=sys.stderr)
            return INTERRUPTED
        if code not in (OK, BAD_INPUT, NOT_SAVED):
            killed = ", killed, often because memory ran out" if code in KILLED else ""
            print(f"error: {' '.join(words[1:4])} ... ended with exit code {code}{killed}", file=sys.stderr)
        return code


def execute(job: Job, begun: float | None = None, record: JobRecord | None = None) -> int:
    """Run the unfinished steps of a job; returns the exit code of the first that failed, else 0.

    Args:
        begun: when its time began to count (time.monotonic); None: now.
        record: of the job, by a caller who holds the lock of its folder; None: the lock is taken and the record read.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(usage_errors())  # also of the record, which a full disk may refuse at the end
        if record is None and job.ranks.num_nodes == 1:  # nodes share the folder, and each of them executes the job
            stack.enter_context(only_writer(job.output_dir))
        record = record or JobRecord.of(job.output_dir)
        execution = Execution(job, record, Runner())
        todo = execution.steps_left()
        if line := job.trainings_line(todo):
            print(line, flush=True)
        code = OK
        is_new = not record.exists()
        stack.callback(lambda: record.remove_if_alone() if is_new and code == BAD_INPUT else None)
        if any(step.takes_time for step in todo):  # looking at results costs no hours
            begun = time.monotonic() if begun is None else begun
            stack.enter_context(record.clock(begun, is_kept=job.is_first_node()))
        code = _run_all(execution, todo)
        return code


def _run_all(execution: Execution, steps: Sequence[Step]) -> int:
    worst, failed, refused = OK, list[str](), set[str]()
    for step in steps:
        if step.family and step.family in refused:
            continue
        code = execution.run(step)
        if code == INTERRUPTED or (code and not execution.job.goes_on):
            return code
        if code:
            worst, failed = max(worst, code), [*failed, f"  {step.title}: exit code {code}"]
            refused |= {step.family} if code == BAD_INPUT else set()  # its others would be refused as well
        elif left := step.left(execution):
            print(left, flush=True)
            return OK
    if failed:
        print("\n".join(["failed (the same command tries them again):", *failed]), file=sys.stderr, flush=True)
    return worst


class Planned(NamedTuple):
    """A planned command line: its arguments, its plan and its job."""

    line: CommandLine
    plan: LaunchPlan
    job: Job

    def answers(self) -> bool:
        """Answer --dry-run, --show-config or --plan; returns whether the command line has one of them.

        A dry run also names the steps, refuses the mistakes that a start would refuse, and says what this machine
        lacks, which may not be the one where the job will run.
        """
        is_dry_run = "dry_run" in self.line.launch
        if is_dry_run:
            self.job.check(here=False)
        if not self.plan.answers():
            return False
        if is_dry_run:
            show_steps(self.job)
            self.plan.warn()
        return True


def start(plan: Callable[[Sequence[str]], Planned], words: Sequence[str]) -> int:
    """Plan a command line, then answer its question or execute its job; returns the exit code."""
    called = time.time()
    with usage_errors():
        planned = plan(words)
        if planned.answers():
            return OK
        planned.job.check(here=True)
        if planned.job.is_first_node():
            planned.plan.warn()
    return execute(planned.job, command_began(called))


def show_steps(job: Job) -> None:
    """Print the steps of a job, and what this machine lacks to run them."""
    time = "" if job.hours is None else f", {job.hours:g} hours in all"
    several = job.trainings_line(Execution(job, JobRecord.of(job.output_dir)).steps_left())
    lines = [*([several] if several else []), f"steps{time}:", *job.lines(), *_lacking(job)]
    print("\n" + "\n".join(wrapped(line, indent="  ") for line in lines))


def _lacking(job: Job) -> list[str]:
    try:
        job.check(here=True)
    except ValueError as error:
        return [f"not on this machine: {line}" for line in explain(error)]
    except OSError as error:
        return [f"not on this machine: {error}"]
    return []
