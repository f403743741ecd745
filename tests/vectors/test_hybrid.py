"""Tests of the hybrid ranking on held-out queries: metrics, fitted weight, and the recommended ranking."""

import numpy as np
import pandas as pd
import pytest

from bert.vectors.hybrid import HeldOutSearch
from bert.vectors.pairs import LABELLED, SCORED
from tests.references.search import hybrid_scores, mean_reciprocal_ranks, search_figures

NUMBER, WIDTH = 24, 40


def search_of(words: np.ndarray) -> HeldOutSearch:
    return HeldOutSearch(words.astype(np.float32), np.eye(NUMBER, dtype=bool), np.zeros((NUMBER, NUMBER), bool))


def noisy(gap: float, seed: int) -> np.ndarray:
    """Return scores [q, p]; right passages' scores are higher by `gap` standard deviations."""
    return gap * np.eye(NUMBER) + np.random.RandomState(seed).randn(NUMBER, NUMBER) + 9


def vectors_of(cosines: np.ndarray) -> np.ndarray:
    """Return vectors of queries and passages with these cosines, up to a factor for each query."""
    passages = np.eye(NUMBER, WIDTH)
    return np.concatenate([np.pad(cosines, ((0, 0), (0, WIDTH - NUMBER))), passages])


def test_the_hybrid_is_measured_by_the_weight_of_the_other_half():
    words, by_vectors = noisy(2.0, 1), noisy(2.0, 2)
    metrics, sentence = search_of(words).compare(vectors_of(by_vectors), None)
    nothing, relevant = [[False] * NUMBER] * NUMBER, np.eye(NUMBER, dtype=bool).tolist()

    def best(rows: slice) -> float:
        means = mean_reciprocal_ranks(words[rows].tolist(), by_vectors[rows].tolist(), relevant[rows], nothing[rows])
        return min((weight for weight, mean in means.items() if mean > max(means.values()) - 1e-9), key=from_a_half)

    def from_a_half(weight: float) -> float:
        return abs(weight - 0.5)

    halves = [best(slice(first, None, 2)) for first in (1, 0)]
    scores = hybrid_scores(words.tolist(), by_vectors.tolist(), halves * (NUMBER // 2), nothing)
    wanted = search_figures(scores, relevant, nothing, 10)
    assert {name: metrics[f"eval_hybrid_{name}"] for name in wanted} == {
        name: pytest.approx(np.mean(values)) for name, values in wanted.items()
    }
    assert metrics["eval_hybrid_weight"] == best(slice(None)) != 0.5
    kept = search_of(words).compare(vectors_of(by_vectors), metrics["eval_hybrid_weight"], fitted_here=True)
    assert kept == (metrics, sentence)
    assert sentence.startswith("The hybrid ranking (") and "fitted on one half of the queries for" in sentence


@pytest.mark.parametrize(
    ("of_words", "of_vectors", "use"),
    [
        (1.5, 1.5, "Use the hybrid ranking: --nearest does so by default."),
        (0.0, 2.5, "Use the vectors alone: add --ranking vectors to --nearest."),
        (2.5, 0.0, "Use BM25 alone: add --ranking words to --nearest."),
    ],
)
def test_the_sentence_names_the_ranking_to_use_beside_the_better_part(of_words, of_vectors, use):
    """If the weight of the training is wrong here, the better part alone is best."""
    words, vectors = noisy(of_words, 3), vectors_of(noisy(of_vectors, 4))
    metrics, sentence = search_of(words).compare(vectors, 0.5)
    assert metrics["eval_hybrid_weight"] == 0.5 and sentence.endswith(f"). {use}")
    assert "(50% vectors, 50% BM25, as the training of this model fitted it)" in sentence
    better = "the vectors alone" if of_vectors > of_words else "BM25 alone"
    assert of_words == of_vectors or f" {better} on 24 queries: recall at 1 " in sentence


@pytest.mark.parametrize("kind", [SCORED, LABELLED])
def test_pairs_with_a_score_or_a_class_are_not_searched_for(kind):
    assert HeldOutSearch.of(pd.DataFrame({"query": ["a"], "passage": ["b"], "kind": [kind]})) is None
