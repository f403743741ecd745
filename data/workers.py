"""Tasks on several processes of this machine, their results in order.

The standard library's pool shares one pipe, and locks on it, among its processes: a process that is ended may leave a
lock taken or half a result in the pipe, and the pool then waits for ever. Here every process has its own pipe, so one
that ends is seen as the end of its pipe, whatever it was doing.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

_PR_SET_PDEATHSIG = 1  # of Linux


def run_ordered(function: Callable[..., Any], tasks: list, num_workers: int) -> Iterator:
    """function(*task) for every task, in order, in `num_workers` processes (in this one if 1), which end with it.

    The first task that fails ends the others where they are: what they write must get its name when it is whole.

    Raises:
        ChildProcessError: a process was ended by the system, or crashed.
        Exception: what the function raised, with the traceback of its process as a note.
    """
    if num_workers <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield function(*task)
        return
    workers: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(min(num_workers, len(tasks))):
            _start(workers, function, tasks)
        idle, results = list(workers), {}
        begun = 0
        for index in range(len(tasks)):
            while index not in results:
                while idle and begun < len(tasks):
                    _send(workers, idle.pop(), begun)
                    begun += 1
                for connection in wait(list(workers)):
                    number, result, error = _receive(workers, connection)  # type: ignore[arg-type]
                    if error is not None:
                        raise error
                    results[number] = result
                    idle.append(connection)  # type: ignore[arg-type]
            yield results.pop(index)
    finally:
        for process in workers.values():
            process.kill()  # no handler that the caller has set may keep them
        for connection, process in workers.items():
            process.join()
            connection.close()


def _start(workers: dict[Connection, BaseProcess], function: Callable[..., Any], tasks: list) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(function, tasks, theirs, [*workers, ours], os.getpid()), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    workers[ours] = process


def _send(workers: dict[Connection, BaseProcess], connection: Connection, index: int) -> None:
    try:
        connection.send(index)
    except OSError:
        raise _lost(workers[connection]) from None


def _receive(workers: dict[Connection, BaseProcess], connection: Connection) -> tuple[int, Any, Exception | None]:
    try:
        return connection.recv()
    except (EOFError, OSError):  # nothing more, or half a result
        raise _lost(workers[connection]) from None


def _lost(process: BaseProcess) -> ChildProcessError:
    process.join()
    code = process.exitcode or 0
    cause = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with status {code}"
    remedy = "as the system does when memory runs out: use fewer workers, " if code == -signal.SIGKILL else ""
    return ChildProcessError(f"a worker process ended {cause}, {remedy}and start again: what is finished is kept")


def _work(function: Callable[..., Any], tasks: list, connection: Connection, others: list[Connection],
          parent: int) -> None:  # fmt: skip
    """A Ctrl-C is for the parent, which ends its workers; when it is killed, the system or the end of the pipe does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
    for other in others:
        other.close()
    while True:
        try:
            index = connection.recv()
        except (EOFError, OSError):
            return
        result, failure = None, None
        try:
            result = function(*tasks[index])
        except Exception as error:  # whatever it is, it is the caller's
            failure = _portable(error)
        connection.send((index, result, failure))


def _portable(error: Exception) -> Exception:
    """The error with its traceback as a note; one that cannot be sent, by its text."""
    note = "".join(traceback.format_exception(error))
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = RuntimeError(str(error))
    copy.add_note(note)
    return copy
