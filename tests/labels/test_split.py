"""Tests of folds, of texts in both sets and of oversampling, against counts in plain Python."""

import hashlib
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bert.labels.examples import Examples
from bert.labels.split import balanced_rows, count_in_both, counted, notes_of_groups, row_folds, row_groups
from data.text import held_out_groups

FEW = settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.generate])  # all are small already


def examples(*texts: list[str], groups: list[str] | None = None) -> Examples:
    return Examples(Path("a.csv"), texts, None, [str(row) for row in range(len(texts[0]))], groups=groups)


def held_out_rows(rows: Examples, classes, folds: int, fold: int, seed: int) -> np.ndarray:
    return row_folds(rows, row_groups(rows, folds), classes, folds, seed) == fold


def sentence(row: int) -> str:
    """Return texts of eight words, which differ in all of them."""
    return " ".join(f"{word}{letters}" for letters in [chr(97 + row // 26) + chr(97 + row % 26)] for word in "abcdefgh")


@FEW
@given(st.data())
def test_every_row_is_held_out_once_and_never_beside_a_row_of_its_text_or_group(data):
    folds, number = data.draw(st.integers(2, 4)), data.draw(st.integers(4, 24))
    names = [
        f"T {row}" if row < folds else data.draw(st.sampled_from(["t  0", "T 1", "t 7", "T 8"]))
        for row in range(number)
    ]
    groups = data.draw(st.sampled_from([None, names]))
    rows = examples([str(row) for row in range(number)], groups=groups) if groups else examples(names)
    classes = data.draw(st.none() | st.lists(st.integers(0, 2), min_size=number, max_size=number).map(np.array))
    masks = [held_out_rows(rows, classes, folds, fold, 42) for fold in range(folds)]
    assert np.sum(masks, axis=0).tolist() == [1] * number
    alike = [name if groups else " ".join(name.lower().split()) for name in names]
    for mask in masks:
        inside, outside = ({alike[row] for row in np.flatnonzero(side)} for side in (mask, ~mask))
        assert not inside & outside
    assert [mask.tolist() for mask in masks] == [
        held_out_rows(rows, classes, folds, f, 42).tolist() for f in range(folds)
    ]


@pytest.mark.parametrize("groups", [None, [str(row // 2) for row in range(120)]])
def test_a_fold_has_its_share_of_the_rows_and_of_each_class(groups):
    """Without classes, a fold has its share of the rows alone; other seeds hold out other rows."""
    rows = examples([f"t{row}" for row in range(120)], groups=groups)
    classes = np.array([row // 2 % 12 in (0, 1, 2) for row in range(120)]).astype(int)
    for fold in range(4):
        mask = held_out_rows(rows, classes, 4, fold, 42)
        assert np.bincount(classes[mask]).tolist() == pytest.approx([22.5, 7.5], abs=0.6 if groups is None else 2.1)
        assert held_out_rows(rows, None, 4, fold, 42).sum() == 30
    first, other = (held_out_rows(rows, classes, 4, 0, seed) for seed in (1, 2))
    assert (first != other).any()


def test_as_many_texts_or_groups_as_folds_are_enough():
    for texts, groups in ((["a", "b", "A"], None), (["a", "b", "c"], ["x", "y", "x"])):
        rows = examples(texts, groups=groups)
        assert sorted(int(held_out_rows(rows, None, 2, fold, 1).sum()) for fold in range(2)) == [1, 2]
        what = "2 groups" if groups else "2 different texts"
        with pytest.raises(ValueError, match=f"{what} are too few for folds=3; lower --folds, or give --eval-file"):
            held_out_rows(rows, None, 3, 0, 1)


def test_rows_are_the_same_in_each_of_their_texts_and_groups_go_by_themselves():
    rows = examples(["A  b", "a b.", "a b"], ["c", "C ", "d"])
    assert row_groups(rows, 2).numbers.tolist() == [0, 0, 1]
    assert row_groups(examples(["a", "a"], groups=["x", "y"]), 2).numbers.tolist() == [0, 1]


def test_a_twin_with_a_full_stop_is_never_on_the_other_side():
    """A table of pairs whose classes differ: each fold has a fifth of the rows and of each class."""
    texts = [text for row in range(100) for text in (sentence(row), f"{sentence(row)}.")]
    rows, classes = examples(texts), np.arange(200) % 2
    for fold in range(5):
        mask = held_out_rows(rows, classes, 5, fold, 42)
        assert (mask[::2] == mask[1::2]).all() and np.bincount(classes[mask]).tolist() == [20, 20]
        assert count_in_both(rows.take(mask), rows.take(~mask)) == (0, "")


def test_canned_texts_are_divided_as_before_and_it_is_noted():
    texts = [f"Please restart the server number {row // 2}" for row in range(60)]
    groups = row_groups(examples(texts), 5)
    assert len(groups) == 30
    assert [*notes_of_groups(groups, 5)] == [
        "60 rows are nearly equal to over half a part of rows: of them only equal texts are held out together, and "
        "scores on them are better than on new texts; --group-by or fewer --folds than 5 may keep them together"
    ]
    assert [*notes_of_groups(row_groups(examples([sentence(row) for row in range(60)]), 5), 5)] == []


def test_very_many_rows_are_not_compared_and_it_is_noted(monkeypatch):
    monkeypatch.setattr(held_out_groups, "MOST_COMPARED", 9)
    groups = row_groups(examples([sentence(row) for row in range(10)]), 5)
    (note,) = notes_of_groups(groups, 5)
    assert note.startswith("not looked for: nearly equal texts, as there are over 200,000 different rows; --group-by")


def test_texts_in_both_sets_are_counted_equal_or_nearly():
    ours = examples(["A  b", "c", f"{sentence(1)}!", "d"])
    assert count_in_both(ours, examples(["a b ", sentence(1), "e"])) == (2, " (1 of them nearly equal)")
    assert count_in_both(ours, examples(["a b ", "e"])) == (1, "")
    assert count_in_both(examples(["a", "b"], ["c", "d"]), examples(["A", "B"], ["C", "c"])) == (1, "")


@FEW
@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_a_row_of_a_rare_class_is_repeated_until_the_class_has_about_as_many_as_the_largest(classes):
    counts = Counter(classes)
    wanted = []
    for row, label in enumerate(classes):
        wanted += [row] * round(max(counts.values()) / counts[label])  # Python and NumPy both round halves to even
    assert balanced_rows(np.array(classes)).tolist() == wanted


def test_a_row_is_repeated_at_most_twenty_times():
    rows = balanced_rows(np.array([0] * 50 + [1] * 2 + [2]))
    assert np.bincount(rows)[[0, 50, 52]].tolist() == [1, 20, 20]
    assert np.bincount(balanced_rows(np.array([0] * 40 + [1] * 2 + [2] * 3)))[40:].tolist() == [20, 20, 13, 13, 13]


def test_classes_are_counted_the_largest_first_and_ten_are_shown():
    assert counted(["no"] * 1_200 + ["yes"] * 30 + ["a"] * 30) == "no 1,200, a 30, yes 30"
    ten = [f"c{number}" for number in range(10) for _ in range(number + 1)]
    assert counted(ten).startswith("c9 10, c8 9, ") and counted(ten).endswith(", c0 1")
    assert counted([*ten, "d"]).endswith(", c0 1 ...") and counted([*ten, "b"]).endswith(", b 1 ...")


def test_rows_with_a_group_column_are_divided_as_by_earlier_versions():
    """Commit 57fd2e77 made these masks: trainings of then are continued, and documents have such scores."""
    drawn, rows = random.Random(3), list[tuple[str, int, str]]()
    for number in range(600):
        group, start = f"d{drawn.randrange(170)}", f"text {drawn.randrange(500)} of "
        rows.append((start + " ".join(f"w{drawn.randrange(400)}" for _ in range(12)), number % 3, group))
    texts, classes, groups = zip(*rows, strict=True)
    divided = examples(list(texts), groups=list(groups))
    folds = row_folds(divided, row_groups(divided, 5), np.array(classes), 5, 42)
    masks = [hashlib.sha256((folds == fold).tobytes()).hexdigest()[:8] for fold in range(5)]
    assert np.bincount(folds).tolist() == [121, 119, 120, 120, 120]
    assert masks == ["788a78b9", "86143713", "0ea16cc7", "29e22bbc", "cd408df9"]
