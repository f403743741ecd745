"""The record of a job, OUTPUT_DIR/job.json: the time used by all its starts, and facts that steps store in it.

What is done is not recorded here: a step looks at its product.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert.files import write_atomically
from bert.reporting.job_file import JOB_FILE, job_file, read_job

_TICK_SECONDS = 10.0  # a start that is killed loses so much of its count at most
_MOST_SECONDS_OF_A_SHELL = 30.0  # to find the interpreter and load this


def command_began(called: float) -> float:
    """Start time of the shell that became this process (time.monotonic), not counting an installation of packages.

    Args:
        called: when the command began to plan (time.time()).
    """
    import psutil  # not for --help

    started = max(psutil.Process().create_time(), called - _MOST_SECONDS_OF_A_SHELL)
    return time.monotonic() - max(0.0, time.time() - started)


class JobRecord:
    """The state that a job keeps between starts.

    Attributes:
        facts: of the steps, by names; values of JSON.
    """

    def __init__(self, output_dir: Path, seconds_used: float = 0.0, facts: dict[str, Any] | None = None) -> None:
        self._file = output_dir / JOB_FILE
        self._seconds_used, self.facts = seconds_used, facts or {}
        self._start: float | None = None  # of the start that is running, in seconds of a clock that never goes back
        self._writing = threading.Lock()

    @classmethod
    def of(cls, output_dir: Path) -> "JobRecord":
        """Read the record of the job in a folder; a new record if there is none."""
        file, content = job_file(output_dir), read_job(output_dir)
        seconds, facts = content.get("seconds_used", 0.0), content.get("facts", {})
        if (file.exists() and not content) or not isinstance(seconds, (int, float)) or not isinstance(facts, dict):
            raise ValueError(f"{file} is damaged; restore it, or pass another --output-dir")
        return cls(output_dir, float(seconds), facts)

    def used(self) -> float:
        """Seconds used by all starts until now."""
        return self._seconds_used + self.used_now()

    def used_now(self) -> float:
        """Seconds used by this start."""
        return 0.0 if self._start is None else time.monotonic() - self._start

    def save(self) -> None:
        with self._writing:
            content = json.dumps({"seconds_used": round(self.used(), 3), "facts": self.facts}, indent=1, default=str)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, (content + "\n").encode())

    def exists(self) -> bool:
        """Whether the record was saved."""
        return self._file.exists()

    def remove_if_alone(self) -> None:
        """Remove the record if it is the only file in the output folder, because the start was refused."""
        with contextlib.suppress(OSError):
            if [path.name for path in self._file.parent.iterdir()] == [self._file.name]:
                self._file.unlink()

    @contextlib.contextmanager
    def clock(self, begun: float, is_kept: bool = True) -> Iterator[None]:
        """Context manager that counts the seconds of a start since `begun` (time.monotonic).

        Args:
            is_kept: keep the count in the file too; of several nodes one does.
        """
        self._start = begun
        try:
            with self._kept_in_file() if is_kept else contextlib.nullcontext():
                yield
        finally:
            self._seconds_used, self._start = self.used(), None
            if is_kept:
                self.save()

    @contextlib.contextmanager
    def _kept_in_file(self) -> Iterator[None]:
        """Context manager that writes the used time at once, and repeatedly while the block runs."""
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(_TICK_SECONDS):
                with contextlib.suppress(OSError):  # a full disk is reported by what needs it
                    self.save()

        self.save()
        ticking = threading.Thread(target=tick, daemon=True)
        ticking.start()
        try:
            yield
        finally:
            ended.set()
            ticking.join()
