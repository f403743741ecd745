"""Static masks: drawn once, in preprocessing, by the rule that draws the dynamic ones."""

from __future__ import annotations

import numpy as np

from bert.masking import MaskingRule, choose_positions, corrupt
from bert.samples import SampleTable, StaticMasks, offsets_of

_ROWS_AT_ONCE = 2048


def with_static_masks(table: SampleTable, rule: MaskingRule, key: np.uint64) -> SampleTable:
    """The table with masks; row i's are those of sample i of the stream `key`."""
    ids = table.token_ids.copy()
    places, rows_of = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    lengths = table.lengths()
    for start in range(0, len(table), _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(table)))
        columns = np.arange(lengths[rows].max())
        gathered = table.token_ids[np.minimum(table.offsets[rows, None] + columns, len(ids) - 1)]
        masked_rows, masked_columns = choose_positions(rule, key, rows, gathered, lengths[rows])
        places.append(table.offsets[rows[masked_rows]] + masked_columns)
        rows_of.append(rows[masked_rows])
    flat, owners = np.concatenate(places), np.concatenate(rows_of)
    labels = table.token_ids[flat]
    positions = flat - table.offsets[owners]
    ids[flat] = corrupt(rule, key, owners, positions, labels.astype(np.int64))
    return SampleTable(ids, table.offsets, table.first_lengths, table.is_random_next,
                       StaticMasks(offsets_of(np.bincount(owners, minlength=len(table))),
                                   positions.astype(np.uint16), labels))
