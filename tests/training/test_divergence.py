"""A finite loss that stays far too high ends the run with exit code 3; a normal run never warns."""

import math

import pytest

from bert.exit_codes import DIVERGED
from bert.model.objectives import MaskedLMObjective, PretrainingObjective, SequenceClassificationObjective
from bert.training.divergence import STOP_AFTER, WARN_AFTER, DivergenceGuard
from bert.training.health_checks import TrainingDiverged, check_divergence
from tests.support import runs, tiny

CHANCE = math.log(4096) + math.log(2)  # 9.01


def warned(losses, chance=CHANCE) -> tuple[list[int], DivergenceGuard]:
    guard = DivergenceGuard(chance)
    return [index for index, loss in enumerate(losses) if guard.observe(loss)], guard


@pytest.mark.parametrize(
    "losses",
    [
        [9.0 - 3 * i / 100 for i in range(100)],
        [9.05, 9.3, 9.6, 9.2, 8.7, 8.1, 7.5, 7.1],  # warm-up of LAMB may pass through a hill
        [2.1, 2.2, 2.9, 3.0, 2.8, 2.4, 2.1],  # given weights, with the rate's first jump
        [6.0, 6.1, 30.0, 8.0, 6.2, 6.1],  # a spike that passes, which another guard reports
        [0.4, 0.5, 0.3, 0.6, 0.7, 0.2],
        [9.0, math.nan, 8.9, math.nan],
    ],
)
def test_normal_runs_do_not_warn_and_do_not_end(losses):
    found, guard = warned(losses)
    assert not found and not guard.has_diverged(at_end=True)


@pytest.mark.parametrize("losses", [[9.0, *[97.0] * 30], [9.0 + i for i in range(60)], [2.0, *[7.4] * 40]])
def test_a_loss_that_stays_too_high_warns_once_and_ends_the_run(losses):
    guard, ended, found = DivergenceGuard(CHANCE), None, []
    for index, loss in enumerate(losses):
        found += [index] if guard.observe(loss) else []
        if guard.has_diverged(at_end=False):
            ended = index
            break
    assert len(found) == 1 and ended == found[0] + STOP_AFTER - WARN_AFTER


def test_at_the_end_three_intervals_or_one_far_above_are_enough():
    assert warned([9.0, 11.0, 11.0, 11.0])[1].has_diverged(at_end=True)
    assert not warned([9.0, 11.0, 11.0])[1].has_diverged(at_end=True)
    assert warned([9.0, 97.0])[1].has_diverged(at_end=True)
    assert warned([60.0])[1].has_diverged(at_end=True), "the first interval is no excuse"


def test_a_resumed_run_decides_as_the_uninterrupted_one():
    before = warned([2.0, 2.1, *[5.0] * 4])[1]
    assert DivergenceGuard(CHANCE, before.carried()).observe(5.0)


def test_the_loss_of_a_uniform_guess_is_known_for_pretraining_alone():
    assert PretrainingObjective(tiny.MODEL).chance_loss() == pytest.approx(math.log(99 * 2))
    assert MaskedLMObjective(tiny.MODEL).chance_loss() == pytest.approx(math.log(99))
    assert not warned([0.1, *[50.0] * 30], SequenceClassificationObjective(tiny.MODEL).chance_loss())[0]


def test_the_error_has_the_losses_and_the_remedy(tmp_path):
    config = tiny.pretraining_config(tmp_path, max_steps=2, learning_rate=10.0)
    guard = DivergenceGuard(CHANCE)
    check_divergence(guard, 9.0, config, 1)
    with pytest.raises(TrainingDiverged) as error:
        check_divergence(guard, 97.0, config, 2)
    assert error.value.exit_code == DIVERGED
    assert "the loss is 97.0000" in str(error.value) and "a uniform guess has 9.01" in str(error.value)
    assert "began with 9.0000" in str(error.value) and "lower --learning-rate (now 10)" in str(error.value)


def test_a_diverging_training_ends_unsaved(tmp_path):
    config = tiny.pretraining_config(tmp_path, learning_rate=10.0, max_steps=20)
    with pytest.raises(TrainingDiverged, match="the training has diverged"):
        runs.run(config, 20)
    assert not config.checkpoint_dir().exists() or not any(config.checkpoint_dir().iterdir())
