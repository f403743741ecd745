"""Which rows of the user's training file are held out, which are in both sets, and how often each is trained on."""

from collections.abc import Iterator, Sequence

import numpy as np

from bert.labels.examples import Examples
from data.text.held_out_groups import MOST_COMPARED, Groups, folds_of, key_groups, rows_in_both, text_groups

_MOST_REPEATS = 20  # of a row of a rare class


def row_groups(examples: Examples, folds: int) -> Groups:
    """Rows that are held out together: of one group column, or of equal and nearly equal texts without that column.

    Many patients may share a text such as "no findings". So with a group column texts do not decide.
    """
    return text_groups(examples.texts, folds) if examples.groups is None else key_groups(examples.groups)


def row_folds(examples: Examples, groups: Groups, classes: np.ndarray | None, folds: int, seed: int) -> np.ndarray:
    """int64 [n]: the fold of each row, with the classes in proportion; a group is in one fold.

    Args:
        groups: `row_groups` of the examples for this number of folds.
        classes: int64 [n], of which folds have equal shares; None: there are none.

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
    """What to know about nearly equal rows that are not held out together."""
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
    """How many rows of `examples` have a text that `others` have too, and in words how many only nearly; "" if none."""
    are_equal, are_near = rows_in_both(examples.texts, others.texts)
    if are_near is None or not are_near.any():
        return int(are_equal.sum()), ""
    return int((are_equal | are_near).sum()), f" ({int(are_near.sum()):,} of them nearly equal)"


def balanced_rows(classes: np.ndarray) -> np.ndarray:
    """The rows to train on. Rows of a rare class are repeated until it has as many as the largest class."""
    counts = np.bincount(classes)
    repeats = np.minimum(np.round(counts.max() / np.maximum(counts, 1)), _MOST_REPEATS).astype(np.int64)
    return np.repeat(np.arange(len(classes)), repeats[classes])


def counted(labels: Sequence[str]) -> str:
    """`no 70, yes 30`, the largest first."""
    names, counts = np.unique(labels, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return ", ".join(f"{names[index]} {counts[index]:,}" for index in order[:10]) + (" ..." if len(order) > 10 else "")
