"""Executes a job: one lock, one clock, one rule of what is done. The same command continues where it stopped."""

import contextlib
import sys
import time
from collections.abc import Sequence

from bert.config.setting_errors import usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK
from bert.files import only_writer
from bert.jobs.job import Execution, Job, Step
from bert.jobs.record import JobRecord
from bert.launching.process_runner import Runner


def execute(job: Job, begun: float | None = None, record: JobRecord | None = None) -> int:
    """Run the steps of a job that are not done; returns the exit code of the first that failed, else 0.

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
