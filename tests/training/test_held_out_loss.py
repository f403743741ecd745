"""The held-out loss over a run: best, overfitting, early stopping."""

import json

import numpy as np
import pytest

from bert.training.held_out_loss import HeldOutLoss, Verdict

RISING = [5.0, 4.0, 3.0, 3.1, 3.2, 3.3, 3.4]


def follow(losses, **settings):
    held_out = HeldOutLoss("eval_loss", **settings)
    return held_out, [held_out.observe(10 * (i + 1), {"eval_loss": loss}) for i, loss in enumerate(losses)]


def test_every_lower_loss_is_the_best():
    held_out, verdicts = follow([5.0, 6.0, 4.0, 4.5])
    assert [verdict.is_best for verdict in verdicts] == [True, False, True, False]
    assert held_out.figures() == {"best_eval_loss": 4.0, "best_step": 30}


def test_overfitting_is_said_once_after_so_many_evaluations_above_the_best():
    held_out, verdicts = follow(RISING, overfitting_evaluations=3)
    assert [verdict.overfits for verdict in verdicts] == [False] * 5 + [True, False]
    text = held_out.overfitting()
    assert "best, 3.0000 after update 30" in text and "is now 3.4000" in text and "--early-stopping" in text


@pytest.mark.parametrize(
    "losses",
    [
        [5.0, 4.9, 4.91, 4.905, 4.92, 4.899, 4.91, 4.91, 4.92],  # a plateau with its noise
        [5.0, 4.0, 4.5, 4.4, 3.9, 4.2, 4.1, 3.8],  # a noisy fall
        [5.0, 4.0, 3.0, 2.0, 1.0],
    ],
)
def test_noise_is_not_overfitting(losses):
    assert not any(verdict.overfits for verdict in follow(losses, overfitting_evaluations=3)[1])


def test_early_stopping_ends_after_so_many_evaluations_without_a_best():
    held_out, verdicts = follow(RISING[:6], early_stopping=3)
    assert [verdict.stops for verdict in verdicts] == [False] * 5 + [True]
    assert held_out.has_stopped and held_out.figures()["stopped_early"]
    assert "3 evaluations without a held-out loss below 3.0000, that of update 30" in held_out.reason()
    assert not any(verdict.stops for verdict in follow(RISING)[1])


@pytest.mark.parametrize("cut", range(1, len(RISING)))
def test_a_resumed_run_decides_as_the_uninterrupted_one(cut):
    settings = {"overfitting_evaluations": 3, "early_stopping": 4}
    whole, verdicts = follow(RISING, **settings)
    before, _ = follow(RISING[:cut], **settings)
    resumed = HeldOutLoss("eval_loss", **settings, carried=before.carried())
    found = [resumed.observe(10 * (cut + i + 1), {"eval_loss": loss}) for i, loss in enumerate(RISING[cut:])]
    assert found == verdicts[cut:]
    assert (resumed.carried(), resumed.figures()) == (whole.carried(), whole.figures())
    assert resumed.observe(10 * len(RISING), {"eval_loss": 0.1}) == Verdict(), "evaluated again, counted once"


def test_the_loss_of_given_weights_is_reported_and_never_the_best():
    held_out = HeldOutLoss("eval_loss")
    assert held_out.observe(0, {"eval_loss": 2.0}) == Verdict()
    assert held_out.observe(10, {"eval_loss": 2.5}).is_best
    assert held_out.figures() == {"initial_eval_loss": 2.0, "best_eval_loss": 2.5, "best_step": 10}


def test_an_extended_run_gets_its_patience_again_and_a_lost_best_is_forgotten():
    held_out, _ = follow(RISING[:6], early_stopping=3)
    held_out.begin_again()
    assert not held_out.has_stopped and held_out.best == (30, 3.0)
    held_out.forget_best()
    assert held_out.observe(70, {"eval_loss": 3.5}).is_best


def test_a_task_without_a_held_out_loss_follows_nothing():
    held_out = HeldOutLoss(None, overfitting_evaluations=1, early_stopping=1)
    assert held_out.observe(1, {"eval_f1": 3.0}) == Verdict() and held_out.carried() == held_out.figures() == {}


def test_evaluations_before_the_given_update_do_not_count():
    """The loss rises while the rate warms up, and falls again."""
    losses = [4.1, 4.2, 4.3, 4.25, 4.15, 4.0]
    settings = {"overfitting_evaluations": 3, "early_stopping": 3}
    assert any(verdict.stops and verdict.overfits for verdict in follow(losses, **settings)[1])
    held_out, verdicts = follow(losses, **settings, counts_from=40)
    assert not any(verdict.stops or verdict.overfits for verdict in verdicts) and held_out.best == (60, 4.0)
    assert [verdict.stops for verdict in follow(RISING, early_stopping=3, counts_from=40)[1]] == [False] * 5 + [
        True
    ] * 2


@pytest.mark.parametrize(("losses", "is_best"), [([5.0, 4.0, 4.1], True), ([5.0, 4.0, 4.01], False)])
def test_with_early_stopping_a_run_ends_with_its_best_unless_the_last_is_as_good(losses, is_best):
    held_out, _ = follow(losses, early_stopping=5)
    assert held_out.ends_with_best == is_best and not held_out.has_stopped
    assert held_out.figures().get("ends_with_best", False) == is_best
    assert held_out.carried()["ends_with_best"] == is_best
    assert json.dumps(follow([np.float32(loss) for loss in losses], early_stopping=5)[0].carried()["ends_with_best"])
    assert not follow(losses)[0].ends_with_best, "without early stopping the last is the result"


NAN = float("nan")


def test_a_loss_that_is_no_number_is_worse_than_any():
    held_out, verdicts = follow([NAN, 5.0, 4.0, NAN], early_stopping=3)
    assert [verdict.is_best for verdict in verdicts] == [False, True, True, False]
    assert not held_out.has_stopped and held_out.best == (30, 4.0) and held_out.ends_with_best
    resumed = HeldOutLoss("eval_loss", early_stopping=3, carried=json.loads(json.dumps(held_out.carried())))
    assert resumed.ends_with_best and resumed.observe(50, {"eval_loss": 3.0}).is_best


def test_a_run_of_such_losses_stops_without_a_best():
    held_out, verdicts = follow([NAN, NAN, NAN], early_stopping=3, overfitting_evaluations=2)
    assert [verdict.stops for verdict in verdicts] == [False, False, True]
    assert (
        held_out.best is None and not held_out.ends_with_best and "without a finite held-out loss" in held_out.reason()
    )
    assert not any(verdict.overfits for verdict in verdicts)
