"""Divides global batches among ranks and micro-batches, which threads prepare ahead."""

import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from bert.config.batch_settings import BatchSchedule
from bert.samples.collation import MicroBatch
from bert.samples.packing import Packing

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_AT_ONCE = 8  # tasks given to a thread together: giving one costs as much as a small batch


def prefetched(
    function: Callable[[_Task], _Result], tasks: Iterable[_Task], num_workers: int
) -> Generator[_Result, None, None]:
    """function(task) for every task, in order; `num_workers` threads compute ahead (0: the caller computes).

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
    """Results of the tasks before the first failure, and its exception."""
    results: list[_Result] = []
    try:
        for task in tasks:
            results.append(function(task))
    except BaseException as error:
        return results, error
    return results, None


@dataclass(frozen=True)
class GlobalBatch:
    index: int  # number of the batch, counted from the start of training
    epoch: int  # epoch of its first sample
    micro_batches: Iterator[MicroBatch]  # this rank's micro-batches, made lazily
    num_micro_steps: int = 0  # 0: the same number in all updates


class GlobalBatchLoader(ABC):
    """Loads the global batches of one rank from any position.

    Args:
        schedule: of a batch that grows; None: every update has global_batch_size sequences.
        rank, world_size: this rank among all; micro-batch m of rank r has the samples [(m * world_size + r) * b : + b].
        num_workers: threads that prepare micro-batches ahead; 0: the caller prepares them.
    """

    def __init__(
        self,
        *,
        global_batch_size: int,
        micro_batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        num_workers: int = 1,
        schedule: BatchSchedule | None = None,
    ) -> None:
        self._schedule = schedule or BatchSchedule(global_batch_size)
        self._per_micro_step = micro_batch_size * world_size
        assert 0 <= rank < world_size and self._schedule.full == global_batch_size
        assert self._schedule.unit() >= self._per_micro_step and self._schedule.unit() % self._per_micro_step == 0
        self.global_batch_size, self._micro_batch_size = global_batch_size, micro_batch_size
        self._rank, self._world_size, self._num_workers = rank, world_size, num_workers

    def _num_micro_steps(self, index: int) -> int:
        return self._schedule.batch_size(index) // self._per_micro_step

    @abstractmethod
    def epoch(self, index: int) -> int:
        """Epoch of the first sample of global batch `index`."""

    @abstractmethod
    def micro_batch(self, index: int, micro_step: int) -> MicroBatch:
        """This rank's micro-batch of these samples; called from several threads."""

    def batches(self, start: int = 0, packing: Packing | None = None) -> Generator[GlobalBatch, None, None]:
        """Yield global batches start, start + 1, ... without end; closing the iterator ends its threads.

        Args:
            packing: of a program of packed tokens; None: the batches are padded.
        """
        tasks = ((index, step) for index in itertools.count(start) for step in range(self._num_micro_steps(index)))
        results = prefetched(lambda task: self.micro_batch(*task).packed(packing), tasks, self._num_workers)
        try:
            for index in itertools.count(start):
                number = self._num_micro_steps(index)
                micro_batches = self._of_one_update(results, number)
                yield GlobalBatch(index, self.epoch(index), micro_batches, number)
                for _ in micro_batches:  # discard unused ones, so that the next global batch starts with its first
                    pass
        finally:
            results.close()

    @staticmethod
    def _of_one_update(results: Iterator[MicroBatch], number: int) -> Iterator[MicroBatch]:
        for _ in range(number):
            result = next(results, None)
            if result is None:
                raise RuntimeError("the iterator of global batches is closed; keep it while its micro-batches are used")
            yield result

    def _own_samples(self, micro_step: int) -> slice:
        """This rank's samples of a global batch in one micro-step."""
        start = (micro_step * self._world_size + self._rank) * self._micro_batch_size
        return slice(start, start + self._micro_batch_size)


def deal(lengths: np.ndarray, num_micro_steps: int, world_size: int) -> np.ndarray:
    """Order in which micro-batches take the samples of a global batch, micro-step 0 first: int64 [n].

    A micro-batch has samples of like length, so that it needs little padding, and the micro-batches of one micro-step
    have like lengths. Ranks take them back and forth (0 1 2 2 1 0 0 1 2 ...), so that they have like work.

    Args:
        lengths: int64 [n], tokens of each sample; n is a multiple of num_micro_steps * world_size.
    """
    order = np.argsort(-lengths, kind="stable").reshape(num_micro_steps, world_size, -1)
    order[1::2] = order[1::2, ::-1].copy()
    return order.reshape(-1)
