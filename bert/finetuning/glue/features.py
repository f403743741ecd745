"""Sentences and pairs of sentences -> token ids as BERT takes them, all of a file at once. No Paddle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert.arrays.ragged import offsets_of, ragged_indices
from bert.samples.table import join_pairs
from bert.tokenization.fast_tokenizer import FastTokenizer


def pair_lengths(first: np.ndarray, second: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens to keep of both sentences, so that they fit: the longer one is cut first.

    The same as to take tokens away one by one, from the first sentence where it is longer than the second, else from
    the second, until `limit` are left, as in BERT's published code.

    Args:
        first, second: int64 [n], tokens of the sentences.
        limit: most tokens of both.
    """
    larger_half, smaller_half = limit - limit // 2, limit // 2
    return (
        np.minimum(first, np.maximum(limit - second, larger_half)),
        np.minimum(second, np.maximum(limit - first, smaller_half)),
    )


def sentence_features(
    tokenizer: FastTokenizer, texts: Sequence[Sequence[str]], max_seq_length: int
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """[CLS] A [SEP] or [CLS] A [SEP] B [SEP] for every example.

    Args:
        texts: one list of n sentences, or two.
        max_seq_length: longest sequence, in tokens with the special ones; longer ones are cut at the end.
    Returns:
        arrays: input_ids [T], offsets int64 [n + 1], and first_lengths int64 [n], the tokens before "B [SEP]".
        counts: "truncated", the examples that were cut, and "tokens".
    """
    vocabulary = tokenizer.vocabulary
    cls_id, sep_id = vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]")
    first_ids, first_offsets = tokenizer.encode_texts(texts[0])
    first = np.diff(first_offsets)
    if len(texts) == 1:
        kept = np.minimum(first, max_seq_length - 2)
        ids, offsets = _join_single(first_ids[ragged_indices(first_offsets[:-1], kept)], kept, cls_id, sep_id)
        truncated = int((kept < first).sum())
        return (
            {"input_ids": ids, "offsets": offsets, "first_lengths": kept + 2},
            {"truncated": truncated, "tokens": len(ids)},
        )
    second_ids, second_offsets = tokenizer.encode_texts(texts[1])
    second = np.diff(second_offsets)
    kept, kept_second = pair_lengths(first, second, max_seq_length - 3)
    ids, offsets = join_pairs(
        first_ids[ragged_indices(first_offsets[:-1], kept)],
        kept,
        second_ids[ragged_indices(second_offsets[:-1], kept_second)],
        kept_second,
        cls_id,
        sep_id,
    )
    truncated = int(((kept < first) | (kept_second < second)).sum())
    return (
        {"input_ids": ids, "offsets": offsets, "first_lengths": kept + 2},
        {"truncated": truncated, "tokens": len(ids)},
    )


def _join_single(ids: np.ndarray, lengths: np.ndarray, cls_id: int, sep_id: int) -> tuple[np.ndarray, np.ndarray]:
    offsets = offsets_of(lengths + 2)
    joined = np.empty(offsets[-1], ids.dtype)
    joined[offsets[:-1]] = cls_id
    joined[offsets[1:] - 1] = sep_id
    joined[ragged_indices(offsets[:-1] + 1, lengths)] = ids
    return joined, offsets
