"""Results of a function prepared ahead by threads, in the order of their tasks."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def prefetched(function: Callable[[_Task], _Result], tasks: Iterable[_Task],
               num_workers: int) -> Generator[_Result, None, None]:
    """function(task) for every task, in order, prepared ahead by `num_workers` threads (0: by the caller).

    An exception of the function is raised where its result would have come; closing the iterator ends the threads.
    """
    if num_workers == 0:
        yield from map(function, tasks)
        return
    remaining = iter(tasks)
    executor = ThreadPoolExecutor(num_workers, thread_name_prefix="batches")
    pending: deque[Future] = deque()
    try:
        for task in itertools.islice(remaining, 2 * num_workers + 2):
            pending.append(executor.submit(function, task))
        while pending:
            result = pending.popleft().result()
            for task in itertools.islice(remaining, 1):
                pending.append(executor.submit(function, task))
            yield result
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
