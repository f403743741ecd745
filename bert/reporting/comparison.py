"""The verdict of a comparison between a trained model and a baseline on the same rows."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bert.randomness import integers_below, stream_key

Metrics = Callable[[np.ndarray], Mapping[str, float]]  # rows int64 [m] -> metrics of these rows; the last one decides
_REMEDY = "More labelled lines, more own text (run_pretraining.sh --text) or a better model to begin with may help"


def gap_and_margin(
    ours: Metrics, theirs: Metrics, rows: int, groups: Any = None, resamples: int = 200
) -> tuple[float, float]:
    """By how much ours is better by the last metric, and the margin of 95% below which that is chance: see `verdict`.

    Args:
        groups: a value for each row, [rows]; None: each row is one.
    """
    every = np.arange(rows)
    units = every if groups is None else np.unique(groups, return_inverse=True)[1]
    from scipy.stats import t  # here: only the rank that scores loads it

    number, gaps, decisive = int(units.max()) + 1, list[float](), list(ours(every))[-1]
    for resample in range(resamples):
        drawn = integers_below(stream_key("bootstrap", resample), np.arange(number), number)
        chosen = np.repeat(every, np.bincount(drawn, minlength=number)[units])
        gaps.append(ours(chosen)[decisive] - theirs(chosen)[decisive])
    margin = max(t.ppf(0.975, number - 1) * np.std(gaps, ddof=1), 3 / rows) if number > 1 else math.inf
    return ours(every)[decisive] - theirs(every)[decisive], margin


def verdict(
    name: str,
    ours: Metrics,
    theirs: Metrics,
    rows: int,
    groups: Any = None,
    unit: str = "lines",
    remedy: str = _REMEDY,
    model: str = "This model",
    resamples: int = 200,
) -> str:
    """A sentence that says whether a model beats a baseline, by the last metric (larger is better).

    The margin of 95% comes from a paired bootstrap over rows, or over groups of rows. It is wider if these are few
    (Student's t), and at least 3 / rows, the share that so many rows may miss (the rule of three). One group
    alone tells nothing of others.

    Args:
        name: of the method, such as "the character baseline".
        remedy: what may help a model that is not better; empty: nothing is said.
        groups: a value for each row, [rows]; None: each row is one.
        resamples: of the bootstrap.
    """
    every = np.arange(rows)
    mine, other = ours(every), theirs(every)
    gap, margin = gap_and_margin(ours, theirs, rows, groups, resamples)
    number = rows if groups is None else len(np.unique(groups))
    decisive = list(mine)[-1]
    relation = f"is {'better' if gap > 0 else 'worse'} than" if abs(gap) > margin else "cannot be told from"
    where = f"{rows:,} {unit}" + (f" of {number:,} group{'s' * (number > 1)}" if groups is not None else "")
    wide = f" +- {margin:.3f}" if number > 1 else ", which one group does not decide"
    figures = ", ".join(f"{metric.replace('_', ' ')} {mine[metric]:.3f} against {other[metric]:.3f}" for metric in mine)
    sentence = f"{model} {relation} {name} on {where}: {figures} ({gap:+.3f}{wide})."
    return sentence if gap > margin or mine[decisive] == 1 or not remedy else f"{sentence} {remedy}."
