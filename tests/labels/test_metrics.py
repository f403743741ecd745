"""Tests of GLUE's metrics, and of the features of sentences and pairs."""

import math

import numpy as np
import pytest

from bert.glue.task_table import TASKS
from bert.labels.features import pair_lengths, sentence_features
from bert.labels.metrics import METRICS, scores
from bert.labels.schema import own_schema
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.wordpiece import WordPieceTokenizer


def close(found, expected):
    return found == pytest.approx(expected, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize(
    "name, predictions, labels, expected",
    [
        ("accuracy", [0, 1, 2, 2], [0, 1, 1, 2], 3 / 4),
        ("f1", [1, 1, 0, 2], [1, 0, 1, 1], 2 / 5),  # of class 1: one hit, one false alarm, two misses
        ("macro_f1", [0, 0, 1, 3], [0, 1, 1, 0], (1 / 2 + 2 / 3 + 0) / 3),  # over the classes of either
        (
            "micro_f1",
            [[1, 0, 1], [1, 1, 0]],
            [[1, 1, 0], [1, 0, 0]],
            2 * 2 / (4 + 3),
        ),  # hits, said, true: of all labels
        ("macro_f1", [[1, 0, 1], [1, 1, 0]], [[1, 1, 0], [1, 0, 0]], 1 / 3),  # of each label: 1, 0 and 0
        ("matthews", [1, 1, 0, 0, 1], [1, 0, 0, 0, 1], 4 / 6),
        ("matthews", [0, 1, 2, 2], [0, 1, 2, 1], (4 * 3 - 5) / math.sqrt((16 - 6) * (16 - 6))),  # Gorodkin's R_K
        ("pearson", [1.0, 2.0, 4.0], [2.0, 4.0, 8.0], 1.0),
        ("spearman", [1.0, 5.0, 6.0, 6.0], [3.0, 1.0, 2.0, 2.0], -1 / 3),  # equal values have their average rank
    ],
)
def test_metrics_by_hand(name, predictions, labels, expected):
    assert METRICS[name](np.array(predictions), np.array(labels)) == pytest.approx(expected)


@pytest.mark.parametrize(
    "name, expected", [("matthews", 0.0), ("f1", 0.0), ("accuracy", 0.5), ("pearson", math.nan), ("spearman", math.nan)]
)
def test_constant_predictions(name, expected, recwarn):
    assert close(METRICS[name](np.zeros(4, np.int64), np.array([0, 1, 1, 0])), expected)
    assert not recwarn.list


def test_the_score_of_a_task_is_the_mean_of_its_metrics():
    predictions, labels = np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0])
    found = scores(TASKS["MRPC"].metrics, predictions, labels)
    assert found == {"f1": pytest.approx(2 / 3), "accuracy": 0.75, "score": pytest.approx((2 / 3 + 0.75) / 2)}


def test_a_correlation_that_does_not_exist_counts_as_none_at_all():
    """A run keeps the weights with the best score, so the score must be a number for any predictions."""
    found = scores(TASKS["STS-B"].metrics, np.full(4, 2.5, np.float32), np.arange(4.0))
    assert math.isnan(found["pearson"]) and math.isnan(found["spearman"]) and found["score"] == 0.0


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="2 predictions for 3 labels"):
        scores(("accuracy",), np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="0 predictions for 0 labels"):
        scores(("accuracy",), np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="1 of 2 predictions are NaN"):
        scores(("pearson",), np.array([np.nan, 1.0]), np.array([0.0, 1.0]))


def test_every_metric_of_every_task_is_known():
    own = own_schema(("a",), "b")
    custom = [
        own_schema(("a",), "b", is_regression=True),
        own.with_labels(("a", "b")),
        own.with_labels(("a", "b", "c")),
    ]
    for task in [*TASKS.values(), *custom]:
        assert task.metrics and set(task.metrics) <= set(METRICS)


VOCABULARY = Vocabulary((*SPECIAL_TOKENS, "the", "cat", "sat", "##s", ".", '"', "a", "b", "c", "d", "e"))
TOKENIZER = WordPieceTokenizer(VOCABULARY)


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
    words = " ".join(VOCABULARY.tokens[i] for i in features.input_ids[features.tokens_of(np.array([row]))])
    return words, features.first_lengths[row]


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
    assert together.lengths().max() == 13
