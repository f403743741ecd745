"""The passages that a query ranks first, and how well they are found: figures of the first ten."""

import numpy as np

from bert.arrays.vectors import unit

DEPTH = 10


def found(
    scores: np.ndarray, relevant: np.ndarray, itself: np.ndarray | bool = False, answers: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """recall_at_1, recall_at_10, mrr_at_10 and ndcg_at_10 of each query, float64 [q] (Järvelin and Kekäläinen, 2002).

    Recall is of as many relevant passages as the depth can hold.

    Args:
        scores: float [q, p]; a passage with -inf is not found.
        relevant: bool [q, p]: whether a passage answers a query.
        itself: bool [q, p]: passages that are not searched among.
        answers: int [q], all relevant passages of a query; None: those among the p.
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
    """The cosines [q, p] of the query vectors with the passage vectors, by their first `size` numbers."""
    units = unit(vectors, size)
    return units[:num_queries] @ units[num_queries:].T


def best_rows(scores: np.ndarray, number: int) -> list[int]:
    """The places of the highest finite scores [p], best first; of equal ones the earlier."""
    rows = np.arange(len(scores))
    if number < len(scores):
        least = np.partition(scores, len(scores) - number)[len(scores) - number]
        rows = np.flatnonzero(scores >= least)
    rows = rows[np.isfinite(scores[rows])]
    return rows[np.argsort(-scores[rows], kind="stable")][:number].tolist()
