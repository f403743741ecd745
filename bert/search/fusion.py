"""Hybrid ranking: the weighted sum of standardised scores of words (BM25) and of vectors (cosines).

Scores of the two kinds have no common scale. Standardised for each query, they have one, and keep the distances that
reciprocal rank fusion (Cormack et al., 2009) gives away. tests/research/search.md compares both.
"""

import numpy as np

WEIGHTS = tuple(step / 20 for step in range(21))  # candidates for the weight of the vectors
USUAL_WEIGHT = 0.75  # weight of vectors trained for search if none was fitted: tests/research/search.md
_DEPTH = 10  # depth of the mean reciprocal rank that the fitted weight maximises


def standardised(scores: np.ndarray, itself: np.ndarray | bool = False) -> np.ndarray:
    """Standardise each row of scores: minus its mean, divided by its standard deviation; float32 [..., p].

    A row of equal scores becomes 0.

    Args:
        scores: float [..., p], finite.
        itself: bool [..., p]: passages that are left out of the search, and so of mean and deviation.
    """
    counted = ~np.broadcast_to(itself, scores.shape)
    number = np.maximum(counted.sum(axis=-1, keepdims=True), 1)
    mean = scores.sum(axis=-1, keepdims=True, where=counted, dtype=np.float64) / number
    distances = scores - mean
    deviation = np.sqrt(np.square(distances).sum(axis=-1, keepdims=True, where=counted) / number)
    # Rounding leaves a tiny deviation to equal numbers.
    is_constant = deviation <= 1e-6 * np.maximum(np.abs(mean), 1e-6)
    return np.where(is_constant, 0, distances / np.where(is_constant, 1, deviation)).astype(np.float32)


def hybrid(
    words: np.ndarray, cosines: np.ndarray, weight: float | np.ndarray, itself: np.ndarray | bool = False
) -> np.ndarray:
    """`weight` x the standardised cosines + (1 - `weight`) x the standardised scores of words, float32 [..., p].

    Args:
        weight: the share of the vectors, from 0 to 1; an array has one for each row.
        itself: bool [..., p]: passages that are not searched among.
    """
    return weight * standardised(cosines, itself) + (1 - weight) * standardised(words, itself)


def fitted_weight(
    words: np.ndarray, cosines: np.ndarray, relevant: np.ndarray, itself: np.ndarray | bool = False
) -> float:
    """The weight of the vectors, from WEIGHTS, with the highest MRR@10; among equally good weights the nearest to 0.5.

    Args:
        words, cosines: float [q, p], finite.
        relevant: bool [q, p]: whether a passage answers a query.
        itself: bool [q, p]: passages that are not searched among.
    """
    return _best(_reciprocal_ranks(words, cosines, relevant, itself))


def cross_fitted(
    words: np.ndarray, cosines: np.ndarray, relevant: np.ndarray, itself: np.ndarray | bool = False
) -> np.ndarray:
    """Hybrid scores, float32 [q, p]: each query is scored with the weight that was fitted on the other half of queries.

    The halves are the queries at even and at odd places. So no query is scored with a weight that was fitted on it.

    Args:
        All arguments are as in `fitted_weight`.
    """
    ranks = _reciprocal_ranks(words, cosines, relevant, itself)
    weights = np.empty(len(words), np.float32)
    weights[::2], weights[1::2] = _best(ranks[1::2]), _best(ranks[::2])
    hidden = np.broadcast_to(itself, words.shape)
    rows = zip(words, cosines, weights, hidden, strict=True)  # one at a time: the sums are of float64
    return np.stack([hybrid(*row) for row in rows])


def _best(ranks: np.ndarray) -> float:
    """The weight whose column of `ranks` [q, weights] has the highest mean; 0.5 if there is no query."""
    means = ranks.mean(axis=0) if len(ranks) else np.zeros(len(WEIGHTS))
    best = [weight for weight, mean in zip(WEIGHTS, means, strict=True) if mean >= means.max() - 1e-9]
    return min(best, key=lambda weight: abs(weight - 0.5))


def _reciprocal_ranks(
    words: np.ndarray, cosines: np.ndarray, relevant: np.ndarray, itself: np.ndarray | bool
) -> np.ndarray:
    """Reciprocal rank of the first relevant passage, 0 if it is beyond the tenth: float64 [q, weights]."""
    ranks, hidden = np.zeros((len(words), len(WEIGHTS))), np.broadcast_to(itself, words.shape)
    shares = np.array(WEIGHTS, np.float32)[:, None]
    for query, answers in enumerate(relevant & ~hidden):
        if not answers.any():
            continue
        shown = ~hidden[query]
        scores = hybrid(words[query, shown], cosines[query, shown], shares)  # [weights, p]
        places = np.flatnonzero(answers[shown])
        first = places[scores[:, places].argmax(axis=1)][:, None]
        best = np.take_along_axis(scores, first, 1)
        # Of equal scores the first passage is nearer, as in `found`.
        before = (scores > best) | ((scores == best) & (np.arange(scores.shape[1]) < first))
        rank = 1 + before.sum(axis=1)
        ranks[query] = np.where(rank <= _DEPTH, 1 / rank, 0)
    return ranks
