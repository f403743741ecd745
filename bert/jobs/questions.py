"""What a command answers instead of executing its job: --dry-run, --show-config, --plan."""

from bert.config.setting_errors import explain
from bert.help_parser import wrapped
from bert.jobs.job import Job
from bert.launching.settings import LaunchPlan


def answer(plan: LaunchPlan, job: Job, is_dry_run: bool) -> bool:
    """Answer the questions of a command line; whether there was one.

    A dry run also names the steps, refuses the mistakes that a start would refuse, and says what this machine lacks,
    which may not be the one where the job will run.
    """
    if not plan.questions:
        return False
    if is_dry_run:
        job.check()
    plan.answers()
    if is_dry_run:
        steps = ["steps", *job.lines()] + (["time", f"{job.hours:g} hours for all of them"] if job.hours else [])
        print()
        print(wrapped("\n".join(steps), indent="   "))
        for line in _lacking(job):
            print(wrapped(f"not on this machine: {line}", indent="   "))
    return True


def _lacking(job: Job) -> list[str]:
    try:
        job.check_here()
    except ValueError as error:
        return explain(error)
    except OSError as error:
        return [str(error)]
    return []
