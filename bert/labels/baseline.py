"""Words alone and characters alone beside a model: TF-IDF with logistic regression; of numbers, ridge regression."""

import warnings
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier

from bert.labels.examples import Examples
from bert.labels.metrics import scores
from bert.labels.schema import LabelSchema
from bert.labels.split import held_out_rows
from bert.randomness import permutation, stream_key
from bert.reporting.comparison import Metrics, verdict

_METHODS: dict[str, dict[str, Any]] = {
    "words alone": {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"},
    "characters alone": {"ngram_range": (2, 5), "analyzer": "char_wb"},
}
_MOST_WORK = 16_000_000  # characters to learn from, times the classes (at least 8): 80 CPU seconds
_MOST_CHARACTERS = 20_000  # of a line
_STRENGTHS = (16.0, 4.0, 64.0, 1.0)  # C, the inverse of the regularization; the first of those that score the same
_FOLDS, _WINDOW = 3, 2_048  # parts of the training lines that choose C; lines that are predicted at a time


def compare(schema: LabelSchema, training: Examples, held_out: Examples, ours: np.ndarray, seed: int) -> dict[str, Any]:
    """The metrics of both methods on lines that are held out, and the verdict on a model beside the better one.

    Args:
        training: the lines that the model was trained on, those of rare classes as often as there.
        ours: what the model predicts: classes or numbers [m], or 0 and 1 [m, classes].
    """
    texts, others = (
        [" ".join(row)[:_MOST_CHARACTERS] for row in zip(*some.texts, strict=True)] for some in (training, held_out)
    )
    order, columns = permutation(stream_key(seed, "baseline"), len(texts)), max(len(schema.labels or ()), 8)
    rows = order[np.cumsum([len(texts[row]) for row in order]) * columns <= _MOST_WORK]
    of_lines = "" if len(rows) == len(texts) else f" (from {len(rows):,} of {len(texts):,} lines)"
    learned, truths, methods = training.take(rows), schema.encode(held_out.labels or ()), dict[str, Metrics]()
    model = _search(schema, learned, seed)

    def metrics(predictions: np.ndarray) -> Metrics:
        return lambda rows: scores(schema.metrics, predictions[rows], truths[rows])

    for name, form in _METHODS.items():
        vectorizer = TfidfVectorizer(**form, sublinear_tf=True)
        if not any(map(vectorizer.build_analyzer(), (texts[row] for row in rows))):
            continue  # of signs alone there are no words
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes that a part lacks
            model.fit(vectorizer.fit_transform([texts[row] for row in rows]), schema.encode(learned.labels or ()))
        windows = (others[start : start + _WINDOW] for start in range(0, len(others), _WINDOW))
        methods[name] = metrics(np.concatenate([model.predict(vectorizer.transform(window)) for window in windows]))
    if not methods:
        raise ValueError("no line has a character; check the column of texts")
    tables = {name: method(np.arange(len(truths))) for name, method in methods.items()}
    best = max(tables, key=lambda name: tables[name]["score"])
    words = verdict(best + of_lines, metrics(ours), methods[best], len(truths), held_out.groups)
    figures = {f"eval_{name} {key}".replace(" ", "_"): table[key] for name, table in tables.items() for key in table}
    return {**figures, "verdict": words}


def _search(schema: LabelSchema, training: Examples, seed: int) -> GridSearchCV:
    """A linear model with the C that scores best in parts of the training lines, which are cut as the held-out one."""
    # LIBLINEAR's dual solver scores as LBFGS does, in a twentieth of its time.
    classifier = LogisticRegression(solver="liblinear", dual=True, max_iter=1000, random_state=0)
    model: Any = OneVsRestClassifier(classifier), {"estimator__C": _STRENGTHS}
    if schema.is_regression:
        model = Ridge(), {"alpha": [1 / strength for strength in _STRENGTHS]}
    classes = None if schema.is_regression or schema.separator else schema.encode(training.labels or ())
    parts = [held_out_rows(training, classes, _FOLDS, fold, seed) for fold in range(_FOLDS)]
    splits = [(np.flatnonzero(~part), np.flatnonzero(part)) for part in parts]
    return GridSearchCV(*model, cv=splits, scoring=lambda m, x, y: scores(schema.metrics, m.predict(x), y)["score"])
