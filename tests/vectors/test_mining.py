"""Tests of mining: negatives equal the definition for all block sizes, and no negative answers its query."""

from pathlib import Path

import numpy as np
import pytest

from bert.search.words import WordIndex
from bert.vectors import mining
from bert.vectors.measures import searched
from bert.vectors.mining import different_queries, mine
from bert.vectors.mining_rule import MiningRule
from bert.vectors.pairs import cleaned
from tests.references.mining import mined

WIDTH = 5


def rows() -> list[tuple[str, str]]:
    """Return 90 pairs of 50 queries: some have several answers, some nearly equal answers, and a query is an answer."""
    rng = np.random.default_rng(7)
    vocabulary = [f"{first}{second}a" for first in "bcdfghklmn" for second in "aeiou"]
    texts = [" ".join(rng.choice(vocabulary, 12)) for _ in range(60)]
    queries = [" ".join(rng.choice(vocabulary, 3)) for _ in range(50)]
    found = [(queries[rng.integers(50)], texts[rng.integers(60)]) for _ in range(80)]
    found += [(queries[place], f"{texts[place].upper()}!") for place in range(6)]  # nearly equal to others' answers
    found += [(texts[place], texts[place + 1]) for place in range(4)]  # neighbouring paragraphs
    return list(dict.fromkeys(found))


def frame_of(pairs):
    given = [
        {"query": q, "passage": p, "negatives": [], "kind": "rows of the table", "where": f"row {n}", "unit": q}
        for n, (q, p) in enumerate(pairs)
    ]
    return cleaned([{**pair, "id": None, "value": None} for pair in given], Path("pairs.csv"), [])


def vectors_of(texts: list[str]) -> np.ndarray:
    """Return float32 [n, 5]: a text's words decide, so that equal words are near, with some noise of the text."""
    table: dict[str, np.ndarray] = {}
    for text in texts:
        for word in [*text.lower().strip("!").split(), text]:
            table.setdefault(word, np.random.default_rng(abs(hash_of(word))).normal(size=WIDTH))
    means = [
        np.mean([table[word] for word in text.lower().strip("!").split()], 0) + 0.2 * table[text] for text in texts
    ]
    return np.array(means, np.float32)


def hash_of(word: str) -> int:
    return int.from_bytes(word.encode()[:12], "little")


@pytest.mark.parametrize(("block", "depth"), [(3, 7), (128, 60)])
@pytest.mark.parametrize("sources", [("model",), ("words",), ("model", "words")])
def test_negatives_equal_those_by_the_definition(monkeypatch, block, depth, sources):
    monkeypatch.setattr(mining, "_QUERIES", block)
    pairs, rule = frame_of(rows()), MiningRule(number=3, share=0.9, depth=depth, sources=sources)
    passages, queries = searched(pairs), different_queries(pairs)
    texts = [*queries, *passages.passage]
    index, vectors = WordIndex(passages.passage), vectors_of(texts)
    result = mine(pairs, pairs, passages, vectors, index, rule)
    by_text = dict(zip(texts[len(queries) :], vectors[len(queries) :].tolist(), strict=True))
    alike = dict(zip(pairs.passage, pairs.alike.tolist(), strict=True))
    expected = mined(
        list(zip(pairs["query"], pairs.passage, strict=True)),
        alike,
        by_text | dict(zip(queries, vectors[: len(queries)].tolist(), strict=True)),
        {query: index.scores(query).tolist() for query in queries},
        number=3,
        share=0.9,
        depth=depth,
        sources=sources,
    )
    assert result.negatives == [negatives for negatives, _ in expected]
    assert result.refused == sum(refused for _, refused in expected)
    assert 0 < result.refused < result.candidates and all(len(each) <= 3 for each in result.negatives)
    assert sum(map(len, result.negatives)) > 20


def test_a_negative_is_at_most_as_near_as_a_share_of_the_positive():
    """A positive may also have a negative cosine."""
    assert mining._highest(0.8, 0.95) == pytest.approx(0.76)
    assert mining._highest(-0.8, 0.95) == pytest.approx(-0.84)


def test_of_equal_scores_the_first_passage_is_taken():
    scores = np.array([[1.0, 3.0, 3.0, 3.0, -np.inf], [-np.inf, -np.inf, 2.0, -np.inf, -np.inf]])
    assert mining._best(scores, 2) == [[1, 2], [2]] and mining._best(scores, 9) == [[1, 2, 3, 0], [2]]


def test_passages_of_pairs_that_get_no_negatives_are_answers_too():
    """The first query has two answers; the second answer is no negative, even if its pair gets no negatives."""
    first, second = "one two three four", "five six seven eight"
    pairs = frame_of([("first query", first), ("first query", second), ("second query", second)])
    own, vectors = pairs.iloc[[0, 2]], np.array([[1, 0], [0, 1], [1, 0.1], [0.6, 0.4]], np.float32)
    passages = searched(own)
    index = WordIndex(passages.passage)
    results = [mine(own, answers, passages, vectors, index, MiningRule()).negatives for answers in (pairs, own)]
    assert results == [[[], [first]], [[second], [first]]]


def test_pairs_are_drawn_by_the_seed():
    assert mining.drawn(5, 9, seed=1).tolist() == [0, 1, 2, 3, 4]
    some, others = (mining.drawn(100, 10, seed=seed).tolist() for seed in (1, 2))
    assert len(set(some)) == 10 and some == sorted(some) != others == mining.drawn(100, 10, seed=2).tolist()
