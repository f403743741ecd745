"""The order of samples: which samples a global batch has, as a function of (seed, epoch, counts), at any position.

Every epoch permutes the shards of each bin, cuts them into windows that fit into memory and permutes the samples of
each window. A global batch takes its samples from one bin; the leftovers of the bins form mixed batches at the end
of the epoch, and fewer than `global_batch_size` samples, different ones in every epoch, are left out.

The first windows of an epoch are smaller, a sixteenth, an eighth, a quarter and a half of the others, so that training
starts when a few shards are read. With `lengths_of` the whole batches of a window have samples of similar length.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.randomness import permutation, stream_key

_SMALL_WINDOWS = 4


@dataclass(frozen=True)
class Window:
    """Shards (ascending indices) that are in memory together, and the range of their samples in the bin's epoch."""

    shards: tuple[int, ...]
    start: int
    num_samples: int


@dataclass(frozen=True)
class _BinEpoch:
    key: tuple
    windows: tuple[Window, ...]
    ends: np.ndarray  # int64 [windows]


@dataclass(frozen=True)
class _Epoch:
    bins: tuple[_BinEpoch, ...]
    batch_bins: np.ndarray  # [full batches], the bin of each
    batch_ranks: np.ndarray  # [full batches], its rank among the batches of that bin
    leftovers: np.ndarray  # int64 [samples], ids in the order of the mixed batches


class SampleOrder:
    """The order of all samples, epoch after epoch.

    Sample ids run through the shards in their order: sample r of shard s has the id shard_offsets[s] + r.

    Args:
        counts: samples of each shard.
        bins: bin of each shard (all 0 without bins).
        global_batch_size: samples of a batch, all ranks.
        seed: of the shuffles.
        window_samples: at most this many samples are shuffled together, more only where one shard is larger.
        lengths_of: the number of tokens of each sample of a shard; samples of similar length then share a batch.
    Raises:
        ValueError: fewer samples than one batch.
    """

    def __init__(
        self,
        counts: Sequence[int],
        bins: Sequence[int],
        global_batch_size: int,
        seed: int,
        window_samples: int,
        lengths_of: Callable[[int], np.ndarray] | None = None,
    ) -> None:
        self._lengths_of = lengths_of
        self.shard_offsets = offsets_of(np.asarray(counts, np.int64))
        self.num_samples = int(self.shard_offsets[-1])
        if self.num_samples < global_batch_size:
            raise ValueError(
                f"global_batch_size={global_batch_size} exceeds the {self.num_samples} samples there are; "
                "an epoch must hold a batch: use a smaller batch or more data (--duplicate-factor)"
            )
        self._global_batch_size = global_batch_size
        self._seed = seed
        self._counts = np.asarray(counts, np.int64)
        self._bins = tuple(
            tuple(int(i) for i in np.flatnonzero(np.asarray(bins) == bin_id)) for bin_id in sorted(set(bins))
        )
        self._window_samples = max(1, window_samples // len(self._bins))
        self._full = np.array([self._counts[list(shards)].sum() // global_batch_size for shards in self._bins])
        self.batches_per_epoch = self.num_samples // global_batch_size
        self._epoch = lru_cache(maxsize=2)(self._make_epoch)
        self._window_ids = lru_cache(maxsize=len(self._bins) + 2)(self._shuffled)

    def sample_ids(self, index: int) -> np.ndarray:
        """int64 [global_batch_size]: ids of global batch `index`, counted from the start of epoch 0."""
        number, batch = divmod(index, self.batches_per_epoch)
        epoch = self._epoch(number)
        size = self._global_batch_size
        if batch < len(epoch.batch_bins):
            start = int(epoch.batch_ranks[batch]) * size
            return self._slice(epoch.bins[int(epoch.batch_bins[batch])], start, start + size)
        start = (batch - len(epoch.batch_bins)) * size
        return epoch.leftovers[start : start + size]

    def windows(self, index: int) -> list[Window]:
        """The windows that hold the samples of global batch `index`, those of leftovers included."""
        number, batch = divmod(index, self.batches_per_epoch)
        epoch, size = self._epoch(number), self._global_batch_size
        if batch < len(epoch.batch_bins):
            start = int(epoch.batch_ranks[batch]) * size
            return self._overlapping(epoch.bins[int(epoch.batch_bins[batch])], start, start + size)
        return [
            window
            for full, bin_epoch in zip(self._full, epoch.bins, strict=True)
            for window in self._overlapping(bin_epoch, int(full) * size, int(bin_epoch.ends[-1]))
        ]

    def _make_epoch(self, number: int) -> _Epoch:
        bins = tuple(self._bin_epoch(number, bin_index) for bin_index in range(len(self._bins)))
        in_order = np.repeat(np.arange(len(bins)), self._full)
        order = permutation(stream_key(self._seed, "batches", number), len(in_order))
        batch_bins = in_order[order]
        ranks = np.empty(len(order), np.int64)
        for bin_index in range(len(bins)):
            mine = np.flatnonzero(batch_bins == bin_index)
            ranks[mine] = np.arange(len(mine))
        tails = np.concatenate(
            [
                self._slice(bin_epoch, int(full) * self._global_batch_size, int(bin_epoch.ends[-1]))
                for full, bin_epoch in zip(self._full, bins, strict=True)
            ]
        )
        leftovers = tails[permutation(stream_key(self._seed, "leftovers", number), len(tails))]
        return _Epoch(bins, batch_bins, ranks, leftovers)

    def _bin_epoch(self, number: int, bin_index: int) -> _BinEpoch:
        key = (number, bin_index)
        shards = self._bins[bin_index]
        order = permutation(stream_key(self._seed, "shards", *key), len(shards))
        windows: list[Window] = []
        group: list[int] = []
        start = size = 0
        for shard in [shards[i] for i in order]:
            count = int(self._counts[shard])
            limit = max(1, self._window_samples >> max(0, _SMALL_WINDOWS - len(windows)))
            if size and size + count > limit:
                windows.append(Window(tuple(sorted(group)), start, size))
                start, group, size = start + size, [], 0
            group.append(shard)
            size += count
        windows.append(Window(tuple(sorted(group)), start, size))
        return _BinEpoch(key, tuple(windows), np.array([window.start + window.num_samples for window in windows]))

    def next_window(self, index: int, window: Window) -> Window | None:
        """The window that follows one of global batch `index` in its bin, None at the end of the epoch."""
        number, batch = divmod(index, self.batches_per_epoch)
        epoch = self._epoch(number)
        if batch >= len(epoch.batch_bins):
            return None
        windows = epoch.bins[int(epoch.batch_bins[batch])].windows
        place = windows.index(window) + 1
        return windows[place] if place < len(windows) else None

    def _grouped_by_length(self, ids: np.ndarray, window: Window, name: tuple) -> np.ndarray:
        """The ids of a window, those of its whole batches sorted so that a batch has samples of similar length.

        The batches are in random order; samples of equal length keep their order.
        """
        assert self._lengths_of is not None
        size = self._global_batch_size
        first = -window.start % size
        number = max(0, len(ids) - first) // size
        lengths = np.concatenate([self._lengths_of(shard) for shard in window.shards])
        bases = np.cumsum(self._counts[list(window.shards)]) - self._counts[list(window.shards)]
        inner = ids[first : first + number * size]
        shard = np.searchsorted(self.shard_offsets, inner, side="right") - 1
        rows = inner - self.shard_offsets[shard] + bases[np.searchsorted(window.shards, shard)]
        batches = inner[np.argsort(lengths[rows], kind="stable")].reshape(number, size)
        order = permutation(stream_key(self._seed, "batches of like length", *name), number)
        return np.concatenate([ids[:first], batches[order].reshape(-1), ids[first + number * size :]])

    @staticmethod
    def _overlapping(bin_epoch: _BinEpoch, start: int, stop: int) -> list[Window]:
        return [
            window
            for window in bin_epoch.windows[int(np.searchsorted(bin_epoch.ends, start, side="right")) :]
            if window.start < stop
        ]

    def _slice(self, bin_epoch: _BinEpoch, start: int, stop: int) -> np.ndarray:
        """Ids at places start..stop-1 of a bin's epoch."""
        parts = [np.zeros(0, np.int64)]
        for window in self._overlapping(bin_epoch, start, stop):
            low, high = max(start, window.start) - window.start, min(stop, window.start + window.num_samples)
            parts.append(self._window_ids(bin_epoch.key, window)[low : high - window.start])
        return np.concatenate(parts)

    def _shuffled(self, key: tuple, window: Window) -> np.ndarray:
        """int64 [window samples]: the ids of a window in their shuffled order."""
        name = (*key, window.start)
        ids = np.concatenate(
            [np.arange(self.shard_offsets[shard], self.shard_offsets[shard + 1]) for shard in window.shards]
        )
        ids = ids[permutation(stream_key(self._seed, "samples", *name), len(ids))]
        return self._grouped_by_length(ids, window, name) if self._lengths_of else ids
