"""Tokenises texts and pairs of texts to sequences with special tokens, for training and prediction."""

from collections.abc import Sequence

import numpy as np

from bert.finetuning.loader import FeatureTable, single_sequences
from bert.samples.sample_table import Slices, join_pairs
from bert.tokenization.library import TextTokenizer


def pair_lengths(first: np.ndarray, second: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of tokens to keep of both sentences of a pair, int64 [n] each; their sum is at most `limit`.

    The result equals BERT's published code, which removes tokens one by one, from the first sentence if it is longer
    than the second, otherwise from the second.
    """
    larger_half, smaller_half = limit - limit // 2, limit // 2
    return (
        np.minimum(first, np.maximum(limit - second, larger_half)),
        np.minimum(second, np.maximum(limit - first, smaller_half)),
    )


def sentence_features(
    tokenizer: TextTokenizer, texts: Sequence[Sequence[str]], max_seq_length: int
) -> tuple[FeatureTable, dict[str, int]]:
    """Make [CLS] A [SEP] or [CLS] A [SEP] B [SEP] of each example; returns also counts, "truncated" and "tokens".

    Args:
        texts: one list of n sentences, or two for pairs.
    """
    table, cut = cut_features(tokenizer, texts, max_seq_length)
    return table, {"truncated": int(cut.sum()), "tokens": len(table.input_ids)}


def cut_features(
    tokenizer: TextTokenizer, texts: Sequence[Sequence[str]], max_seq_length: int
) -> tuple[FeatureTable, np.ndarray]:
    """Make the sequences of `sentence_features`, and a mask, bool [n], of the examples that were truncated."""
    cls_id, sep_id = tokenizer.vocabulary.id_of("[CLS]"), tokenizer.vocabulary.id_of("[SEP]")
    separators = tokenizer.vocabulary.pair_separators() if len(texts) == 2 else 1
    encoded = [tokenizer.encode_texts(sentences) for sentences in texts]
    lengths = [np.diff(offsets) for _, offsets in encoded]
    kept = [np.minimum(lengths[0], max_seq_length - 2)]
    if len(texts) == 2:
        kept = [*pair_lengths(lengths[0], lengths[1], max_seq_length - 2 - separators)]
    pieces = [Slices(ids, offsets[:-1], size) for (ids, offsets), size in zip(encoded, kept, strict=True)]
    if len(texts) == 1:
        input_ids, offsets = single_sequences(pieces[0], cls_id, sep_id)
    else:
        input_ids, offsets = join_pairs(pieces[0], pieces[1], cls_id, sep_id, separators=separators)
    cut = np.any([size < whole for size, whole in zip(kept, lengths, strict=True)], axis=0)
    pad_id, second_type = tokenizer.vocabulary.id_of("[PAD]"), tokenizer.vocabulary.second_type()
    table = FeatureTable(input_ids, offsets, kept[0] + 1 + separators, pad_id=pad_id, second_type=second_type)
    return table, cut
