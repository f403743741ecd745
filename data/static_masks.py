"""Static masks: drawn once, in preprocessing, by the rule that draws the dynamic ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bert.masking import MaskingRule, choose_positions, choose_tokens, corrupt
from bert.samples import SampleTable, StaticMasks, offsets_of
from data.pairs import Spans

_ROWS_AT_ONCE = 512  # so that the random numbers of their tokens stay in the processor's cache


@dataclass(frozen=True)
class DrawnMasks:
    """The masks of n pairs, by pair and position.

    Attributes:
        rows: int64 [P], the pair; positions: int64 [P], the place in it ([CLS] is 0).
        tokens: int64 [P], the place in the block's tokens.
        labels: [P], the true token ids; shown: int64 [P], what the model is shown.
    """

    rows: np.ndarray
    positions: np.ndarray
    tokens: np.ndarray
    labels: np.ndarray
    shown: np.ndarray

    def offsets(self, num_pairs: int) -> np.ndarray:
        """int64 [n + 1]: where the masks of each pair start."""
        return offsets_of(np.bincount(self.rows, minlength=num_pairs))

    def applied_to(self, table: SampleTable) -> SampleTable:
        """The table of the same pairs with these masks."""
        ids = table.token_ids.copy()
        ids[table.offsets[self.rows] + self.positions] = self.shown
        return SampleTable(ids, table.offsets, table.first_lengths, table.is_random_next,
                           StaticMasks(self.offsets(len(table)), self.positions.astype(np.uint16), self.labels))


def draw_masks(token_ids: np.ndarray, spans: Spans, ids_of_pairs: np.ndarray, rule: MaskingRule,
               key: np.uint64) -> DrawnMasks:
    """Masks for all pairs, drawn from the stream `key` at the pairs' ids.

    Args:
        token_ids: [T], the tokens of the block.
        spans: n pairs of these.
        ids_of_pairs: int64 [n].
    """
    rows_of, positions_of = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    lengths, first = spans.lengths(), spans.first_lengths()
    for start in range(0, len(spans), _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(spans)))
        columns = np.arange(lengths[rows].max())[None, :]
        barred = columns >= lengths[rows, None] - 1
        barred |= columns == first[rows, None] - 1
        barred[:, 0] = True
        if rule.continuations is None:
            masked_rows, positions = choose_tokens(rule, key, ids_of_pairs[rows], barred, lengths[rows])
        else:
            places = np.where(barred, 0, spans.tokens_at(rows[:, None], columns))
            ids = np.where(barred, np.flatnonzero(rule.separators)[0], token_ids[places])
            masked_rows, positions = choose_positions(rule, key, ids_of_pairs[rows], ids, lengths[rows])
        rows_of.append(rows[masked_rows])
        positions_of.append(positions)
    rows, positions = np.concatenate(rows_of), np.concatenate(positions_of)
    tokens = spans.tokens_at(rows, positions)
    labels = token_ids[tokens]
    shown = corrupt(rule, key, ids_of_pairs[rows], positions, labels.astype(np.int64))
    return DrawnMasks(rows, positions, tokens, labels, shown)
