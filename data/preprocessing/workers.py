"""Runs tasks in several processes and yields their results in order, on this machine or on Dask's workers.

The scheduler does not change the bytes: tasks are pure functions, each writes its own file, and results are in order.
Dask is imported only when it is used (the extra dask).

    --scheduler dask                          a local cluster of --num-processes processes
    --scheduler dask --scheduler-address tcp://host:8786   a cluster that runs already
    --scheduler slurm                         as many Slurm jobs of one worker each, from dask-jobqueue

Slurm's account, partition, memory and time limit are set in ~/.config/dask/jobqueue.yaml (jobqueue.slurm, see
https://jobqueue.dask.org); at least `cores: 1` and `memory: 4GB` are needed. Sources, vocabulary, sink and this
repository must have the same paths on every node.

On this machine concurrent.futures.ProcessPoolExecutor was tried: killed workers left a partial result in the shared
pipe, and the pool hung at the first of 1,500 failures with Paddle loaded. Workers that were left to finish their tasks
outlived a killed parent. Here every process has its own pipe, which closes when the process ends.
"""

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
from pathlib import Path
from typing import Annotated, Any

from bert import REPOSITORY
from bert.config.flags import Flag
from bert.interpreter import install_command
from bert.parent_death import end_with

SCHEDULERS = ("local", "dask", "slurm")
# The field of a command's settings.
NumWorkers = Annotated[
    int, Flag(name="--num-processes", hidden_aliases=("--local-n-workers",), default_text="all cores")
]
Run = Callable[[Callable[..., Any], list], Iterator]
_SECONDS_TO_END = 10.0  # of a process without tasks
_IDLE_SECONDS = 450.0  # of all workers, twice, before they are taken to hang
_NO_TASK_LEFT = b"no task left"


def all_cores() -> int:
    """Number of cores of this machine."""
    return os.cpu_count() or 1


def run_ordered(function: Callable[..., Any], tasks: list, num_workers: int) -> Iterator:
    """Yield function(*task) for every task, in order, from `num_workers` processes (1: this process).

    The first task that fails ends the other processes at once, so tasks must write their files atomically. They may
    not start processes. Call it from one thread only: the main thread, if a Ctrl-C is to end it.

    Raises:
        ChildProcessError: a process was killed or crashed.
        BaseException: the function's own error, with the traceback of its process as a note.
    """
    if num_workers <= 1 or len(tasks) <= 1:
        yield from (function(*task) for task in tasks)
        return
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # or the library warns of each fork
    if "bert.arrays.compiled" in sys.modules:  # of tasks that may call compiled loops: once, not in each process
        sys.modules["bert.arrays.compiled"].load_numba()
    context = multiprocessing.get_context("fork")
    workers: dict[Connection, BaseProcess] = {}
    results: dict[int, Any] = {}
    try:
        with _interrupts_held():
            num_begun = context.Value("q", 0)
            for _ in range(min(num_workers, len(tasks))):
                receiver, sender = context.Pipe(duplex=False)
                arguments = (function, tasks, num_begun, sender, os.getpid())
                workers[receiver] = context.Process(target=_work, args=arguments, daemon=True)
                workers[receiver].start()
                sender.close()  # so that the end of the process is the end of the pipe
        for index in range(len(tasks)):
            while index not in results:
                results.update(_next_results(workers))
            yield results.pop(index)
    finally:
        for receiver, process in workers.items():
            process.kill()  # cannot be blocked by the caller's signal handlers
            process.join()
            receiver.close()


def _next_results(workers: dict[Connection, BaseProcess]) -> dict[int, Any]:
    """Results by the number of their task, as soon as there is one; ends processes without tasks."""
    results = {}
    for receiver in _ready(workers):
        assert isinstance(receiver, Connection)
        try:
            message = receiver.recv_bytes()
        except (EOFError, OSError):  # the end of the pipe, or a partial result
            raise _lost(workers[receiver]) from None
        if message == _NO_TASK_LEFT:
            _join(workers.pop(receiver))
            receiver.close()
            continue
        number, result, failure = pickle.loads(message)
        if failure is not None:
            raise failure
        results[number] = result
    return results


def _ready(workers: dict[Connection, BaseProcess]) -> list[Any]:
    """Pipes with data; ChildProcessError if no process uses the processor for a long time."""
    times_idle = 0
    while times_idle < 2:  # once may be this process that was stopped (Ctrl-Z)
        before = _cpu_ticks(workers)
        if ready := wait(list(workers), _IDLE_SECONDS):
            return ready
        times_idle = times_idle + 1 if _cpu_ticks(workers) == before else 0
    numbers = " ".join(str(process.pid) for process in workers.values())
    raise ChildProcessError(
        f"the worker processes {numbers} have done nothing for {2 * _IDLE_SECONDS:g} s: they are stopped, or a file "
        "system does not answer; start again: finished work is kept"
    )


def _cpu_ticks(workers: dict[Connection, BaseProcess]) -> list[list[str]]:
    stats = [Path(f"/proc/{process.pid}/stat") for process in workers.values()]
    return [path.read_text().rpartition(") ")[2].split()[11:13] for path in stats if path.exists()]


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Context manager that delays Ctrl-C: during a fork Python would drop it, or it would end a child."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    signals: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: signals.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if signals:
            signal.raise_signal(signal.SIGINT)


def _join(process: BaseProcess) -> None:
    process.join(_SECONDS_TO_END)
    process.kill()
    process.join()


def _lost(process: BaseProcess) -> ChildProcessError:
    _join(process)
    code = process.exitcode or 0
    cause = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with status {code}"
    remedy = "as the system does when memory runs out: use fewer workers, " if code == -signal.SIGKILL else ""
    return ChildProcessError(f"a worker process ended {cause}, {remedy}and start again: finished work is kept")


def _work(function: Callable[..., Any], tasks: list, num_begun: Any, sender: Connection, parent: int) -> None:
    """The loop of a worker process. It ignores Ctrl-C, which the parent handles, and ends with the parent."""
    signal.signal(signal.SIGINT, lambda number, frame: None)  # one that comes meanwhile makes SIG_IGN complain
    end_with(parent)
    while True:
        with num_begun:
            index, num_begun.value = num_begun.value, num_begun.value + 1
        if index >= len(tasks):
            sender.send_bytes(_NO_TASK_LEFT)
            return
        try:
            message = pickle.dumps((index, function(*tasks[index]), None))
        except BaseException as error:  # raised again in the parent
            message = pickle.dumps((index, None, _portable(error)))
        sender.send_bytes(message)


def _portable(error: BaseException) -> BaseException:
    """The error with its traceback as a note; one that cannot be pickled becomes an error with the same text."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = None
    if type(copy) is not type(error):
        copy = (ValueError if isinstance(error, ValueError) else RuntimeError)(str(error))
    copy.add_note("".join(traceback.format_exception(error)))
    return copy


@contextmanager
def scheduler(name: str, num_workers: int, address: str | None = None) -> Iterator[Run]:
    """Context manager that gives run(function, tasks), which yields function(*task) for every task, in order."""
    if address is not None and name != "dask":
        raise ValueError(f"--scheduler-address={address} is of a Dask scheduler; give --scheduler dask with it")
    if name == "local":
        yield lambda function, tasks: run_ordered(function, tasks, num_workers)
        return
    distributed = _imported("distributed")
    with _cluster(name, num_workers, address) as cluster, distributed.Client(cluster) as client:
        yield lambda function, tasks: _on_dask(client, function, tasks)


@contextmanager
def _cluster(name: str, num_workers: int, address: str | None) -> Iterator[Any]:
    """Context manager of a Dask cluster, or of the address of one, which is not shut down."""
    if address is not None:
        yield address
    elif name == "dask":
        options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
        with _imported("distributed").LocalCluster(n_workers=num_workers, **options) as cluster:
            yield cluster
    else:
        prologue = [f'export PYTHONPATH="{REPOSITORY}:$PYTHONPATH"']
        try:
            slurm = _imported("dask_jobqueue").SLURMCluster(processes=1, job_script_prologue=prologue)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Slurm's settings are incomplete ({error}); write them into "
                "~/.config/dask/jobqueue.yaml, at least cores and memory"
            ) from error
        with slurm as cluster:
            cluster.scale(jobs=num_workers)
            yield cluster


def _on_dask(client: Any, function: Callable[..., Any], tasks: list) -> Iterator:
    futures = [client.submit(function, *task, pure=False) for task in tasks]
    try:
        while futures:
            result = futures[0].result()
            del futures[0]  # lets the scheduler forget it
            yield result
    finally:
        client.cancel(futures)


def _imported(module: str) -> Any:
    try:
        return __import__(module)
    except ImportError as error:
        raise ValueError(f"{module} is not installed; {install_command('dask')}, or leave out --scheduler") from error
