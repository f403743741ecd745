"""Loads pre-training batches from checked shards, starting at any global batch.

The samples of global batch i and their masks are a function of (data, seed, global batch size, i). World size,
micro-batch size, number of threads and the samples' lengths only decide which rank and thread reads which samples.
"""

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.randomness import permutation, stream_key
from bert.samples.collation import MicroBatch
from bert.samples.dataset import PretrainingDataset
from bert.samples.global_batches import GlobalBatchLoader, deal, prefetched
from bert.samples.order import TableCache, Window
from bert.samples.packing import Packing
from bert.samples.sample_table import LocatedSamples

GROUPED_BATCHES = 32  # with group_by_length, the samples of as many global batches are grouped by length


class PretrainingLoader(GlobalBatchLoader):
    """Batches of one rank. The arguments are described in `GlobalBatchLoader`."""

    def __init__(self, dataset: PretrainingDataset, **batches: Any) -> None:
        super().__init__(num_workers=dataset.settings.num_workers, **batches)
        self._dataset = dataset
        self._order = dataset.order(self._schedule.unit())
        self._tables = TableCache(dataset.load_shard, capacity=2 * len(dataset.bins) + 2)
        self._dealt = lru_cache(maxsize=2)(self._make_dealt)
        self._batches_of_like_length = lru_cache(maxsize=1)(self._make_batches_of_like_length)
        self._lock = threading.Lock()
        self.batches_per_epoch = self._order.batches_per_epoch

    def sample_ids(self, index: int) -> np.ndarray:
        """Samples of a global batch before they are dealt, the same on every rank: int64 [global_batch_size]."""
        with self._lock:
            return self._samples(index).ids % self._dataset.num_samples

    def epoch(self, index: int) -> int:
        return self._places(index)[0] // self.batches_per_epoch

    def _places(self, index: int) -> range:
        """Positions of global batch `index` in the sample order."""
        first = self._schedule.sequences(index) // self._schedule.unit()
        return range(first, first + self._schedule.batch_size(index) // self._schedule.unit())

    def micro_batch(self, index: int, micro_step: int) -> MicroBatch:
        with self._lock:
            samples, key, num_masked = self._dealt(index)
        own = samples.take(self._own_samples(micro_step))
        normalizer = max(num_masked, 1) / (self._num_micro_steps(index) * self._world_size)
        return self._dataset.collation.collate(*own.gathered(), key, own.ids, normalizer)

    def _make_dealt(self, index: int) -> tuple[LocatedSamples, np.uint64, int]:
        """Samples of a global batch in the order in which ranks take them, their key and predictions."""
        samples = self._samples(index)
        samples = samples.take(deal(samples.lengths(), self._num_micro_steps(index), self._world_size))
        key = stream_key(self._dataset.seed, "dynamic masks", self.epoch(index))
        counts = [
            self._dataset.collation.mask_counts(table, samples.rows[places], key, samples.ids[places]).sum()
            for table, places in samples.by_table()
        ]
        return samples, key, int(sum(counts))

    def _samples(self, index: int) -> LocatedSamples:
        """Samples of a global batch before they are dealt."""
        places = self._places(index)
        if not self._dataset.settings.group_by_length:
            return self._locate(places)
        epoch, batch = divmod(places[0], self.batches_per_epoch)
        samples, grouped = self._batches_of_like_length(epoch, batch // GROUPED_BATCHES)
        return samples.take(grouped[batch % GROUPED_BATCHES])

    def _make_batches_of_like_length(self, epoch: int, group: int) -> tuple[LocatedSamples, np.ndarray]:
        """Samples of a group of global batches, and their positions int64 [batches, size]."""
        first = group * GROUPED_BATCHES
        number = min(GROUPED_BATCHES, self.batches_per_epoch - first)
        start = epoch * self.batches_per_epoch + first
        samples = self._locate(range(start, start + number))
        sorted_places = np.argsort(samples.lengths(), kind="stable").reshape(number, -1)
        order = permutation(stream_key(self._dataset.seed, "batches of like length", epoch, group), number)
        return samples, sorted_places[order]

    def _locate(self, indices: Sequence[int]) -> LocatedSamples:
        """Locate the samples of consecutive batches, and prefetch the shards of the next windows.

        A sample that an epoch reads again has another id, so that it gets other masks.
        """
        order, size, numbers = self._order, self._schedule.unit(), dict[Window, int]()
        ids, table_of, rows = np.empty((3, len(indices) * size), np.int64)
        for number, index in enumerate(indices):
            for window, places, window_rows, reading in order.parts(index):
                places = number * size + places
                ids[places] = order.sample_ids(window, window_rows) + reading * self._dataset.num_samples
                table_of[places], rows[places] = numbers.setdefault(window, len(numbers)), window_rows
        tables = []
        for window in numbers:
            tables.append(self._tables.get(window.shards))
            if window.following and self._num_workers:
                self._tables.prepare(window.following)
        return LocatedSamples(ids, tables, table_of, rows)


def evaluation_batches(
    dataset: PretrainingDataset,
    *,
    micro_batch_size: int,
    rank: int = 0,
    world_size: int = 1,
    max_samples: int | None = None,
    packing: Packing | None = None,
) -> Iterator[MicroBatch]:
    """Batches in a fixed order with fixed masks: rank r takes r, r + world_size, ...; the last may be small.

    Args:
        max_samples: use only this many samples, spread evenly over all.
        packing: of a program of packed tokens; None: the batches are padded.
    """
    count = dataset.num_samples if max_samples is None else min(max_samples, dataset.num_samples)
    offsets = offsets_of(dataset.shard_counts)
    cache = TableCache(dataset.load_shard, capacity=2)
    key = stream_key(dataset.seed, "evaluation masks")

    def batch(start: int) -> MicroBatch:
        places = np.arange(start, min(start + micro_batch_size, count))
        ids = places * dataset.num_samples // count
        shard_of = np.searchsorted(offsets, ids, side="right") - 1
        shards, table_of = np.unique(shard_of, return_inverse=True)
        tables = [cache.get((shard,)) for shard in shards.tolist()]
        samples = LocatedSamples(ids, tables, table_of, ids - offsets[shard_of])
        return dataset.collation.collate(*samples.gathered(), key, ids).packed(packing)

    starts = range(rank * micro_batch_size, count, world_size * micro_batch_size)
    yield from prefetched(batch, starts, dataset.settings.num_workers)


def evaluation_unigram_entropy(dataset: PretrainingDataset, max_samples: int | None = None) -> float:
    """Unigram entropy of the masked-LM labels in `evaluation_batches`, in nats."""
    batches = evaluation_batches(dataset, micro_batch_size=256, max_samples=max_samples)
    labels = np.concatenate([batch.feed["masked_lm_labels"][: batch.num_masked] for batch in batches])
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    return float(-(shares * np.log(shares)).sum())
