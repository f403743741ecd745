"""Which rows of the user's training file are held out, which are in both sets, and how often each is trained on."""

import warnings
from collections.abc import Sequence

import numpy as np

from bert.labels.examples import Examples

_MOST_REPEATS = 20  # of a row of a rare class


def normalized(examples: Examples) -> list[str]:
    """The texts of each row without differences in case and white space: two rows with equal ones are the same."""
    return ["\t".join(" ".join(text.lower().split()) for text in row) for row in zip(*examples.texts, strict=True)]


def held_together(examples: Examples) -> list[str]:
    """A value for each row, equal for rows that are on one side: of its group, or of its text."""
    return normalized(examples) if examples.groups is None else examples.groups


def held_out_rows(examples: Examples, classes: np.ndarray | None, folds: int, fold: int, seed: int) -> np.ndarray:
    """bool [n]: the rows of one of the folds, with the classes in proportion. Groups stay together, or equal texts.

    Many patients may share a text such as "no findings": groups go by themselves, and their equal texts on both sides.

    Args:
        classes: int64 [n], of which folds have equal shares; None: there are none.
    """
    _, firsts, units = np.unique(held_together(examples), return_index=True, return_inverse=True)
    if len(firsts) < folds:
        what = "different texts" if examples.groups is None else "groups"
        raise ValueError(
            f"{examples.source}: {len(firsts)} {what} are too few for folds={folds}; lower --folds, or give --eval-file"
        )
    groups = None
    if examples.groups is not None:
        groups, firsts, units = units, np.arange(len(examples)), np.arange(len(examples))
    strata = np.zeros(len(firsts), np.int64) if classes is None else classes[firsts]
    has_shares = classes is not None and np.bincount(strata).max() >= folds  # scikit-learn refuses smaller classes
    # Here: without a held-out part of its own a rank starts a second faster.
    from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

    if groups is None:
        kind = StratifiedKFold if has_shares else KFold
    else:
        kind = StratifiedGroupKFold if has_shares else GroupKFold
    with warnings.catch_warnings():  # of classes with fewer rows than folds
        warnings.simplefilter("ignore", UserWarning)
        splits = list(kind(folds, shuffle=True, random_state=seed).split(firsts, strata, groups))
    is_held_out = np.zeros(len(firsts), bool)
    is_held_out[splits[fold][1]] = True
    return is_held_out[units]


def rows_in_both(examples: Examples, others: Examples) -> np.ndarray:
    """bool [n]: the rows of `examples` whose texts `others` have too."""
    return np.isin(normalized(examples), list(set(normalized(others))))


def balanced_rows(classes: np.ndarray) -> np.ndarray:
    """The rows to train on: those of a rare class several times, until it has as many as the largest."""
    counts = np.bincount(classes)
    repeats = np.minimum(np.round(counts.max() / np.maximum(counts, 1)), _MOST_REPEATS).astype(np.int64)
    return np.repeat(np.arange(len(classes)), repeats[classes])


def counted(labels: Sequence[str]) -> str:
    """`no 70, yes 30`, the largest first."""
    names, counts = np.unique(labels, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return ", ".join(f"{names[index]} {counts[index]:,}" for index in order[:10]) + (" ..." if len(order) > 10 else "")
