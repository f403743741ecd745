"""Groups examples that must be held out together, and selects held-out groups; one rule for all kinds of text.

Examples of one key are a group: a patient, an author, a mail thread. Without keys, examples of equal or nearly equal
texts are a group (`data.text.same_text`), also through other texts. Here numbers make no difference in a text with at
least three other words: "printer on floor 3" and "printer on floor 4" are one text. A group is never divided.

Two functions choose the groups. `folds_of` deals rows to folds, with the classes in proportion. `held_out_in_order`
takes groups in a given order until their size is nearest to a target; hashes as the order make a choice that added text
hardly changes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.text.same_text import near_numbers, normalized, words_of

MOST_COMPARED = 200_000  # different rows; 10 CPU seconds and 150 MB, or 60 if most share shingles (14 to 45 words)
_FEW_ROWS = 5  # nearly equal rows that stay together in any table
_WORDS_BESIDE_NUMBERS = 3
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")  # also a time, a date or a decimal


@dataclass(frozen=True)
class Groups:
    """Groups of n examples.

    Attributes:
        numbers: int64 [n], from 0, in the order of the keys or texts.
        has_near: whether a group has texts that are not equal.
        num_divided: examples whose nearly equal texts are too many for one fold: only their equal texts are together.
        is_compared: whether nearly equal texts were looked for; they are not beyond MOST_COMPARED different rows.
    """

    numbers: np.ndarray
    has_near: bool = False
    num_divided: int = 0
    is_compared: bool = True

    def __len__(self) -> int:
        return int(self.numbers.max(initial=-1)) + 1


def key_groups(keys: Sequence[str]) -> Groups:
    """One group for each key, whatever the texts."""
    return Groups(np.unique(np.array(keys, object), return_inverse=True)[1])


def text_groups(columns: Sequence[Sequence[str]], folds: int) -> Groups:
    """Groups of equal or nearly equal rows, for a division into folds.

    A group of nearly equal rows larger than half a fold would fill a held-out part with one text, so of such rows only
    equal ones stay together. The same is done for all rows if the groups are fewer than the folds.

    Args:
        columns: one or several lists of n texts; rows are the same if they are in every column.
    """
    _, firsts, numbers = np.unique(_normalized_rows(columns), return_index=True, return_inverse=True)
    if len(firsts) > MOST_COMPARED:
        return Groups(numbers, is_compared=False)
    own = np.arange(len(firsts))
    near = _first_near([[column[row] for row in firsts] for column in columns])
    sizes = np.bincount(near[numbers], minlength=len(firsts))
    most = max(_FEW_ROWS, len(numbers) // (2 * folds))
    is_divided = (sizes > most)[near] & (np.bincount(near, minlength=len(firsts)) > 1)[near]
    near = np.where(is_divided, own, near)
    if len(np.unique(near)) < folds:
        is_divided |= near != own
        is_divided |= np.isin(own, near[near != own])
        near = own
    groups = np.unique(near, return_inverse=True)[1]
    return Groups(groups[numbers], bool((near != own).any()), int(is_divided[numbers].sum()))


def rows_in_both(
    columns: Sequence[Sequence[str]], others: Sequence[Sequence[str]]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Whether each row equals, or only nearly equals, one of the other rows: two bool [n].

    The second is None beyond MOST_COMPARED different rows.
    """
    rows = _normalized_rows(columns)
    are_equal = np.isin(rows, _normalized_rows(others))
    every, numbers = np.unique(np.concatenate([rows, _normalized_rows(others)]), return_index=True)
    if len(every) > MOST_COMPARED:
        return are_equal, None
    joined = [[*column, *other] for column, other in zip(columns, others, strict=True)]
    is_first = numbers < len(rows)
    near = _first_near([[column[row] for row in numbers] for column in joined])
    is_in_others = np.isin(every, _normalized_rows(others))
    reached = np.isin(near, near[is_in_others]) & is_first
    return are_equal, np.isin(rows, every[reached]) & ~are_equal


def _normalized_rows(columns: Sequence[Sequence[str]]) -> np.ndarray:
    """The normalised texts of each row joined by a tab: object [n]."""
    rows = ["\t".join(map(normalized, texts)) for texts in zip(*columns, strict=True)]
    return np.array(rows, object)


def _first_near(columns: Sequence[Sequence[str]]) -> np.ndarray:
    """Number of the first row that is equal or nearly equal in every column, for each row: int64 [n]."""
    numbers = [near_numbers([without_numbers(text) for text in column]) for column in columns]
    _, firsts, groups = np.unique(np.stack(numbers, axis=1), axis=0, return_index=True, return_inverse=True)
    return np.asarray(firsts[groups.reshape(-1)])


def without_numbers(text: str) -> str:
    """Replace numbers by 0, if at least three words have no digit; otherwise the text."""
    if not any(map(str.isdigit, set(text))):
        return text
    others = [word for word in words_of(text) if word.isalpha() or not any(map(str.isdigit, word))]
    return _NUMBER.sub("0", text) if len(others) >= _WORDS_BESIDE_NUMBERS else text


def folds_of(groups: Groups, classes: np.ndarray | None, folds: int, seed: int, *, by_rows: bool) -> np.ndarray:
    """Fold of each row, int64 [n], stratified by class; the rows of a group are in one fold.

    The folds equal scikit-learn's: of KFold and StratifiedKFold where each group counts as its first row, of
    GroupKFold and StratifiedGroupKFold where it counts with all of its rows.

    Args:
        classes: int64 [n]; None: only the numbers of rows are balanced.
        by_rows: whether the rows of a group count; groups of nearly equal texts always count with their rows.
    """
    assert 1 < folds <= len(groups)
    rng = np.random.RandomState(seed)
    _, firsts = np.unique(groups.numbers, return_index=True)
    counted = classes if by_rows or groups.has_near or classes is None else classes[firsts]
    # A class with fewer members than folds cannot be in each.
    has_shares = counted is not None and bool(np.bincount(counted).max() >= folds)
    if groups.has_near or (by_rows and has_shares):
        shared = classes if classes is not None and has_shares else np.zeros(len(groups.numbers), np.int64)
        counts = _class_counts(groups, shared)
        priorities = counts.sum(axis=1) if groups.has_near else counts.std(axis=1)
        of_groups = _deal_groups(counts, priorities, folds, rng)
    elif has_shares:
        assert counted is not None
        of_groups = _in_proportion(counted, folds, rng)
    else:
        of_groups = np.zeros(len(groups), np.int64)
        for fold, chosen in enumerate(np.array_split(rng.permutation(len(groups)), folds)):
            of_groups[chosen] = fold
    return of_groups[groups.numbers]


def _class_counts(groups: Groups, classes: np.ndarray) -> np.ndarray:
    """Number of rows of each class in each group, float64 [groups, classes that occur]."""
    names, numbers = np.unique(classes, return_inverse=True)
    cells = groups.numbers * len(names) + numbers
    return np.bincount(cells, minlength=len(groups) * len(names)).reshape(len(groups), -1).astype(np.float64)


def _in_proportion(classes: np.ndarray, folds: int, rng: np.random.RandomState) -> np.ndarray:
    """Fold of each member, int64 [n], drawn at random with each fold's share of each class."""
    names, firsts = np.unique(classes, return_index=True)
    names = names[np.argsort(firsts)]  # in the order in which they occur
    result, dealt = np.zeros(len(classes), np.int64), 0
    for name in names:
        members = np.flatnonzero(classes == name)
        # The members of all classes are dealt in turn; this class continues where the last one ended.
        own = np.sort((dealt + np.arange(len(members))) % folds)
        rng.shuffle(own)
        result[members] = own
        dealt += len(members)
    return result


def _deal_groups(counts: np.ndarray, priorities: np.ndarray, folds: int, rng: np.random.RandomState) -> np.ndarray:
    """Fold of each group, int64 [g], chosen so that class shares of the folds stay most alike.

    Of equally good folds, it takes the fold with the fewest rows.

    Args:
        counts: float64 [g, c], the rows of each class in each group.
        priorities: float64 [g]; the largest go first, equal ones in a random order.
    """
    order = np.arange(len(counts))
    rng.shuffle(order)
    order = order[np.argsort(-priorities[order], kind="stable")]
    totals, filled = counts.sum(axis=0), np.zeros((folds, counts.shape[1]))
    result, trials = np.zeros(len(counts), np.int64), np.eye(folds)[:, :, None]
    for group in order:
        shares = (filled + trials * counts[group]) / totals
        unevenness, sizes = shares.std(axis=1).mean(axis=1).tolist(), filled.sum(axis=1).tolist()
        best = 0
        for fold in range(1, folds):
            difference = unevenness[fold] - unevenness[best]
            is_equal = abs(difference) <= 1e-8 + 1e-5 * unevenness[best]
            if difference < 0 or (is_equal and sizes[fold] < sizes[best]):
                best = fold
        filled[best] += counts[group]
        result[group] = best
    return result


def held_out_in_order(keys: np.ndarray, sizes: np.ndarray, target: float) -> np.ndarray:
    """Hold out the examples with the smallest keys, up to about the target size, at least one key: bool [n].

    Args:
        keys: integers [n]; examples of one key are on one side.
        sizes: numbers [n], in the unit of the target: bytes, or 1 for each example.
    """
    order, groups = np.unique(keys, return_inverse=True)
    ends = np.cumsum(np.bincount(groups, weights=sizes))
    return np.asarray(keys <= order[int(np.argmin(np.abs(ends - target)))])
