"""Tests of BM25 scores from postings on the disk against bm25s over the remaining passages."""

import numpy as np
import pytest

from bert.search.postings import Postings, WordScores
from bert.search.words import WordIndex
from tests.search.indexes import passages

TEXTS = [passage.text for passage in passages(90)] + ["?!", "Straße 東京 word1 word1"]
QUERIES = ("word1 word2", "word3 word3 word4", "word99", "!", "", "東", "STRASSE straße")


def parts_of(*sizes: int) -> list[Postings]:
    ends = np.cumsum(sizes)
    assert ends[-1] == len(TEXTS)
    return [Postings.of(TEXTS[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


@pytest.mark.parametrize("sizes", [(92,), (50, 42), (1, 2, 89)], ids=str)
@pytest.mark.parametrize("share_deleted", [0, 0.4])
def test_scores_are_those_of_bm25s_over_the_passages_that_are_left(sizes, share_deleted):
    kept = np.random.default_rng(1).random(92) >= share_deleted
    live = np.split(kept, np.cumsum(sizes)[:-1])
    scores, reference = (
        WordScores(parts_of(*sizes), live),
        WordIndex([t for t, k in zip(TEXTS, kept, strict=True) if k]),
    )
    for query in QUERIES:
        found = scores.scores(query)
        assert found.dtype == np.float32 and not found[~kept].any()
        np.testing.assert_allclose(found[kept], reference.scores(query), rtol=1e-5, atol=1e-6)


def test_joined_postings_are_those_of_the_passages_that_are_kept():
    kept = np.random.default_rng(2).random(92) >= 0.3
    joined = Postings.joined(parts_of(40, 52), [kept[:40], kept[40:]])
    made = Postings.of(text for text, is_kept in zip(TEXTS, kept, strict=True) if is_kept)
    for name in ("words", "entries", "lengths"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(made, name))
    assert joined.words.dtype == np.uint64 and joined.entries.dtype == np.uint32


def test_an_index_without_passages_has_no_scores():
    assert WordScores([], []).scores("word1").shape == (0,)
    nothing = [np.zeros(92, bool)]
    assert not WordScores(parts_of(92), nothing).scores("word1 word2").any()


def test_rare_words_tell_more():
    weights = WordScores([Postings.of(["a b", "a c", "a d"])], [np.ones(3, bool)]).weights("a b zebra")
    assert weights["a"] < weights["b"] < weights["zebra"]
    assert weights["b"] == pytest.approx(np.log(1 + (3 - 1 + 0.5) / (1 + 0.5)))
