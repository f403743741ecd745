"""Scores for a decision: each class alone, what is mistaken for what, calibrated probabilities, thresholds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.metrics import classification_report, confusion_matrix, roc_auc_score

from bert.config.setting_errors import suggest
from bert.finetuning.glue.decision import Decision

WORST = 20  # errors that are listed
_BINS = 10  # of the calibration error
_TEMPERATURES = (0.2, 20.0)  # without an error in the evaluation set, at least 1: the best would be 0


def fitted(
    logits: np.ndarray, labels: np.ndarray, several: bool, positive: int | None, recall: float | None
) -> Decision:
    """The temperature with the least log loss, and the highest threshold that gives a class the wanted recall.

    The threshold is halfway between the last row that it takes and the next.

    Args:
        labels: int64 [n], or float32 0 and 1 [n, classes] if a text may have several.
    """

    def loss(logarithm: float) -> float:
        likely = replace(plain, temperature=float(np.exp(logarithm))).probabilities(logits).clip(1e-12, 1 - 1e-12)
        if several:
            return float(-np.mean(labels * np.log(likely) + (1 - labels) * np.log1p(-likely)))
        return float(-np.mean(np.log(likely[np.arange(len(labels)), labels])))

    plain = Decision(several)
    has_error = bool((plain.classes(plain.probabilities(logits)) != labels).any())
    bounds = np.log(_TEMPERATURES if has_error else (1.0, _TEMPERATURES[1]))
    best = minimize_scalar(loss, bounds=tuple(bounds), method="bounded")
    decision = replace(plain, temperature=float(np.exp(best.x)))
    if positive is None or recall is None or not (labels == positive).any():
        return decision
    likely = decision.probabilities(logits)[:, positive]
    own = np.sort(likely[labels == positive])[::-1]
    last = own[int(np.ceil(recall * len(own) - 1e-9)) - 1]
    threshold = (last + likely[likely < last].max(initial=0.0)) / 2
    return replace(decision, positive=positive, threshold=float(threshold))


def calibration_error(likely: np.ndarray, labels: np.ndarray) -> float:
    """Mean distance between the probability of the predicted class and how often it is right, over ten bins."""
    confidence, right = likely.max(-1), likely.argmax(-1) == labels
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = [abs(confidence[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    return float(sum(gaps))


def by_class(names: Sequence[str], labels: np.ndarray, predictions: np.ndarray) -> dict[str, dict[str, float]]:
    """precision, recall, f1-score and support of each class; int64 [n], or 0 and 1 [n, classes]."""
    numbers = list(range(len(names)))
    report: Any = classification_report(labels, predictions, labels=numbers, output_dict=True, zero_division=0.0)
    return {name: report[str(number)] for number, name in enumerate(names)}


def areas(names: Sequence[str], labels: np.ndarray, likely: np.ndarray) -> dict[str, float]:
    """The area under the ROC curve of each class against all others, if the set has both."""
    truths = labels if labels.ndim == 2 else labels[:, None] == np.arange(len(names))
    both = truths.any(0) & ~truths.all(0)
    return {name: float(roc_auc_score(truths[:, i], likely[:, i])) for i, name in enumerate(names) if both[i]}


_KINDS = {"precision": "precision", "recall": "recall", "f1": "f1-score", "auc": "auc"}  # as scikit-learn calls them


def best_by(words: str, metrics: Sequence[str], labels: Sequence[str]) -> tuple[str, str] | None:
    """(precision, recall, f1 or auc; class) of `recall:urgent`; None for a metric of the task."""
    kind, colon, name = words.partition(":")
    if not colon and kind in ("score", *metrics):
        return None
    if kind in _KINDS and name in labels:
        return kind, name
    known = [*metrics, *(f"{kind}:{label}" for kind in _KINDS for label in labels)]
    raise ValueError(
        f"best_by={words} must be one of {', '.join(known[:12])}; {suggest(words, known, 'change --best-by')}"
    )


def score_of_class(
    names: Sequence[str], labels: np.ndarray, likely: np.ndarray, predictions: np.ndarray, kind: str, name: str
) -> float:
    """One score of one class; as `best_by` names it."""
    if kind == "auc":
        return areas(names, labels, likely).get(name, 0.0)
    return by_class(names, labels.astype(np.int64), predictions)[name][_KINDS[kind]]


def details(
    names: Sequence[str],
    texts: Sequence[str],
    indices: Sequence[str],
    labels: np.ndarray,
    logits: np.ndarray,
    decision: Decision,
) -> dict[str, Any]:
    """The content of scores.json: all that is known of an evaluation.

    Args:
        labels: int64 [n], or float32 0 and 1 [n, classes] if there may be several.
    """
    several, likely = decision.several, decision.probabilities(logits)
    predictions = decision.classes(likely)
    classes = by_class(names, labels.astype(np.int64), predictions)
    for name, area in areas(names, labels, likely).items():
        classes[name]["auc"] = area
    doubt = np.abs(labels - likely).max(-1) if several else 1 - likely[np.arange(len(labels)), labels]
    wrong = np.flatnonzero((predictions != labels).any(-1) if several else predictions != labels)
    worst = wrong[np.argsort(-doubt[wrong], kind="stable")][:WORST]

    def shown(row: Any) -> str:
        return ", ".join(names[index] for index in (np.flatnonzero(row) if several else [row]))

    found: dict[str, Any] = {
        "classes": classes,
        "temperature": decision.temperature,
        "worst": [
            {
                "row": indices[i],
                "text": texts[i],
                "label": shown(labels[i]),
                "prediction": shown(predictions[i]),
                "probability_of_label": round(1 - float(doubt[i]), 6),
            }
            for i in worst.tolist()
        ],
    }
    if not several:
        found["confusion"] = confusion_matrix(labels, predictions, labels=list(range(len(names)))).tolist()
        raw = Decision().probabilities(logits)
        found["calibration_error"] = {
            "before": calibration_error(raw, labels),
            "after": calibration_error(likely, labels),
        }
        found["accuracy"] = float((predictions == labels).mean())
        found["largest_class"] = float(np.bincount(labels).max() / len(labels))
        if decision.positive is not None:
            found["threshold"] = {names[decision.positive]: decision.threshold}
    return found


def verdict(found: Mapping[str, Any]) -> str:
    """A sentence on a classifier that learned no more than the largest class; "" for others."""
    largest, accuracy = found.get("largest_class"), found.get("accuracy")
    predicted = [name for name, row in found["classes"].items() if row["recall"] > 0]
    if largest is None or (accuracy > largest and len(predicted) > 1):
        return ""
    return (
        f"the model has learned no more than the largest class: it is right in {accuracy:.1%}, and always "
        f"saying the largest class would be in {largest:.1%}. More lines, a better model to start "
        "from (--from-pretrained-params), more epochs or --balance may help"
    )


def lines(found: Mapping[str, Any]) -> list[str]:
    """A table of the classes, and of what was taken for what."""
    classes = found["classes"]
    width = max(12, *map(len, classes)) + 2
    table = [f"{'class':<{width}}precision   recall       F1      AUC  lines"]
    for name, row in classes.items():
        area = f"{row['auc']:9.3f}" if "auc" in row else f"{'-':>9}"
        table.append(
            f"{name:<{width}}{row['precision']:9.3f}{row['recall']:9.3f}{row['f1-score']:9.3f}{area}{row['support']:7.0f}"
        )
    if (matrix := found.get("confusion")) and len(matrix) <= 8:
        size = max(8, *map(len, classes)) + 2
        table += ["", f"{'true, predicted:':<{width + 5}}" + "".join(f"{name:>{size}}" for name in classes)]
        table += [
            f"{name:<{width + 5}}" + "".join(f"{n:>{size}}" for n in row)
            for name, row in zip(classes, matrix, strict=True)
        ]
    if "threshold" in found:
        ((name, value),) = found["threshold"].items()
        table += ["", f"{name} is predicted from a probability of {value:.3f}"]
    return table
