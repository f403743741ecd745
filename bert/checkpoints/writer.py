"""Writes checkpoints in the background: training waits only while the state is copied, a thread writes the copy to
disk.

At most one save is in flight and the next one waits for it, so memory and disk stay bounded. An error in the thread is
raised in the training thread at its next `check`, `save` or `finish`: no save fails silently. The thread ends before
the process does, so the checkpoint of an interruption or of the last step is complete.
"""

import math
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bert.exit_codes import NOT_SAVED, Failure

_FEW_CHECKPOINTS = 4


class SaveFailed(Failure):
    """A checkpoint could not be written; earlier checkpoints are untouched."""

    exit_code = NOT_SAVED


@dataclass(frozen=True)
class SaveTimes:
    step: int
    wait_seconds: float  # time that training waited for the previous save
    copy_seconds: float  # time that training waited for the copy of its variables
    write_seconds: float  # writing, flushing and pruning, in the thread (without a thread training waits)


class CheckpointWriter:
    """Calls `capture()` at once, and the write function that it returns in a thread (or at once)."""

    def __init__(self, asynchronous: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._asynchronous, self._clock = asynchronous, clock
        self._saving: tuple[int, Future[SaveTimes]] | None = None
        self._times: list[SaveTimes] = []

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the save in flight. Its error does not replace an error raised in the block."""
        try:
            self.finish()
        except SaveFailed as error:
            if kind is None:
                raise
            print(f"error: {error}", file=sys.stderr)

    def save(self, step: int, capture: Callable[[], Callable[[], None]]) -> None:
        """Copy the state now and write it in the thread. Raises SaveFailed for this save or the previous one."""
        begin = self._clock()
        self.finish()
        waited = self._clock() - begin
        write = capture()
        copied = self._clock() - begin - waited
        future: Future[SaveTimes] = Future()

        def run() -> None:
            begin = self._clock()
            try:
                write()
            except BaseException as error:  # raised again in the training thread
                future.set_exception(error)
            else:
                future.set_result(SaveTimes(step, waited, copied, self._clock() - begin))

        self._saving = (step, future)
        if self._asynchronous:
            threading.Thread(target=run, name="checkpoint").start()
        else:
            run()
            self.finish()

    def amend(self, step: int, write: Callable[[], None]) -> None:
        """Write a small addition to the previous save, after that save and in the same thread."""
        self.finish()
        try:
            write()
        except Exception as error:
            raise _save_error(step, error) from error

    def check(self) -> list[SaveTimes]:
        """Times of the saves that finished since the last call. Raises SaveFailed if one could not be written."""
        if self._saving is not None and self._saving[1].done():
            self.finish()
        times, self._times = self._times, []
        return times

    def finish(self) -> None:
        """Wait for the save in flight, if there is one."""
        if self._saving is not None:
            (step, future), self._saving = self._saving, None
            try:
                self._times.append(future.result())
            except Exception as error:
                raise _save_error(step, error) from error


class DiskWatch:
    """Warns that a disk has room for few further checkpoints, and again when half of that room is gone."""

    def __init__(self) -> None:
        self._announced = math.inf

    def after_save(self, directory: Path) -> str | None:
        """Return a warning if the disk is nearly full. `directory` is the checkpoint."""
        with suppress(OSError):  # which fails no save
            size, free = sum(path.stat().st_size for path in directory.iterdir()), shutil.disk_usage(directory).free
            if free < min(_FEW_CHECKPOINTS * size, self._announced / 2):
                self._announced = free
                return (
                    f"the disk of {directory.parent} has room for {free / size:.1f} checkpoints: free space there, or "
                    "stop what writes to it"
                )
        return None


def _save_error(step: int, error: Exception) -> SaveFailed:
    return SaveFailed(
        f"the checkpoint of step {step} could not be written ({error}); earlier checkpoints are "
        "complete: free space or repair the disk, then start again to resume"
    )
