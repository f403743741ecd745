"""The watchdog: ends a run that makes no progress, after it has written the stacks of all threads of all ranks.

A thread watches each rank: Paddle's executor releases the interpreter lock while it computes, so the
stacks of a rank that waits for another can be written. The first rank that stalls leaves a file in the folder that all
ranks share; the others see it and write their stacks too, before the launcher ends them. If native code holds the
interpreter lock, no Python thread runs: faulthandler, which needs no lock, writes the stacks and exits with code 1.
"""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bert.exit_codes import STALLED

_REQUEST = ".stalled"  # in the shared folder, while a stalled run is being ended


class Watchdog:
    """Ends the process with STALLED when `beat` was not called for `seconds`.

    Writes `folder`/stacks/rankN.txt (appended) and the same to standard error. Ranks that still run follow within
    `grace_seconds`, which is also how long the first one waits for them.
    """

    def __init__(self, seconds: float, folder: Path, rank: int, grace_seconds: float = 5.0):
        self._seconds, self._grace, self._rank = seconds, grace_seconds, rank
        self._request = folder / _REQUEST
        self._file = folder / "stacks" / f"rank{rank}.txt"
        self._what, self._beat = "starting", time.monotonic()
        self._pauses = 0
        self._left_behind: int | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._stream: IO[str] | None = None

    def __enter__(self) -> "Watchdog":
        if self._seconds > 0:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._left_behind = self._request_written()
            if self._rank == 0:
                self._request.unlink(missing_ok=True)  # of a run that was ended
            self._stream = open(self._file, "a")
            self.beat("starting")
            self._arm(self._seconds + 2 * self._grace)
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            faulthandler.cancel_dump_traceback_later()
            assert self._stream is not None
            self._stream.close()
            with suppress(OSError):
                if self._file.stat().st_size == 0:
                    self._file.unlink()
                    self._file.parent.rmdir()

    def beat(self, what: str) -> None:
        """Record progress: the previous work is finished and `what` begins."""
        self._what, self._beat = what, time.monotonic()

    @contextmanager
    def paused(self, what: str) -> Iterator[None]:
        """Suspend the time limit during `what`, such as reading a large checkpoint or evaluating a whole set."""
        self.beat(what)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            self.beat("continuing after " + what)

    def _watch(self) -> None:
        interval = min(1.0, self._seconds / 4)
        while not self._over.wait(interval):
            if self._pauses:
                self._arm(self._seconds + 2 * self._grace + interval)
                continue
            silent = time.monotonic() - self._beat
            if silent >= self._seconds:
                self._give_up(
                    f"rank {self._rank}: nothing moved for {silent:.0f} s (--watchdog-seconds="
                    f"{self._seconds:g}) since {self._what!r} began",
                    is_first=True,
                )
            elif asked := self._asked():
                self._give_up(
                    f"rank {self._rank}: {asked}; here {self._what!r} began {silent:.0f} s ago", is_first=False
                )
            # Renewed while this thread gets its turn. If it no longer does, the interpreter is stuck.
            self._arm(max(self._seconds - silent, 0.0) + 2 * self._grace + interval)

    def _arm(self, seconds: float) -> None:
        assert self._stream is not None
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stream)

    def _asked(self) -> str:
        """The reason another rank gave if it has stalled since this run began, otherwise empty."""
        written = self._request_written()
        if written in (None, self._left_behind):  # rank 0 removes an old request, perhaps after this check
            return ""
        try:
            return self._request.read_text().strip() or "another rank stalled"
        except OSError:
            return ""

    def _request_written(self) -> int | None:
        """Modification time (ns) of the request, by the clock of its writer; None if there is none."""
        try:
            return self._request.stat().st_mtime_ns
        except OSError:
            return None

    def _give_up(self, reason: str, is_first: bool) -> None:
        self._arm(2 * self._grace + 1.0)  # in case the writing hangs
        if is_first:
            with suppress(OSError):
                self._request.write_text(reason + "\n")
        advice = (
            f"error: {reason}; stacks of all threads are in {self._file.parent}. Start again to continue from "
            "the last checkpoint; if updates really take longer, raise --watchdog-seconds"
        )
        for stream in (self._stream, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # a full disk, a closed pipe: the exit matters more
                assert stream is not None
                print(advice if stream is sys.stderr else f"{_now()} {reason}", file=stream, flush=True)
                faulthandler.dump_traceback(file=stream, all_threads=True)
        if is_first:
            time.sleep(self._grace)
        os._exit(STALLED)


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
