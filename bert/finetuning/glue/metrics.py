"""GLUE's metrics, computed by scikit-learn and SciPy as in its own scorer.

Undefined values: Matthews' coefficient of constant predictions is 0, F1 without a true positive is 0, and the
correlation with a constant is NaN and counts as 0 in the score.
"""

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import ConstantInputWarning, NearConstantInputWarning, pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from bert.arrays.ragged import ragged_indices
from bert.finetuning.loader import single_sequences
from bert.samples.sample_table import join_pairs
from bert.tokenization.fast_tokenizer import FastTokenizer


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    return float(accuracy_score(labels, predictions))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """F1 of class 1; all other classes are negatives."""
    return float(f1_score(labels == 1, predictions == 1, zero_division=0.0))


def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Mean F1 over the classes that occur in the labels or the predictions."""
    return float(f1_score(labels, predictions, average="macro", zero_division=0.0))


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Matthews' correlation coefficient; for more than two classes, Gorodkin's R_K."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A single label was found")
        return float(matthews_corrcoef(labels, predictions))


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    return _correlation(pearsonr, predictions, labels)


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Spearman's rank correlation; equal values have their average rank."""
    return _correlation(spearmanr, predictions, labels)


def _correlation(function: Callable, predictions: np.ndarray, labels: np.ndarray) -> float:
    predictions, labels = predictions.astype(np.float64), labels.astype(np.float64)
    if len(labels) < 2 or np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return math.nan
    with warnings.catch_warnings():
        for category in (ConstantInputWarning, NearConstantInputWarning):
            warnings.simplefilter("ignore", category)
        return float(function(predictions, labels).statistic)


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    function.__name__: function for function in (accuracy, f1, macro_f1, matthews, pearson, spearman)
}


def scores(names: Sequence[str], predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The named metrics, and "score", their mean, as on GLUE's leaderboard.

    Args:
        predictions: [n], classes as int64, or numbers.
        labels: [n], likewise.
    """
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
    found = {name: METRICS[name](predictions, labels) for name in names}
    return {**found, "score": float(np.mean([0.0 if math.isnan(value) else value for value in found.values()]))}


def pair_lengths(first: np.ndarray, second: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of tokens to keep of both sentences of a pair; the longer sentence is truncated first.

    The result equals that of BERT's published code, which removes tokens one by one, from the first sentence if it is
    longer than the second, else from the second, until `limit` are left.

    Args:
        first, second: int64 [n], tokens of the sentences.
        limit: maximum number of tokens of both together.
    """
    larger_half, smaller_half = limit - limit // 2, limit // 2
    return (
        np.minimum(first, np.maximum(limit - second, larger_half)),
        np.minimum(second, np.maximum(limit - first, smaller_half)),
    )


def sentence_features(
    tokenizer: FastTokenizer, texts: Sequence[Sequence[str]], max_seq_length: int
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """[CLS] A [SEP] or [CLS] A [SEP] B [SEP] for every example.

    Args:
        texts: one list of n sentences, or two.
        max_seq_length: longest sequence, in tokens with the special ones; longer ones are truncated at the end.
    Returns:
        arrays: input_ids [T], offsets int64 [n + 1], and first_lengths int64 [n], the tokens before "B [SEP]".
        counts: "truncated", the number of truncated examples, and "tokens".
    """
    cls_id, sep_id = tokenizer.vocabulary.id_of("[CLS]"), tokenizer.vocabulary.id_of("[SEP]")
    encoded = [tokenizer.encode_texts(sentences) for sentences in texts]
    lengths = [np.diff(offsets) for _, offsets in encoded]
    kept = [np.minimum(lengths[0], max_seq_length - 2)]
    if len(texts) == 2:
        kept = [*pair_lengths(lengths[0], lengths[1], max_seq_length - 3)]
    pieces = [ids[ragged_indices(offsets[:-1], some)] for (ids, offsets), some in zip(encoded, kept, strict=True)]
    if len(texts) == 1:
        input_ids, offsets = single_sequences(pieces[0], kept[0], cls_id, sep_id)
    else:
        input_ids, offsets = join_pairs(pieces[0], kept[0], pieces[1], kept[1], cls_id, sep_id)
    truncated = np.any([some < all_ for some, all_ in zip(kept, lengths, strict=True)], axis=0)
    return (
        {"input_ids": input_ids, "offsets": offsets, "first_lengths": kept[0] + 2},
        {"truncated": int(truncated.sum()), "tokens": len(input_ids)},
    )
