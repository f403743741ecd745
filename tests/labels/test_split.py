"""Which rows are held out, which are in both sets and how often each is trained on, counted in plain Python."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bert.labels.examples import Examples
from bert.labels.split import balanced_rows, counted, held_out_rows, held_together, normalized, rows_in_both

FEW = settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.generate])  # all are small already


def examples(*texts: list[str], groups: list[str] | None = None) -> Examples:
    return Examples(Path("a.csv"), texts, None, [str(row) for row in range(len(texts[0]))], groups=groups)


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
    """Without classes, of the rows alone; other seeds hold out other rows."""
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


def test_equal_rows_are_equal_in_each_of_their_texts():
    rows = examples(["A  b", "a b", "a b"], ["c", "C ", "d"])
    assert normalized(rows) == ["a b\tc", "a b\tc", "a b\td"] == held_together(rows)
    assert held_together(examples(["a", "a"], groups=["x", "y"])) == ["x", "y"]
    assert rows_in_both(rows, examples(["A B"], ["D"])).tolist() == [False, False, True]


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
