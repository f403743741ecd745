"""The verdict about a baseline; its margin is the textbook's for a mean."""

import math
import re

import numpy as np
import pytest
from scipy import stats

from bert.reporting.comparison import verdict


def means(ours: np.ndarray, theirs: np.ndarray):
    """Return the metrics of a model and a method that score each row."""
    return lambda rows: {"other": 0.5, "f1": ours[rows].mean()}, lambda rows: {"other": 0.25, "f1": theirs[rows].mean()}


def gap_and_margin(sentence: str) -> tuple[float, float]:
    found = re.search(r"\(([+-]\d+\.\d+) \+- (\d+\.\d+)\)", sentence)
    return float(found[1]), float(found[2])


@pytest.mark.parametrize(
    ("shift", "relation"), [(0.2, "is better than"), (-0.2, "is worse than"), (0.01, "cannot be told")]
)
def test_the_margin_is_that_of_the_mean_of_paired_differences(shift, relation):
    rng, rows = np.random.default_rng(1), 400
    theirs = rng.normal(0.5, 1.0, rows)
    ours = theirs + rng.normal(shift, 0.5, rows)
    sentence = verdict("guessing", *means(ours, theirs), rows)
    gap, margin = gap_and_margin(sentence)
    assert gap == pytest.approx((ours - theirs).mean(), abs=5e-4)
    expected = stats.t.ppf(0.975, rows - 1) * (ours - theirs).std(ddof=1) / math.sqrt(rows)
    assert margin == pytest.approx(expected, rel=0.15)  # of 200 resamples
    assert sentence.startswith(f"This model {relation}")
    shown = f"other 0.500 against 0.250, f1 {ours.mean():.3f} against {theirs.mean():.3f}"
    assert f"on 400 lines: {shown}" in sentence
    assert ("More labelled lines" in sentence) == (shift != 0.2)


def test_rows_of_a_group_are_drawn_together_and_few_groups_have_a_wide_margin():
    groups = np.repeat([7, 3, 9, 5], 50)
    of_group = {7: 0.1, 3: 0.3, 9: 0.2, 5: 0.6}
    gaps = np.array([of_group[group] for group in groups])
    sentence = verdict("guessing", *means(0.15 + gaps, np.full(200, 0.2)), 200, groups, unit="pairs", resamples=2_000)
    gap, margin = gap_and_margin(sentence)
    spread = np.std([0.1, 0.3, 0.2, 0.6]) / math.sqrt(4)  # as the bootstrap of four groups has it
    assert gap == 0.25 and margin == pytest.approx(stats.t.ppf(0.975, 3) * spread, rel=0.06)
    assert "cannot be told from guessing on 200 pairs of 4 groups" in sentence


def test_equal_scores_differ_by_less_than_three_rows():
    same = np.linspace(0, 1, 100)
    sentence = verdict("guessing", *means(same, same), 100, remedy="Ask", model="It")
    assert gap_and_margin(sentence) == (0.0, 0.03)
    assert sentence.startswith("It cannot be told from guessing on 100 lines: ") and sentence.endswith(" Ask.")


def test_one_group_decides_nothing():
    sentence = verdict("guessing", *means(np.ones(50), np.zeros(50)), 50, np.zeros(50))
    assert sentence.startswith("This model cannot be told from guessing on 50 lines of 1 group: ")
    assert sentence.endswith("(+1.000, which one group does not decide).")  # nothing is better than all right


def test_a_model_that_is_always_right_needs_no_remedy():
    assert verdict("guessing", *means(np.ones(50), np.ones(50)), 50).endswith("(+0.000 +- 0.060).")
    nearly = np.r_[np.ones(49), 0.9]
    assert "More labelled lines" in verdict("guessing", *means(nearly, nearly), 50)


def test_a_gap_of_the_margin_is_none_and_two_groups_are_groups():
    """Each gap in the 12 rows is 0.25, which is 3 / 12."""
    ours, theirs = np.full(12, 0.75), np.full(12, 0.5)
    assert "cannot be told from guessing on 12 lines: " in verdict("guessing", *means(ours, theirs), 12)
    better = verdict("guessing", *means(ours + 0.0625, theirs), 12, [0] * 6 + [1] * 6)
    assert better.startswith("This model is better than guessing on 12 lines of 2 groups: ")
    assert better.endswith("(+0.312 +- 0.250).")
