"""Stop requests: a signal or a file sets a flag, and all ranks save after the same update."""

import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from bert.exit_codes import INTERRUPTED

if TYPE_CHECKING:  # the launcher, which does not load Paddle, reads the names of this module
    from bert.runtime.distributed import Collective, Group

logger = logging.getLogger(__name__)
STOP_FILE = "STOP"  # in the output folder
STOPPED_BY = "BERT_STOPPED_BY"  # environment variable: a file in which the launcher names what it was stopped by
SECONDS_BETWEEN_LOOKS = 1.0  # of ranks on GPUs
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # Slurm can send USR1 before a time limit


class StopRequest:
    """A flag set by a signal after `install`, or by a file after `watch`; further signals change nothing.

    The flag is read only between updates, so signals during a save cannot interrupt it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.signal_name: str | None = None  # the signal or the file that asked
        self._file: Path | None = None
        self._clock, self._looked_at = clock, float("-inf")
        self._made = time.time()

    def __bool__(self) -> bool:
        self._look()
        return self.signal_name is not None

    def install(self) -> "StopRequest":
        for number in SIGNALS:
            signal.signal(number, self._set)
        return self

    def leave_at_once(self) -> None:
        """Let signals end the process from now on, as everything is saved; an earlier signal ends it at once.

        Raises:
            SystemExit: INTERRUPTED, from any code that runs when a signal arrives.
        """
        for number in SIGNALS:
            signal.signal(number, self._leave)
        if self.signal_name is not None:
            raise SystemExit(INTERRUPTED)

    def watch(self, folder: Path) -> None:
        """Stop when the file `folder`/STOP appears, and remove it; one rank watches.

        A file older than this process was meant for an earlier run. It would stop every restart, so it is removed too.
        """
        self._file = folder / STOP_FILE
        if self._is_old() and self._take():
            logger.info(f"{self._file} was left from an earlier run; removed")

    def _look(self) -> None:
        """Look for the file, at most once a second: on a network file system this costs a round trip."""
        if self._file is None or self.signal_name is not None or self._clock() - self._looked_at < 1.0:
            return
        self._looked_at = self._clock()
        if self._take():
            self.signal_name = str(self._file)

    def _is_old(self) -> bool:
        assert self._file is not None
        try:
            return self._file.stat().st_mtime < self._made
        except OSError:
            return False

    def _take(self) -> bool:
        assert self._file is not None
        try:
            self._file.unlink()
        except FileNotFoundError:
            return False
        except OSError:  # a folder, or no permission to remove it: the request counts all the same
            return self._file.exists()
        return True

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self._set(number, frame)
        raise SystemExit(INTERRUPTED)

    def _set(self, number: int, frame: FrameType | None) -> None:
        self.signal_name = _name_by_launcher() or signal.Signals(number).name


class StopOnAnyRank:
    """A stop request to any rank, which all ranks learn of after the same update.

    Ranks on GPUs look about once a second only: each look makes the host wait for the device, which then idles until it
    has new operators.
    """

    def __init__(self, stop: StopRequest, group: "Group", collective: "Collective") -> None:
        self._stop, self._group, self._collective = stop, group, collective
        self._updates_between_looks = 1

    def after(self, step: int, waits: bool) -> bool:
        """Whether a stop was asked for, as far as is known after update `step`.

        Args:
            waits: whether the host waits for the device at this update in any case, so that a look costs nothing.
        """
        if step % self._updates_between_looks and not waits:
            return False
        return self._collective.any(bool(self._stop))

    def measured(self, seconds_per_update: float) -> None:
        """Look as often as these updates need. Every rank must call it; that of rank 0 counts."""
        if self._group.device == "cpu" or self._group.world_size == 1:  # the host waits for every update, or for none
            return
        updates = max(1, int(SECONDS_BETWEEN_LOOKS / max(seconds_per_update, 1e-6)))
        self._updates_between_looks = self._collective.from_main(updates)


def _name_by_launcher() -> str | None:
    """What the launcher of this rank was stopped by; it passes every signal on as SIGTERM."""
    try:
        return Path(os.environ.get(STOPPED_BY, "")).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
