"""Compares a model with two baselines: TF-IDF of words and of character n-grams, each with a linear model."""

import json
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert.files import checksum_of, read_json, write_atomically
from bert.labels.examples import Examples
from bert.labels.linear_model import METHODS, LinearTextModel
from bert.labels.metrics import scores
from bert.labels.schema import LabelSchema
from bert.labels.split import row_folds, row_groups
from bert.randomness import permutation, stream_key
from bert.reporting.comparison import Metrics, verdict
from bert.reporting.metric_titles import BASELINE_TITLES
from bert.tokenization.equal_letters import normal_form
from bert.training.interruption import beat

logger = logging.getLogger(__name__)
_STRENGTHS = (16.0, 4.0, 64.0, 1.0)  # values of C, the inverse of the regularization; the first of equally good ones
_FOLDS = 3  # parts of the training lines that choose C


@dataclass(frozen=True)
class Limits:
    """Limits on the computation of the baselines and of the verdict.

    Attributes:
        work: most characters to learn from, times the classes (at least 8): 16 million take 80 CPU seconds.
        characters: most characters of a line that are read.
        resamples: number of bootstrap resamples for the margin of the verdict.
        window: number of lines that are predicted at a time.
    """

    work: int = 16_000_000
    characters: int = 20_000
    resamples: int = 200
    window: int = 2_048


def compare(
    schema: LabelSchema,
    training: Examples,
    held_out: Examples,
    ours: np.ndarray,
    seed: int,
    record: Path,
    note: str = "",
    limits: Limits = Limits(),
    hint: str = "",
    keep: Callable[[LinearTextModel], None] | None = None,
) -> dict[str, Any]:
    """Train and score both baselines; returns their metrics and a verdict: the model against the better baseline.

    Args:
        training: the lines that the model was trained on, with rare classes oversampled as for the model.
        ours: the model's predictions: classes or numbers [m], or 0 and 1 [m, classes].
        record: a file with the baselines' predictions; they are read from it if they were made from equal lines.
        note: text at the end of the verdict.
        hint: text at the end of the verdict if the better baseline has a higher score than the model.
        keep: function that is called with the better baseline; the baselines are then always trained again.
    """
    lines = [(some.texts, some.labels, some.groups) for some in (training, held_out)]
    settings = (schema.labels, schema.separator, schema.metrics, seed, METHODS, limits.work, _STRENGTHS, _FOLDS)
    made_of, kept = checksum_of(repr((lines, settings)).encode()), read_json(record)
    if kept.get("made_of") != made_of or keep:
        logger.info("the bag-of-words baseline and the character baseline learn from the same lines, to compare with")
        kept = {"made_of": made_of, **_learned(schema, training, held_out, seed, limits, keep)}
    groups = None if held_out.groups is None else np.unique(held_out.groups, return_inverse=True)[1].tolist()
    truths = schema.encode(held_out.labels or ()).tolist()
    kept |= {"metrics": schema.metrics, "groups": groups, "labels": truths, "model": ours.tolist()}
    kept |= {"note": note, "hint": hint}
    write_atomically(record, json.dumps(kept).encode())
    return pooled([kept], limits=limits)


def pooled(
    records: Sequence[Mapping[str, Any]], model: str = "This model", limits: Limits = Limits()
) -> dict[str, Any]:
    """Metrics and verdict over the lines of several records, whose lines and groups are different."""
    first, methods = records[0], dict[str, Metrics]()

    def metrics(values: Sequence[Any]) -> Metrics:
        predictions = np.concatenate(values)
        return lambda rows: _scores(first["metrics"], predictions[rows], truths[rows])

    truths = np.concatenate([record["labels"] for record in records])
    for name in first["methods"]:
        if all(name in record["methods"] for record in records):
            methods[name] = metrics([record["methods"][name] for record in records])
    if not methods:
        raise ValueError("no line has a character; check the column of texts")
    groups = [(part << 32) + group for part, record in enumerate(records) for group in record["groups"] or ()]
    tables = {name: method(np.arange(len(truths))) for name, method in methods.items()}
    best = max(tables, key=lambda name: tables[name]["score"])
    of_lines = {record["learned_from"] for record in records}
    title = f"the {BASELINE_TITLES.get(best, best)}" + (
        of_lines.pop() if len(of_lines) == 1 else " (from a part of the lines)"
    )
    ours = metrics([record["model"] for record in records])
    units, resamples = groups or None, limits.resamples
    words = verdict(title, ours, methods[best], len(truths), units, model=model, resamples=resamples) + first["note"]
    if ours(np.arange(len(truths)))["score"] < tables[best]["score"]:
        words += first.get("hint", "")
    figures = {f"eval_{name} {key}".replace(" ", "_"): table[key] for name, table in tables.items() for key in table}
    return {**figures, "verdict": words}


def _learned(
    schema: LabelSchema,
    training: Examples,
    held_out: Examples,
    seed: int,
    limits: Limits,
    keep: Callable[[LinearTextModel], None] | None,
) -> dict[str, Any]:
    """Train the baselines; returns their predictions on the held-out lines, and a note if only some lines were used."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # here: only a rank that compares needs it

    texts, others = (
        [normal_form(" ".join(row)[: limits.characters]) for row in zip(*some.texts, strict=True)]
        for some in (training, held_out)
    )
    order, columns = permutation(stream_key(seed, "baseline"), len(texts)), max(len(schema.labels or ()), 8)
    rows = order[np.cumsum([len(texts[row]) for row in order]) * columns <= limits.work]
    if not len(rows):
        raise ValueError(
            f"for {columns} classes, lines of {max(map(len, texts)):,} characters are too much to learn from"
        )
    of_lines = "" if len(rows) == len(texts) else f" (from {len(rows):,} of {len(texts):,} lines)"
    learned, methods = training.take(rows), dict[str, list[Any]]()
    model, kept = _search(schema, learned, seed), dict[str, LinearTextModel]()
    num_labels = len(schema.labels) if schema.labels else 1
    for name, form in METHODS.items():
        vectorizer = TfidfVectorizer(**form, sublinear_tf=True)
        if not any(map(vectorizer.build_analyzer(), (texts[row] for row in rows))):
            continue  # texts of punctuation alone have no words
        beat(f"evaluating the {BASELINE_TITLES[name]}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about classes that a fold lacks
            model.fit(vectorizer.fit_transform([texts[row] for row in rows]), schema.encode(learned.labels or ()))
        windows = (others[start : start + limits.window] for start in range(0, len(others), limits.window))
        predictions = [model.predict(vectorizer.transform(window)) for window in windows]
        methods[name] = np.concatenate(predictions).tolist()
        if keep:
            fitted = getattr(model, "best_estimator_", model)
            kept[name] = LinearTextModel.of(name, limits.characters, vectorizer, fitted, num_labels)
    if keep and methods:
        truths = schema.encode(held_out.labels or ())
        keep(kept[max(methods, key=lambda name: _scores(schema.metrics, np.array(methods[name]), truths)["score"])])
    return {"methods": methods, "learned_from": of_lines}


def _search(schema: LabelSchema, training: Examples, seed: int) -> Any:
    """An estimator that chooses its C by cross-validation; its folds keep groups together, like the held-out rows."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import GridSearchCV
    from sklearn.multiclass import OneVsRestClassifier

    # LIBLINEAR's dual solver scores as LBFGS does, in a twentieth of its time.
    classifier = LogisticRegression(C=_STRENGTHS[0], solver="liblinear", dual=True, max_iter=1000, random_state=0)
    model: Any = OneVsRestClassifier(classifier), {"estimator__C": _STRENGTHS}
    if schema.is_regression:
        model = Ridge(1 / _STRENGTHS[0]), {"alpha": [1 / strength for strength in _STRENGTHS]}
    classes = None if schema.is_regression or schema.separator else schema.encode(training.labels or ())
    groups = row_groups(training, _FOLDS)
    folds = min(_FOLDS, len(groups))
    if folds < 2:
        return model[0]
    numbers = row_folds(training, groups, classes, folds, seed)
    splits = [(np.flatnonzero(numbers != fold), np.flatnonzero(numbers == fold)) for fold in range(folds)]
    return GridSearchCV(*model, cv=splits, scoring=lambda m, x, y: _scores(schema.metrics, m.predict(x), y)["score"])


def _scores(names: Sequence[str], predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    beat("evaluating the baselines")
    return scores(names, predictions, labels)
