"""Loads batches for pre-training from checked shards, starting at any global batch.

The samples of global batch i and their masks are a function of (data, seed, global batch size, i). World size,
micro-batch size, number of threads and the samples' lengths only decide which rank and thread reads which samples.
"""

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bert.randomness import permutation, stream_key
from bert.samples.collation import CollationRule, MicroBatch
from bert.samples.global_batches import GlobalBatchLoader, prefetched
from bert.samples.masking import MaskingRule
from bert.samples.order import SampleOrder, TableCache, gather
from bert.samples.packing import Packing
from bert.samples.sample_table import SampleTable
from bert.samples.settings import LoaderSettings
from bert.samples.shards import ShardDirectory
from bert.tokenization.vocabulary import Vocabulary

_ORDER_VERSION = 2  # changes with the rule that decides which samples a global batch has
GROUPED_BATCHES = 32  # with group_by_length, the samples of as many global batches are grouped by length
SHUFFLE_WINDOW_SAMPLES = 1 << 18  # samples that are shuffled together, at most; two such windows per bin in memory

_NO_PAIRS = (
    "made with --objective mlm, of single sequences, but objective=mlm_nsp needs sentence pairs; pass --objective mlm "
    "to the training, or make the shards without --objective mlm"
)


class PretrainingDataset:
    """The checked shards of one directory and the rule that turns their samples into batches.

    Raises:
        FileNotFoundError, ValueError: as `ShardDirectory`; static masks are asked for and not in the shards; dynamic
            whole-word masks are asked for and the shards do not record the words; next-sentence prediction is asked
            for and the shards have single sequences.
    """

    def __init__(
        self,
        directory: str | Path,
        vocabulary: Vocabulary,
        settings: LoaderSettings,
        *,
        seed: int,
        shuffle_window_samples: int = SHUFFLE_WINDOW_SAMPLES,
        next_sentence: bool = True,
    ) -> None:
        self.settings, self.seed, self.shuffle_window_samples = settings, seed, shuffle_window_samples
        self.vocabulary = vocabulary
        self.directory = ShardDirectory(directory, vocabulary, settings.max_seq_length)
        if settings.masking == "static" and not self.directory.masked:
            raise ValueError(
                f"{directory}: masking='static' needs shards with masks, these have none; set "
                "masking='dynamic' or make the shards with --masking static"
            )
        segmenter = self.directory.manifest and self.directory.manifest.settings.get("word_segmenter")
        dynamic_words = settings.masking == "dynamic" and settings.whole_word_masking
        if segmenter and dynamic_words and not self.directory.shards[0].has_words:
            raise ValueError(
                f"{directory}: made with --word-segmenter {segmenter} by a version whose shards have the words only in "
                "their static masks; whole_word_masking=true with masking='dynamic' would mask single Chinese "
                "characters: make the shards again, or set masking='static' and whole_word_masking=false"
            )
        self._objective = (self.directory.manifest.settings if self.directory.manifest else {}).get("objective")
        if next_sentence and self._objective == "mlm":
            raise ValueError(f"{directory}: {_NO_PAIRS}")
        rule = MaskingRule.of(
            vocabulary,
            masked_lm_ratio=settings.masked_lm_ratio,
            max_predictions_per_seq=settings.max_predictions_per_seq,
            whole_word=settings.whole_word_masking,
        )
        self.collation = CollationRule(
            settings.max_seq_length,
            settings.sequence_length_multiple,
            vocabulary.id_of("[PAD]"),
            rule,
            settings.masking == "dynamic",
            next_sentence,
        )
        self.shard_counts = np.array([shard.num_samples for shard in self.directory.shards], np.int64)
        self.shard_bins = [shard.bin_id or 0 for shard in self.directory.shards]
        self.num_samples = int(self.shard_counts.sum())
        self.bins: tuple[int, ...] = tuple(sorted(set(self.shard_bins)))

    @property
    def fingerprint(self) -> str:
        """sha256 of everything that decides what batch i holds, except its size and the number of threads."""
        settings = self.settings.model_dump(include=LoaderSettings.model_fields.keys() - {"num_workers"})
        settings |= {"seed": self.seed, "shuffle_window_samples": self.shuffle_window_samples}
        manifest = self.directory.manifest
        shards = [
            (shard.name, shard.num_samples, manifest.shards[shard.name].xxh128 if manifest else None)
            for shard in self.directory.shards
        ]
        content = {
            "order": _ORDER_VERSION,
            "settings": settings,
            "shards": shards,
            "vocabulary": self.vocabulary.sha256,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Facts to log: shards, samples, bins, format, masking, fingerprint."""
        return {
            "directory": str(self.directory.directory),
            "num_shards": len(self.directory.shards),
            "num_samples": self.num_samples,
            "bins": list(self.bins),
            "format": self.directory.shards[0].kind,
            "static_masks": self.directory.masked,
            "objective": self._objective or "mlm_nsp",
            "masking": self.settings.masking,
            "fingerprint": self.fingerprint,
        }

    def load_shard(self, index: int) -> SampleTable:
        """One decoded shard; static masks are undone if dynamic ones are wanted."""
        table = self.directory.load(index)
        if self.collation.next_sentence and table.is_single().any():
            raise ValueError(f"{self.directory.shards[index].path}: {_NO_PAIRS}")
        return table.unmasked() if self.collation.dynamic else table


@dataclass(frozen=True)
class _Located:
    """Samples and where they are: sample i is row rows[i] of tables[table_of[i]]."""

    sample_ids: np.ndarray
    tables: tuple[SampleTable, ...]
    table_of: np.ndarray
    rows: np.ndarray

    def lengths(self) -> np.ndarray:
        """int64 [n]: tokens of each sample."""
        lengths = np.empty(len(self.rows), np.int64)
        for number, table in enumerate(self.tables):
            mine = self.table_of == number
            lengths[mine] = table.offsets[self.rows[mine] + 1] - table.offsets[self.rows[mine]]
        return lengths

    def take(self, places: np.ndarray) -> "_Located":
        return _Located(self.sample_ids[places], self.tables, self.table_of[places], self.rows[places])

    def groups(self) -> tuple[tuple[SampleTable, np.ndarray, np.ndarray], ...]:
        """(table, places [g], rows [g]) of each table that has samples; places ascend."""
        places = [np.flatnonzero(self.table_of == number) for number in range(len(self.tables))]
        return tuple(
            (table, mine, self.rows[mine]) for table, mine in zip(self.tables, places, strict=True) if len(mine)
        )


@dataclass(frozen=True)
class _ResolvedBatch:
    """The samples of a global batch in the order in which ranks take them, and its number of predictions."""

    sample_ids: np.ndarray
    groups: tuple[tuple[SampleTable, np.ndarray, np.ndarray], ...]
    key: np.uint64
    num_masked: int


class PretrainingLoader(GlobalBatchLoader):
    """The batches of one rank."""

    def __init__(
        self,
        dataset: PretrainingDataset,
        *,
        global_batch_size: int,
        micro_batch_size: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(
            global_batch_size=global_batch_size,
            micro_batch_size=micro_batch_size,
            rank=rank,
            world_size=world_size,
            num_workers=dataset.settings.num_workers,
        )
        self._dataset = dataset
        self._order = SampleOrder(
            dataset.shard_counts.tolist(),
            dataset.shard_bins,
            global_batch_size,
            dataset.seed,
            dataset.shuffle_window_samples,
        )
        self._tables = TableCache(dataset.load_shard, capacity=2 * len(dataset.bins) + 2)
        self._resolve = lru_cache(maxsize=2)(self._make_resolved)
        self._batches_of_like_length = lru_cache(maxsize=1)(self._make_batches_of_like_length)
        self._lock = threading.Lock()
        self.batches_per_epoch = self._order.batches_per_epoch

    def sample_ids(self, index: int) -> np.ndarray:
        """int64 [global_batch_size]: the samples of a global batch, the same on every rank, before they are dealt."""
        with self._lock:
            return self._samples(index).sample_ids.copy()

    def epoch(self, index: int) -> int:
        return index // self.batches_per_epoch

    def micro_batch(self, index: int, micro_step: int) -> MicroBatch:
        with self._lock:
            batch = self._resolve(index)
        own = self._own_samples(micro_step)
        normalizer = max(batch.num_masked, 1) / self._num_micro_batches
        table, rows = gather(batch.groups, own.start, own.stop)
        return self._dataset.collation.collate(table, rows, batch.key, batch.sample_ids[own], normalizer)

    def _make_resolved(self, index: int) -> _ResolvedBatch:
        samples = self._samples(index)
        samples = samples.take(deal(samples.lengths(), self._num_micro_steps, self._world_size))
        key, groups = stream_key(self._dataset.seed, "dynamic masks", self.epoch(index)), samples.groups()
        num_masked = sum(
            int(self._dataset.collation.mask_counts(table, rows, key, samples.sample_ids[places]).sum())
            for table, places, rows in groups
        )
        return _ResolvedBatch(samples.sample_ids, groups, key, num_masked)

    def _samples(self, index: int) -> _Located:
        """The samples of a global batch, before they are dealt."""
        if not self._dataset.settings.group_by_length:
            return self._locate([index])
        epoch, batch = divmod(index, self.batches_per_epoch)
        samples, places = self._batches_of_like_length(epoch, batch // GROUPED_BATCHES)
        return samples.take(places[batch % GROUPED_BATCHES])

    def _make_batches_of_like_length(self, epoch: int, group: int) -> tuple[_Located, np.ndarray]:
        """The samples of a group of global batches, and int64 [batches, global_batch_size], their places in each."""
        first = group * GROUPED_BATCHES
        number = min(GROUPED_BATCHES, self.batches_per_epoch - first)
        start = epoch * self.batches_per_epoch + first
        samples = self._locate(range(start, start + number))
        sorted_places = np.argsort(samples.lengths(), kind="stable").reshape(number, -1)
        order = permutation(stream_key(self._dataset.seed, "batches of like length", epoch, group), number)
        return samples, sorted_places[order]

    def _locate(self, indices: Sequence[int]) -> _Located:
        """The samples of consecutive global batches; the shards of the windows that follow are prepared."""
        ids = np.concatenate([self._order.sample_ids(index) for index in indices])
        offsets, counts = self._order.shard_offsets, self._dataset.shard_counts
        shard_of = np.searchsorted(offsets, ids, side="right") - 1
        tables: list[SampleTable] = []
        table_of, rows = np.empty((2, len(ids)), np.int64)
        for window in dict.fromkeys(window for index in indices for window in self._order.windows(index)):
            shards = np.array(window.shards)
            ranks = np.minimum(np.searchsorted(shards, shard_of), len(shards) - 1)
            places = np.flatnonzero(shards[ranks] == shard_of)
            bases = np.cumsum(counts[shards]) - counts[shards]
            table_of[places] = len(tables)
            rows[places] = ids[places] - offsets[shard_of[places]] + bases[ranks[places]]
            tables.append(self._tables.get(window.shards))
            following = self._order.next_window(indices[-1], window) if self._num_workers else None
            if following is not None:
                self._tables.prepare(following.shards)
        return _Located(ids, tuple(tables), table_of, rows)


def deal(lengths: np.ndarray, num_micro_steps: int, world_size: int) -> np.ndarray:
    """int64 [n]: the order in which micro-batches take the samples of a global batch, that of micro-step 0 first.

    A micro-batch has samples of like length, so that it needs little padding, and the micro-batches of one micro-step
    have like lengths. Ranks take them back and forth (0 1 2 2 1 0 0 1 2 ...), so that they have like work.

    Args:
        lengths: int64 [n], tokens of each sample; n is a multiple of num_micro_steps * world_size.
    """
    order = np.argsort(-lengths, kind="stable").reshape(num_micro_steps, world_size, -1)
    order[1::2] = order[1::2, ::-1].copy()
    return order.reshape(-1)


def evaluation_batches(
    dataset: PretrainingDataset,
    *,
    micro_batch_size: int,
    rank: int = 0,
    world_size: int = 1,
    max_samples: int | None = None,
    packing: Packing | None = None,
) -> Iterator[MicroBatch]:
    """Batches in a fixed order with fixed masks; rank r takes batches r, r + world_size, ...; the last may be small.

    Args:
        max_samples: use only this many samples, spread evenly over all.
        packing: of a program of packed tokens; None: the batches are padded.
    """
    if micro_batch_size < 1:
        raise ValueError(f"micro_batch_size={micro_batch_size} must be at least 1")
    if max_samples is not None and max_samples < 1:
        raise ValueError(f"max_samples={max_samples} must be at least 1, or None for all")
    count = dataset.num_samples if max_samples is None else min(max_samples, dataset.num_samples)
    offsets = np.concatenate([[0], np.cumsum(dataset.shard_counts)])
    tables = TableCache(dataset.load_shard, capacity=2)
    key = stream_key(dataset.seed, "evaluation masks")

    def batch(start: int) -> MicroBatch:
        places = np.arange(start, min(start + micro_batch_size, count))
        ids = places * dataset.num_samples // count
        shard_of = np.searchsorted(offsets, ids, side="right") - 1
        groups = []
        for shard in np.unique(shard_of):
            mine = np.flatnonzero(shard_of == shard)
            groups.append((tables.get((int(shard),)), mine, ids[mine] - offsets[shard]))
        table, rows = gather(groups, 0, len(ids))
        return dataset.collation.collate(table, rows, key, ids).packed(packing)

    starts = range(rank * micro_batch_size, count, world_size * micro_batch_size)
    yield from prefetched(batch, starts, dataset.settings.num_workers)


def unigram_entropy(labels: np.ndarray) -> float:
    """Entropy, in nats, of the empirical distribution of labels: the loss of the best guess that ignores context."""
    _, counts = np.unique(labels, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def evaluation_unigram_entropy(dataset: PretrainingDataset, max_samples: int | None = None) -> float:
    """The unigram entropy, in nats, of the masked-LM labels of `evaluation_batches`."""
    labels = [
        batch.feed["masked_lm_labels"][: batch.num_masked]
        for batch in evaluation_batches(dataset, micro_batch_size=256, max_samples=max_samples)
    ]
    return unigram_entropy(np.concatenate(labels))
