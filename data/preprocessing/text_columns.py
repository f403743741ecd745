"""Makes the columns of LDDL's parquet schema from the pairs of a block.

The tokens of a block are joined once into one text. A and B are copied from slices of that text, with masked tokens
replaced. This is much faster than looking up the string of every token of every sample.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bert.arrays.compiled import SPARE_BYTES, compiled, copied_wide
from bert.arrays.ragged import arrow_array
from bert.samples.formats.shard_writer import WORD_COLUMN
from bert.samples.sample_table import word_positions
from bert.tokenization.token_strings import TokenStrings, encode_positions, string_array
from bert.tokenization.token_table import TokenTable
from data.preprocessing.pairs import Spans, pair_continues
from data.preprocessing.static_masks import DrawnMasks


class BlockText(NamedTuple):
    """The tokens of a block, each followed by a space: token i is text[offsets[i]:offsets[i + 1]], text uint8."""

    text: np.ndarray
    offsets: np.ndarray


def text_columns(
    text: BlockText, spans: Spans, masks: DrawnMasks | None, strings: TokenStrings, continues: np.ndarray | None = None
) -> pa.Table:
    """One row per pair: A, B, is_random_next, num_tokens and, with masks, masked_lm_positions and masked_lm_labels.

    With `continues`, the block's tokens that continue a word, the positions of such tokens in the pair too.
    """
    starts = first_stops = stops = None
    if masks is not None:
        starts, stops, first_stops = masks.offsets[:-1], masks.offsets[1:], np.empty(len(spans), np.int64)
        _find_second(masks.positions, masks.offsets, spans.first_lengths(), first_stops)
    columns = {
        "A": _column(text, spans.first_start, spans.first_stop, masks, starts, first_stops, strings),
        "B": _column(text, spans.second_start, spans.second_stop, masks, first_stops, stops, strings),
        "is_random_next": arrow_array(spans.is_random_next),
        "num_tokens": arrow_array(spans.lengths().astype(np.uint16)),
    }
    if masks is not None:
        columns["masked_lm_positions"] = encode_positions(masks.positions, masks.offsets)
        columns["masked_lm_labels"] = strings.join(masks.labels, masks.offsets)
    if continues is not None:
        columns[WORD_COLUMN] = encode_positions(*word_positions(*pair_continues(continues, spans)))
    return pa.table(columns)


@compiled
def _find_second(positions: np.ndarray, offsets: np.ndarray, first_lengths: np.ndarray, found: np.ndarray) -> None:
    """Fill found with the index of each row's first mask that is not in A."""
    for row in range(len(found)):
        place = offsets[row]
        while place < offsets[row + 1] and positions[place] < first_lengths[row]:
            place += 1
        found[row] = place


def _column(
    block: BlockText,
    starts: np.ndarray,
    stops: np.ndarray,
    masks: DrawnMasks | None,
    mask_starts: np.ndarray | None,
    mask_stops: np.ndarray | None,
    strings: TokenStrings,
) -> pa.Array:
    """The texts of token ranges [start, stop), each with its range of the masks."""
    if masks is None:
        mask_starts = mask_stops = np.zeros(len(starts), np.int64)
        tokens = shown = np.zeros(0, np.int64)
    else:
        assert mask_starts is not None and mask_stops is not None
        tokens, shown = masks.tokens, masks.shown
    room = (block.offsets[stops] - block.offsets[starts]).sum() + np.diff(strings.table.offsets)[shown].sum()
    text, offsets = np.empty(room + SPARE_BYTES, np.uint8), np.empty(len(starts) + 1, np.int64)
    _write(block, starts, stops, tokens, shown, mask_starts, mask_stops, strings.table, text, offsets)
    return string_array(offsets, text)


@compiled
def _write(
    block: BlockText,
    starts: np.ndarray,
    stops: np.ndarray,
    tokens: np.ndarray,
    shown: np.ndarray,
    mask_starts: np.ndarray,
    mask_stops: np.ndarray,
    table: TokenTable,
    text: np.ndarray,
    offsets: np.ndarray,
) -> None:
    """Fill text with the rows, i.e. slices of the block's text with the masked tokens replaced; fill offsets with the
    start of each row."""
    end = np.int64(0)
    offsets[0] = 0
    for row in range(len(starts)):
        place = block.offsets[starts[row]]
        for mask in range(mask_starts[row], mask_stops[row]):
            token = tokens[mask]
            end = copied_wide(text, end, block.text, place, block.offsets[token])
            end = copied_wide(text, end, table.text, table.offsets[shown[mask]], table.offsets[shown[mask] + 1])
            place = block.offsets[token + 1] - 1
        end = copied_wide(text, end, block.text, place, block.offsets[stops[row]] - 1)
        offsets[row + 1] = end
