"""Masked-LM masks (Devlin et al., 2019): 15% of the tokens; of these 80% [MASK], 10% a random word, 10% unchanged.

A mask is a function of (key, sample id), whatever the batches, ranks and workers. Preprocessing makes static masks with
the same functions and another key.
"""

from dataclasses import dataclass

import numpy as np

from bert.arrays.compiled import compiled, hash_at, inner, uniform_at
from bert.tokenization.vocabulary import Vocabulary

_MASK_SHARE, _RANDOM_SHARE = 0.8, 0.1
_HALF, _SIGN = np.uint64(32), np.uint64(33)
# Draws of `corrupt` begin at these positions of a sample's stream, beyond those that chose the masks.
_ACTIONS, _REPLACEMENTS = np.uint64(1 << 32), np.uint64(1 << 33)


@dataclass(frozen=True)
class MaskingRule:
    """Share and limit of masked tokens, and the token ids that masking needs.

    Attributes:
        continuations: bool [vocabulary size], tokens inside a word; None masks single tokens, not whole words.
    """

    masked_lm_ratio: float  # fraction of tokens to predict, special tokens counted
    max_predictions_per_seq: int
    mask_id: int
    separators: np.ndarray  # bool [vocabulary size], tokens that are never masked: [CLS], [SEP], [PAD]
    replacements: np.ndarray  # int64 [r], ids of random replacements
    continuations: np.ndarray | None = None
    divides_words: bool = False  # if a word exceeds the limit, mask any part of it, not only its first tokens

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
        if whole_word and not vocabulary.knows_words():
            raise ValueError(
                f"whole_word_masking=true: the tokens of {vocabulary.source} do not tell where words begin (no ##, "
                "\u0120 or \u2581); leave it out"
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
            divides_words=not vocabulary.is_wordpiece(),  # which has no words without an end
        )

    def num_predictions(self, lengths: np.ndarray) -> np.ndarray:
        """Number of masks in samples of `lengths` tokens (special ones counted), int64; approximate for whole words."""
        counts = np.maximum(np.rint(lengths * self.masked_lm_ratio).astype(np.int64), 1)
        return np.minimum(np.minimum(counts, self.max_predictions_per_seq), np.maximum(lengths - 3, 0))


def choose_positions(
    rule: MaskingRule,
    keys: np.ndarray,
    barred: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    continues: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the positions to predict in b samples: single tokens, or whole words if the rule has continuations.

    Args:
        keys: uint64 [b], the stream key hashed with each sample id.
        barred: bool [T], tokens never masked; sample i begins at starts[i]. starts, lengths: int64 [b].
        continues: bool [T], tokens that continue the previous token's word; read for whole words only.
    Returns:
        (positions int64 [n] in their samples, ascending in each; offsets int64 [b + 1], where each sample's begin).
    """
    counts = rule.num_predictions(lengths)
    positions, offsets = np.empty(int(counts.sum()) + 1, np.int64), np.empty(len(keys) + 1, np.int64)
    whole_words = rule.continuations is not None
    words = continues if whole_words and continues is not None else barred
    _choose_all(keys, barred, words, whole_words, rule.divides_words, starts, lengths, counts, positions, offsets)
    return positions[: offsets[-1]], offsets


@compiled
def _choose_all(
    keys: np.ndarray,
    barred: np.ndarray,
    continues: np.ndarray,
    whole_words: bool,
    divides_words: bool,
    starts: np.ndarray,
    lengths: np.ndarray,
    counts: np.ndarray,
    positions: np.ndarray,
    offsets: np.ndarray,
) -> None:
    """Fill the arrays of positions (one longer than the sum of counts) and offsets."""
    width = 0
    for length in lengths:
        width = max(width, length)
    taken, order = np.zeros(width, np.bool_), np.empty(width if whole_words else 0, np.uint64)
    end = 0
    offsets[0] = 0
    for row in range(len(keys)):
        begin, stop = starts[row], starts[row] + lengths[row]
        own, leave_out = barred[begin:stop], False
        if whole_words:
            _take_words(keys[row], own, continues[begin:stop], divides_words, counts[row], taken, order)
        else:
            leave_out = _take_tokens(keys[row], own, counts[row], taken)
        for column in range(np.uint64(len(own))):
            positions[end] = column  # overwritten unless the position is chosen
            end += (taken[column] != leave_out) & (not own[column])
            taken[column] = False
        offsets[row + 1] = end


@inner
def _take_tokens(key: np.uint64, barred: np.ndarray, count: int, taken: np.ndarray) -> bool:
    """Draw `count` distinct tokens, or the tokens to leave out if they are fewer; returns which of the two."""
    length, allowed = np.uint64(len(barred)), 0
    for column in range(length):
        allowed += not barred[column]
    count = min(count, allowed)
    leave_out = 2 * count > allowed
    missing, draw = allowed - count if leave_out else count, np.uint64(0)
    while missing > 0:
        column = ((hash_at(key, draw) >> _HALF) * length) >> _HALF
        draw += np.uint64(1)
        if not barred[column] and not taken[column]:
            taken[column] = True
            missing -= 1
    return leave_out


@inner
def _take_words(
    key: np.uint64,
    barred: np.ndarray,
    continues: np.ndarray,
    divides_words: bool,
    count: int,
    taken: np.ndarray,
    order: np.ndarray,
) -> None:
    """Draw words that fit into `count`; if none fits, `count` tokens of a shortest word."""
    length, num_words = len(barred), 0
    for column in range(length):
        if not barred[column] and (column == 0 or barred[column - 1] or not continues[column]):
            place = np.uint64(column)
            order[num_words] = ((hash_at(key, place) >> _SIGN) << _HALF) | place
            num_words += 1
    left, shortest, smallest = count, 0, length + 1
    for word in np.sort(order[:num_words]):
        start = int(np.int64(word & np.uint64(0xFFFFFFFF)))
        stop = start + 1
        while stop < length and continues[stop] and not barred[stop]:
            stop += 1
        if stop - start <= left:
            taken[start:stop] = True
            left -= stop - start
        elif stop - start < smallest:
            shortest, smallest = start, stop - start
    if left == count and num_words > 0:
        if divides_words:
            drawn = (hash_at(key, np.uint64(length)) >> _HALF) * np.uint64(smallest - count + 1)
            shortest += int(np.int64(drawn >> _HALF))
        taken[shortest : shortest + count] = True


def corrupt(rule: MaskingRule, keys: np.ndarray, positions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Input ids at the chosen positions: [MASK], a random word or the label: int64 [n].

    Args:
        keys: uint64 [n], of each mask's sample, as for `choose_positions`.
        positions, labels: integers [n], the position in the sample and the true token.
    """
    input_ids = np.empty(len(labels), np.int64)
    _corrupt(keys, positions, labels, rule.mask_id, rule.replacements, input_ids)
    return input_ids


@compiled
def _corrupt(
    keys: np.ndarray,
    positions: np.ndarray,
    labels: np.ndarray,
    mask_id: int,
    replacements: np.ndarray,
    shown: np.ndarray,
) -> None:
    for place in range(len(positions)):
        position = np.uint64(positions[place])
        action = uniform_at(keys[place], position + _ACTIONS)
        if action < _MASK_SHARE:
            shown[place] = mask_id
        elif action < _MASK_SHARE + _RANDOM_SHARE:
            word = hash_at(keys[place], position + _REPLACEMENTS) % np.uint64(len(replacements))
            shown[place] = replacements[np.int64(word)]
        else:
            shown[place] = labels[place]
