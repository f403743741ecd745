"""The order of samples: the samples of any global batch, as a function of (seed, epoch, counts).

Global batches are consecutive parts of a random order of the epoch's samples. An epoch takes every sample once, or a
number of each bin: those that follow in an endless row of passes over the bin. Bins decide only in which order shards
are read: every pass permutes the shards of each bin, cuts them into windows that fit into memory and permutes the
samples of each window; the bins' sequences are then mixed at random, so that a global batch has samples of every
length, in the proportions of the epoch. Fewer than `global_batch_size` samples, different ones in every epoch, are
left out.

The first windows of an epoch are smaller, a sixteenth, an eighth, a quarter and a half of the others, so that training
starts when a few shards are read.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.randomness import permutation, stream_key
from bert.samples.sample_table import SampleTable, concatenate


class TableCache:
    """Thread-safe cache of at most `capacity` decoded groups of shards, each read by its own thread."""

    def __init__(self, load_shard: Callable[[int], SampleTable], capacity: int) -> None:
        self._load_shard = load_shard
        self._reading = lru_cache(maxsize=capacity)(self._read)
        self._lock = threading.Lock()

    def get(self, shards: tuple[int, ...]) -> SampleTable:
        """Rows of the given shards, one shard after the other; raises an error of their reading."""
        return self.prepare(shards).result()

    def prepare(self, shards: tuple[int, ...]) -> Future[SampleTable]:
        """Start reading shards before `get` asks for them."""
        with self._lock:
            return self._reading(shards)

    def _read(self, shards: tuple[int, ...]) -> Future[SampleTable]:
        future: Future[SampleTable] = Future()

        def fill() -> None:
            try:
                future.set_result(concatenate([self._load_shard(shard) for shard in shards]))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=fill, name="shards", daemon=True).start()
        return future


_SMALL_WINDOWS = 4


@dataclass(frozen=True)
class Window:
    """Shards (ascending indices) in memory together, and their range of samples in the bin's epoch.

    following: the shards of the bin's next window; none at the end of the epoch.
    """

    shards: tuple[int, ...]
    start: int
    num_samples: int
    following: tuple[int, ...]


class SampleOrder:
    """The order of all samples, epoch after epoch.

    Sample ids run through the shards in their order: sample r of shard s has the id shard_offsets[s] + r.

    Args:
        bins: bin of each shard (all 0 without bins).
        window_samples: at most this many samples are shuffled together, more only where one shard is larger.
        taken: samples of each bin in an epoch; None: all, once.
        block_samples: bins are mixed in blocks of about as many samples, each with the epoch's shares of the bins.
    """

    def __init__(
        self,
        counts: Sequence[int],
        bins: Sequence[int],
        global_batch_size: int,
        seed: int,
        window_samples: int,
        taken: Mapping[int, int] | None = None,
        block_samples: int = 1 << 18,
    ) -> None:
        self._counts = np.asarray(counts, np.int64)
        self.shard_offsets = offsets_of(self._counts)
        self._bins = [np.flatnonzero(np.asarray(bins) == bin_id).tolist() for bin_id in sorted(set(bins))]
        self._totals = [int(self._counts[shards].sum()) for shards in self._bins]
        self._taken = self._totals if taken is None else [taken[bin_id] for bin_id in sorted(set(bins))]
        num_samples = sum(self._taken)
        if num_samples < global_batch_size:
            raise ValueError(
                f"global_batch_size={global_batch_size} exceeds the {num_samples} samples there are; "
                "an epoch must hold a batch: use a smaller batch or more data (--duplicate-factor)"
            )
        self._global_batch_size, self._seed = global_batch_size, seed
        self._window_samples = max(1, window_samples // len(self._bins))
        self._batches_per_block = max(1, block_samples // global_batch_size)
        self._block_starts = _proportional_blocks(np.array(self._taken), self._batches_per_block * global_batch_size)
        self.batches_per_epoch = num_samples // global_batch_size
        self._windows = lru_cache(maxsize=2 * len(self._bins))(self._make_windows)
        self._block = lru_cache(maxsize=2)(self._make_block)
        self._shuffled = lru_cache(maxsize=2 * len(self._bins) + 2)(self._make_shuffled)

    def parts(self, index: int) -> Iterator[tuple[Window, np.ndarray, np.ndarray, int]]:
        """Samples of global batch `index`, counted from the start of epoch 0, by window.

        Each part is (window, places int64 [n] in the batch, rows int64 [n] among all samples of the window, number):
        the number is different for each reading of a sample in an epoch, and 0 where an epoch takes every sample once.
        """
        epoch, batch = divmod(index, self.batches_per_epoch)
        number, place = divmod(batch, self._batches_per_block)
        bins, starts = self._block(epoch, number)
        bins = bins[place * self._global_batch_size :][: self._global_batch_size]
        for bin_number, (start, stop) in enumerate(starts[place : place + 2].T.tolist()):
            places, total, taken = np.flatnonzero(bins == bin_number), self._totals[bin_number], self._taken[bin_number]
            first, last = epoch * taken + start, epoch * taken + stop
            for number in range(first // total, -(-last // total)) if first < last else ():
                begin = first - number * total  # the place of the batch in this pass over the bin
                for window, low, high in self._overlaps(number, bin_number, max(begin, 0), last - number * total):
                    rows = self._shuffled(number, bin_number, window.start, window.num_samples)
                    rows = rows[low - window.start : high - window.start]
                    yield window, places[low - begin : high - begin], rows, number if taken != total else 0

    def _overlaps(self, number: int, bin_number: int, start: int, stop: int) -> Iterator[tuple[Window, int, int]]:
        """Parts (window, first, last) of samples start ... stop - 1 of a pass over a bin."""
        windows = self._windows(number, bin_number)
        for window in windows[bisect_right(windows, start, key=lambda window: window.start) - 1 :]:
            if window.start >= stop:
                break
            low, high = max(start, window.start), min(stop, window.start + window.num_samples)
            if low < high:
                yield window, low, high

    def sample_ids(self, window: Window, rows: np.ndarray) -> np.ndarray:
        """Ids of samples, from their rows in a window: int64 [n]."""
        shards = np.array(window.shards)
        offsets = offsets_of(self._counts[shards])
        place = np.searchsorted(offsets, rows, side="right") - 1
        return self.shard_offsets[shards[place]] + rows - offsets[place]

    def _make_block(self, epoch: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Bins of the samples of consecutive global batches, and each bin's samples before each batch."""
        first, last = self._block_starts[number : number + 2]
        bins = np.repeat(np.arange(len(self._bins), dtype=np.int32), last - first)
        if len(self._bins) > 1:
            bins = bins[permutation(stream_key(self._seed, "bins", epoch, number), len(bins))]
        size = self._global_batch_size
        batches = len(bins) // size
        cells = np.arange(batches * size) // size * len(self._bins) + bins[: batches * size]
        counts = np.bincount(cells, minlength=batches * len(self._bins)).reshape(batches, -1)
        return bins, np.concatenate([first[None], first + np.cumsum(counts, axis=0)])

    def _make_windows(self, epoch: int, bin_number: int) -> list[Window]:
        shards = self._bins[bin_number]
        groups: list[list[int]] = [[]]
        sizes = [0]
        for place in permutation(stream_key(self._seed, "shards", epoch, bin_number), len(shards)):
            count = int(self._counts[shards[place]])
            limit = max(1, self._window_samples >> max(0, _SMALL_WINDOWS + 1 - len(groups)))
            if sizes[-1] and sizes[-1] + count > limit:
                groups.append([])
                sizes.append(0)
            groups[-1].append(shards[place])
            sizes[-1] += count
        held, starts = [tuple(sorted(group)) for group in groups], offsets_of(sizes).tolist()
        return [Window(*window) for window in zip(held, starts, sizes, [*held[1:], ()], strict=False)]

    def _make_shuffled(self, epoch: int, bin_number: int, start: int, num_samples: int) -> np.ndarray:
        """Rows of a window in shuffled order, int64 [num_samples]."""
        return permutation(stream_key(self._seed, "samples", epoch, bin_number, start), num_samples)


def _proportional_blocks(totals: np.ndarray, block_samples: int) -> np.ndarray:
    """Number of samples of each bin before each block: int64 [blocks + 1, bins].

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
