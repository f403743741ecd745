"""A command line, planned: what it answers instead of running (--dry-run, --show-config, --plan), and how it starts."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bert.config.setting_errors import check_all, explain, usage_errors
from bert.exit_codes import OK
from bert.help_parser import wrapped
from bert.jobs.execution import execute
from bert.jobs.job import Execution, Job
from bert.jobs.record import JobRecord, command_began
from bert.launching.arguments import CommandLine
from bert.launching.settings import LaunchPlan


class Planned(NamedTuple):
    line: CommandLine
    plan: LaunchPlan
    job: Job

    def answers(self) -> bool:
        """Answer the questions of the command line; whether there was one.

        A dry run also names the steps, refuses the mistakes that a start would refuse, and says what this machine
        lacks, which may not be the one where the job will run.
        """
        is_dry_run = "dry_run" in self.line.launch
        if is_dry_run:
            self.job.check()
        if not self.plan.answers():
            return False
        if is_dry_run:
            show_steps(self.job)
            self.plan.warn()
        return True


def start(plan: Callable[[Sequence[str]], Planned], words: Sequence[str]) -> int:
    """Plan a command line, and execute its job unless it asks something; the exit code."""
    begun = command_began()
    with usage_errors():
        planned = plan(words)
        if planned.answers():
            return OK
        check_all([planned.job.check, planned.job.check_here])
        if planned.job.is_first_node():
            planned.plan.warn()
    return execute(planned.job, begun)


def show_steps(job: Job) -> None:
    """Print the steps of a job, and what this machine lacks for them."""
    time = "" if job.hours is None else f", {job.hours:g} hours in all"
    several = job.trainings_line(Execution(job, JobRecord.of(job.output_dir)).steps_left())
    lines = [*([several] if several else []), f"steps{time}:", *job.lines(), *_lacking(job)]
    print("\n" + "\n".join(wrapped(line, indent="  ") for line in lines))


def _lacking(job: Job) -> list[str]:
    try:
        job.check_here()
    except ValueError as error:
        return [f"not on this machine: {line}" for line in explain(error)]
    except OSError as error:
        return [f"not on this machine: {error}"]
    return []
