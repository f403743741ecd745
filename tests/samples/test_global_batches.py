"""A rank's part of a global batch, and results that threads compute ahead."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.samples.global_batches import deal, prefetched


def dealt(lengths: list[int], micro_steps: int, world_size: int) -> list[int]:
    """Deal the longest samples first; in every second micro-step the last rank takes its samples first."""
    places = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    size, order = len(lengths) // micro_steps // world_size, []
    for step in range(micro_steps):
        ranks = range(world_size) if step % 2 == 0 else reversed(range(world_size))
        for share in ranks:
            start = (step * world_size + share) * size
            order += places[start : start + size]
    return order


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), st.data())
def test_ranks_take_samples_back_and_forth_from_the_longest_on(micro_steps, world_size, micro_batch, data):
    number = micro_steps * world_size * micro_batch
    lengths = data.draw(st.lists(st.integers(5, 20), min_size=number, max_size=number))
    assert deal(np.array(lengths), micro_steps, world_size).tolist() == dealt(lengths, micro_steps, world_size)


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_ranks_have_like_work(world_size):
    """No rank gets the longer samples of every micro-step: where lengths rise evenly, all have as many tokens."""
    lengths = 5 + np.random.default_rng(world_size).permutation(4 * world_size * 2)
    steps = lengths[deal(lengths, 4, world_size)].reshape(4, world_size, 2)
    assert len({*steps.sum(axis=(0, 2)).tolist()}) == 1


class Failure(Exception):
    pass


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("failing", [0, 1, 7, 8, 19, 29])
def test_results_before_a_failure_are_not_lost(num_workers, failing):
    """A training makes its updates up to the damaged shard, wherever that is among the tasks of a thread."""

    def square(number: int) -> int:
        if number == failing:
            raise Failure(number)
        return number * number

    results, found = prefetched(square, range(30), num_workers), []
    with pytest.raises(Failure, match=str(failing)):
        for result in results:
            found.append(result)
    assert found == [number * number for number in range(failing)]


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("count", [0, 1, 8, 9, 100])
def test_results_are_in_the_order_of_their_tasks(num_workers, count):
    assert list(prefetched(lambda number: -number, iter(range(count)), num_workers)) == [-n for n in range(count)]


def test_threads_compute_ahead_of_the_caller_by_a_bounded_number_of_tasks_and_end_with_it():
    begun = itertools.count()
    full, last = threading.Event(), []

    def task(number: int) -> int:
        last.append(next(begun))
        if len(last) == 4 * 8:
            full.set()
        return number

    results = prefetched(task, itertools.count(), 2)
    assert next(results) == 0
    assert full.wait(30), "four groups of eight tasks, one a thread and two more, while the caller uses one result"
    results.close()
    assert len(last) == 4 * 8, "endless tasks are not all begun"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batches")]
