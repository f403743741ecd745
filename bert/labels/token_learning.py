"""Learns the token weights that a classifier adds to its logits (`bert.model.heads.TokenWeights`).

An encoder of few layers learns little of a word that few lines have. A linear model of the same lines does, if it reads
the characters inside the tokens: of words that are new to it too. Its part of a logit is a sum over the tokens of a
text, divided by the square root of their number, so it is kept as one number for each token and class.
"""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert.finetuning.loader import FeatureTable
from bert.labels.scores import TEMPERATURES, error_of
from bert.tokenization.vocabulary import CONTINUATION_PREFIX, Vocabulary
from bert.training.interruption import beat

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_MOST_WORK = 4_000_000  # limit of tokens to learn from, times the classes (at least 8): 25 CPU seconds
MOST_NUMBERS = 4_000_000  # limit of the vocabulary's tokens, times the classes: 16 MB in the model
MOST_LINES = 100_000
_MOST_NUMBERS_SCORED = 300_000  # most logits to which the share is fitted
_LENGTHS = (2, 5)  # lengths of character n-grams, which include the space before and after a word
_STRENGTH = 16.0  # C, the inverse of the regularization
_LEAST_GAIN = 2.0  # nats over all lines; two or three of 100 useless token models seem to gain as much by chance


def learned(
    vocabulary: Vocabulary, table: FeatureTable, labels: np.ndarray, rows: int, most_work: int = _MOST_WORK
) -> np.ndarray:
    """Learn token weights from labelled texts, before they are scaled by `share`: float32 [rows, classes].

    Args:
        table: n texts, in an order that does not depend on their labels, because only the first may be used.
        labels: bool [n, classes].
        rows: size of the embedding table; a row without a token gets 0.
        most_work: limit of tokens to learn from, times the classes (at least 8).
    """
    from scipy.sparse import diags  # here, as scikit-learn: only a training that learns these weights needs it
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    words, continues = vocabulary.replacement_ids(), vocabulary.continuations()
    spellings = [""] * rows  # "" for special tokens and for rows without a token
    for index in words:
        text = vocabulary.shown(index).removeprefix(CONTINUATION_PREFIX).strip()
        spellings[index] = f"{text} " if continues[index] else f" {text} "
    inside = CountVectorizer(analyzer="char", ngram_range=_LENGTHS, lowercase=False).fit_transform(spellings)
    size = max(1, int(np.searchsorted(table.offsets[1:] * max(labels.shape[1], 8), most_work, side="right")))
    counts = shares_of(table.input_ids, table.offsets, rows)[:size] @ inside
    rarity = diags(TfidfTransformer(norm=None).fit(counts).idf_)
    texts = counts @ rarity
    total = texts.multiply(texts).sum()
    scale = np.sqrt(size / total) if total else 0.0  # no token of the texts is known
    texts = (texts * scale).sorted_indices()  # once: the solver would sort it for each class
    weights = np.zeros((inside.shape[1], labels.shape[1]))
    model = LogisticRegression(
        solver="liblinear", dual=True, C=_STRENGTH, fit_intercept=False, max_iter=1000, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about a class that needs more iterations
        for number, truths in enumerate(labels[:size].T):
            beat("evaluating a linear model of the tokens")
            if truths.any() and not truths.all():
                weights[:, number] = model.fit(texts, truths).coef_[0]
    return np.asarray(inside @ rarity @ weights * scale, np.float32)


def share(
    logits: np.ndarray,
    of_tokens: np.ndarray,
    labels: np.ndarray,
    several: bool,
    most_numbers: int = _MOST_NUMBERS_SCORED,
) -> float:
    """The weight of the token model that minimises the log loss; 0 if the gain may be chance.

    Args:
        most_numbers: most logits to fit to; of more, lines at equal distances are taken.
    """
    from scipy.optimize import minimize, minimize_scalar

    every = -(-logits.size // most_numbers)
    logits, of_tokens, labels = (values[::every] for values in (logits, of_tokens, labels))
    parts = logits.astype(np.float64), of_tokens.astype(np.float64)  # differences of float32 have no gradient

    def error(scales: Sequence[float]) -> float:
        return error_of(scales[0] * parts[0] + scales[1] * parts[1], labels, several)

    bounds = (1 / TEMPERATURES[1], 1 / TEMPERATURES[0]), (0.0, 20.0)
    found = minimize(error, (0.5, 0.5), method="L-BFGS-B", bounds=bounds)  # it is convex
    alone = minimize_scalar(lambda scale: error((scale, 0.0)), bounds=bounds[0], method="bounded")
    gain = (alone.fun - found.fun) * labels.size
    return float(found.x[1] / found.x[0]) if gain > _LEAST_GAIN else 0.0


def logits_of(weights: np.ndarray, input_ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The logits that the token weights give to texts, as the network computes them: float32 [n, classes].

    Args:
        weights: float [vocabulary, classes].
        input_ids, offsets: integers [T] and [n + 1], as in a `FeatureTable`.
    """
    return np.asarray(shares_of(input_ids, offsets, len(weights)) @ weights.astype(np.float32), np.float32)


def shares_of(input_ids: np.ndarray, offsets: np.ndarray, size: int) -> "csr_matrix":
    """Count tokens, float64 [n, size]: occurrences in a text, divided by the square root of its number of tokens."""
    from scipy.sparse import csr_matrix  # here, as in `learned`

    lengths = np.diff(offsets)
    return csr_matrix((np.repeat(1 / np.sqrt(lengths), lengths), input_ids, offsets), (len(lengths), size))
