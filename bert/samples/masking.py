"""Masked-LM masks (Devlin et al., 2019): 15% of the tokens; of these 80% [MASK], 10% a random word, 10% unchanged.

A mask is a function of (key, sample id), whatever the batches, ranks and workers. Preprocessing makes static masks with
the same functions and another key.
"""

from dataclasses import dataclass

import numpy as np

from bert.randomness import hash64
from bert.samples.mask_loops import choose_in_rows, corrupt_all
from bert.tokenization.vocabulary import Vocabulary

_MASK_SHARE, _RANDOM_SHARE = 0.8, 0.1


@dataclass(frozen=True)
class MaskingRule:
    """Limits of masking and the ids of one vocabulary that it needs.

    Attributes:
        masked_lm_ratio: share of a sample's tokens, special ones counted, to predict.
        max_predictions_per_seq: upper limit of masks per sample.
        mask_id: id of [MASK].
        separators: bool [vocabulary size], tokens never masked: [CLS], [SEP], [PAD].
        replacements: int64 [r], ids that may replace a token.
        continuations: bool [vocabulary size], tokens inside a word; None masks single tokens, not whole words.
    """

    masked_lm_ratio: float
    max_predictions_per_seq: int
    mask_id: int
    separators: np.ndarray
    replacements: np.ndarray
    continuations: np.ndarray | None = None

    @classmethod
    def of(
        cls, vocabulary: Vocabulary, *, masked_lm_ratio: float, max_predictions_per_seq: int, whole_word: bool = False
    ) -> "MaskingRule":
        """The rule for a vocabulary; ValueError if the ratio or the limit is out of range."""
        if not 0.0 < masked_lm_ratio < 1.0:
            raise ValueError(f"masked_lm_ratio={masked_lm_ratio} must lie between 0 and 1 (0.15 in the paper)")
        if max_predictions_per_seq < 1:
            raise ValueError(
                f"max_predictions_per_seq={max_predictions_per_seq} must be at least 1 "
                "(20 for sequences of 128, 80 for 512)"
            )
        separators = np.zeros(len(vocabulary), bool)
        separators[[vocabulary.id_of(token) for token in ("[CLS]", "[SEP]", "[PAD]")]] = True
        return cls(
            masked_lm_ratio,
            max_predictions_per_seq,
            vocabulary.id_of("[MASK]"),
            separators,
            vocabulary.replacement_ids(),
            vocabulary.continuations() if whole_word else None,
        )

    def num_predictions(self, lengths: np.ndarray) -> np.ndarray:
        """int64: masks for samples of `lengths` tokens, special ones counted; exact unless whole words are masked."""
        lengths = np.asarray(lengths)
        wanted = np.maximum(np.rint(lengths * self.masked_lm_ratio).astype(np.int64), 1)
        return np.minimum(np.minimum(wanted, self.max_predictions_per_seq), np.maximum(lengths - 3, 0))


def choose_positions(
    rule: MaskingRule,
    key: np.uint64,
    sample_ids: np.ndarray,
    input_ids: np.ndarray,
    lengths: np.ndarray,
    continues: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the positions to predict.

    Args:
        key: stream key of (seed, epoch).
        sample_ids: int64 [b].
        input_ids: integers [b, s], padded at the right.
        lengths: int64 [b], tokens without padding.
        continues: bool [b, s], tokens that continue a word, for masks of whole words; None: the ## pieces do.
    Returns:
        (rows int64 [n], columns int64 [n]), by row and then by column.
    """
    if rule.continuations is not None:
        barred = rule.separators[input_ids]
        barred |= np.arange(input_ids.shape[1])[None, :] >= np.asarray(lengths)[:, None]
        words = rule.continuations[input_ids] if continues is None else continues
        return choose_words(rule, key, sample_ids, barred, words, lengths)
    counts = rule.num_predictions(lengths)
    rows, columns = np.empty((2, int(counts.sum()) + 1), np.int64)
    number = choose_in_rows(
        hash64(key, sample_ids), rule.separators, input_ids, np.asarray(lengths), counts, rows, columns
    )
    return rows[:number], columns[:number]


def _random_numbers(key: np.uint64, sample_ids: np.ndarray, width: int) -> np.ndarray:
    """uint32 [b, width], below 2**31."""
    columns = np.arange(width, dtype=np.uint32)
    return (hash64(hash64(key, sample_ids)[:, None], columns[None, :]) >> np.uint64(33)).astype(np.uint32)


def choose_words(
    rule: MaskingRule,
    key: np.uint64,
    sample_ids: np.ndarray,
    barred: np.ndarray,
    continues: np.ndarray,
    lengths: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Whole words in random order, each taken if it still fits into the sample's number of predictions.

    Args:
        barred: bool [b, s], places never masked.
        continues: bool [b, s], whether a token belongs to the word of the one before it.
        The others and what is returned are as for `choose_positions`.
    """
    num_rows, width = barred.shape
    random = _random_numbers(key, sample_ids, width)
    previous_barred = np.ones_like(barred)
    previous_barred[:, 1:] = barred[:, :-1]
    starts = ~barred & (~continues | previous_barred)
    word_of = np.cumsum(starts, axis=1) - 1  # [b, s], the word a token belongs to
    rows, columns = np.nonzero(~barred)
    sizes = np.zeros((num_rows, width), np.int64)
    np.add.at(sizes, (rows, word_of[rows, columns]), 1)
    order_keys = np.full((num_rows, width), np.iinfo(np.int64).max)
    start_rows, start_columns = np.nonzero(starts)
    start_words = word_of[start_rows, start_columns]
    order_keys[start_rows, start_words] = random[start_rows, start_columns].astype(np.int64) * width + start_words
    order = np.argsort(order_keys, axis=1, kind="stable")
    counts = rule.num_predictions(lengths)
    sizes_in_order = np.take_along_axis(sizes, order, axis=1)
    taken = _take_while_fitting(sizes_in_order, counts)
    _take_a_shortest_word(taken, sizes_in_order, counts)
    picked = np.zeros_like(taken)
    np.put_along_axis(picked, order, taken, axis=1)
    rows, columns = np.nonzero(~barred & np.take_along_axis(picked, np.maximum(word_of, 0), axis=1))
    rank_in_row = np.arange(len(rows)) - np.searchsorted(rows, rows)
    within = rank_in_row < counts[rows]  # cuts only a word that is longer than the whole count
    return rows[within], columns[within]


def _take_while_fitting(sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """bool [b, words]: going from left to right, the words that fit into what is left of `counts`."""
    taken = np.zeros(sizes.shape, bool)
    left = counts.copy()
    for rank in range(int((sizes > 0).sum(axis=1).max()) if sizes.size else 0):
        size = sizes[:, rank]
        fits = (size > 0) & (size <= left)
        taken[:, rank] = fits
        left -= size * fits
        if not left.any():
            break
    return taken


def _take_a_shortest_word(taken: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> None:
    """Take the shortest word where every word is longer than the number of predictions: each sample gets a mask."""
    empty = np.flatnonzero(~taken.any(axis=1) & (counts > 0))
    if len(empty):
        candidates = np.where(sizes[empty] > 0, sizes[empty], np.iinfo(np.int64).max)
        taken[empty, np.argmin(candidates, axis=1)] = True


def corrupt(
    rule: MaskingRule, key: np.uint64, sample_ids: np.ndarray, columns: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """The tokens that the model reads at the chosen positions.

    Args:
        key: stream key, as for `choose_positions`.
        sample_ids, columns, labels: int64 [n], the sample, the position in it and the true token.
    Returns:
        int64 [n]: [MASK], a random word or the label.
    """
    return corrupt_with(rule, hash64(key, sample_ids), columns, labels)


def corrupt_with(rule: MaskingRule, keys: np.ndarray, columns: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Like `corrupt`, with the key of each mask's sample, uint64 [n]."""
    shown = np.empty(len(labels), np.int64)
    # Its positions beyond 2**32 keep these draws apart from those that chose the positions.
    corrupt_all(keys, columns, labels, rule.mask_id, rule.replacements, _MASK_SHARE, _MASK_SHARE + _RANDOM_SHARE, shown)
    return shown
