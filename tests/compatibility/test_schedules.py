"""Learning rates of NVIDIA's trainers, computed by their schedulers' formulas, compared with our recipes.

Theirs counts updates from 1, and its last has the rate 0; ours is one update earlier in the decay, so none is lost.
"""

import pytest

from bert.pretraining.recipes import RECIPES
from bert.training.resumed_schedule import schedule_of


def paddle(update, peak, warmup, total):
    """Compute PolynomialDecay of power 1 over the updates that are left, after LinearWarmup."""
    return peak * update / warmup if update <= warmup else peak * (1 - (update - warmup) / (total - warmup))


def pytorch(update, peak, warmup, total):
    """Compute PolyWarmUpScheduler of degree 0.5."""
    return peak * update / warmup if update <= warmup else peak * (1 - update / total) ** 0.5


def tensorflow(update, peak, warmup, total):
    """Compute tf.train.polynomial_decay of power 0.5 over all updates, after a linear warm-up."""
    return peak * update / warmup if update <= warmup else peak * ((total - update) / total) ** 0.5


PHASE_1, PHASE_2 = (6e-3, 2000, 7038), (4e-3, 200, 1563)
CASES = [
    ("phase1_large", paddle, PHASE_1),
    ("phase2_large", paddle, PHASE_2),
    ("phase1_large_pytorch", pytorch, PHASE_1),
    ("phase2_large_pytorch", pytorch, PHASE_2),
    ("phase1_large_tensorflow", tensorflow, PHASE_1),
    ("phase2_large_tensorflow", tensorflow, PHASE_2),
]


@pytest.mark.parametrize(("recipe", "formula", "numbers"), CASES, ids=[name for name, *_ in CASES])
def test_first_middle_and_last_rates(recipe, formula, numbers):
    peak, warmup, total = numbers
    schedule = schedule_of(RECIPES[recipe]())
    assert (schedule.settings.learning_rate, schedule.warmup_steps, schedule.total_steps) == numbers
    for update in (1, warmup // 2, warmup):
        assert schedule.learning_rate_at(update - 1) == pytest.approx(formula(update, *numbers))
    for update in (warmup + 1, (warmup + total) // 2, total - 1, total):
        assert schedule.learning_rate_at(update) == pytest.approx(formula(update, *numbers), abs=1e-12)
