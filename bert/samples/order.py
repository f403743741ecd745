"""The order of samples: which samples a global batch has, as a function of (seed, epoch, counts), at any position.

Global batches are consecutive parts of a random order of the epoch's samples. Bins decide only in which order shards
are read: every epoch permutes the shards of each bin, cuts them into windows that fit into memory and permutes the
samples of each window; the bins' sequences are then mixed at random, so that a global batch has samples of every
length, in the proportions of the epoch. Fewer than `global_batch_size` samples, different ones in every epoch, are
left out.

The first windows of an epoch are smaller, a sixteenth, an eighth, a quarter and a half of the others, so that training
starts when a few shards are read.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.randomness import permutation, stream_key
from bert.samples.sample_table import SampleTable, concatenate


class TableCache:
    """Caches decoded groups of shards and drops the least recently used; thread-safe.

    Args:
        capacity: groups to keep.
    """

    def __init__(self, load_shard: Callable[[int], SampleTable], capacity: int) -> None:
        self._load_shard = load_shard
        self._capacity = capacity
        self._groups: OrderedDict[tuple[int, ...], Future[SampleTable]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, shards: tuple[int, ...]) -> SampleTable:
        """The rows of the given shards, one after the other."""
        future, mine = self._future(shards)
        if mine:
            self._fill(future, shards)
        return future.result()

    def prepare(self, shards: tuple[int, ...]) -> None:
        """Start to read shards in a thread before `get` asks for them; `get` raises its errors."""
        future, mine = self._future(shards)
        if mine:
            threading.Thread(target=self._fill, args=(future, shards), name="shards", daemon=True).start()

    def _future(self, shards: tuple[int, ...]) -> tuple[Future[SampleTable], bool]:
        """The future of a group, and whether the caller must fill it."""
        with self._lock:
            mine = shards not in self._groups
            if mine:
                while len(self._groups) >= self._capacity:
                    self._groups.popitem(last=False)
                self._groups[shards] = Future()
            self._groups.move_to_end(shards)
            return self._groups[shards], mine

    def _fill(self, future: Future[SampleTable], shards: tuple[int, ...]) -> None:
        try:
            future.set_result(concatenate([self._load_shard(shard) for shard in shards]))
        except BaseException as error:
            with self._lock:
                self._groups.pop(shards, None)
            future.set_exception(error)


def gather(
    groups: Iterable[tuple[SampleTable, np.ndarray, np.ndarray]], start: int, stop: int
) -> tuple[SampleTable, np.ndarray]:
    """The table and rows of the samples at positions start..stop-1; positions ascend within each group."""
    tables, places_of, rows_of = [], [], []
    for table, places, rows in groups:
        low, high = np.searchsorted(places, (start, stop))
        if low < high:
            tables.append(table)
            places_of.append(places[low:high] - start)
            rows_of.append(rows[low:high])
    if len(tables) == 1:
        return tables[0], rows_of[0]
    table = concatenate([table.take(rows) for table, rows in zip(tables, rows_of, strict=True)])
    order = np.empty(stop - start, np.int64)
    order[np.concatenate(places_of)] = np.arange(stop - start)
    return table, order


_SMALL_WINDOWS = 4
_BLOCK_SAMPLES = 1 << 18  # bins are mixed in blocks of about as many samples, each with the epoch's shares of the bins


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
class _Block:
    """Consecutive global batches of an epoch.

    Attributes:
        bins: [batches * global_batch_size], the bin of each sample.
        starts: int64 [batches + 1, bins], the samples of each bin in the epoch before each global batch.
    """

    bins: np.ndarray
    starts: np.ndarray


class SampleOrder:
    """The order of all samples, epoch after epoch.

    Sample ids run through the shards in their order: sample r of shard s has the id shard_offsets[s] + r.

    Args:
        bins: bin of each shard (all 0 without bins).
        window_samples: at most this many samples are shuffled together, more only where one shard is larger.
    """

    def __init__(
        self, counts: Sequence[int], bins: Sequence[int], global_batch_size: int, seed: int, window_samples: int
    ) -> None:
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
        self._bin_of_shard = {shard: number for number, shards in enumerate(self._bins) for shard in shards}
        self._window_samples = max(1, window_samples // len(self._bins))
        self._batches_per_block = max(1, _BLOCK_SAMPLES // global_batch_size)
        totals = np.array([self._counts[list(shards)].sum() for shards in self._bins])
        self._block_starts = _proportional_blocks(totals, self._batches_per_block * global_batch_size)
        self.batches_per_epoch = self.num_samples // global_batch_size
        self._bin_epoch = lru_cache(maxsize=2 * len(self._bins))(self._make_bin_epoch)
        self._block = lru_cache(maxsize=2)(self._make_block)
        self._window_ids = lru_cache(maxsize=2 * len(self._bins) + 2)(self._shuffled)

    def sample_ids(self, index: int) -> np.ndarray:
        """int64 [global_batch_size]: ids of global batch `index`, counted from the start of epoch 0."""
        epoch, block, place = self._place(index)
        size = self._global_batch_size
        bins = block.bins[place * size : (place + 1) * size]
        ids = np.empty(size, np.int64)
        for number, (start, stop) in enumerate(zip(block.starts[place], block.starts[place + 1], strict=True)):
            if start < stop:
                ids[bins == number] = self._slice(self._bin_epoch(epoch, number), int(start), int(stop))
        return ids

    def windows(self, index: int) -> list[Window]:
        """The windows that hold the samples of global batch `index`."""
        epoch, block, place = self._place(index)
        return [
            window
            for number, (start, stop) in enumerate(zip(block.starts[place], block.starts[place + 1], strict=True))
            for window in self._overlapping(self._bin_epoch(epoch, number), int(start), int(stop))
        ]

    def next_window(self, index: int, window: Window) -> Window | None:
        """The window that follows one of global batch `index` in its bin, None at the end of the epoch."""
        windows = self._bin_epoch(index // self.batches_per_epoch, self._bin_of_shard[window.shards[0]]).windows
        place = windows.index(window) + 1
        return windows[place] if place < len(windows) else None

    def _place(self, index: int) -> tuple[int, _Block, int]:
        """The epoch of a global batch, its block and its place in the block."""
        epoch, batch = divmod(index, self.batches_per_epoch)
        number, place = divmod(batch, self._batches_per_block)
        return epoch, self._block(epoch, number), place

    def _make_block(self, epoch: int, number: int) -> _Block:
        first, last = self._block_starts[number : number + 2]
        bins = np.repeat(np.arange(len(self._bins), dtype=np.int32), last - first)
        if len(self._bins) > 1:
            bins = bins[permutation(stream_key(self._seed, "bins", epoch, number), len(bins))]
        size = self._global_batch_size
        batches = len(bins) // size
        cells = np.arange(batches * size) // size * len(self._bins) + bins[: batches * size]
        counts = np.bincount(cells, minlength=batches * len(self._bins)).reshape(batches, -1)
        return _Block(bins, np.concatenate([first[None], first + np.cumsum(counts, axis=0)]))

    def _make_bin_epoch(self, epoch: int, number: int) -> _BinEpoch:
        key = (epoch, number)
        shards = self._bins[number]
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

    @staticmethod
    def _overlapping(bin_epoch: _BinEpoch, start: int, stop: int) -> list[Window]:
        return [
            window
            for window in bin_epoch.windows[int(np.searchsorted(bin_epoch.ends, start, side="right")) :]
            if window.start < stop
        ]

    def _slice(self, bin_epoch: _BinEpoch, start: int, stop: int) -> np.ndarray:
        """Ids at places start..stop-1 of a bin's epoch."""
        parts = []
        for window in self._overlapping(bin_epoch, start, stop):
            low, high = max(start, window.start) - window.start, min(stop, window.start + window.num_samples)
            parts.append(self._window_ids(bin_epoch.key, window)[low : high - window.start])
        return np.concatenate(parts)

    def _shuffled(self, key: tuple, window: Window) -> np.ndarray:
        """int64 [window samples]: the ids of a window in their shuffled order."""
        ids = np.concatenate(
            [np.arange(self.shard_offsets[shard], self.shard_offsets[shard + 1]) for shard in window.shards]
        )
        return ids[permutation(stream_key(self._seed, "samples", *key, window.start), len(ids))]


def _proportional_blocks(totals: np.ndarray, block_samples: int) -> np.ndarray:
    """int64 [blocks + 1, bins]: samples of each bin before each block.

    A block has `block_samples` samples, the last one fewer, of each bin in proportion to what is left of it (largest
    remainders).
    """
    left, starts = totals.astype(np.int64), [np.zeros(len(totals), np.int64)]
    while total := int(left.sum()):
        size = min(block_samples, total)
        taken, remainders = np.divmod(left * size, total)
        taken[np.argsort(-remainders, kind="stable")[: size - taken.sum()]] += 1
        left = left - taken
        starts.append(totals - left)
    return np.array(starts)
