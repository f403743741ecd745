"""Ends a process when its parent ends, even by kill -9, with Linux's parent-death signal.

Linux sends it at the end of the thread that started the process; ours are started by threads that wait for them.
"""

import ctypes
import os
import re
import select
import signal
import sys
import threading
from pathlib import Path

# Looked up before a fork, after which nothing may be imported.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
_PADDLES = re.compile(rb"paddle|fleetrun")  # in the words of a launcher
CALLER_VARIABLE = "BERT_CALLER"  # environment variable of a command: the process of the Python function that started it
# Environment variable of ranks: the process that started Paddle's launcher, or the only rank.
LAUNCHER_VARIABLE = "BERT_LAUNCHER"
_BACKUP = "PADDLE_BACKUP_ENV_PATH"  # environment variable of the ranks that Paddle's launcher starts


def end_with(parent: int) -> None:
    """Kill this process when its parent ends, or at once if `parent` is no longer its parent."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)


def end_with_caller() -> None:
    """Stop this command as by SIGTERM when the process of the Python function that started it has ended.

    The thread that called the function may end before.
    """
    caller = os.environ.pop(CALLER_VARIABLE, None)
    if caller is None or _PRCTL is None:
        return
    try:
        process = os.pidfd_open(int(caller))
    except ProcessLookupError:
        os._exit(128 + signal.SIGTERM)
    except OSError:  # a kernel or a container without it
        return
    threading.Thread(target=_stop_after, args=(process,), daemon=True).start()


def _stop_after(process: int) -> None:
    select.select([process], [], [])
    os.kill(os.getpid(), signal.SIGTERM)


def end_with_launcher() -> None:
    """End this rank when Paddle's launcher ends, and with it the processes it forks (Gloo's server).

    What the launcher wrote of its environment is deleted; of a start that was typed by hand, that is all of it.
    The only rank of a start of ours has our process in place of the launcher, which has called `end_with` for it.
    """
    if _PRCTL is None:
        return
    if _BACKUP not in os.environ:
        if os.environ.pop(LAUNCHER_VARIABLE, None) == str(os.getppid()):
            os.register_at_fork(after_in_child=lambda: end_with(os.getppid()))
        return
    backup, parent = Path(os.environ.pop(_BACKUP)), os.getppid()  # LOG_DIR/backup_env.RANK.json
    end_with(parent)
    logs = backup.parent.glob(f"*.{os.environ.get('POD_NAME')}.log")
    for path in (backup, backup.with_name(f"envlog.{backup.stem.rpartition('.')[2]}"), *logs):
        path.unlink(missing_ok=True)
    launcher = os.environ.pop(LAUNCHER_VARIABLE, None)
    if launcher is None:
        has_ended = parent == 1 and not _PADDLES.search(Path("/proc/1/cmdline").read_bytes())  # 1 in a container
    else:
        has_ended = Path(f"/proc/{parent}/stat").read_text().rpartition(") ")[2].split()[1] != launcher
    if has_ended:  # before this was called
        os._exit(128 + signal.SIGKILL)
    os.register_at_fork(after_in_child=lambda: end_with(os.getppid()))
