"""Stop requests by signal or file (all ranks save after the same update), and the watchdog for hanging ranks."""

import faulthandler
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, ClassVar

from bert.exit_codes import INTERRUPTED, STALLED

if TYPE_CHECKING:  # the launcher, which does not load Paddle, reads the names of this module
    from bert.runtime.distributed import Collective, Group

logger = logging.getLogger(__name__)
STOP_FILE = "STOP"  # in the output folder
FINISH_FILE = "FINISH"  # beside it
STOPPED_BY = "BERT_STOPPED_BY"  # environment variable: a file in which the launcher names what it was stopped by
COMMAND_STARTED = "BERT_COMMAND_STARTED"  # environment variable: when the launcher started, in seconds since 1970
SECONDS_BETWEEN_LOOKS = 1.0  # of ranks on GPUs
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # Slurm can send USR1 before a time limit


class StopRequest:
    """A flag set by a signal after `install`, or by a file after `watch`; further signals change nothing.

    The flag is read only between updates, so signals during a save cannot interrupt it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, age_seconds: float = 0.0) -> None:
        """`age_seconds`: time since the start of the process."""
        self.signal_name: str | None = None  # of the signal or the file
        self._file: Path | None = None
        self.clock, self._looked_at = clock, float("-inf")
        self.started = clock() - age_seconds
        self._created = min(time.time(), float(os.environ.get(COMMAND_STARTED, "inf")))

    def __bool__(self) -> bool:
        """Whether a stop was requested. Looks for the file at most once a second (slow on network file systems)."""
        if self._file is not None and self.signal_name is None and self.clock() - self._looked_at >= 1.0:
            self._looked_at = self.clock()
            if self._take(self._file):
                self.signal_name = str(self._file)
        return self.signal_name is not None

    def install(self) -> "StopRequest":
        for number in SIGNALS:
            signal.signal(number, self._set)
        return self

    def leave_at_once(self) -> None:
        """After everything is saved: let signals end the process at once, also a signal that came earlier.

        Raises:
            SystemExit: INTERRUPTED, from any code that runs when a signal arrives.
        """
        for number in SIGNALS:
            signal.signal(number, self._leave)
        if self.signal_name is not None:
            raise SystemExit(INTERRUPTED)

    def watch(self, folder: Path) -> None:
        """On one rank: stop when the file `folder`/STOP appears, and remove the file.

        A file older than this command was meant for an earlier run. It would stop every restart, so it is removed too.
        So is an old FINISH, which `take_finish` looks for.
        """
        self._file = folder / STOP_FILE
        for file in (self._file, folder / FINISH_FILE):
            with suppress(OSError):
                if file.stat().st_mtime < self._created and self._take(file):
                    logger.info(f"{file} was left from an earlier run; removed")

    def take_finish(self) -> str | None:
        """Remove the file FINISH and return its text; None if there is no file or this rank does not watch."""
        if self._file is None:
            return None
        file, text = self._file.with_name(FINISH_FILE), ""
        with suppress(OSError, ValueError):
            text = file.read_text().strip()
        return text if self._take(file) else None

    @staticmethod
    def _take(file: Path) -> bool:
        try:
            file.unlink()
        except FileNotFoundError:
            return False
        except OSError:  # a folder, or no permission to remove it: the request counts all the same
            return file.exists()
        return True

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self._set(number, frame)
        raise SystemExit(INTERRUPTED)

    def _set(self, number: int, frame: FrameType | None) -> None:
        """Record the signal, or the signal that the launcher received: it passes every signal on as SIGTERM."""
        name = ""
        with suppress(OSError):
            name = Path(os.environ.get(STOPPED_BY, "")).read_text(encoding="utf-8").strip()
        self.signal_name = name or signal.Signals(number).name


class StopOnAnyRank:
    """Combines the stop requests of all ranks, which learn of one after the same update.

    Ranks on GPUs look about once a second only: each look makes the host wait for the device, which then idles until it
    has new operators.
    """

    def __init__(self, stop: StopRequest, group: "Group", collective: "Collective") -> None:
        self._stop, self._group, self._collective = stop, group, collective
        self._updates_between_looks = 1

    def after(self, step: int, will_sync: bool) -> bool:
        """Whether a stop was requested, as far as is known after update `step`.

        Args:
            will_sync: this update synchronises with the device anyway, so that checking is free.
        """
        if step % self._updates_between_looks and not will_sync:
            return False
        return self._collective.any(bool(self._stop))

    def measured(self, seconds_per_update: float) -> None:
        """Set how often to check, by the time of an update; every rank calls it, rank 0's value counts."""
        if self._group.device == "cpu" or self._group.world_size == 1:  # the host waits for every update, or for none
            return
        updates = max(1, int(SECONDS_BETWEEN_LOOKS / max(seconds_per_update, 1e-6)))
        self._updates_between_looks = self._collective.from_main(updates)


def beat(what: str) -> None:
    """Record progress with the active watchdog, if there is one."""
    if Watchdog.active is not None:
        Watchdog.active.beat(what)


class Watchdog:
    """Ends the process with STALLED if `beat` is not called for `seconds` (0: never).

    A pause of the whole process does not count. Only one that is not of Ctrl-Z (SIGSTOP, docker pause) and lasts longer
    than `seconds` and twice `grace_seconds` together may end the process, by the guard against a stuck interpreter.

    Writes `folder`/stacks/rankN.txt (appended) and the same to standard error. Ranks that still run follow within
    `grace_seconds`, which is also how long the first one waits for them: they see the file `folder`/.stalled.
    """

    active: ClassVar["Watchdog | None"] = None  # the watchdog of this process

    def __init__(
        self,
        seconds: float,
        folder: Path,
        rank: int,
        grace_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._seconds, self._grace, self._rank, self._clock = seconds, grace_seconds, rank, clock
        self._request, self._file = folder / ".stalled", folder / "stacks" / f"rank{rank}.txt"
        self._what, self._beat = "starting", clock()
        self._old_request: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._stream: IO[str] | None = None

    def __enter__(self) -> "Watchdog":
        if self._seconds > 0:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._old_request = self._time_of_request()
            if self._rank == 0:
                self._request.unlink(missing_ok=True)  # of a run that was ended
            self._stream = open(self._file, "a")
            self.beat("starting")
            Watchdog.active = self
            self._signals, self._wake = os.pipe()
            os.set_blocking(self._wake, False)
            signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
            signal.signal(signal.SIGTSTP, lambda number, frame: None)  # `_wait` obeys it, whatever the main thread does
            self._arm(self._seconds + 2 * self._grace)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._stream is not None:
            Watchdog.active = None
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            os.close(self._wake)  # which ends a wait
            self._thread.join()
            os.close(self._signals)
            faulthandler.cancel_dump_traceback_later()
            self._stream.close()
            with suppress(OSError):
                if self._file.stat().st_size == 0:
                    self._file.unlink()
                    self._file.parent.rmdir()

    def beat(self, what: str) -> None:
        """Record progress: the previous work is finished and `what` begins."""
        self._what, self._beat = what, self._clock()

    def _watch(self) -> None:
        interval, where = min(1.0, self._seconds / 4), f"rank {self._rank}"
        before = self._clock()
        while not self._wait(interval):
            now = self._clock()
            stopped, before = now - before - interval, now
            if stopped > self._seconds / 4:  # the whole process was: Ctrl-Z, a container that was paused
                self._beat = min(now, self._beat + stopped)
            silent = now - self._beat
            if silent >= self._seconds:
                limit = f"(--watchdog-seconds={self._seconds:g})"
                self._give_up(f"{where}: nothing moved for {silent:.0f} s {limit} since {self._what!r} began", True)
            elif reason := self._reason_of_another_rank():
                self._give_up(f"{where}: {reason}; here {self._what!r} began {silent:.0f} s ago", False)
            # Renewed while this thread gets its turn. If it no longer does, the interpreter is stuck.
            self._arm(max(self._seconds - silent, 0.0) + 2 * self._grace + interval)

    def _wait(self, seconds: float) -> bool:
        """Wait so many seconds; whether the run is over. Ctrl-Z stops the process here, while the guard is off."""
        poll = select.poll()  # `select` refuses the numbers of files from 1024 on
        poll.register(self._signals, select.POLLIN)
        arrived = os.read(self._signals, 4096) if poll.poll(1000 * seconds) else b""
        has_shell = os.getpgrp() != os.getsid(0)  # another process could continue it
        if signal.SIGTSTP in arrived and has_shell:
            faulthandler.cancel_dump_traceback_later()  # its clock goes on
            os.kill(os.getpid(), signal.SIGSTOP)
        return self._over.is_set()

    def _arm(self, seconds: float) -> None:
        assert self._stream is not None
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stream)

    def _reason_of_another_rank(self) -> str:
        """The reason of another rank that stalled since this run began, otherwise empty."""
        if self._time_of_request() in (None, self._old_request):  # rank 0 may remove an old one after this check
            return ""
        try:
            return self._request.read_text().strip() or "another rank stalled"
        except OSError:
            return ""

    def _time_of_request(self) -> int | None:
        """Modification time (ns) of the stop request, by its writer's clock; None if there is none."""
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
            "the last checkpoint; if one really takes longer, raise --watchdog-seconds"
        )
        for stream, text in ((self._stream, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {reason}"), (sys.stderr, advice)):
            with suppress(OSError, ValueError, AttributeError):  # a full disk, a closed pipe: the exit matters more
                assert stream is not None
                print(text, file=stream, flush=True)
                faulthandler.dump_traceback(file=stream, all_threads=True)
        if is_first:
            time.sleep(self._grace)
        os._exit(STALLED)
