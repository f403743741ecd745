"""GLUE's metrics against oracles written from their definitions, on thousands of generated cases."""

import math

import numpy as np
import pytest

from bert.finetuning.glue.metrics import METRICS, scores
from bert.finetuning.glue.task_table import TASKS, custom_task


def accuracy(predictions, labels):
    return sum(p == y for p, y in zip(predictions, labels, strict=True)) / len(labels)


def f1(predictions, labels, positive=1):
    pairs = list(zip(predictions, labels, strict=True))
    hits = sum(p == y == positive for p, y in pairs)
    errors = sum((p == positive) != (y == positive) for p, y in pairs)
    return 2 * hits / (2 * hits + errors) if hits else 0.0


def macro_f1(predictions, labels):
    classes = sorted({*predictions, *labels})
    return sum(f1(predictions, labels, positive) for positive in classes) / len(classes)


def matthews(predictions, labels):
    """Gorodkin's R_K: the correlation of the indicator vectors, summed over classes."""
    n, classes = len(labels), sorted({*predictions, *labels})

    def covariance(left, right):
        return sum(
            sum((a == k) * (b == k) for a, b in zip(left, right, strict=True)) / n
            - (sum(a == k for a in left) / n) * (sum(b == k for b in right) / n)
            for k in classes
        )

    denominator = math.sqrt(max(covariance(predictions, predictions), 0) * max(covariance(labels, labels), 0))
    return covariance(predictions, labels) / denominator if denominator > 1e-12 else 0.0


def pearson(left, right):
    n = len(left)
    mean_left, mean_right = math.fsum(left) / n, math.fsum(right) / n
    a, b = [x - mean_left for x in left], [y - mean_right for y in right]
    denominator = math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / denominator if denominator else math.nan


def ranks(values):
    """The rank of equal values is the mean of their positions."""
    places = {}
    for place, value in enumerate(sorted(values), start=1):
        places.setdefault(value, []).append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


def spearman(left, right):
    return pearson(ranks(left), ranks(right))


def close(found, expected):
    return found == pytest.approx(expected, abs=1e-9, nan_ok=True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name, oracle", [("accuracy", accuracy), ("f1", f1), ("macro_f1", macro_f1), ("matthews", matthews)]
)
def test_metrics_of_classes_equal_their_definitions(name, oracle):
    rng = np.random.RandomState(1)
    for case in range(1500):
        num_classes, size = rng.randint(2, 5), rng.randint(1, 24)
        labels = rng.randint(0, num_classes, size)
        predictions = labels.copy() if case % 7 == 0 else rng.randint(0, num_classes, size)
        if case % 5 == 0:
            predictions[:] = predictions[0]
        if case % 11 == 0:
            labels[:] = labels[0]
        expected = oracle(predictions.tolist(), labels.tolist())
        assert close(METRICS[name](predictions, labels), expected), (predictions, labels)


@pytest.mark.parametrize("name, oracle", [("pearson", pearson), ("spearman", spearman)])
def test_correlations_equal_their_definitions(name, oracle):
    rng = np.random.RandomState(2)
    for case in range(1500):
        size = rng.randint(2, 24)
        labels = rng.randint(0, 6, size) / 1.0 if case % 2 else rng.rand(size) * 5
        predictions = labels + rng.randn(size) if case % 3 else np.round(rng.randn(size))
        if case % 9 == 0:
            predictions = np.full(size, 2.5)
        assert close(METRICS[name](predictions, labels), oracle(predictions.tolist(), labels.tolist()))


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
    custom = [
        custom_task(text="a", text_pair=None, label="b", index=None, regression=regression, num_labels=number)
        for regression in (True, False)
        for number in (2, 3)
    ]
    for task in [*TASKS.values(), *custom]:
        assert task.metrics and set(task.metrics) <= set(METRICS)
