"""Asking a run to stop: a signal sets a flag, the loop saves at the end of the update. No Paddle inside."""

import signal
from types import FrameType

EXIT_INTERRUPTED = 75  # EX_TEMPFAIL of sysexits.h: saved, start again to continue


class StopRequest:
    """Set by SIGTERM or SIGINT once `install` was called; further signals change nothing, so no save is torn."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def __bool__(self) -> bool:
        return self.signal_name is not None

    def install(self) -> "StopRequest":
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)
        return self

    def _set(self, number: int, frame: FrameType | None) -> None:
        self.signal_name = signal.Signals(number).name
