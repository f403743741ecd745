"""Writes checkpoints in the background: training waits while the state is copied, a thread writes the copy to disk.

At most one save is in flight and the next one waits for it, so memory and disk stay bounded. An error in the thread is
raised in the training thread at its next `check`, `save` or `finish`: no save fails silently. The thread ends before
the process does, so the checkpoint of an interruption or of the last step is complete.
"""

import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bert.exit_codes import NOT_SAVED, Failure


class SaveFailed(Failure):
    """A checkpoint could not be written; those before it are untouched."""

    exit_code = NOT_SAVED


@dataclass(frozen=True)
class SaveTimes:
    """Times of one save."""

    step: int
    wait_seconds: float  # training waited for the previous save
    copy_seconds: float  # training waited for the copy of its variables
    write_seconds: float  # writing, flushing and pruning in the thread; without a thread, training waited


class CheckpointWriter:
    """Runs `capture()` at once and the write that it returns in a thread, or at once if not `asynchronous`."""

    def __init__(self, asynchronous: bool) -> None:
        self._asynchronous = asynchronous
        self._thread: threading.Thread | None = None
        self._error: tuple[int, Exception] | None = None
        self._finished: queue.SimpleQueue[SaveTimes] = queue.SimpleQueue()

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the save in flight; its error does not replace the one that ended the block."""
        if kind is None:
            self.finish()
            return
        try:
            self.finish()
        except SaveFailed as error:
            print(f"error: {error}", file=sys.stderr)

    def save(self, step: int, capture: Callable[[], Callable[[], None]]) -> None:
        """Copy the state now; write it in the thread.

        Raises:
            SaveFailed: this save, or the one before.
        """
        begin = time.monotonic()
        self.finish()
        waited = time.monotonic() - begin
        write = capture()
        copied = time.monotonic() - begin - waited
        if not self._asynchronous:
            self._write(step, waited, copied, write)
            self.finish()  # raises if it failed; `check` returns its times
            return
        self._thread = threading.Thread(target=self._write, args=(step, waited, copied, write), name="checkpoint")
        self._thread.start()

    def amend(self, step: int, write: Callable[[], None]) -> None:
        """Write something small that belongs to the save before, after it and in this thread."""
        self.finish()
        try:
            write()
        except Exception as error:
            self._error = (step, error)
            self.check()  # raises

    def check(self) -> list[SaveTimes]:
        """The times of the saves that finished since the last call.

        Raises:
            SaveFailed: one could not be written.
        """
        if self._error is not None:
            (step, error), self._error = self._error, None
            raise SaveFailed(
                f"the checkpoint of step {step} could not be written ({error}); earlier checkpoints are "
                "complete: free space or repair the disk, then start again to resume"
            ) from error
        return [self._finished.get() for _ in range(self._finished.qsize())]

    def finish(self) -> None:
        """Wait for the save in flight, if there is one."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            self.check()  # raises

    def _write(self, step: int, waited: float, copied: float, write: Callable[[], None]) -> None:
        begin = time.monotonic()
        try:
            write()
        except Exception as error:  # raised again in the training thread
            self._error = (step, error)
        else:
            self._finished.put(SaveTimes(step, waited, copied, time.monotonic() - begin))
