"""Stand-ins for jobs: an execution whose commands are a function of the test."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bert.jobs.job import Execution, Job, Step
from bert.jobs.record import JobRecord


class StandInRunner:
    """Takes the place of a job's runner: `run` answers each command with an exit code.

    Attributes:
        ran: the commands, in order.
        stopped_by: a request to stop, as a signal would set it.
    """

    def __init__(self, run: Callable[[Sequence[str]], int] = lambda words: 0) -> None:
        self._run, self.ran = run, list[list[str]]()
        self.stopped_by: str | None = None

    @property
    def stop_requested(self) -> bool:
        return self.stopped_by is not None

    def run(self, words: Sequence[str]) -> int:
        self.ran.append(list(words))
        return self._run(words)


def execution_of(
    folder: Path, run: Callable[[Sequence[str]], int] = lambda words: 0, steps: Sequence[Step] = ()
) -> Execution:
    """An execution of a job in a folder, whose record is empty."""
    return Execution(Job("test", folder, tuple(steps)), JobRecord(folder), StandInRunner(run))
