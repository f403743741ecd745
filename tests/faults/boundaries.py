"""Injects faults before and after the n-th system call of a save."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

SYSTEM_CALLS = {
    *("open", "fsync", "rename", "mkdir", "rmdir", "unlink", "write", "close", "scandir", "copyfile", "sendfile"),
    *("serialize_file", "chmod", "replace", "flock"),
}


class Boundaries:
    """Counts boundaries in the functions it wraps, whichever thread calls them, and acts at some of them."""

    def __init__(self, act: Callable[[int], None]):
        self.seen = 0
        self._act = act

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args, **kwargs):
            before = sys.getprofile()
            sys.setprofile(self._hook)
            try:
                return function(*args, **kwargs)
            finally:
                sys.setprofile(before)

        return wrapped

    def _hook(self, frame, event, argument) -> None:
        if event in ("c_call", "c_return") and getattr(argument, "__name__", "") in SYSTEM_CALLS:
            self.reach()

    def reach(self) -> None:
        number, self.seen = self.seen, self.seen + 1
        self._act(number)


def signals_at(boundaries: dict[int, Sequence[int]]) -> Callable[[int], None]:
    """Return a function that sends this process the signals of a boundary when it is reached."""

    def act(number: int) -> None:
        for one in boundaries.get(number, ()):
            os.kill(os.getpid(), one)

    return act


def count_boundaries(function: Callable[[], None]) -> int:
    counter = Boundaries(lambda number: None)
    counter.wrap(function)()
    return counter.seen


def kill_at(boundary: int, function: Callable[[], None]) -> None:
    """Run `function` in a forked process that is killed at that boundary."""
    pid = os.fork()
    if pid == 0:
        try:
            Boundaries(signals_at({boundary: [signal.SIGKILL]})).wrap(function)()
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"boundary {boundary} was not reached"
