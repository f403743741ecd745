"""Checked training shards of a folder or a mixture of folders, and the rule that makes batches of them."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bert.config.batch_settings import BatchSchedule
from bert.samples.collation import CollationRule
from bert.samples.masking import MaskingRule
from bert.samples.mixture import read_mixture, shares
from bert.samples.order import SampleOrder
from bert.samples.sample_table import SampleTable
from bert.samples.settings import MASKED_SHARE, LoaderSettings, check_predictions
from bert.samples.shards import ShardDirectory, no_masks
from bert.tokenization.vocabulary import Vocabulary

_ORDER_VERSION = 2  # changes with the rule that decides which samples a global batch has
_BIN_BITS = 16  # of the number of a bin; those above are of the folder
SHUFFLE_WINDOW_SAMPLES = 1 << 18  # samples that are shuffled together, at most; two such windows per bin in memory

_NO_PAIRS = (
    "made with --objective mlm, of single sequences, but objective=mlm_nsp needs sentence pairs; pass --objective mlm "
    "to the training, or make the shards without --objective mlm"
)


class PretrainingDataset:
    """The checked shards of a folder, and the rule that collates their samples to batches."""

    def __init__(
        self,
        directory: str | Path,
        vocabulary: Vocabulary,
        settings: LoaderSettings,
        *,
        seed: int,
        shuffle_window_samples: int = SHUFFLE_WINDOW_SAMPLES,
        next_sentence: bool = True,
        alone: bool = False,
    ) -> None:
        """Open and check the shards. `alone`: ignore the folder's mixture, read only its own shards."""
        self.settings, self.seed, self.shuffle_window_samples = settings, seed, shuffle_window_samples
        self.vocabulary = vocabulary
        mix = None if alone else read_mixture(Path(directory))
        self.parts = [
            ShardDirectory(Path(directory) / name, vocabulary, settings.max_seq_length) for name in mix or (".",)
        ]
        self.directory = self.parts[0]
        for part in self.parts:
            _check_part(part, self.directory, settings, next_sentence)
        self._objective = self.directory.made_with.get("objective")
        self.has_separate_documents = any(part.made_with.get("separate_documents", False) for part in self.parts)
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
        self._places = [(part, index) for part in self.parts for index in range(len(part.shards))]
        self.shard_counts = np.array([part.shards[index].num_samples for part, index in self._places], np.int64)
        self.shard_bins = [
            (number << _BIN_BITS) + (shard.bin_id or 0)
            for number, part in enumerate(self.parts)
            for shard in part.shards
        ]
        self.num_samples = int(self.shard_counts.sum())
        self.bins: tuple[int, ...] = tuple(sorted(set(self.shard_bins)))
        self.mix = mix or {".": self.num_samples}  # samples that a pass takes, by folder

    def separate_documents(self) -> None:
        """Let positions restart at 0 in each document of a row."""
        self.collation = replace(self.collation, cls_id=self.vocabulary.id_of("[CLS]"))

    def epochs(self, step: int, schedule: BatchSchedule) -> float:
        """Number of passes over the samples after update `step`."""
        return schedule.sequences(step) / sum(self.mix.values())

    def order(self, global_batch_size: int) -> SampleOrder:
        taken, bins = dict[int, int](), np.array(self.shard_bins)
        for folder, samples in enumerate(self.mix.values()):
            of_bin = {b: int(self.shard_counts[bins == b].sum()) for b in self.bins if b >> _BIN_BITS == folder}
            taken |= shares(of_bin, samples)
        counts = self.shard_counts.tolist()
        return SampleOrder(counts, self.shard_bins, global_batch_size, self.seed, self.shuffle_window_samples, taken)

    @property
    def fingerprint(self) -> str:
        """sha256 of all facts that decide the content of batch i, except batch size and threads."""
        settings = self.settings.model_dump(include=LoaderSettings.model_fields.keys() - {"num_workers"})
        settings |= {"seed": self.seed, "shuffle_window_samples": self.shuffle_window_samples}
        shards = [
            (
                shard.name if name == "." else f"{name}/{shard.name}",
                shard.num_samples,
                part.manifest.shards[shard.name].xxh128 if part.manifest else None,
            )
            for name, part in zip(self.mix, self.parts, strict=True)
            for shard in part.shards
        ]
        content = {
            "order": _ORDER_VERSION,
            "settings": settings,
            "shards": shards,
            "vocabulary": self.vocabulary.sha256,
        }
        if self.mix != {".": self.num_samples}:  # zeros as when samples could be added later
            content["mixes"] = [{"samples": self.mix, "from_pass": 0, "from_update": 0}]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Facts for the log: shards, samples, bins, format, masking, fingerprint."""
        return {
            "directory": str(self.directory.directory),
            "num_shards": len(self._places),
            "num_samples": self.num_samples,
            "bins": sorted({number % (1 << _BIN_BITS) for number in self.bins}),
            **({"mix": self.mix} if len(self.parts) > 1 else {}),
            "format": self.directory.shards[0].kind,
            "static_masks": self.directory.masked,
            "objective": self._objective or "mlm_nsp",
            **({"separate_documents": True} if self.has_separate_documents else {}),
            "masking": self.settings.masking,
            "fingerprint": self.fingerprint,
        }

    def load_shard(self, index: int) -> SampleTable:
        part, place = self._places[index]
        table = part.load(place)
        if self.collation.next_sentence and table.is_single().any():
            raise ValueError(f"{part.shards[place].path}: {_NO_PAIRS}")
        return table.unmasked() if self.collation.dynamic else table


def _check_part(part: ShardDirectory, first: ShardDirectory, settings: LoaderSettings, next_sentence: bool) -> None:
    """Refuse shards without required masks, words or sentence pairs, or different from the first folder's."""
    if settings.masking == "static" and not part.masked:
        raise ValueError(no_masks(part.directory))
    if settings.masking == "static":
        _check_static_masks(part, settings)
    if next_sentence and part.made_with.get("objective") == "mlm":
        raise ValueError(f"{part.directory}: {_NO_PAIRS}")
    for fact, value, other in (
        ("static masks", first.masked, part.masked),
        ("words of a segmenter", first.shards[0].has_words, part.shards[0].has_words),
    ):
        if value != other:
            raise ValueError(
                f"{first.directory} and {part.directory} differ in {fact} ({value}, {other}); mix shards that were "
                "made with the same settings"
            )


def _check_static_masks(directory: ShardDirectory, settings: LoaderSettings) -> None:
    """Refuse a masked share that differs from the static masks, and a limit that would cut unusual masks."""
    made_with = directory.made_with
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
