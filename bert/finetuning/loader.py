"""Batches for fine-tuning and prediction, from a table of tokenised sequences.

The samples of global batch i are a function of (seed, global batch size, i): every epoch is a permutation of the table,
epochs follow each other without a gap, and world size and micro-batch size only decide who reads what. So no sample is
dropped, a batch may span two epochs, and any position can be sought.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from bert.arrays.ragged import offsets_of, ragged_indices
from bert.randomness import permutation, stream_key
from bert.samples.collation import MicroBatch, padded_width
from bert.samples.global_batches import GlobalBatchLoader
from bert.samples.sample_table import Slices, join_pairs

UNLABELLED = -1  # of a token


@dataclass(frozen=True)
class FeatureTable:
    """n tokenised sequences, T tokens in all. Tasks add arrays of their own.

    Attributes:
        first_lengths: integers [n]: tokens of type 0; later tokens have `second_type`. None: all have type 0.
        labels: name of the program's input -> integers or float32 [n]; for tokens [T] with UNLABELLED.
    """

    input_ids: np.ndarray  # integers [T]; sequence i is input_ids[offsets[i]:offsets[i + 1]]
    offsets: np.ndarray  # int64 [n + 1]
    first_lengths: np.ndarray | None = None
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    pad_id: int = 0  # id of the padding token
    second_type: int = 1  # token type of the tokens of the second segment

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self) -> np.ndarray:
        """Length of each sequence in tokens, int64 [n]."""
        return np.diff(self.offsets)

    def fingerprint(self) -> str:
        """sha256 over names, dtypes, shapes and bytes of the arrays."""
        digest = hashlib.sha256()
        for name, array in sorted({**vars(self), **self.labels}.items()):
            if isinstance(array, np.ndarray):
                digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
                digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
        return digest.hexdigest()

    def tokens_of(self, rows: np.ndarray) -> np.ndarray:
        """Indices of the tokens of some sequences, one sequence after the other: int64."""
        return ragged_indices(self.offsets[rows], self.lengths()[rows])

    def feed(self, rows: np.ndarray, width: int, *, with_labels: bool) -> dict[str, np.ndarray]:
        """The feed of some sequences, padded to `width`: the encoder's inputs int64 [b, width], and the labels."""
        lengths, flat = self.lengths()[rows], self.tokens_of(rows)
        columns = np.arange(width)[None, :]
        real = columns < lengths[:, None]
        first = lengths if self.first_lengths is None else self.first_lengths[rows]

        def padded(values: np.ndarray, padding: int) -> np.ndarray:
            result = np.full(real.shape, padding, np.int64)
            result[real] = values[flat]
            return result

        feed = {
            "input_ids": padded(self.input_ids, self.pad_id),
            "token_type_ids": (real & (columns >= first[:, None])) * np.int64(self.second_type),
            "attention_mask": real.astype(np.int64),
        }
        for name, values in self.labels.items() if with_labels else ():
            if len(values) > len(self):
                feed[name] = padded(values, UNLABELLED)
            else:
                feed[name] = values[rows].astype(np.float32 if values.dtype.kind == "f" else np.int64)
        return feed

    def labelled_tokens(self) -> np.ndarray | None:
        """Number of labelled tokens of each sequence, int64 [n]; None if sequences have labels, not tokens."""
        for values in self.labels.values():
            if len(values) > len(self):
                return np.diff(offsets_of(values != UNLABELLED)[self.offsets])
        return None


def single_sequences(texts: Slices, cls_id: int, sep_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Build [CLS] A [SEP] for every slice: token ids [T] and offsets int64 [n + 1]."""
    return join_pairs(texts, texts._replace(lengths=np.zeros_like(texts.lengths)), cls_id, sep_id, single=True)


class FineTuningLoader(GlobalBatchLoader):
    """Loads this rank's share of every global batch, with labels. `batches` is described in `GlobalBatchLoader`."""

    def __init__(
        self,
        table: FeatureTable,
        *,
        seed: int = 42,
        max_seq_length: int = 512,
        sequence_length_multiple: int = 8,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        if len(table) == 0:
            raise ValueError("the training set has no samples; check the file, and what was skipped in it")
        self._table, self._widths = table, (sequence_length_multiple, max_seq_length)
        # A global batch may span two epochs.
        self._order = lru_cache(maxsize=2)(
            lambda epoch: permutation(stream_key(seed, "fine-tuning order", epoch), len(table))
        )
        self._labelled_tokens = table.labelled_tokens()

    def sample_ids(self, index: int) -> np.ndarray:
        """The samples of global batch `index`, counted from the start of training: int64 [global_batch_size]."""
        places = np.arange(index * self.global_batch_size, (index + 1) * self.global_batch_size)
        epochs, within = np.divmod(places, len(self._table))
        ids = np.empty(len(places), np.int64)
        for epoch in np.unique(epochs):
            ids[epochs == epoch] = self._order(int(epoch))[within[epochs == epoch]]
        return ids

    def epoch(self, index: int) -> int:
        return index * self.global_batch_size // len(self._table)

    def micro_batch(self, index: int, micro_step: int) -> MicroBatch:
        ids = self.sample_ids(index)
        labels: dict[str, np.ndarray] = {}
        if self._labelled_tokens is not None:
            labelled, number = int(self._labelled_tokens[ids].sum()), self.global_batch_size // self._micro_batch_size
            labels["label_normalizer"] = np.array([max(1, labelled) / number], np.float32)
        return self._padded(ids[self._own_samples(micro_step)], labels)

    def _padded(self, rows: np.ndarray, labels: Mapping[str, np.ndarray]) -> MicroBatch:
        """Pad some sequences to a micro-batch; `labels` are fed unchanged."""
        lengths = self._table.lengths()[rows]
        width = padded_width(lengths, *self._widths)
        feed = {**self._table.feed(rows, width, with_labels=True), **labels}
        return MicroBatch(feed, len(rows), int(lengths.sum()), len(rows) * width, 0)


class PredictionBatch(NamedTuple):
    """Sequences `rows` of the table, and their feed."""

    rows: np.ndarray
    feed: dict[str, np.ndarray]


def prediction_batches(
    table: FeatureTable,
    batch_size: int,
    rank: int = 0,
    world_size: int = 1,
    sequence_length_multiple: int = 8,
    max_seq_length: int = 512,
) -> Iterator[PredictionBatch]:
    """This rank's batches of the whole table, longest sequences first, so that little padding is needed."""
    order = np.argsort(-table.lengths(), kind="stable")
    for start in range(rank * batch_size, len(order), batch_size * world_size):
        rows = order[start : start + batch_size]
        width = padded_width(table.lengths()[rows], sequence_length_multiple, max_seq_length)
        yield PredictionBatch(rows, table.feed(rows, width, with_labels=False))


def check_finite(outputs: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError if outputs of a model are NaN or infinite."""
    for name, values in outputs.items():
        if not np.isfinite(values).all():
            number = int((~np.isfinite(values.reshape(len(values), -1)).all(1)).sum())
            raise ValueError(
                f"the model's outputs are NaN or infinite ({name}: {number:,} of {len(values):,}); its weights are "
                "damaged, its training diverged, or half precision overflows: use another checkpoint, or omit --amp if "
                "it was given"
            )
