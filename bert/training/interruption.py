"""Stop requests: a signal or a file sets a flag, and the training loop saves at the end of the update."""

import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from bert.exit_codes import INTERRUPTED

logger = logging.getLogger(__name__)
STOP_FILE = "STOP"  # in the output folder
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # Slurm sends USR1 ahead of a limit, if asked to


class StopRequest:
    """Set by a signal once `install` was called, or by a file once `watch` was; more of them change nothing.

    The flag is only read between updates, so no save is torn, however many signals arrive during one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.signal_name: str | None = None  # or what else asked
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
        """All that is to be saved is saved: from now on a signal, also one that came before, ends the process.

        Raises:
            SystemExit: INTERRUPTED; from within whatever runs when a signal comes.
        """
        for number in SIGNALS:
            signal.signal(number, self._leave)
        if self.signal_name is not None:
            raise SystemExit(INTERRUPTED)

    def watch(self, folder: Path) -> None:
        """Stop when `folder`/STOP appears, which is removed then; one rank watches.

        A file that is older than this process was meant for a run that has ended. It would stop every restart, so it
        is removed too.
        """
        self._file = folder / STOP_FILE
        if self._is_old() and self._take():
            logger.info(f"{self._file} was left from an earlier run; removed")

    def _look(self) -> None:
        """At most once a second: on a network file system a look costs a round trip."""
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
        except OSError:  # a folder of that name, or not ours to remove: it asks all the same
            return self._file.exists()
        return True

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self._set(number, frame)
        raise SystemExit(INTERRUPTED)

    def _set(self, number: int, frame: FrameType | None) -> None:
        self.signal_name = signal.Signals(number).name
