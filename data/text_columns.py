"""The pairs of a block as the columns of LDDL's parquet schema.

The tokens of the whole block are joined to one text once; A and B are slices of it, whatever the duplicate factor is.
Where tokens are masked, the text is taken apart at the masks, not at every token. Both cost a small part of looking
up the string of every token of every sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bert.samples import offsets_of
from bert.token_strings import TokenStrings, encode_positions
from data.pairs import Spans
from data.static_masks import DrawnMasks


def text_columns(text: BlockText, spans: Spans, masks: DrawnMasks | None, strings: TokenStrings) -> pa.Table:
    """One row per pair: A, B, is_random_next, num_tokens and, with masks, masked_lm_positions and masked_lm_labels."""
    in_first = None if masks is None else masks.positions < spans.first_lengths()[masks.rows]
    columns = {"A": _column(text, spans.first_start, spans.first_stop, masks, in_first, strings),
               "B": _column(text, spans.second_start, spans.second_stop, masks,
                          None if in_first is None else ~in_first, strings),
               "is_random_next": pa.array(spans.is_random_next),
               "num_tokens": pa.array(spans.lengths().astype(np.uint16))}
    if masks is not None:
        offsets = masks.offsets(len(spans))
        columns["masked_lm_positions"] = encode_positions(masks.positions, offsets)
        columns["masked_lm_labels"] = strings.join(masks.labels, offsets)
    return pa.table(columns)


@dataclass(frozen=True)
class BlockText:
    """The tokens of a block, each followed by a space: token i is text[offsets[i]:offsets[i + 1]]."""

    text: bytes
    offsets: np.ndarray


def _column(block: BlockText, starts: np.ndarray, stops: np.ndarray, masks: DrawnMasks | None,
            chosen: np.ndarray | None, strings: TokenStrings) -> pa.Array:
    """The texts of token ranges [start, stop), masked where the chosen masks say so."""
    low, high = block.offsets[starts].astype(np.int64), block.offsets[stops].astype(np.int64) - 1
    offsets = offsets_of(high - low)
    text, vocabulary = block.text, strings.vocabulary_text
    parts = [text[first:last] for first, last in zip(low.tolist(), high.tolist(), strict=True)]
    if masks is None:
        return _string_array(offsets, b"".join(parts))
    assert chosen is not None
    rows, tokens, shown = masks.rows[chosen], masks.tokens[chosen], masks.shown[chosen]
    begin = offsets[rows] + block.offsets[tokens] - low[rows]
    end = begin + block.offsets[tokens + 1] - block.offsets[tokens] - 1
    num_masks, total = len(rows), int(offsets[-1])
    # Elements 0, 2, ... are what lies between masks, 1, 3, ... the masked tokens; then comes the vocabulary.
    bounds = np.empty(2 * num_masks + 1, np.int64)
    bounds[0] = 0
    bounds[1::2], bounds[2::2] = begin, end
    vocabulary_offsets = strings.vocabulary_offsets
    elements = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 2 * num_masks + len(vocabulary_offsets),
        [None, pa.py_buffer(np.concatenate([bounds, vocabulary_offsets + total])),
         pa.py_buffer(b"".join([*parts, vocabulary]))])
    order = np.arange(2 * num_masks + 1)
    order[1::2] = 2 * num_masks + 1 + shown
    grown = np.diff(vocabulary_offsets)[shown] - (end - begin)
    shifts = offsets_of(np.bincount(rows, weights=grown, minlength=len(starts)).astype(np.int64))
    return _string_array(offsets + shifts, elements.take(pa.array(order)).buffers()[2])


def _string_array(offsets: np.ndarray, data: bytes | pa.Buffer) -> pa.Array:
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"the texts of a block come to {offsets[-1]} bytes, a column of a shard holds 2 GiB; use "
                         "a smaller --block-size")
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets.astype(np.int32)),
                                       data if isinstance(data, pa.Buffer) else pa.py_buffer(data))
