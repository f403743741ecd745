"""The order of samples: its definition in plain Python, differences between epochs, prefetching and memory."""

import itertools
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.randomness import permutation, stream_key
from bert.samples.order import SampleOrder, TableCache
from tests.support.corpora import random_table
from tests.support.waiting import wait_until

NUMBERS = [9, 65_541, 131_072]  # of bins, which a set has in another order
COUNTS, BINS = [7] * 40, [0] * 24 + [1] * 16


def batch_of(order: SampleOrder, index: int, size: int) -> tuple[list[int], list[int]]:
    """Return (ids, numbers of their readings) of a global batch."""
    ids, readings = np.full((2, size), -1)
    for window, places, rows, number in order.parts(index):
        assert (ids[places] == -1).all()
        ids[places], readings[places] = order.sample_ids(window, rows), number
    return ids.tolist(), readings.tolist()


def windows_of(order: SampleOrder, batches: range) -> list:
    """Return the windows of some global batches, in the order in which they are read."""
    return list(dict.fromkeys(window for index in batches for window, *_ in order.parts(index)))


def bin_passes(counts: list[int], shards: list[int], bin_number: int, seed: int, window_samples: int):
    """Return the endless row of the samples of a bin: in every pass its shards in random order, cut into windows."""
    first_id = np.append(0, np.cumsum(counts)).tolist()
    for number in itertools.count():
        windows: list[list[int]] = [[]]
        for place in permutation(stream_key(seed, "shards", number, bin_number), len(shards)):
            size, added = sum(counts[shard] for shard in windows[-1]), counts[shards[place]]
            limit = max(1, window_samples // {1: 16, 2: 8, 3: 4, 4: 2}.get(len(windows), 1))
            if size > 0 and size + added > limit:
                windows.append([])
            windows[-1].append(shards[place])
        start = 0
        for window in windows:
            ids = [first_id[shard] + row for shard in sorted(window) for row in range(counts[shard])]
            for place in permutation(stream_key(seed, "samples", number, bin_number, start), len(ids)):
                yield number, ids[place]
            start += len(ids)


def divided(left: list[int], size: int) -> list[int]:
    """Divide `size` in proportion to the rest of each bin, by largest remainders."""
    taken, total = [count * size // sum(left) for count in left], sum(left)
    by_remainder = sorted(range(len(left)), key=lambda number: -(left[number] * size % total))
    for number in by_remainder[: size - sum(taken)]:
        taken[number] += 1
    return taken


def defined_order(counts, bins, size, seed, window_samples, taken, block_samples, num_epochs):
    """Return (sample, reading) of every place of some epochs: blocks have the epoch's bins in proportion, mixed."""
    of_bins = [[shard for shard, own in enumerate(bins) if own == bin_id] for bin_id in sorted({*bins})]
    passes = [
        bin_passes(counts, shards, number, seed, max(1, window_samples // len(of_bins)))
        for number, shards in enumerate(of_bins)
    ]
    totals = [sum(counts[shard] for shard in shards) for shards in of_bins]
    for epoch in range(num_epochs):
        left, samples = [*taken], []
        for block in itertools.count():
            if not (number := min(max(1, block_samples // size) * size, sum(left))):
                break
            parts = divided(left, number)
            left = [before - part for before, part in zip(left, parts, strict=True)]
            row = [number for number, part in enumerate(parts) for _ in range(part)]
            if len(of_bins) > 1:
                row = [row[place] for place in permutation(stream_key(seed, "bins", epoch, block), len(row))]
            samples += [(bin_number, *next(passes[bin_number])) for bin_number in row]
        is_whole = [count == total for count, total in zip(taken, totals, strict=True)]
        for bin_number, reading, sample in samples[: sum(taken) // size * size]:
            yield sample, 0 if is_whole[bin_number] else reading


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), min_size=1, max_size=12),
    st.integers(1, 9),
    st.integers(1, 70),
    st.integers(1, 60),
    st.lists(st.integers(-9, 9), min_size=3, max_size=3),
    st.integers(0, 99),
)
def test_the_order_is_as_defined(shards, size, window_samples, block_samples, changes, seed):
    """Windows have a few shards, blocks a few batches; an epoch takes more or fewer samples of a bin than it has."""
    counts, bins = [count for count, _ in shards], [NUMBERS[place] for _, place in shards]
    totals = {bin_id: sum(c for c, place in shards if NUMBERS[place] == bin_id) for bin_id in sorted({*bins})}
    taken = {bin_id: total and max(1, total + changes[NUMBERS.index(bin_id)]) for bin_id, total in totals.items()}
    if any(changes) and seed % 2:
        given, expected_taken = taken, [*taken.values()]
    else:
        given, expected_taken = None, [*totals.values()]
    if sum(expected_taken) < size:
        with pytest.raises(ValueError, match=f"global_batch_size={size} exceeds the {sum(expected_taken)} samples"):
            SampleOrder(counts, bins, size, seed, window_samples, given)
        return
    order = SampleOrder(counts, bins, size, seed, window_samples, given, block_samples=block_samples)
    arguments = counts, bins, size, seed, window_samples, expected_taken, block_samples, 3
    expected = list(defined_order(*arguments))
    found = [batch_of(order, index, size) for index in range(3 * order.batches_per_epoch)]
    pairs = [pair for ids, readings in found for pair in zip(ids, readings, strict=True)]
    assert pairs == expected
    again = SampleOrder(counts, bins, size, seed, window_samples, given, block_samples=block_samples)
    assert [batch_of(again, index, size) for index in reversed(range(len(found)))] == found[::-1], "at any position"


def test_each_epoch_has_other_windows_and_mixes_the_bins_otherwise():
    order = SampleOrder(COUNTS, BINS, 20, 5, 80)
    per_epoch = order.batches_per_epoch
    windows, mixtures, bin_of = [], [], np.repeat(BINS, COUNTS)
    for epoch in range(3):
        batches = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        windows.append(frozenset(window.shards for window in windows_of(order, batches)))
        mixtures.append([bin_of[batch_of(order, index, 20)[0]].tolist() for index in batches])
        assert sorted(shard for shards in windows[-1] for shard in shards) == list(range(40)), "each once"
    assert len({*windows}) == 3 and mixtures[0] != mixtures[1] != mixtures[2] != mixtures[0]
    blocks = SampleOrder(COUNTS, BINS, 20, 5, 80, block_samples=60)
    mixtures = [[bin_of[batch_of(blocks, 3 * block + place, 20)[0]].tolist() for place in (0, 1)] for block in (0, 1)]
    assert mixtures[0] != mixtures[1], "blocks of one epoch differ too"


def test_a_window_names_the_one_to_read_next_and_the_last_of_an_epoch_none():
    order = SampleOrder(COUNTS[:24], BINS[:24], 10, 3, 28)
    windows = windows_of(order, range(order.batches_per_epoch))
    assert [window.following for window in windows] == [*(window.shards for window in windows[1:]), ()]
    sizes = [len(window.shards) for window in windows]
    assert sizes == [1, 1, 1, 2, *[4] * 4, 3], "1/16, 1/8, 1/4 and 1/2 of 28 samples, then 28"


def test_a_window_is_larger_than_the_limit_only_where_one_shard_is():
    order = SampleOrder([30, 3, 3, 30, 3, 3, 30, 3], [0] * 8, 5, 1, 12)
    for window in windows_of(order, range(order.batches_per_epoch)):
        assert window.num_samples <= 12 or len(window.shards) == 1
    halved = SampleOrder([2] * 40, [0, 1] * 20, 5, 1, 12)
    assert max(window.num_samples for window in windows_of(halved, range(16))) == 6, "all bins together have the limit"


def test_the_numbers_of_readings_tell_an_epochs_repetitions_apart():
    """A sample that an epoch has once gets no number, so that its masks do not depend on a mixture."""
    for taken, expected in ((None, {0}), ({0: 10}, {0}), ({0: 25}, {0, 1, 2, 3, 4}), ({0: 5}, {0})):
        order = SampleOrder([4, 6], [0, 0], 5, 0, 100, taken)
        found = [batch_of(order, index, 5) for index in range(2 * order.batches_per_epoch)]
        assert {number for _, readings in found for number in readings} == expected
        pairs = [pair for ids, readings in found for pair in zip(ids, readings, strict=True)]
        assert taken is None or taken[0] == 10 or len({*pairs}) == len(pairs)


# ---- what is in memory ----


def test_each_random_order_is_drawn_once_while_its_batches_follow_each_other_and_then_forgotten(monkeypatch):
    """A training would wait if each batch sorted all samples of its windows again, and would fill the memory."""
    drawn: list[tuple[int, int]] = []
    made: list[weakref.ref] = []

    def counted(key: np.uint64, length: int) -> np.ndarray:
        order = permutation(key, length)
        drawn.append((int(key), length))
        made.append(weakref.ref(order))
        return order

    monkeypatch.setattr("bert.samples.order.permutation", counted)
    order = SampleOrder(COUNTS, BINS, 10, 5, 80, block_samples=60)
    for index in range(2 * order.batches_per_epoch):
        for _ in range(2):  # also where ids and batches are asked for
            batch_of(order, index, 10)
    assert len({*drawn}) == len(drawn)
    assert sum(reference() is not None for reference in made) <= 6 < len(made), "of two windows of each bin, and two"


def test_no_more_groups_of_shards_are_kept_than_the_capacity():
    reads: list[int] = []
    made: list[weakref.ref] = []

    def load(shard: int):
        reads.append(shard)
        table = random_table(3, shard)
        made.append(weakref.ref(table))
        return table

    cache = TableCache(load, capacity=2)
    for shard in (0, 1, 0, 1):
        cache.get((shard,))
    assert reads == [0, 1]
    for shard in range(2, 9):
        cache.get((shard,))
    wait_until(lambda: sum(reference() is not None for reference in made) <= 2, 10)
    cache.get((0,))
    assert reads == [0, 1, *range(2, 9), 0], "those used least recently are forgotten"


def test_shards_are_read_before_they_are_asked_for_and_once_only():
    may_read, began, reads = threading.Event(), threading.Event(), []

    def load(shard: int):
        began.set()
        assert may_read.wait(30)
        reads.append(shard)
        return random_table(3 + shard, shard)

    cache = TableCache(load, capacity=4)
    cache.prepare((0, 1))
    assert began.wait(30), "preparing begins to read and does not wait"
    cache.prepare((0, 1))
    may_read.set()
    table = cache.get((0, 1))
    assert reads == [0, 1] and len(table) == 7
    tokens = np.concatenate([random_table(3 + shard, shard).token_ids for shard in (0, 1)])
    assert table.token_ids.tolist() == tokens.tolist(), "the rows of the first shard, then those of the second"


def test_an_error_of_reading_is_raised_where_the_shards_are_used():
    def load(shard: int):
        raise OSError(5, "Input/output error")

    cache = TableCache(load, capacity=2)
    cache.prepare((3,))
    with pytest.raises(OSError, match="Input/output error"):
        cache.get((3,))
