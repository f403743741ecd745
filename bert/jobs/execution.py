"""Executes a job: one lock, one clock, one rule of what is done. The same command continues where it stopped."""

import contextlib
import sys
import time
from collections.abc import Sequence

from bert.config.setting_errors import usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK
from bert.files import only_writer
from bert.jobs.job import Job, Step
from bert.jobs.record import JobRecord
from bert.launching.process_runner import Runner
from bert.launching.start_training import ENDED_BY_SIGNAL, KILLED


class Execution:
    """One start of a job, as its steps see it.

    Attributes:
        record: of the job.
        runner: runs one process at a time, and passes signals on to it.
        has_worked: whether a step of this start did more than showing what is there.
    """

    def __init__(self, job: Job, record: JobRecord, runner: Runner) -> None:
        self.job, self.record, self.runner = job, record, runner
        self.has_worked, self._begun = False, time.monotonic()

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
        code, runner = self.runner.run(words), self.runner
        if code == INTERRUPTED or (runner.stop_requested and code in (*ENDED_BY_SIGNAL, *KILLED)):
            print(f"interrupted ({runner.stopped_by}); the same command resumes", file=sys.stderr)
            return INTERRUPTED
        if code not in (OK, BAD_INPUT):
            killed = ", killed, often because memory ran out" if code in KILLED else ""
            print(f"error: {' '.join(words[1:4])} ... ended with exit code {code}{killed}", file=sys.stderr)
        return code


def execute(job: Job, begun: float | None = None, record: JobRecord | None = None) -> int:
    """Run the steps of a job that are not done; returns the exit code of the first that failed, else 0.

    Args:
        begun: when its time began to count (time.monotonic); None: now.
        record: of the job; None: that in its folder.
    """
    with contextlib.ExitStack() as stack:
        with usage_errors():
            if job.ranks.num_nodes == 1:  # nodes share the folder, and each of them executes the job
                stack.enter_context(only_writer(job.output_dir))
            record = record or JobRecord.of(job.output_dir)
        execution = Execution(job, record, Runner())
        todo = [step for step in job.steps if not step.is_done(execution)]
        is_counted = job.is_first_node() and any(step.takes_time for step in todo)
        if is_counted:  # looking at results costs no hours
            stack.enter_context(record.clock(time.monotonic() if begun is None else begun))
        return _run_all(execution, todo)


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
