"""Stand-ins for jobs: an execution whose commands are a function of the test."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert.jobs.job import Execution, Job, Step
from bert.jobs.record import JobRecord


class StandInRunner:
    """Takes the place of a job's runner: `run` answers each command with an exit code.

    Attributes:
        ran: the commands, in order.
        stopped_by: a request to stop, as a signal would set it.
    """

    def __init__(self, run: Callable[[Sequence[str]], int] = lambda words: 0) -> None:
        self.answer, self.ran = run, list[list[str]]()
        self.stopped_by: str | None = None

    @property
    def stop_requested(self) -> bool:
        return self.stopped_by is not None

    def run(self, words: Sequence[str]) -> int:
        self.ran.append(list(words))
        return self.answer(words)


def execution_of(
    folder: Path, run: Callable[[Sequence[str]], int] = lambda words: 0, steps: Sequence[Step] = ()
) -> Execution:
    """Return an execution of a job in a folder, whose record is empty."""
    runner: Any = StandInRunner(run)
    return Execution(Job("test", folder, tuple(steps)), JobRecord(folder), runner)


@dataclass(frozen=True)
class StandInStep(Step):
    """A step that notes its name in `ran`, and leaves a file of its name once its code is 0.

    Attributes:
        codes: exit codes of its runs, one after the other; then 0. An exception is raised.
        first: steps that it needs.
        leaves: what `left` answers.
    """

    name: str
    folder: Path
    ran: list[str]
    codes: list[int | Exception] = field(default_factory=list)
    first: tuple[Step, ...] = ()
    leaves: str = ""
    family: str = ""

    @property
    def title(self) -> str:
        return f"doing {self.name}"

    @property
    def product(self) -> Path:
        return self.folder / self.name

    def needs(self) -> Sequence[Step]:
        return self.first

    def is_done(self, execution: Execution) -> bool:
        return self.product.exists()

    def run(self, execution: Execution) -> int:
        self.ran.append(self.name)
        code = self.codes.pop(0) if self.codes else 0
        if isinstance(code, Exception):
            raise code
        if code == 0:
            self.product.write_text("")
        return code

    def left(self, execution: Execution) -> str:
        return self.leaves
