"""Which rows of the user's training file are held out, which are in both sets, and how often each is trained on."""

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

from bert.labels.examples import Examples
from bert.labels.schema import number

_MOST_REPEATS = 20  # of a row of a rare class


def normalized(examples: Examples) -> list[str]:
    """The texts of each row without differences in case and white space: two rows with equal ones are the same."""
    return ["\t".join(" ".join(text.lower().split()) for text in row) for row in zip(*examples.texts, strict=True)]


def held_out_rows(examples: Examples, classes: np.ndarray | None, folds: int, fold: int, seed: int) -> np.ndarray:
    """bool [n]: the rows of one of the folds, with the classes in proportion. Groups stay together, or equal texts.

    Many patients may share a text such as "no findings": groups go by themselves, and their equal texts on both sides.

    Args:
        classes: int64 [n], of which folds have equal shares; None: there are none.
    """
    if examples.groups is None:
        groups = None
        _, firsts, units = np.unique(normalized(examples), return_index=True, return_inverse=True)
    else:
        groups, firsts = np.unique(examples.groups, return_inverse=True)[1], np.arange(len(examples.groups))
        units = firsts
    number = len(firsts) if groups is None else int(groups.max()) + 1
    if number < folds:
        what = "different texts" if groups is None else "groups"
        raise ValueError(
            f"{examples.source}: {number} {what} are too few for folds={folds}; lower --folds, or give --eval-file"
        )
    strata = np.zeros(len(firsts), np.int64) if classes is None else classes[firsts]
    if groups is None:
        kind = KFold if classes is None or np.bincount(strata).max() < folds else StratifiedKFold
    else:
        kind = GroupKFold if classes is None else StratifiedGroupKFold
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


def labels_alike(labels: Sequence[str]) -> list[list[str]]:
    """Labels that differ in case alone, or are one number, such as 1 and 1.0."""
    alike = dict[str | float, list[str]]()
    for label in labels:
        try:
            key: str | float = number(label)
        except ValueError:
            key = label.casefold()
        alike.setdefault(key, []).append(label)
    return [some for some in alike.values() if len(some) > 1]


def counted(labels: Sequence[str]) -> str:
    """`no 70, yes 30`, the largest first."""
    names, counts = np.unique(labels, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return ", ".join(f"{names[index]} {counts[index]:,}" for index in order[:10]) + (" ..." if len(order) > 10 else "")
