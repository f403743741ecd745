"""Loads batches for pre-training from checked shards, starting at any global batch.

The samples of global batch i and their masks are a function of (data, seed, global batch size, i). World size,
micro-batch size, number of threads and the samples' lengths only decide which rank and thread reads which samples.
"""

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.randomness import permutation, stream_key
from bert.samples.collation import CollationRule, MicroBatch
from bert.samples.global_batches import GlobalBatchLoader, prefetched
from bert.samples.masking import MASKED_SHARE, MaskingRule, check_predictions
from bert.samples.order import SampleOrder, TableCache, Window
from bert.samples.packing import Packing
from bert.samples.sample_table import LocatedSamples, SampleTable
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
        made_with = self.directory.manifest.settings if self.directory.manifest else {}
        if settings.masking == "static" and not self.directory.masked:
            raise ValueError(
                f"{directory}: masking='static' needs shards with masks, these have none; set "
                "masking='dynamic' or make the shards with --masking static"
            )
        if settings.masking == "static":
            _check_static_masks(self.directory, settings)
        segmenter = made_with.get("word_segmenter")
        dynamic_words = settings.masking == "dynamic" and settings.whole_word_masking
        if segmenter and dynamic_words and not self.directory.shards[0].has_words:
            raise ValueError(
                f"{directory}: made with --word-segmenter {segmenter} by a version whose shards have the words only in "
                "their static masks; whole_word_masking=true with masking='dynamic' would mask single Chinese "
                "characters: make the shards again, or set masking='static' and whole_word_masking=false"
            )
        self._objective = made_with.get("objective")
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
        table = self.directory.load(index)
        if self.collation.next_sentence and table.is_single().any():
            raise ValueError(f"{self.directory.shards[index].path}: {_NO_PAIRS}")
        return table.unmasked() if self.collation.dynamic else table


def _check_static_masks(directory: ShardDirectory, settings: LoaderSettings) -> None:
    """Refuse a share that is not that of the masks, and a limit that would cut masks of another share than usual."""
    made_with = directory.manifest.settings if directory.manifest else {}
    length = made_with.get("pairs", {}).get("target_seq_length", 0)
    share, limit = made_with.get("masked_lm_ratio", MASKED_SHARE), settings.max_predictions_per_seq
    if settings.masked_lm_ratio not in (MASKED_SHARE, share):
        raise ValueError(
            f"masked_lm_ratio={settings.masked_lm_ratio:g} must be {share:g}, the share of the static masks in "
            f"{directory.directory}; drop --masked-lm-ratio, pass --masking dynamic, or make the shards with "
            f"--masked-lm-ratio {settings.masked_lm_ratio:g}"
        )
    if (made_with.get("max_predictions_per_seq") or length) > limit:
        try:
            check_predictions(length, share, limit)
        except ValueError as error:
            raise ValueError(f"{directory.directory}: static masks, {error}") from None


class PretrainingLoader(GlobalBatchLoader):
    """The batches of one rank; arguments as of `GlobalBatchLoader`."""

    def __init__(self, dataset: PretrainingDataset, **batches: int) -> None:
        super().__init__(num_workers=dataset.settings.num_workers, **batches)
        self._dataset = dataset
        shards = dataset.shard_counts.tolist(), dataset.shard_bins
        self._order = SampleOrder(*shards, self.global_batch_size, dataset.seed, dataset.shuffle_window_samples)
        self._tables = TableCache(dataset.load_shard, capacity=2 * len(dataset.bins) + 2)
        self._dealt = lru_cache(maxsize=2)(self._make_dealt)
        self._batches_of_like_length = lru_cache(maxsize=1)(self._make_batches_of_like_length)
        self._lock = threading.Lock()
        self.batches_per_epoch = self._order.batches_per_epoch

    def sample_ids(self, index: int) -> np.ndarray:
        """int64 [global_batch_size]: the samples of a global batch, the same on every rank, before they are dealt."""
        with self._lock:
            return self._samples(index).ids.copy()

    def epoch(self, index: int) -> int:
        return index // self.batches_per_epoch

    def micro_batch(self, index: int, micro_step: int) -> MicroBatch:
        with self._lock:
            samples, key, num_masked = self._dealt(index)
        own = samples.take(self._own_samples(micro_step))
        normalizer = max(num_masked, 1) / self._num_micro_batches
        return self._dataset.collation.collate(*own.gathered(), key, own.ids, normalizer)

    def _make_dealt(self, index: int) -> tuple[LocatedSamples, np.uint64, int]:
        """The samples of a global batch in the order in which ranks take them, their key and number of predictions."""
        samples = self._samples(index)
        samples = samples.take(deal(samples.lengths(), self._num_micro_steps, self._world_size))
        key = stream_key(self._dataset.seed, "dynamic masks", self.epoch(index))
        counts = [
            self._dataset.collation.mask_counts(table, samples.rows[places], key, samples.ids[places]).sum()
            for table, places in samples.by_table()
        ]
        return samples, key, int(sum(counts))

    def _samples(self, index: int) -> LocatedSamples:
        """The samples of a global batch, before they are dealt."""
        if not self._dataset.settings.group_by_length:
            return self._locate([index])
        epoch, batch = divmod(index, self.batches_per_epoch)
        samples, places = self._batches_of_like_length(epoch, batch // GROUPED_BATCHES)
        return samples.take(places[batch % GROUPED_BATCHES])

    def _make_batches_of_like_length(self, epoch: int, group: int) -> tuple[LocatedSamples, np.ndarray]:
        """The samples of a group of global batches, and int64 [batches, global_batch_size], their places in each."""
        first = group * GROUPED_BATCHES
        number = min(GROUPED_BATCHES, self.batches_per_epoch - first)
        start = epoch * self.batches_per_epoch + first
        samples = self._locate(range(start, start + number))
        sorted_places = np.argsort(samples.lengths(), kind="stable").reshape(number, -1)
        order = permutation(stream_key(self._dataset.seed, "batches of like length", epoch, group), number)
        return samples, sorted_places[order]

    def _locate(self, indices: Sequence[int]) -> LocatedSamples:
        """The samples of consecutive global batches; the shards of the windows that follow are prepared."""
        size, numbers = self.global_batch_size, dict[Window, int]()
        ids, table_of, rows = np.empty((3, len(indices) * size), np.int64)
        for number, index in enumerate(indices):
            for window, places, window_rows in self._order.parts(index):
                places = number * size + places
                ids[places] = self._order.sample_ids(window, window_rows)
                table_of[places], rows[places] = numbers.setdefault(window, len(numbers)), window_rows
        tables = []
        for window in numbers:
            tables.append(self._tables.get(window.shards))
            if window.following and self._num_workers:
                self._tables.prepare(window.following)
        return LocatedSamples(ids, tables, table_of, rows)


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
    """Entropy, in nats, of the masked-LM labels of `evaluation_batches`: the loss of the best guess that ignores
    context."""
    batches = evaluation_batches(dataset, micro_batch_size=256, max_samples=max_samples)
    labels = np.concatenate([batch.feed["masked_lm_labels"][: batch.num_masked] for batch in batches])
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    return float(-(shares * np.log(shares)).sum())
