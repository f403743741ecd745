"""Ends a process when the one that started it ends, even by kill -9: the parent-death signal of Linux.

Linux sends it at the end of the thread that started the process; ours are started by threads that wait for them.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

# Looked up before a fork, after which nothing may be imported.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
LAUNCHER = "BERT_LAUNCHER"  # environment variable of ranks: the process that started Paddle's launcher
_OF_PADDLES_LAUNCHER = "PADDLE_BACKUP_ENV_PATH"  # environment variable of the ranks that it starts


def end_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Let this process get a signal when its parent ends; it ends at once if `parent` is not its parent any more."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:
            os._exit(128 + number)


def ending_with_us(number: int = signal.SIGKILL) -> Callable[[], None]:
    """What a child calls between fork and exec to end with this process."""
    parent = os.getpid()
    return lambda: end_with(parent, number)


def end_with_launcher() -> None:
    """Let a rank end with Paddle's launcher, and what the rank forks, such as Gloo's server, with the rank."""
    if _PRCTL is None or _OF_PADDLES_LAUNCHER not in os.environ:
        return
    parent = os.getppid()
    end_with(parent)
    launcher = os.environ.pop(LAUNCHER, None)
    if launcher is not None and _parent_of(parent) != int(launcher):  # they ended before this was called
        os._exit(128 + signal.SIGKILL)
    os.register_at_fork(after_in_child=lambda: end_with(os.getppid()))


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
