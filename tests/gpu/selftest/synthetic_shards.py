"""Shards of random tokens with static masks, every sequence of full length: for measuring speed without a corpus."""

from pathlib import Path

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.files import checksum_of
from bert.pretraining.config import PretrainingConfig
from bert.samples.formats.arrow import arrow_columns, columns_to_arrow
from bert.samples.manifest import MANIFEST_NAME, Manifest, ShardRecord, write_manifest
from bert.samples.sample_table import SampleTable, StaticMasks, join_pairs
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

NUM_SHARDS = 8


def write_vocabulary(path: Path, size: int) -> Vocabulary:
    """Special tokens and made-up words."""
    words = Vocabulary((*SPECIAL_TOKENS, *(f"word{number}" for number in range(size - len(SPECIAL_TOKENS)))))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{token}\n" for token in words.tokens))
    return words


def random_samples(
    num_samples: int, length: int, num_masked: int, vocabulary: Vocabulary, rng: np.random.Generator
) -> SampleTable:
    """Pairs of two equal halves; `num_masked` tokens of each are masked."""
    first = np.full(num_samples, (length - 3) // 2)
    second = length - 3 - first
    low, high = len(SPECIAL_TOKENS), len(vocabulary)
    ids, offsets = join_pairs(
        rng.integers(low, high, first.sum()).astype(np.uint16),
        first,
        rng.integers(low, high, second.sum()).astype(np.uint16),
        second,
        vocabulary.id_of("[CLS]"),
        vocabulary.id_of("[SEP]"),
    )
    order = np.argsort(rng.random((num_samples, length)), axis=1)
    special = (order == 0) | (order == first[0] + 1) | (order == length - 1)
    positions = order[~special].reshape(num_samples, -1)[:, :num_masked]
    positions.sort(axis=1)
    flat = (offsets[:-1, None] + positions).ravel()
    labels = ids[flat].copy()
    ids[flat] = vocabulary.id_of("[MASK]")
    masks = StaticMasks(offsets_of(np.full(num_samples, num_masked)), positions.ravel().astype(np.uint16), labels)
    return SampleTable(ids, offsets, (first + 2).astype(np.int32), rng.random(num_samples) < 0.5, masks)


def write_shards(config: PretrainingConfig, num_samples: int) -> None:
    """The shards that the settings name, at least `num_samples` in all, unless they are there."""
    folder, size = config.data.input_dir, -(-num_samples // NUM_SHARDS)
    if (folder / MANIFEST_NAME).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = write_vocabulary(config.data.vocab_file, config.model.vocab_size)
    records = {}
    for number in range(NUM_SHARDS):
        rng = np.random.default_rng(number)
        length, num_masked = config.data.max_seq_length, config.data.max_predictions_per_seq
        data = columns_to_arrow(arrow_columns(random_samples(size, length, num_masked, vocabulary, rng)))
        name = f"shard-{number}.arrow"
        (folder / name).write_bytes(data)
        records[name] = ShardRecord(size, data.size, checksum_of(data))
    write_manifest(folder, Manifest(records, vocabulary.sha256))
