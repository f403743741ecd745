"""Assigns the rows of a user's training file to folds, counts texts in both sets, and oversamples rare classes."""

from collections.abc import Iterator, Sequence

import numpy as np

from bert.labels.examples import Examples
from data.text.held_out_groups import MOST_COMPARED, Groups, folds_of, key_groups, rows_in_both, text_groups

_MOST_REPEATS = 20  # limit of how often a row of a rare class is repeated


def row_groups(examples: Examples, folds: int) -> Groups:
    """Group rows that are held out together: by the group column, otherwise by equal and nearly equal texts.

    With a group column texts are not compared, because many groups may share a text such as "no findings".
    """
    return text_groups(examples.texts, folds) if examples.groups is None else key_groups(examples.groups)


def row_folds(examples: Examples, groups: Groups, classes: np.ndarray | None, folds: int, seed: int) -> np.ndarray:
    """Assign each row to a fold, int64 [n]. Folds have the classes in proportion, and a group is in one fold.

    Args:
        groups: `row_groups` of the examples for this number of folds.
        classes: int64 [n], class of each row; None: there are no classes.

    Raises:
        ValueError: there are fewer groups than folds.
    """
    if len(groups) < folds:
        what = "different texts" if examples.groups is None else "groups"
        raise ValueError(
            f"{examples.source}: {len(groups)} {what} are too few for folds={folds}; lower --folds, or give --eval-file"
        )
    return folds_of(groups, classes, folds, seed, by_rows=examples.groups is not None)


def notes_of_groups(groups: Groups, folds: int) -> Iterator[str]:
    """Notes for the user about nearly equal rows that are not held out together."""
    if groups.num_divided:
        yield (
            f"{groups.num_divided:,} rows are nearly equal to over half a part of rows: of them only equal texts are "
            f"held out together, and scores on them are better than on new texts; --group-by or fewer --folds than "
            f"{folds} may keep them together"
        )
    if not groups.is_compared:
        yield (
            f"not looked for: nearly equal texts, as there are over {MOST_COMPARED:,} different rows; --group-by "
            "keeps rows together"
        )


def count_in_both(examples: Examples, others: Examples) -> tuple[int, str]:
    """Count rows of `examples` whose text `others` have too, also nearly; returns a phrase on the nearly equal ones."""
    are_equal, are_near = rows_in_both(examples.texts, others.texts)
    if are_near is None or not are_near.any():
        return int(are_equal.sum()), ""
    return int((are_equal | are_near).sum()), f" ({int(are_near.sum()):,} of them nearly equal)"


def balanced_rows(classes: np.ndarray) -> np.ndarray:
    """Numbers of the rows to train on: rows of a rare class are repeated up to the size of the largest class."""
    counts = np.bincount(classes)
    repeats = np.minimum(np.round(counts.max() / np.maximum(counts, 1)), _MOST_REPEATS).astype(np.int64)
    return np.repeat(np.arange(len(classes)), repeats[classes])


def counted(labels: Sequence[str]) -> str:
    """Count labels for the user, the most frequent first: `no 70, yes 30`."""
    names, counts = np.unique(labels, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return ", ".join(f"{names[index]} {counts[index]:,}" for index in order[:10]) + (" ..." if len(order) > 10 else "")
