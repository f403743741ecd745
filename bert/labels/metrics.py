"""GLUE's metrics, computed by scikit-learn and SciPy as in GLUE's own scorer.

Undefined values: Matthews' coefficient of constant predictions is 0, F1 without a true positive is 0, and the
correlation with a constant is NaN and counts as 0 in the score.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np


def _correlation(name: str, predictions: np.ndarray, labels: np.ndarray) -> float:
    from scipy import stats  # here: only the rank that scores loads it

    predictions, labels = predictions.astype(np.float64), labels.astype(np.float64)
    if len(labels) < 2 or np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return math.nan
    return float(getattr(stats, name)(predictions, labels).statistic)


def _agreement(name: str, predictions: np.ndarray, labels: np.ndarray, **options: Any) -> float:
    from sklearn import metrics  # here: only the rank that scores loads it

    return float(getattr(metrics, name)(labels, predictions, **options))


def _f1_of_class_1(predictions: np.ndarray, labels: np.ndarray) -> float:
    return _agreement("f1_score", predictions == 1, labels == 1, zero_division=0.0)


# Functions (predictions, labels) -> value. "f1" is the F1 of class 1, "macro_f1" the mean over all occurring classes.
METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": partial(_agreement, "accuracy_score"),
    "f1": _f1_of_class_1,
    "macro_f1": partial(_agreement, "f1_score", average="macro", zero_division=0.0),
    "micro_f1": partial(_agreement, "f1_score", average="micro", zero_division=0.0),
    "matthews": partial(_agreement, "matthews_corrcoef"),  # for more than two classes, Gorodkin's R_K
    "pearson": partial(_correlation, "pearsonr"),
    "spearman": partial(_correlation, "spearmanr"),  # equal values have their average rank
}


def scores(names: Sequence[str], predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Compute metrics by name, and "score", their mean, as on GLUE's leaderboard, from int64 classes or numbers [n]."""
    if len(predictions) != len(labels) or not len(labels):
        raise ValueError(
            f"{len(predictions)} predictions for {len(labels)} labels cannot be scored: their numbers must be equal "
            "and at least 1"
        )
    if not np.isfinite(predictions).all():
        raise ValueError(
            f"{int((~np.isfinite(predictions)).sum())} of {len(predictions)} predictions are NaN or "
            "infinite: the training diverged; check its loss"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about constant values, whose metrics are defined above
        values = {name: float(METRICS[name](predictions, labels)) for name in names}
    return {**values, "score": float(np.mean([0.0 if math.isnan(value) else value for value in values.values()]))}
