"""A limit of CPU time for parsers whose time a malformed file can make quadratic."""

import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
_END = object()
_AGAIN_SECONDS = 0.5  # after which the signal is repeated, if a destructor swallowed its exception


class _OutOfTime(BaseException):
    """Not an Exception, which parsers catch."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise _OutOfTime


def limited(items: Iterator[T], seconds: float) -> Iterator[T]:
    """The items; TimeoutError when making them has taken that much CPU time of this process.

    What the caller does with an item is not counted. There is no limit outside of the main thread, which alone receives
    signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield from items
        return
    left = seconds
    while True:
        before = signal.signal(signal.SIGPROF, _stop)
        try:
            signal.setitimer(signal.ITIMER_PROF, left, _AGAIN_SECONDS)
            item = next(items, _END)
        except _OutOfTime:
            raise TimeoutError(f"took more than {seconds:.0f} seconds of CPU time") from None
        finally:
            left = max(signal.setitimer(signal.ITIMER_PROF, 0)[0], 1e-3)
            signal.signal(signal.SIGPROF, before)
        if item is _END:
            return
        yield item  # type: ignore[misc]
