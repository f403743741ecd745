"""Draws static masks during preprocessing, by the same rule as dynamic masks."""

from dataclasses import dataclass, replace

import numpy as np

from bert.arrays.compiled import compiled
from bert.arrays.ragged import offsets_of
from bert.randomness import hash64
from bert.samples.masking import MaskingRule, choose_in_pairs, choose_words, corrupt_with
from bert.samples.sample_table import SampleTable, StaticMasks
from data.preprocessing.pairs import Spans

_ROWS_AT_ONCE = 512  # of whole-word masks, so that the matrices stay in the processor's cache


@dataclass(frozen=True)
class DrawnMasks:
    """The masks of n pairs, by pair and position; those of pair i are offsets[i]..offsets[i + 1] - 1.

    Attributes:
        offsets: int64 [n + 1].
        positions: int64 [P], position in the pair ([CLS] is 0).
        tokens: int64 [P], index in the block's tokens.
        labels: [P], the true token ids.
        shown: int64 [P], the token ids that the model reads.
    """

    offsets: np.ndarray
    positions: np.ndarray
    tokens: np.ndarray
    labels: np.ndarray
    shown: np.ndarray

    def applied_to(self, table: SampleTable) -> SampleTable:
        """The table of the same pairs with these masks."""
        ids = table.token_ids.copy()
        ids[np.repeat(table.offsets[:-1], np.diff(self.offsets)) + self.positions] = self.shown
        masks = StaticMasks(self.offsets, self.positions.astype(np.uint16), self.labels)
        return replace(table, token_ids=ids, masks=masks)


def draw_masks(
    token_ids: np.ndarray,
    spans: Spans,
    ids_of_pairs: np.ndarray,
    rule: MaskingRule,
    key: np.uint64,
    continues: np.ndarray | None = None,
) -> DrawnMasks:
    """Masks for all pairs, drawn from the stream `key` at the pairs' ids.

    Args:
        token_ids: [T], the tokens of the block.
        spans: n pairs of these.
        continues: bool [T], tokens that continue the word before, for whole-word masking; None: the ## pieces do.
    """
    lengths, keys = spans.lengths(), hash64(key, ids_of_pairs)
    if rule.continuations is None:
        counts = rule.num_predictions(lengths)
        positions, offsets = np.empty(int(counts.sum()) + 1, np.int64), np.empty(len(spans) + 1, np.int64)
        choose_in_pairs(keys, spans.first_lengths(), lengths, counts, positions, offsets)
        positions = positions[: offsets[-1]]
    else:
        continues = rule.continuations[token_ids] if continues is None else continues
        positions, offsets = _draw_words(continues, spans, ids_of_pairs, rule, key)
    tokens, labels = np.empty(len(positions), np.int64), np.empty(len(positions), token_ids.dtype)
    _look_up(token_ids, spans.first_start, spans.first_stop, spans.second_start, positions, offsets, tokens, labels)
    if rule.separators[labels].any():  # a [SEP] between two documents of a packed sequence
        kept = ~rule.separators[labels]
        rows = np.repeat(np.arange(len(spans)), np.diff(offsets))[kept]
        positions, tokens, labels = positions[kept], tokens[kept], labels[kept]
        offsets = offsets_of(np.bincount(rows, minlength=len(spans)))
    shown = corrupt_with(rule, np.repeat(keys, np.diff(offsets)), positions, labels)
    return DrawnMasks(offsets, positions, tokens, labels, shown)


def _draw_words(
    continues: np.ndarray, spans: Spans, ids_of_pairs: np.ndarray, rule: MaskingRule, key: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """(positions, offsets) of masks that cover whole words."""
    counts, positions_of = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    lengths, first = spans.lengths(), spans.first_lengths()
    for start in range(0, len(spans), _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(spans)))
        columns = np.arange(lengths[rows].max())[None, :]
        barred = columns >= lengths[rows, None] - 1
        barred |= columns == first[rows, None] - 1
        barred[:, 0] = True
        places = np.where(barred, 0, spans.tokens_at(rows[:, None], columns))
        masked_rows, positions = choose_words(rule, key, ids_of_pairs[rows], barred, continues[places], lengths[rows])
        counts.append(np.bincount(masked_rows, minlength=len(rows)))
        positions_of.append(positions)
    return np.concatenate(positions_of), offsets_of(np.concatenate(counts))


@compiled
def _look_up(
    token_ids: np.ndarray,
    first_start: np.ndarray,
    first_stop: np.ndarray,
    second_start: np.ndarray,
    positions: np.ndarray,
    offsets: np.ndarray,
    tokens: np.ndarray,
    labels: np.ndarray,
) -> None:
    """Fill in, for each masked position, its index in the block's tokens and the token there."""
    for row in range(len(offsets) - 1):
        middle = first_stop[row] - first_start[row] + 2
        for place in range(offsets[row], offsets[row + 1]):
            position = positions[place]
            token = position + (first_start[row] - 1 if position < middle else second_start[row] - middle)
            tokens[place], labels[place] = token, token_ids[token]
