"""Scores a classifier in detail: each class, the confusion matrix, calibration and thresholds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from bert.config.setting_errors import suggest
from bert.conversion.usage import WHOLE
from bert.labels.decision import Decision
from bert.reporting.progress import metrics_line
from bert.reporting.run_record import SCORES_FILE

WORST = 20  # most errors that are listed
_MOST_CLASSES = 50  # most classes in the printed table
_BINS = 10  # bins of the calibration error
TEMPERATURES = (0.2, 20.0)  # range of the temperature; at least 1 without an error, where the best would be 0
_TITLES = {"precision": "precision", "recall": "recall", "f1-score": "F1", "auc": "AUC", "support": "lines"}
_KINDS = {"precision": "precision", "recall": "recall", "f1": "f1-score", "auc": "auc"}  # as scikit-learn calls them


def fitted(
    logits: np.ndarray, labels: np.ndarray, several: bool, positive: int | None, recall: float | None
) -> Decision:
    """Fit a decision: the temperature with the least log loss, and the threshold for the wanted recall of a class.

    Args:
        labels: int64 [n], or float32 0 and 1 [n, classes] if a text may have several.
    """
    from scipy.optimize import minimize_scalar  # here, as scikit-learn and pandas below: only one rank scores

    plain, logits = Decision(several), logits.astype(np.float64)
    has_error = bool((plain.classes(plain.probabilities(logits)) != labels).any())
    bounds = np.log(TEMPERATURES if has_error else (1.0, TEMPERATURES[1]))
    best = minimize_scalar(
        lambda logarithm: error_of(logits / np.exp(logarithm), labels, several), bounds=tuple(bounds), method="bounded"
    )
    decision = replace(plain, temperature=float(np.exp(best.x)))
    return (
        decision if positive is None or recall is None else with_threshold(decision, logits, labels, positive, recall)
    )


def with_threshold(
    decision: Decision, logits: np.ndarray, labels: np.ndarray, positive: int, recall: float
) -> Decision:
    """Fit the threshold that gives a class at least the wanted recall; no row of the class: no change.

    The threshold makes the fewest false alarms that allow this recall, and with these alarms it finds as many rows of
    the class as possible. It lies halfway between the last found row and the next false alarm.
    """
    if not (labels == positive).any():
        return decision
    likely = decision.probabilities(logits)[:, positive]
    own, others = np.sort(likely[labels == positive])[::-1], likely[labels != positive]
    needed = own[int(np.ceil(recall * len(own) - 1e-9)) - 1]
    next_alarm = others[others < needed].max(initial=0.0)
    last = own[own > next_alarm].min(initial=needed)  # empty if so many rows of the class have probability 0
    return replace(decision, positive=positive, threshold=float((last + next_alarm) / 2))


def error_of(logits: np.ndarray, labels: np.ndarray, several: bool) -> float:
    """The mean log loss, in nats; with several labels, the mean over all labels."""
    if several:
        return float((np.logaddexp(0, logits) - labels * logits).mean())
    return float((logsumexp(logits, axis=-1) - logits[np.arange(len(labels)), labels]).mean())


def calibration_error(likely: np.ndarray, labels: np.ndarray) -> float:
    """Expected calibration error: mean distance of predicted probability and accuracy, over ten bins."""
    confidence, right = likely.max(-1), likely.argmax(-1) == labels
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    return float(np.abs(np.bincount(bins, confidence - right)).sum() / len(labels))


def class_scores(
    names: Sequence[str], labels: np.ndarray, likely: np.ndarray, predictions: np.ndarray
) -> dict[str, dict[str, Any]]:
    """Score each class: precision, recall, f1-score, support, number of predicted rows, and auc against all others.

    The auc is missing if all rows or no row have the class. Other values are None if nothing was measured: the
    precision of a class that is never predicted, the recall of a class without rows, the F1 if both hold.
    """
    from sklearn.metrics import classification_report, roc_auc_score

    numbers, labels = np.arange(len(names)), labels.astype(np.int64)
    is_predicted = predictions if predictions.ndim == 2 else predictions[:, None] == numbers
    report: Any = classification_report(labels, predictions, labels=numbers, output_dict=True, zero_division=0.0)
    for number, truths in enumerate((labels if labels.ndim == 2 else labels[:, None] == numbers).T):
        scores = report[str(number)]
        scores["predicted"] = int(is_predicted[:, number].sum())
        if not scores["predicted"]:
            scores["precision"] = None
        if not scores["support"]:
            scores["recall"] = None
        if not scores["predicted"] and not scores["support"]:
            scores["f1-score"] = None
        if truths.any() and not truths.all():
            scores["auc"] = float(roc_auc_score(truths, likely[:, number]))
    return {name: report[str(number)] for number, name in enumerate(names)}


def best_by(words: str, metrics: Sequence[str], labels: Sequence[str]) -> tuple[str, str] | None:
    """Parse --best-by, such as `recall:urgent`: (key of `class_scores`, class), or None for a metric of the task."""
    kind, colon, name = words.partition(":")
    if not colon and kind in ("score", *metrics):
        return None
    if kind in _KINDS and name in labels:
        return _KINDS[kind], name
    known = [*metrics, *(f"{kind}:{label}" for kind in _KINDS for label in labels)]
    raise ValueError(
        f"best_by={words} must be one of {', '.join(known[:12])}; {suggest(words, known, 'change --best-by')}"
    )


@dataclass(frozen=True)
class ScoredRows:
    """A model's logits for n labelled rows.

    Attributes:
        names: the c classes.
        texts, indices: n texts in the form for display, and their identifiers.
        labels: int64 [n], or float32 0 and 1 [n, c] if a text may have several.
        logits: float32 [n, c].
    """

    names: Sequence[str]
    texts: Sequence[str]
    indices: Sequence[str]
    labels: np.ndarray
    logits: np.ndarray


def details(rows: ScoredRows, decision: Decision, balanced: bool = False) -> dict[str, Any]:
    """The content of scores.json: all scores of an evaluation.

    Args:
        balanced: whether --balance was given or would not help, so that it is not recommended.
    """
    likely = decision.probabilities(rows.logits)
    predictions = decision.classes(likely)
    content: dict[str, Any] = {
        "classes": class_scores(rows.names, rows.labels, likely, predictions),
        "worst": _worst_rows(rows, likely, predictions, decision.several),
    }
    if decision.several:
        content |= _figures_of_several_labels(rows.labels, predictions)
    else:
        content |= _figures_of_single_labels(rows, likely, predictions)
    if decision.temperature != 1:  # fitted to these rows; an earlier training's temperature is in the weights
        content["temperature"] = decision.temperature
        if not decision.several:
            uncalibrated = Decision().probabilities(rows.logits)
            before = calibration_error(uncalibrated, rows.labels)
            content["calibration_error"] = {"before": before, **content["calibration_error"]}
    if decision.positive is not None:
        content["threshold"] = {rows.names[decision.positive]: decision.threshold}
    if verdict := _verdict(content, balanced or decision.several):
        content["verdict"] = verdict
    return content


def _worst_rows(rows: ScoredRows, likely: np.ndarray, predictions: np.ndarray, several: bool) -> list[dict[str, Any]]:
    """The errors with the lowest probability of the true label, worst first, with the names of their classes."""
    labels = rows.labels
    if several:
        doubt = np.abs(labels - likely).max(-1)
        is_wrong = (predictions != labels).any(-1)
    else:
        doubt = 1 - likely[np.arange(len(labels)), labels]
        is_wrong = predictions != labels

    def named(row: Any) -> str:
        return ", ".join(rows.names[index] for index in (np.flatnonzero(row) if several else [row]))

    wrong = np.flatnonzero(is_wrong)
    worst = wrong[np.argsort(-doubt[wrong], kind="stable")][:WORST]
    return [
        {
            "row": rows.indices[row],
            "text": rows.texts[row],
            "label": named(labels[row]),
            "prediction": named(predictions[row]),
            "probability_of_label": round(1 - float(doubt[row]), 6),
        }
        for row in worst.tolist()
    ]


def _figures_of_single_labels(rows: ScoredRows, likely: np.ndarray, predictions: np.ndarray) -> dict[str, Any]:
    """The confusion matrix, the calibration error, the accuracy and the share of the largest class."""
    from sklearn.metrics import confusion_matrix

    labels = rows.labels
    return {
        "confusion": confusion_matrix(labels, predictions, labels=range(len(rows.names))).tolist(),
        "calibration_error": {"after": calibration_error(likely, labels)},
        "accuracy": float((predictions == labels).mean()),
        "largest_class": float(np.bincount(labels).max() / len(labels)),
    }


def _figures_of_several_labels(labels: np.ndarray, predictions: np.ndarray) -> dict[str, Any]:
    from sklearn.metrics import f1_score

    micro_f1 = float(f1_score(labels, predictions, average="micro", zero_division=0.0))
    return {"micro_f1": micro_f1, "same_labels": _f1_of_same_labels(labels)}


def _f1_of_same_labels(labels: np.ndarray) -> float:
    """The best micro F1 that is possible if every row gets the same, most frequent labels."""
    counts = np.sort(labels.sum(0))[::-1].astype(np.float64)
    return float(np.max(2 * np.cumsum(counts) / (len(labels) * np.arange(1, len(counts) + 1) + counts.sum())))


def _verdict(content: Mapping[str, Any], balanced: bool) -> str:
    """A sentence if the model is no better than the most frequent labels, or never finds a class; otherwise ""."""
    score, least = ("micro_f1", "same_labels") if "same_labels" in content else ("accuracy", "largest_class")
    recalls = {name: values["recall"] for name, values in content["classes"].items() if values["support"]}
    missed, balance = [name for name, recall in recalls.items() if not recall], "" if balanced else " or --balance"
    if content[score] <= content[least] or len(recalls) - len(missed) < 2:
        return (
            f"the model has learned no more than the {least.replace('_', ' ')}: its {score.replace('_', ' ')} is "
            f"{content[score]:.1%}, always saying the most frequent labels gives {content[least]:.1%}. More lines, a "
            f"better model to start from (--from-pretrained-params), more epochs{balance} may help"
        )
    names = ", ".join(missed[:10]) + " ..." * (len(missed) > 10)
    return f"no line of {names} is found (recall 0): more lines of them{balance} may help" if missed else ""


def lines(details: Mapping[str, Any]) -> list[str]:
    """Lines for the terminal: a table of the classes, the confusion matrix, thresholds, and the verdict if any."""
    import pandas as pd

    classes = pd.DataFrame(details["classes"]).T.reindex(columns=list(_TITLES)).rename(columns=_TITLES).astype(float)
    more = len(classes) - _MOST_CLASSES
    if more > 0:
        classes = classes[classes["lines"].rank(method="first", ascending=False) <= _MOST_CLASSES]
    tables = [classes.to_string(float_format="{:.3f}".format, formatters={"lines": "{:.0f}".format}, na_rep="-")]
    tables += [f"the {_MOST_CLASSES} largest classes; {more:,} more are in {SCORES_FILE}"] if more > 0 else []
    if 0 < len(matrix := details.get("confusion", ())) <= 8:
        counts = pd.DataFrame(matrix, classes.index, classes.index)
        tables.append(counts.rename_axis(columns="true, predicted:").to_string())
    for name, value in details.get("threshold", {}).items():
        tables.append(f"{name} is predicted from a probability of {value:.3f}")
    for part, metrics in details.get("held_out", {}).items():
        if part != WHOLE:
            tables.append(f"without the {part}, which other libraries leave out: {metrics_line(metrics)}")
    tables += [details["verdict"]] if "verdict" in details else []
    return "\n\n".join(tables).split("\n")
