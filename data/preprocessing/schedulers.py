"""Schedulers for preprocessing tasks: processes on this machine, or Dask workers on one or several machines.

The scheduler does not change the bytes: tasks are pure functions, each writes its own file, and results are in order.
Dask is imported only when it is used (requirements-dask.txt).

    --scheduler dask                          a local cluster of --local-n-workers processes
    --scheduler dask --scheduler-address tcp://host:8786   a cluster that runs already
    --scheduler slurm                         as many Slurm jobs of one worker each, from dask-jobqueue

Slurm's account, partition, memory and time limit are set in ~/.config/dask/jobqueue.yaml (jobqueue.slurm, see
https://jobqueue.dask.org); at least `cores: 1` and `memory: 4GB` are needed. Sources, vocabulary, sink and this
repository must have the same paths on every node.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bert import REPOSITORY
from bert.interpreter import install_command
from data.preprocessing.workers import run_ordered

SCHEDULERS = ("local", "dask", "slurm")
Run = Callable[[Callable[..., Any], list], Iterator]


@contextmanager
def scheduler(name: str, num_workers: int, address: str | None = None) -> Iterator[Run]:
    """Gives a function run(function, tasks), which yields function(*task) for every task, in order."""
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
    """A cluster, or the address of one, which is not shut down afterwards."""
    if address is not None:
        yield address
    elif name == "dask":
        with _imported("distributed").LocalCluster(
            n_workers=num_workers, threads_per_worker=1, memory_limit=0, dashboard_address=None
        ) as cluster:
            yield cluster
    else:
        root = REPOSITORY
        try:
            made = _imported("dask_jobqueue").SLURMCluster(
                processes=1, job_script_prologue=[f'export PYTHONPATH="{root}:$PYTHONPATH"']
            )
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Slurm's settings are incomplete ({error}); write them into "
                "~/.config/dask/jobqueue.yaml, at least cores and memory"
            ) from error
        with made as cluster:
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
