"""Masked-LM masks (Devlin et al., 2019): 15% of the tokens; of these 80% [MASK], 10% a random word, 10% unchanged.

A mask is a function of (key, sample id), whatever the batches, ranks and workers. Preprocessing makes static masks with
the same functions and another key.
"""

from dataclasses import dataclass

import numpy as np

from bert.arrays.compiled import compiled, inner
from bert.arrays.hash_loops import hash_at
from bert.randomness import hash64
from bert.tokenization.vocabulary import Vocabulary

_ONE, _HALF = np.uint64(1), np.uint64(32)


@inner
def uniform_at(key: np.uint64, position: np.uint64) -> float:
    """`bert.randomness.uniform` of one position."""
    return float(hash_at(key, position) >> np.uint64(11)) * 2.0**-53


@inner
def below_at(key: np.uint64, position: np.uint64, bound: int) -> int:
    """`bert.randomness.integers_below` of one position."""
    return min(int(uniform_at(key, position) * bound), bound - 1)


@compiled
def choose_in_rows(
    keys: np.ndarray,
    separators: np.ndarray,
    input_ids: np.ndarray,
    lengths: np.ndarray,
    counts: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
) -> int:
    """Draw counts[r] positions of each row, never a separator, sorted from left to right; returns their number.

    Args:
        keys: uint64 [b]; separators: bool [vocabulary size]; input_ids: integers [b, s]; lengths, counts: int64 [b].
        rows, columns: int64 [one more than the sum of counts], filled.
    """
    width = input_ids.shape[1]
    barred, taken = np.empty(width, np.bool_), np.zeros(width, np.bool_)
    end = 0
    for row in range(len(keys)):
        length = min(width, lengths[row])
        for column in range(length):
            barred[column] = separators[input_ids[row, column]]
        begin = end
        end += _choose(keys[row], barred[:length], counts[row], taken, columns[end:])
        rows[begin:end] = row
    return end


@compiled
def choose_in_pairs(
    keys: np.ndarray,
    first_lengths: np.ndarray,
    lengths: np.ndarray,
    counts: np.ndarray,
    positions: np.ndarray,
    offsets: np.ndarray,
) -> None:
    """Like `choose_in_rows`, for pairs [CLS] A [SEP] B [SEP] whose A ends before place first_lengths - 1.

    Args:
        positions: int64 [one more than the sum of counts], filled; offsets: int64 [b + 1], filled: where each row's
            start.
    """
    width = 0
    for length in lengths:
        width = max(width, length)
    barred, taken = np.zeros(width, np.bool_), np.zeros(width, np.bool_)
    barred[0] = True
    offsets[0] = 0
    for row in range(len(keys)):
        length, middle = lengths[row], first_lengths[row] - 1
        barred[middle] = barred[length - 1] = True
        begin = offsets[row]
        offsets[row + 1] = begin + _choose(keys[row], barred[:length], counts[row], taken, positions[begin:])
        barred[middle] = barred[length - 1] = False


@inner
def _choose(key: np.uint64, barred: np.ndarray, count: int, taken: np.ndarray, columns: np.ndarray) -> int:
    """Choose positions in one row: draw until `count` different ones are found, or the ones to leave out if fewer.

    Args:
        taken: bool [at least as long as `barred`], all False before and after.
        columns: filled, with room for count + 1.
    """
    length, allowed = np.uint64(len(barred)), 0
    for column in range(length):
        allowed += not barred[column]
    count = min(count, allowed)
    leave_out = 2 * count > allowed
    missing, draw = allowed - count if leave_out else count, np.uint64(0)
    while missing > 0:
        column = ((hash_at(key, draw) >> _HALF) * length) >> _HALF
        draw += _ONE
        if not barred[column] and not taken[column]:
            taken[column] = True
            missing -= 1
    found = 0
    for column in range(length):
        columns[found] = column  # overwritten unless the position is chosen
        found += (taken[column] != leave_out) & (not barred[column])
        taken[column] = False
    return found


@compiled
def corrupt_all(
    keys: np.ndarray,
    columns: np.ndarray,
    labels: np.ndarray,
    mask_id: int,
    replacements: np.ndarray,
    masked_share: float,
    replaced_share: float,
    shown: np.ndarray,
) -> None:
    """Fill `shown`: mask_id, a random replacement or the label.

    Args:
        keys: uint64 [n], of each mask's sample; columns, labels, shown: int64 [n].
    """
    for place in range(len(columns)):
        column = np.uint64(columns[place])
        action = uniform_at(keys[place], column + np.uint64(1 << 32))
        if action < masked_share:
            shown[place] = mask_id
        elif action < replaced_share:
            word = hash_at(keys[place], column + np.uint64(1 << 33)) % np.uint64(len(replacements))
            shown[place] = replacements[np.int64(word)]
        else:
            shown[place] = labels[place]


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
