"""Picks the best passages of a query, and measures a ranking: recall, MRR and nDCG of the first ten."""

import numpy as np

from bert.arrays.vectors import unit

DEPTH = 10


def found(
    scores: np.ndarray, relevant: np.ndarray, itself: np.ndarray | bool = False, answers: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Measure the ranking of each query by recall_at_1, recall_at_10, mrr_at_10 and ndcg_at_10: float64 [q] each.

    nDCG is defined by Järvelin and Kekäläinen (2002).

    Recall is the share of the relevant passages; if there are more than ten, ten count as all.

    Args:
        scores: float [q, p]; a passage with -inf is not found.
        relevant: bool [q, p]: whether a passage answers a query.
        itself: bool [q, p]: passages that are left out of the search, such as the query itself.
        answers: int [q], the number of all relevant passages of each query; None: the number among the p passages.
    """
    depth, scores = min(DEPTH, scores.shape[1]), np.where(itself, -np.inf, scores)
    nearest = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    hits = np.take_along_axis(relevant, nearest, axis=1)
    hits &= np.isfinite(np.take_along_axis(scores, nearest, axis=1))
    if answers is None:
        answers = (relevant & ~np.broadcast_to(itself, scores.shape)).sum(axis=1)
    possible = np.clip(answers, 1, depth)
    gains = 1 / np.log2(np.arange(depth) + 2)
    return {
        "recall_at_1": hits[:, 0].astype(np.float64),
        "recall_at_10": hits.sum(axis=1) / possible,
        "mrr_at_10": hits.any(axis=1) / (hits.argmax(axis=1) + 1),
        "ndcg_at_10": hits @ gains / np.cumsum(gains)[possible - 1],
    }


def cosines(vectors: np.ndarray, num_queries: int, size: int | None = None) -> np.ndarray:
    """Cosines [q, p] between query vectors and passage vectors; with `size`, of their first `size` dimensions."""
    units = unit(vectors, size)
    return units[:num_queries] @ units[num_queries:].T


def best_rows(scores: np.ndarray, number: int) -> list[int]:
    """Indices of the `number` highest finite scores, best first; of equal scores the earlier comes first."""
    rows = np.arange(len(scores))
    if number < len(scores):
        least = np.partition(scores, len(scores) - number)[len(scores) - number]
        rows = np.flatnonzero(scores >= least)
    rows = rows[np.isfinite(scores[rows])]
    return rows[np.argsort(-scores[rows], kind="stable")][:number].tolist()
