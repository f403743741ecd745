"""The pairs of a block as the columns of LDDL's parquet schema.

The tokens of the whole block are joined to one text once; A and B are slices of it, whatever the duplicate factor is,
interrupted where tokens are masked. This costs a small part of looking up the string of every token of every sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bert.samples.table import offsets_of
from bert.text.compiled import SPARE_BYTES, compiled, copied_wide
from bert.text.token_strings import TokenStrings, encode_positions, string_array
from data.pairs import Spans
from data.static_masks import DrawnMasks


@dataclass(frozen=True)
class BlockText:
    """The tokens of a block, each followed by a space: token i is text[offsets[i]:offsets[i + 1]], text uint8."""

    text: np.ndarray
    offsets: np.ndarray


def text_columns(text: BlockText, spans: Spans, masks: DrawnMasks | None, strings: TokenStrings) -> pa.Table:
    """One row per pair: A, B, is_random_next, num_tokens and, with masks, masked_lm_positions and masked_lm_labels."""
    starts = first_stops = stops = None
    if masks is not None:
        starts, stops = masks.offsets[:-1], masks.offsets[1:]
        in_first = masks.positions < np.repeat(spans.first_lengths(), np.diff(masks.offsets))
        first_stops = starts + np.diff(offsets_of(in_first)[masks.offsets])
    columns = {"A": _column(text, spans.first_start, spans.first_stop, masks, starts, first_stops, strings),
               "B": _column(text, spans.second_start, spans.second_stop, masks, first_stops, stops, strings),
               "is_random_next": pa.array(spans.is_random_next),
               "num_tokens": pa.array(spans.lengths().astype(np.uint16))}
    if masks is not None:
        columns["masked_lm_positions"] = encode_positions(masks.positions, masks.offsets)
        columns["masked_lm_labels"] = strings.join(masks.labels, masks.offsets)
    return pa.table(columns)


def _column(block: BlockText, starts: np.ndarray, stops: np.ndarray, masks: DrawnMasks | None,
            mask_starts: np.ndarray | None, mask_stops: np.ndarray | None, strings: TokenStrings) -> pa.Array:
    """The texts of token ranges [start, stop), each with its range of the masks."""
    if masks is None:
        mask_starts = mask_stops = np.zeros(len(starts), np.int64)
        tokens = shown = np.zeros(0, np.int64)
    else:
        tokens, shown = masks.tokens, masks.shown
    offsets = np.empty(len(starts) + 1, np.int64)
    _measure(block.offsets, starts, stops, tokens, shown, mask_starts, mask_stops, strings.table.offsets, offsets)
    text = np.empty(offsets[-1] + SPARE_BYTES, np.uint8)
    _write(block.text, block.offsets, starts, stops, tokens, shown, mask_starts, mask_stops, strings.table.text,
           strings.table.offsets, text)
    return string_array(offsets, text)


@compiled
def _measure(block_offsets: np.ndarray, starts: np.ndarray, stops: np.ndarray, tokens: np.ndarray, shown: np.ndarray,
             mask_starts: np.ndarray, mask_stops: np.ndarray, token_offsets: np.ndarray, offsets: np.ndarray) -> None:
    """Fill offsets with where the text of each row starts."""
    offsets[0] = 0
    for row in range(len(starts)):
        size = block_offsets[stops[row]] - block_offsets[starts[row]] - 1
        for mask in range(mask_starts[row], mask_stops[row]):
            token = tokens[mask]
            size += token_offsets[shown[mask] + 1] - token_offsets[shown[mask]]
            size -= block_offsets[token + 1] - block_offsets[token] - 1
        offsets[row + 1] = offsets[row] + size


@compiled
def _write(block_text: np.ndarray, block_offsets: np.ndarray, starts: np.ndarray, stops: np.ndarray,
           tokens: np.ndarray, shown: np.ndarray, mask_starts: np.ndarray, mask_stops: np.ndarray,
           token_text: np.ndarray, token_offsets: np.ndarray, text: np.ndarray) -> None:
    """Fill text with the rows: slices of the block's text, and what is shown where they are masked."""
    end = 0
    for row in range(len(starts)):
        place = block_offsets[starts[row]]
        for mask in range(mask_starts[row], mask_stops[row]):
            token = tokens[mask]
            end = copied_wide(text, end, block_text, place, block_offsets[token])
            end = copied_wide(text, end, token_text, token_offsets[shown[mask]], token_offsets[shown[mask] + 1])
            place = block_offsets[token + 1] - 1
        end = copied_wide(text, end, block_text, place, block_offsets[stops[row]] - 1)
