"""Which examples are held out together, against scikit-learn's folds and groups in plain Python."""

import random
import warnings

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

from data.text import held_out_groups
from data.text.held_out_groups import (
    Groups,
    folds_of,
    held_out_in_order,
    key_groups,
    rows_in_both,
    text_groups,
    without_numbers,
)
from tests.references.groups import same_partition

WORDS = [f"{first}{second}" for first in "bcdfghjklmnpqrstvwxz" for second in ("ara", "elo", "iti", "unu", "yem")]


def sentences(number: int, seed: int = 1, length: int = 12) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.sample(WORDS, length)) for _ in range(number)]


@pytest.mark.parametrize("folds", [2, 3, 5])
@pytest.mark.parametrize("num_classes", [0, 1, 2, 7])
@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_folds_are_those_of_scikit_learn(folds, num_classes, by_rows, seed):
    """The folds agree also for rare classes, and if all classes have fewer members than there are folds."""
    rng = np.random.RandomState(seed)
    number = max(4, folds) if num_classes == 7 and seed == 2 else 61
    numbers = np.unique(rng.randint(40 if by_rows else 10**6, size=number), return_inverse=True)[1]
    if numbers.max() + 1 < folds:
        numbers = np.arange(number)
    groups = Groups(numbers)
    weights = [0.5**place for place in range(num_classes)]
    classes = rng.choice(num_classes, number, p=np.array(weights) / sum(weights)) if num_classes else None
    has_shares = classes is not None and np.bincount(classes).max() >= folds
    if by_rows:
        kind = StratifiedGroupKFold if has_shares else GroupKFold
    else:
        kind = StratifiedKFold if has_shares else KFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        strata = np.zeros(number) if classes is None else classes
        order = np.arange(number) if by_rows else np.argsort(numbers)
        split = [*kind(folds, shuffle=True, random_state=42).split(order, strata[order], numbers[order])]
    found = folds_of(groups, classes, folds, 42, by_rows=by_rows)
    for fold, (_, held_out) in enumerate(split):
        assert np.flatnonzero(found == fold).tolist() == sorted(order[held_out].tolist())


def test_a_twin_with_one_full_stop_more_is_in_the_same_fold():
    texts = sentences(100)
    rows = [row for text in texts for row in (text, f"{text}.")]
    groups, classes = text_groups([rows], 5), np.arange(200) % 2
    assert len(groups) == 100 and groups.has_near and groups.num_divided == 0
    folds = folds_of(groups, classes, 5, 42, by_rows=False)
    assert (folds[::2] == folds[1::2]).all() and np.bincount(folds).tolist() == [40] * 5
    assert all(np.bincount(classes[folds == fold]).tolist() == [20, 20] for fold in range(5))


def test_groups_of_nearly_equal_texts_count_with_their_rows():
    """Each fold has a fifth of the nine families of twenty rows and 120 other rows, with or without classes."""
    families = [f"{text} {WORDS[number]}" for text in sentences(9, 2, 60) for number in range(20)]
    rows = [*families, *sentences(120)]
    groups = text_groups([rows], 5)
    assert len(groups) == 129 and groups.num_divided == 0
    for classes in (None, np.arange(300) % 3, np.arange(300)):
        folds = folds_of(groups, classes, 5, 42, by_rows=False)
        assert np.bincount(folds).tolist() == pytest.approx([60] * 5, abs=1)
        assert all(len(set(folds[20 * family : 20 * (family + 1)])) == 1 for family in range(9))


def test_short_titles_are_no_group_but_numbers_make_no_other_text():
    rng = random.Random(3)
    titles = list({" ".join(rng.sample(WORDS[:40], 3)) for _ in range(500)})
    assert len(text_groups([titles], 5)) == len(titles)
    tickets = [f"Printer on floor {number} is broken" for number in range(10)]
    groups = text_groups([[*titles, *tickets]], 5)
    assert len(groups) == len(titles) + 1 and len(set(groups.numbers[len(titles) :])) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("printer on floor 3", "printer on floor 0"),
        ("Call at 10:45 on 2024-05-03, bill 1,234.50", "Call at 0 on 0, bill 0"),
        ("ticket INC0012345 is still open", "ticket INC0 is still open"),
        ("chapter 3", "chapter 3"),
        ("Ocean's Eleven 12", "Ocean's Eleven 0"),
        ("two words 7", "two words 7"),
        ("3 4 5 6 7", "3 4 5 6 7"),
        ("no digit at all", "no digit at all"),
    ],
)
def test_numbers_are_replaced_beside_three_other_words(text, expected):
    assert without_numbers(text) == expected


def test_of_nearly_equal_rows_that_fill_a_fold_only_equal_ones_stay_together():
    rows = [*(f"The value of the sensor is {number // 2} today" for number in range(60)), *sentences(140)]
    groups = text_groups([rows], 5)
    assert (len(groups), groups.has_near, groups.num_divided) == (170, False, 60)
    assert all(groups.numbers[row] == groups.numbers[row + 1] for row in range(0, 60, 2))
    groups = text_groups([[*rows[:20], *rows[60:], *sentences(40, 9)]], 5)
    assert (len(groups), groups.has_near, groups.num_divided) == (181, True, 0), "half a fold of 200 is 20 rows"
    groups = text_groups([[*rows[:21], *rows[60:], *sentences(40, 9)]], 5)
    assert (groups.has_near, groups.num_divided) == (False, 21)


def test_equal_rows_stay_together_however_many_they_are():
    groups = text_groups([["The same text"] * 150 + ["the same  TEXT"] * 10 + sentences(40)], 5)
    assert (len(groups), groups.has_near, groups.num_divided) == (41, False, 0)
    assert len(set(groups.numbers[:160])) == 1


def test_fewer_groups_than_folds_are_divided():
    rows = [f"{text}{mark}" for text in sentences(2) for mark in ("", ".", "!")]
    assert len(text_groups([rows], 2)) == 2
    groups = text_groups([rows], 3)
    assert (len(groups), groups.has_near, groups.num_divided) == (6, False, 6)


def test_rows_of_pairs_are_the_same_if_both_texts_are():
    first, second, third = sentences(3)
    ones = [first, f"{first}.", first, f"{second}!", second]
    others = [second, f"{second}.", third, first, f"{first}?"]
    assert same_partition(text_groups([ones, others], 2).numbers.tolist(), [0, 0, 1, 2, 2])


def test_the_groups_of_keys_are_their_keys():
    groups = key_groups(["b", "a", "b", "\0 3"])
    assert groups.numbers.tolist() == [2, 1, 2, 0] and len(groups) == 3 and not groups.has_near


def test_beyond_the_bound_only_equal_texts_are_compared(monkeypatch):
    texts = sentences(10)
    rows = [*texts, *(f"{text}." for text in texts), *texts]
    for most, is_compared, number in ((20, True, 10), (19, False, 20)):
        monkeypatch.setattr(held_out_groups, "MOST_COMPARED", most)
        groups = text_groups([rows], 2)
        assert (groups.is_compared, len(groups)) == (is_compared, number)
        equal, near = rows_in_both([rows[:20]], [rows[5:15]])
        assert equal.tolist() == [False] * 5 + [True] * 10 + [False] * 5
        assert near is None if not is_compared else near.tolist() == [True] * 5 + [False] * 10 + [True] * 5


def test_rows_of_two_files_are_equal_nearly_equal_or_different():
    texts = sentences(4)
    equal, near = rows_in_both([[texts[0].upper(), f"{texts[1]}.", texts[2]]], [[texts[0], texts[1], texts[3]]])
    assert equal.tolist() == [True, False, False] and near.tolist() == [False, True, False]


@pytest.mark.parametrize("seed", range(5))
def test_whole_keys_are_held_out_in_order_until_the_target_is_nearest(seed):
    rng = np.random.RandomState(seed)
    keys, sizes, target = rng.randint(12, size=40), rng.randint(1, 99, size=40), 500.0
    found = held_out_in_order(keys, sizes, target)
    choices = [keys <= key for key in sorted(set(keys.tolist()))]
    best = min(choices, key=lambda choice: abs(sizes[choice].sum() - target))
    assert found.tolist() == best.tolist()
    assert held_out_in_order(keys, sizes, 0.0).sum() == (keys == keys.min()).sum(), "at least one key"
