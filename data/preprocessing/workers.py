"""Runs tasks in several processes on this machine and yields their results in order.

concurrent.futures.ProcessPoolExecutor with forkserver was tried instead: killed workers left a partial result in the
shared pipe, and the pool hung at the first of 1,500 failures with Paddle loaded. When workers were left to finish their
tasks, they outlived a killed parent, a Ctrl-C during start-up printed tracebacks, and a start took about a second.
Here every process has its own pipe, which closes when the process ends.
"""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

_PR_SET_PDEATHSIG = 1  # of Linux
_PATIENCE = 10.0  # seconds to wait for a process without tasks to end


def run_ordered(function: Callable[..., Any], tasks: list, num_workers: int) -> Iterator:
    """Yields function(*task) for every task, in order, from `num_workers` processes (from this one if 1).

    The first task that fails ends the other processes at once, so tasks must write their files atomically. They may
    not start processes. Call it from one thread only: the main thread, if a Ctrl-C is to end it.

    Raises:
        ChildProcessError: a process was killed or crashed.
        BaseException: the function's own error, with the traceback of its process as a note.
    """
    if num_workers <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield function(*task)
        return
    workers = _Workers(function, tasks)
    results: dict[int, Any] = {}
    try:
        workers.start(min(num_workers, len(tasks)))
        for index in range(len(tasks)):
            while index not in results:
                results.update(workers.next_results())
            yield results.pop(index)
    finally:
        workers.end()


class _Workers:
    """Processes with one task each; a process ends when no task is left."""

    def __init__(self, function: Callable[..., Any], tasks: list) -> None:
        self._function, self._tasks = function, tasks
        self._num_begun = 0
        self._busy: dict[Connection, BaseProcess] = {}
        self._ending: list[BaseProcess] = []

    def start(self, number: int) -> None:
        with _interrupts_held():
            for _ in range(number):
                self._fork()
        for connection in list(self._busy):
            self._begin_next(connection)

    def _fork(self) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        arguments = (self._function, self._tasks, theirs, [*self._busy, ours], os.getpid())
        process = context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self._busy[ours] = process

    def _begin_next(self, connection: Connection) -> None:
        if self._num_begun == len(self._tasks):
            self._ending.append(self._busy.pop(connection))
            connection.close()
            return
        try:
            connection.send(self._num_begun)
        except OSError:
            raise _lost(self._busy[connection]) from None
        self._num_begun += 1

    def next_results(self) -> dict[int, Any]:
        """Results by the number of their task, as soon as there is one."""
        results = {}
        for connection in wait(list(self._busy)):
            assert isinstance(connection, Connection)
            try:
                answer = connection.recv_bytes()
            except (EOFError, OSError):  # the end of the pipe, or a partial result
                raise _lost(self._busy[connection]) from None
            number, result, failure = pickle.loads(answer)
            if failure is not None:
                raise failure
            results[number] = result
            self._begin_next(connection)
        return results

    def end(self) -> None:
        for process in self._busy.values():
            process.kill()  # cannot be blocked by the caller's signal handlers
        for process in (*self._busy.values(), *self._ending):
            _join(process)
        for connection in self._busy:
            connection.close()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay a Ctrl-C to the end of the block: during a fork Python would drop it, or it would end a child."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def _join(process: BaseProcess) -> None:
    process.join(_PATIENCE)
    process.kill()
    process.join()


def _lost(process: BaseProcess) -> ChildProcessError:
    _join(process)
    code = process.exitcode or 0
    cause = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with status {code}"
    remedy = "as the system does when memory runs out: use fewer workers, " if code == -signal.SIGKILL else ""
    return ChildProcessError(f"a worker process ended {cause}, {remedy}and start again: finished work is kept")


def _work(
    function: Callable[..., Any], tasks: list, connection: Connection, others: list[Connection], parent: int
) -> None:
    """The loop of a worker. It ignores a Ctrl-C, which the parent handles, and ends when the parent is killed."""
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
        try:
            answer = pickle.dumps((index, function(*tasks[index]), None))
        except BaseException as error:  # raised again in the parent
            answer = pickle.dumps((index, None, _portable(error)))
        connection.send_bytes(answer)


def _portable(error: BaseException) -> BaseException:
    """The error with its traceback as a note; an error that cannot be pickled becomes one of the same text."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = None
    if type(copy) is not type(error):
        copy = (ValueError if isinstance(error, ValueError) else RuntimeError)(str(error))
    copy.add_note("".join(traceback.format_exception(error)))
    return copy
