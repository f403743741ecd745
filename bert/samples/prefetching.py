"""Computes the results of tasks ahead in threads and yields them in the order of the tasks."""

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_AT_ONCE = 8  # tasks given to a thread together: giving one costs as much as a small batch


def prefetched(
    function: Callable[[_Task], _Result], tasks: Iterable[_Task], num_workers: int
) -> Generator[_Result, None, None]:
    """function(task) for every task, in order, computed ahead by `num_workers` threads (0: by the caller).

    An exception of the function is raised in place of its result; closing the iterator ends the threads.
    """
    if num_workers == 0:
        yield from map(function, tasks)
        return
    remaining = iter(tasks)
    executor = ThreadPoolExecutor(num_workers, thread_name_prefix="batches")
    pending: deque[Future] = deque()

    def submit() -> None:
        if group := list(itertools.islice(remaining, _AT_ONCE)):
            pending.append(executor.submit(_results_of, function, group))

    try:
        for _ in range(num_workers + 1):
            submit()
        while pending:
            results, error = pending.popleft().result()
            submit()
            yield from results
            if error is not None:
                raise error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _results_of(function: Callable[[_Task], _Result], tasks: list[_Task]) -> tuple[list[_Result], BaseException | None]:
    """The results of the tasks before the first one that fails, and its exception."""
    results: list[_Result] = []
    try:
        for task in tasks:
            results.append(function(task))
    except BaseException as error:
        return results, error
    return results, None
