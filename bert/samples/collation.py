"""Collates rows of a sample table to padded arrays of a micro-batch, the feed of the training program."""

from dataclasses import dataclass, replace

import numpy as np

from bert.arrays.compiled import compiled
from bert.arrays.ragged import ragged_indices
from bert.randomness import hash64
from bert.samples.masking import MaskingRule, choose_positions, corrupt
from bert.samples.packing import Packing, pack
from bert.samples.sample_table import SampleTable

MASKED_PADDING_MULTIPLE = 8


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch of one rank.

    Attributes:
        feed: b sequences padded to s:
            input_ids, token_type_ids, attention_mask: int64 [b, s]; attention_mask is 1 for tokens, 0 for padding.
            masked_lm_positions: int64 [n], indices into the flattened [b * s].
            masked_lm_labels: int64 [n]; masked_lm_weights: float32 [n], 1 for a prediction. n is a multiple of 8;
                the padding entries have position, label and weight 0.
            position_ids: int64 [b, s], where every [CLS] of a row begins a document with position 0; absent where a row
                is one sequence.
            next_sentence_labels: int64 [b], 1 for a random next sentence; absent without next-sentence prediction.
            masked_lm_normalizer: float32 [1], predictions of the global batch, divided by its number of micro-batches.
    """

    feed: dict[str, np.ndarray]
    num_sequences: int  # number of sequences, b
    num_tokens: int  # number of tokens without padding
    num_padded_tokens: int  # b * s; for packed tokens T
    num_masked: int  # number of predictions
    num_documents: int = 0  # documents with separate attention; 0: one for each sequence

    def packed(self, packing: Packing | None) -> "MicroBatch":
        """The micro-batch in the layout of packed tokens, if the program reads it."""
        feed = self.feed if packing is None else pack(self.feed, packing)
        return replace(self, feed=feed, num_padded_tokens=feed["input_ids"].size)


@dataclass(frozen=True)
class CollationRule:
    """Collates samples to batches, by vocabulary, limits and masking rule.

    dynamic: draw masks from `key`; otherwise the sample's static masks are used.
    next_sentence: whether the batches have next-sentence labels.
    cls_id: of the token that begins each document of a row; None: a row is one sequence.
    """

    max_seq_length: int
    sequence_length_multiple: int
    pad_id: int
    masking: MaskingRule
    dynamic: bool
    next_sentence: bool = True
    cls_id: int | None = None

    def mask_counts(self, table: SampleTable, rows: np.ndarray, key: np.uint64, sample_ids: np.ndarray) -> np.ndarray:
        """Number of predictions of the given rows, int64 [b]; only whole-word masks need collation."""
        if not self.dynamic:
            assert table.masks is not None
            counts = table.masks.offsets[rows + 1] - table.masks.offsets[rows]
            return np.minimum(counts, self.masking.max_predictions_per_seq)
        lengths = table.offsets[rows + 1] - table.offsets[rows]
        if self.masking.continuations is None:
            return self.masking.num_predictions(lengths)
        keys, input_ids = hash64(key, sample_ids), self._padded(table, rows, lengths)
        return np.diff(self._choose(table, rows, keys, input_ids, lengths)[1])

    def _choose(
        self, table: SampleTable, rows: np.ndarray, keys: np.ndarray, input_ids: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw dynamic masks by `choose_positions`, of whole words if the shards record words."""
        continues = None
        if self.masking.continuations is not None:
            continues = self.masking.continuations[input_ids]
            if table.continues is not None:
                _fill(table.continues, table.offsets[rows], lengths, continues)
            continues = continues.reshape(-1)
        barred, starts = self.masking.separators[input_ids].reshape(-1), np.arange(len(rows)) * input_ids.shape[1]
        return choose_positions(self.masking, keys, barred, starts, lengths, continues)

    def collate(
        self,
        table: SampleTable,
        rows: np.ndarray,
        key: np.uint64,
        sample_ids: np.ndarray,
        normalizer: float | None = None,
    ) -> MicroBatch:
        """The batch of the given rows; `normalizer` is by default its own number of predictions."""
        lengths = table.offsets[rows + 1] - table.offsets[rows]
        input_ids = self._padded(table, rows, lengths)
        num_rows, width = input_ids.shape
        if self.dynamic:
            keys = hash64(key, sample_ids)
            positions, offsets = self._choose(table, rows, keys, input_ids, lengths)
            masked_rows = np.repeat(np.arange(num_rows), np.diff(offsets))
            labels = input_ids[masked_rows, positions]
            input_ids[masked_rows, positions] = corrupt(self.masking, keys[masked_rows], positions, labels)
        else:
            assert table.masks is not None
            counts = self.mask_counts(table, rows, key, sample_ids)
            flat = ragged_indices(table.masks.offsets[rows], counts)
            masked_rows, positions = np.repeat(np.arange(num_rows), counts), table.masks.positions[flat]
            labels = table.masks.labels[flat]
        types, attention = np.zeros((2, num_rows, width), np.int64)
        _mark(lengths, table.first_lengths[rows], types, attention)
        feed = {
            "input_ids": input_ids,
            "token_type_ids": types,
            "attention_mask": attention,
            **padded_predictions(masked_rows * width + positions, labels),
            "masked_lm_normalizer": np.array([max(1, len(labels)) if normalizer is None else normalizer], np.float32),
        }
        num_documents = 0
        if self.cls_id is not None:
            columns, begins = np.arange(width), input_ids == self.cls_id
            feed["position_ids"] = columns - np.maximum.accumulate(np.where(begins, columns, 0), axis=1)
            num_documents = int(begins.sum())
        if self.next_sentence:
            feed["next_sentence_labels"] = table.is_random_next[rows].astype(np.int64)
        return MicroBatch(feed, num_rows, int(lengths.sum()), num_rows * width, len(labels), num_documents)

    def _padded(self, table: SampleTable, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Token ids padded to the longest row, rounded up to a multiple: int64 [b, s]."""
        width = padded_width(lengths, self.sequence_length_multiple, self.max_seq_length)
        input_ids = np.full((len(rows), width), self.pad_id, np.int64)
        _fill(table.token_ids, table.offsets[rows], lengths, input_ids)
        return input_ids


def padded_width(lengths: np.ndarray, multiple: int, most: int) -> int:
    """The longest length, rounded up to a multiple, but at most `most`."""
    assert lengths.max() <= most, "sequences are longer than max_seq_length"
    return min(-(-int(lengths.max()) // multiple) * multiple, most)


@compiled
def _fill(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray, padded: np.ndarray) -> None:
    """Copy values[starts[r]:][:lengths[r]] into row r."""
    for row in range(len(starts)):
        start = np.uint64(starts[row])
        for column in range(np.uint64(lengths[row])):
            padded[row, column] = values[start + column]


@compiled
def _mark(lengths: np.ndarray, first_lengths: np.ndarray, types: np.ndarray, attention: np.ndarray) -> None:
    """Set the ones of token_type_ids and attention_mask."""
    for row in range(len(lengths)):
        for column in range(np.uint64(lengths[row])):
            attention[row, column] = 1
            types[row, column] = np.int64(column >= np.uint64(first_lengths[row]))


def padded_predictions(positions: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays masked_lm_positions, _labels and _weights of `MicroBatch.feed`, from int64 [n] each."""
    size = max(1, -(-len(labels) // MASKED_PADDING_MULTIPLE)) * MASKED_PADDING_MULTIPLE
    padded, weights = np.zeros((2, size), np.int64), np.zeros(size, np.float32)
    padded[0, : len(labels)], padded[1, : len(labels)], weights[: len(labels)] = positions, labels, 1.0
    return {"masked_lm_positions": padded[0], "masked_lm_labels": padded[1], "masked_lm_weights": weights}
