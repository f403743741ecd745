"""Sentences -> token ids: layout, truncation and prediction files."""

import numpy as np
import pytest

from bert.finetuning.glue.metrics import pair_lengths, sentence_features
from bert.tokenization.fast_tokenizer import FastTokenizer
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCABULARY = Vocabulary((*SPECIAL_TOKENS, "the", "cat", "sat", "##s", ".", '"', "a", "b", "c", "d", "e"))
TOKENIZER = FastTokenizer(VOCABULARY)


def cut_one_by_one(first, second, limit):
    """BERT's published rule: while the pair is too long, the longer text loses its last token; if equal, the second."""
    while first + second > limit:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def test_pairs_are_cut_as_if_token_by_token():
    sizes = np.arange(15)
    first, second = (grid.ravel() for grid in np.meshgrid(sizes, sizes))
    for limit in range(1, 30):
        kept = pair_lengths(first, second, limit)
        expected = np.array([cut_one_by_one(a, b, limit) for a, b in zip(first, second, strict=True)])
        np.testing.assert_array_equal(np.stack(kept, 1), expected)


def tokens(features, row):
    low, high = features["offsets"][row : row + 2]
    return (" ".join(VOCABULARY.tokens[i] for i in features["input_ids"][low:high]), features["first_lengths"][row])


def test_pairs_by_hand():
    features, counts = sentence_features(
        TOKENIZER, (["The cat sat.", "a b c d e", "", "a"], ['"Cats"', "e d", "c", ""]), 8
    )
    assert tokens(features, 0) == ('[CLS] the cat sat [SEP] " cat [SEP]', 5)
    assert tokens(features, 1) == ("[CLS] a b c [SEP] e d [SEP]", 5)
    assert tokens(features, 2) == ("[CLS] [SEP] c [SEP]", 2)
    assert tokens(features, 3) == ("[CLS] a [SEP] [SEP]", 3), "an empty text is one of a pair"
    assert counts == {"truncated": 2, "tokens": 24}


def test_single_sentences_by_hand():
    features, counts = sentence_features(TOKENIZER, (["Cats sat", "", "a b c d e", "[SEP] naïve"],), 6)
    assert tokens(features, 0) == ("[CLS] cat ##s sat [SEP]", 5)
    assert tokens(features, 1) == ("[CLS] [SEP]", 2)
    assert tokens(features, 2) == ("[CLS] a b c d [SEP]", 6)
    assert "[SEP]" not in tokens(features, 3)[0][6:-6], "text must not become special tokens"
    assert counts["truncated"] == 1


@pytest.mark.parametrize("num_texts", [1, 2])
def test_all_at_once_equals_one_by_one(num_texts):
    rng = np.random.RandomState(3)
    words = ["the", "cat", "cats", "sat", ".", '"', "a", "zzz"]
    texts = [[" ".join(rng.choice(words, rng.randint(0, 12))) for _ in range(60)] for _ in range(num_texts)]
    together, counts = sentence_features(TOKENIZER, texts, 13)
    truncated = 0
    for row in range(60):
        alone, count = sentence_features(TOKENIZER, [[column[row]] for column in texts], 13)
        assert tokens(alone, 0) == tokens(together, row)
        truncated += count["truncated"]
    assert counts["truncated"] == truncated > 0
    assert np.diff(together["offsets"]).max() == 13
