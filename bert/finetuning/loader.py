"""Batches for fine-tuning and prediction, from a table of tokenised sequences. No Paddle.

The samples of global batch i are a function of (seed, global batch size, i): every epoch is a permutation of the table,
epochs follow each other without a gap, and world size and micro-batch size only decide who reads what. So no sample is
dropped, a batch may span two epochs, and any position can be sought.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from bert.arrays.ragged import ragged_indices
from bert.randomness import permutation, stream_key
from bert.samples.collation import MicroBatch
from bert.samples.prefetching import prefetched

UNLABELLED = -1  # of a token


@dataclass(frozen=True)
class FeatureTable:
    """n tokenised sequences, T tokens in all.

    Attributes:
        input_ids: integers [T]; sequence i is input_ids[offsets[i]:offsets[i + 1]].
        offsets: int64 [n + 1].
        first_lengths: integers [n]: tokens of type 0; those after them have type 1.
        labels: name of the program's input -> int64 or float32 [n].
        token_labels: int64 [T], UNLABELLED where a token has none; None in tasks that label sequences.
        pad_id: what shorter sequences are filled up with.
    """

    input_ids: np.ndarray
    offsets: np.ndarray
    first_lengths: np.ndarray
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    token_labels: np.ndarray | None = None
    pad_id: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self) -> np.ndarray:
        """int64 [n], tokens."""
        return np.diff(self.offsets)

    def feed(self, rows: np.ndarray, width: int, *, with_labels: bool) -> dict[str, np.ndarray]:
        """The given sequences, padded to `width`: int64 [b, width] each of the encoder's inputs, and the labels."""
        lengths = self.lengths()[rows]
        columns = np.arange(width)[None, :]
        real = columns < lengths[:, None]
        flat = ragged_indices(self.offsets[rows], lengths)
        input_ids = np.full(real.shape, self.pad_id, np.int64)
        input_ids[real] = self.input_ids[flat]
        feed = {
            "input_ids": input_ids,
            "token_type_ids": (real & (columns >= np.asarray(self.first_lengths)[rows, None])).astype(np.int64),
            "attention_mask": real.astype(np.int64),
        }
        if with_labels:
            feed |= {name: values[rows] for name, values in self.labels.items()}
        if with_labels and self.token_labels is not None:
            feed["labels"] = np.full(real.shape, UNLABELLED, np.int64)
            feed["labels"][real] = self.token_labels[flat]
        return feed

    def labelled_tokens(self) -> np.ndarray:
        """int64 [n]: tokens with a label."""
        assert self.token_labels is not None
        counts = np.concatenate([[0], np.cumsum(self.token_labels != UNLABELLED)])
        return np.diff(counts[self.offsets])


@dataclass(frozen=True)
class GlobalBatch:
    """One optimizer update: its epoch (of its first sample), the ids of all its samples, and this rank's passes."""

    epoch: int
    sample_ids: np.ndarray
    micro_batches: list[MicroBatch]


@dataclass(frozen=True)
class FineTuningLoader:
    """This rank's share of every global batch.

    The global batch is micro_batch_size x world_size x passes sequences; pass p of rank r takes the
    (p * world_size + r)-th slice of it.
    """

    table: FeatureTable
    global_batch_size: int
    micro_batch_size: int
    rank: int = 0
    world_size: int = 1
    seed: int = 42
    max_seq_length: int = 512
    sequence_length_multiple: int = 8
    num_workers: int = 1

    def __post_init__(self) -> None:
        if len(self.table) == 0:
            raise ValueError("the training set has no samples; check the file, and what was skipped in it")
        assert self.global_batch_size % (self.micro_batch_size * self.world_size) == 0

    def sample_ids(self, index: int) -> np.ndarray:
        """int64 [global_batch_size]: the samples of global batch `index`, counted from the start of training."""
        size = len(self.table)
        places = np.arange(index * self.global_batch_size, (index + 1) * self.global_batch_size)
        epochs, within = np.divmod(places, size)
        ids = np.empty(len(places), np.int64)
        for epoch in np.unique(epochs):
            order = permutation(stream_key(self.seed, "fine-tuning order", int(epoch)), size)
            ids[epochs == epoch] = order[within[epochs == epoch]]
        return ids

    def batches(self, start_step: int) -> Generator[GlobalBatch, None, None]:
        """Global batches from `start_step` on, without end; close it to end its threads."""

        def steps() -> Iterator[int]:
            step = start_step
            while True:
                yield step
                step += 1

        yield from prefetched(self.batch, steps(), self.num_workers)

    def batch(self, index: int) -> GlobalBatch:
        ids = self.sample_ids(index)
        slices = ids.reshape(-1, self.world_size, self.micro_batch_size)[:, self.rank]
        extra = {}
        if self.table.token_labels is not None:
            labelled = int(self.table.labelled_tokens()[ids].sum())
            num_passes = len(ids) // self.micro_batch_size
            extra["label_normalizer"] = np.array([max(labelled, 1) / num_passes], np.float32)
        passes = [self._pass(rows, extra) for rows in slices]
        return GlobalBatch(index * self.global_batch_size // len(self.table), ids, passes)

    def _pass(self, rows: np.ndarray, extra: dict[str, np.ndarray]) -> MicroBatch:
        width = padded_width(self.table.lengths()[rows], self.sequence_length_multiple, self.max_seq_length)
        feed = self.table.feed(rows, width, with_labels=True) | extra
        return MicroBatch(feed, len(rows), int(self.table.lengths()[rows].sum()), len(rows) * width, 0)


@dataclass(frozen=True)
class PredictionBatch:
    """Sequences `rows` of the table and their feed."""

    rows: np.ndarray
    feed: dict[str, np.ndarray]


def prediction_batches(
    table: FeatureTable,
    batch_size: int,
    *,
    rank: int = 0,
    world_size: int = 1,
    sequence_length_multiple: int = 8,
    max_seq_length: int = 512,
) -> Iterator[PredictionBatch]:
    """This rank's batches of the whole table, the longest sequences first and like lengths together: little padding."""
    order = np.argsort(-table.lengths(), kind="stable")
    for start in range(rank * batch_size, len(order), batch_size * world_size):
        rows = order[start : start + batch_size]
        width = padded_width(table.lengths()[rows], sequence_length_multiple, max_seq_length)
        yield PredictionBatch(rows, table.feed(rows, width, with_labels=False))


def padded_width(lengths: np.ndarray, multiple: int, most: int) -> int:
    """The longest of some lengths, rounded up to a multiple, but at most `most`."""
    assert lengths.max() <= most, "features are longer than max_seq_length"
    return min(-(-int(lengths.max()) // multiple) * multiple, most)
