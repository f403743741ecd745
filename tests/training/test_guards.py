"""The guards of the training loop: divergence, loss spikes, evaluations; and their state across a resume."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from bert.checkpoints.progress import DecayState, LoopState
from bert.exit_codes import DIVERGED
from bert.training.loss_guards import (
    LEAST,
    STOP_AFTER,
    WARN_AFTER,
    BestMetric,
    DivergenceGuard,
    EvaluationGuard,
    Interval,
    SpikeGuard,
    TrainingDiverged,
    is_trained,
)
from tests.support import runs, tiny
from tests.support.messages import messages

CHANCE = math.log(4096) + math.log(2)  # 9.01
RISING = [5.0, 4.0, 3.0, 3.1, 3.2, 3.3, 3.4]
NAN = float("nan")


def interval(loss: float, last: int, size: int = 10, complete: bool = True) -> Interval:
    return Interval(last, 0, complete, {"loss": loss}, loss * size, size)


def written_and_read(state: LoopState) -> LoopState:
    return LoopState.read(json.loads(json.dumps(asdict(state))))


# ---- divergence ------------------------------------------------------------------------------------------------------


def divergence(config, losses, chance=CHANCE, max_steps=10_000, state=None) -> tuple[int, int | None]:
    """Return how often the guard warns of these losses, and after which of them it ends the run."""
    guard = DivergenceGuard(state or LoopState(), chance, config.optimizer, max_steps)
    with messages() as said:
        for number, loss in enumerate(losses):
            try:
                guard.after_interval(interval(loss, 10 * (number + 1)))
            except TrainingDiverged as error:
                assert error.exit_code == DIVERGED and "lower --learning-rate (now " in str(error)
                return len(said), number
    return len(said), None


@pytest.mark.parametrize(
    "losses",
    [
        [9.0 - 3 * i / 100 for i in range(100)],
        [9.05, 9.3, 9.6, 9.2, 8.7, 8.1, 7.5, 7.1],  # warm-up of LAMB may pass through a hill
        [2.1, 2.2, 2.9, 3.0, 2.8, 2.4, 2.1],  # given weights, with the rate's first jump
        [6.0, 6.1, 30.0, 8.0, 6.2, 6.1],  # a spike that passes, which another guard reports
        [0.4, 0.5, 0.3, 0.6, 0.7, 0.2],
        [9.0, NAN, 8.9, NAN],
    ],
)
def test_normal_runs_do_not_warn_and_do_not_end(losses, tmp_path):
    config = tiny.pretraining_config(tmp_path)
    assert divergence(config, losses, max_steps=10 * len(losses)) == (0, None)


@pytest.mark.parametrize("losses", [[9.0, *[97.0] * 30], [9.0 + i for i in range(60)], [2.0, *[7.4] * 40]])
def test_a_loss_that_stays_too_high_warns_once_and_ends_the_run(losses, tmp_path):
    config = tiny.pretraining_config(tmp_path)
    warnings, ended = divergence(config, losses)
    assert warnings == 1
    assert divergence(config, losses[: ended - (STOP_AFTER - WARN_AFTER)]) == (0, None), "the warning comes before"


def test_a_resumed_run_warns_as_the_uninterrupted_one(tmp_path):
    config, state = tiny.pretraining_config(tmp_path), LoopState()
    assert divergence(config, [2.0, 2.1, *[5.0] * 4], state=state) == (0, None)
    assert divergence(config, [5.0], state=written_and_read(state)) == (1, None)


def test_a_diverging_training_ends_unsaved(tmp_path):
    config = tiny.pretraining_config(tmp_path, learning_rate=10.0, max_steps=20)
    with pytest.raises(TrainingDiverged, match="the training has diverged"):
        runs.run(config, 20)
    assert not config.checkpoint_dir().exists() or not any(config.checkpoint_dir().iterdir())


class Settings:
    learning_rate, warmup_proportion = 0.01, 0.1


def above(losses, chance=10.0) -> int:
    """Return the intervals in a row above the limit, after these losses."""
    state = LoopState()
    guard = DivergenceGuard(state, chance, Settings, 10_000)
    for number, loss in enumerate(losses):
        guard.after_interval(interval(loss, number + 1))
    return state.divergence.above


def test_the_limit_is_the_smaller_of_chance_and_the_first_loss_with_a_margin():
    """The limit is 1.1 times a uniform guess or 1.5 times the first interval, and half a nat more."""
    assert [above([9.0, loss]) for loss in (11.49, 11.51)] == [0, 1], "of a uniform guess of 10"
    assert [above([4.0, loss]) for loss in (6.49, 6.51)] == [0, 1], "of given weights"
    assert above([4.0, 7.0, 7.0, NAN, 7.0]) == 3 and above([4.0, 7.0, 7.0, 6.0, 7.0]) == 1
    assert above([NAN, 4.0, 9.0]) == 1, "the first finite one"
    assert above([20.0]) == 1, "also the first interval can be above"


@pytest.mark.parametrize(("number", "warns", "ends"), [(4, 0, False), (5, 1, False), (19, 1, False), (20, 1, True)])
def test_a_run_is_warned_after_5_intervals_and_ended_after_20(number, warns, ends):
    guard = DivergenceGuard(LoopState(), 10.0, Settings, 10_000)
    with messages() as said:
        for step in range(1, number):
            guard.after_interval(interval(12.0, step))
        if ends:
            with pytest.raises(TrainingDiverged, match="is 12.0000 and was above 11.50 for 20 intervals"):
                guard.after_interval(interval(12.0, number))
        else:
            guard.after_interval(interval(12.0, number))
    assert len(said) == warns


@pytest.mark.parametrize(
    ("losses", "decays", "ends"),
    [
        ([12.0, 12.0], False, False),
        ([12.0, 12.0, 12.0], False, True),
        ([9.0, 23.1], False, True),  # twice the limit
        ([9.0, 22.9], False, False),
        ([23.1, NAN], False, True),
        ([23.1, 9.0], False, False),
        ([12.0, 12.0, 12.0], True, True),
    ],
)
def test_a_run_does_not_end_as_a_success_with_a_loss_far_too_high(losses, decays, ends):
    """At the last update, of settings or decay, three intervals are above the limit, or one is far above it."""
    state, last = LoopState(), len(losses)
    if decays:
        state.decay = DecayState(1, last, 1, 1, 0.1)
    guard = DivergenceGuard(state, 10.0, Settings, 10_000 if decays else last)
    for step, loss in enumerate(losses[:-1], start=1):
        guard.after_interval(interval(loss, step))
    if ends:
        with pytest.raises(TrainingDiverged):
            guard.after_interval(interval(losses[-1], last))
    else:
        guard.after_interval(interval(losses[-1], last))


# ---- loss spikes -----------------------------------------------------------------------------------------------------


def spike_guard(folder, factor=3.0, state=None, start=0) -> SpikeGuard:
    run = tiny.pretraining_config(folder, loss_spike_factor=factor).run
    return SpikeGuard(state or LoopState(), run, start, lambda step: None, lambda *_: None)


def feed(guard: SpikeGuard, losses):
    """Return the spike, or None, of each loss; each loss is observed for an interval of 10 updates."""
    spikes = []
    for number, loss in enumerate(losses):
        spikes.append(guard.detect(interval(loss, 10 * (number + 1))))
        guard._interval_start = 10 * (number + 1)
    return spikes


def test_a_jump_over_the_factor_is_a_spike_and_names_its_updates(tmp_path):
    guard = spike_guard(tmp_path)
    spikes = feed(guard, [10, 9, 8, 7, 6, 25, 5])
    assert [spike is not None for spike in spikes] == [False] * 5 + [True, False]
    spike = spikes[5]
    assert (spike.first, spike.last, spike.loss, spike.usual) == (50, 60, 25.0, 8.0)
    assert str(spike) == "loss spike: 25.0000 in the updates of steps 51-60, 3.1 times the usual 8.0000"
    guard._restore = lambda step: pytest.fail("an alert rolls nothing back")
    assert guard.after_interval(interval(99.0, 80)) is None


@pytest.mark.parametrize("losses", [[1] * (LEAST - 1) + [100], [1, 2.9, 1, 2.9, 1, 2.9], [0.0] * 9, [math.nan] * 9])
def test_too_little_to_say_and_ordinary_noise_are_none(losses, tmp_path):
    assert not any(feed(spike_guard(tmp_path), losses))


def test_an_interval_that_an_interruption_cut_is_judged_as_a_whole(tmp_path):
    state = LoopState()
    guard = spike_guard(tmp_path, state=state)
    feed(guard, [1] * 5)
    assert guard.detect(interval(1.0, 54, size=4, complete=False)) is None
    resumed = spike_guard(tmp_path, state=written_and_read(state), start=54)
    spike = resumed.detect(interval(10.0, 60, size=6))
    assert spike is not None and (spike.first, spike.last, spike.loss) == (50, 60, pytest.approx(6.4))


@pytest.mark.parametrize(
    ("losses", "loss", "usual"),
    [
        ([1.0, 1.0, 1.0, 1.0, 2.9], 3.5, 1.0),  # the mean, 1.38, would hide it
        ([1.0, 1.2, 1.4, 1.6, 1.8, 2.0], 4.9, 1.5),
        ([9.0] * 10 + [2.0] * 10 + [1.0] * 10, 4.6, 1.5),  # the last 20
        ([1.0] * 5, 3.0, None),  # three times, not more
        ([1.0] * 4, 99.0, None),
    ],
)
def test_the_usual_loss_is_the_median_of_the_last_20_intervals(tmp_path, losses, loss, usual):
    guard = spike_guard(tmp_path)
    assert not any(feed(guard, losses))
    spike = guard.detect(interval(loss, 1000))
    assert (spike and spike.usual) == usual


def test_a_spike_is_not_part_of_the_usual_loss(tmp_path):
    state = LoopState()
    guard = spike_guard(tmp_path, state=state)
    found = feed(guard, [1.0] * 5 + [9.0] * 30 + [1.0])
    assert sum(spike is not None for spike in found) == 30 and state.spikes.losses == [1.0] * 6
    assert not any(feed(spike_guard(tmp_path, factor=0), [1.0] * 9 + [999.0])), "0: never"


class RollBack:
    """Stands in for a guard that rolls back to step 40, where batches of 12 to 13 were skipped already."""

    def __init__(self, folder, skipped=(), restores=True):
        self.state, self.asked, self.events = LoopState(), list[int](), []
        self.state.spikes.losses, self.state.spikes.skipped_batches = [1.0] * 5, list(skipped)
        run = tiny.pretraining_config(folder, loss_spike_factor=3.0, loss_spike_action="rollback").run
        self._restores = restores
        self.guard = SpikeGuard(self.state, run, 50, self.restore, lambda *event: self.events.append(event))

    def restore(self, step):
        self.asked.append(step)
        carried = LoopState()
        carried.spikes.skipped_batches = [(12, 14)]
        return runs.Progress("phase1", 40, 0, 1, 12, "", {}, None, {}, {}, carried) if self._restores else None


def test_a_roll_back_skips_the_batches_of_this_spike_and_of_all_before(tmp_path):
    """Skips after the checkpoint, which does not know them, stay: the second spike must not bring back the first."""
    rolled = RollBack(tmp_path, skipped=[(45, 47)])
    with messages() as said:
        progress = rolled.guard.after_interval(interval(9.0, 60))
    assert rolled.asked == [50], "a checkpoint from before the spike"
    assert progress.step == 40 and progress.carried.spikes.skipped_batches == [(12, 14), (45, 47), (50, 60)]
    assert said[1] == "rolled back to step 40; the batches of steps 51-60 will be skipped"
    assert rolled.events == [("loss_spike", 60, 0, {"first_step": 51, "loss_spike": 9.0, "usual_loss": 1.0})]
    rolled.state.spikes = progress.carried.spikes
    skipped = [step for step in range(65) if rolled.guard.skips(step)]
    assert skipped == [12, 13, 45, 46, *range(50, 60)]
    rolled.state.spikes.losses = [1.0] * 5
    again = rolled.guard.after_interval(interval(9.0, 48))
    assert (40, 48) in again.carried.spikes.skipped_batches, "the interval begins at the step of the checkpoint"


def test_a_leg_is_rolled_back_five_times_and_then_ends(tmp_path):
    rolled = RollBack(tmp_path)
    for _ in range(5):
        assert rolled.guard.after_interval(interval(9.0, 60)) is not None
    with pytest.raises(TrainingDiverged, match="loss spike: .*, after 5 roll backs already; lower --learning-rate"):
        rolled.guard.after_interval(interval(9.0, 60))
    lost = RollBack(tmp_path, restores=False)
    for _ in range(7):
        with messages() as said:
            assert lost.guard.after_interval(interval(9.0, 60)) is None
        assert "no valid checkpoint from before step" in said[1], "which counts for no roll back"


# ---- evaluations -----------------------------------------------------------------------------------------------------


def follow(losses, state=None, **settings):
    """Return the guard and, for each loss, whether it is the best, logs overfitting, and logs early stopping."""
    guard, best, overfits, stops = (
        EvaluationGuard(state or LoopState(), BestMetric("eval_loss", **settings)),
        [],
        [],
        [],
    )
    for number, loss in enumerate(losses):
        with messages() as said:
            best.append(guard.observe(10 * (number + 1), {"eval_loss": loss}))
        overfits.append(any(line.startswith("overfitting: ") for line in said))
        stops.append(any(line.startswith("early stopping after update") for line in said))
    return guard, best, overfits, stops


@pytest.mark.parametrize(
    ("larger", "expected"), [(False, [True, False, True, False]), (True, [True, True, False, False])]
)
def test_every_better_value_is_the_best(larger, expected):
    guard, best, *_ = follow([5.0, 6.0, 4.0, 4.5], larger_is_better=larger)
    assert best == expected
    assert guard.figures() == {"best_eval_loss": 6.0 if larger else 4.0, "best_step": 20 if larger else 30}


def test_overfitting_is_logged_once_after_so_many_evaluations_above_the_best():
    with messages() as said:
        _, _, overfits, _ = follow(RISING, overfitting_evaluations=3)
    assert overfits == [False] * 5 + [True, False]
    (text,) = said
    assert "best, 3.0000 after update 30" in text and "is now 3.3000" in text and "--early-stopping" in text


@pytest.mark.parametrize(
    "losses",
    [
        [5.0, 4.9, 4.91, 4.905, 4.92, 4.899, 4.91, 4.91, 4.92],  # a plateau with its noise
        [5.0, 4.0, 4.5, 4.4, 3.9, 4.2, 4.1, 3.8],  # a noisy fall
        [5.0, 4.0, 3.0, 2.0, 1.0],
    ],
)
def test_noise_is_not_overfitting(losses):
    assert not any(follow(losses, overfitting_evaluations=3)[2])


@pytest.mark.parametrize("cut", range(1, len(RISING)))
def test_a_resumed_run_decides_as_the_uninterrupted_one(cut):
    settings = {"overfitting_evaluations": 3, "early_stopping": 4}
    whole, *verdicts = follow(RISING, **settings)
    state = LoopState()
    first = follow(RISING[:cut], state, **settings)[1:]
    resumed = EvaluationGuard(written_and_read(state), BestMetric("eval_loss", **settings))
    with messages() as said:
        best = [resumed.observe(10 * (cut + i + 1), {"eval_loss": loss}) for i, loss in enumerate(RISING[cut:])]
    assert [*first[0], *best] == verdicts[0]
    assert len(said) == sum(verdicts[1][cut:]) + sum(verdicts[2][cut:])
    assert (resumed.state, resumed.figures()) == (whole.state, whole.figures())
    assert not resumed.observe(10 * len(RISING), {"eval_loss": 0.1}), "evaluated again, counted once"


def test_the_loss_of_given_weights_is_reported_and_never_the_best():
    guard = EvaluationGuard(LoopState(), BestMetric("eval_loss"))
    assert not guard.observe(0, {"eval_loss": 2.0})
    assert guard.observe(10, {"eval_loss": 2.5})
    assert guard.figures() == {"initial_eval_loss": 2.0, "best_eval_loss": 2.5, "best_step": 10}
    assert not guard.observe(15, {"eval_loss": 9.0})
    guard.forget_best()  # its checkpoint is gone
    assert (guard.state.best, guard.state.since_best, guard.state.above) == (None, 0, 0)
    assert guard.observe(20, {"eval_loss": 3.5})
    assert not guard.observe(30, {"eval_f1": 3.0}), "another metric"


def test_evaluations_before_the_given_update_do_not_count():
    """The loss rises while the rate warms up, and falls again."""
    losses = [4.1, 4.2, 4.3, 4.25, 4.15, 4.0]
    settings = {"overfitting_evaluations": 3, "early_stopping": 3}
    _, _, overfits, stops = follow(losses, **settings)
    assert any(overfits) and any(stops)
    guard, _, overfits, stops = follow(losses, **settings, counts_from=40)
    assert not any(overfits + stops) and guard.state.best == (60, 4.0)
    assert follow(RISING, early_stopping=3, counts_from=40)[3] == [False] * 5 + [True] * 2


def test_where_half_the_updates_fit_evaluations_count_from_half_of_those_that_were_expected():
    losses, settings, counted = [4.0, *[4.1] * 6], {"early_stopping": 9, "counts_from": 60}, []
    for fitting in (0.5, 1.0, 1.5):
        state = LoopState(fitting=fitting)
        follow(losses, state, **settings)
        counted.append(state.evaluations.since_best)
    assert counted == [5, 2, 0], "of updates 10 to 70: from 30, from 60, from 90"


def test_only_a_loss_of_half_a_percent_above_the_best_is_clearly_worse():
    for loss, expected in ((4.0 * 1.005, 0), (4.0201, 1), (4.0, 0)):
        guard, best, *_ = follow([5.0, 4.0, loss], overfitting_evaluations=9)
        assert (guard.state.above, guard.state.since_best) == (expected, 1)
        assert best == [True, True, False], "an equal loss is not better"
    assert not any(follow([5.0, 4.0, 4.01, 4.0])[2]), "no message, if none was asked for"
    guard, best, *_ = follow([0.5, 0.7, 0.7, 0.6], larger_is_better=True)
    assert best == [True, True, True, False] and guard.state.best == (30, 0.7), "of equal scores the later"


@pytest.mark.parametrize(
    ("step", "since_best", "last", "patience", "expected"),
    [
        (20, 0, None, 0, True),
        (19, 9, None, 0, False),
        (15, 0, 15, 0, True),
        (20, 0, 25, 0, False),
        (5, 3, None, 3, True),
        (5, 2, None, 3, False),
    ],
)
def test_a_training_is_over_at_its_last_update_or_when_its_patience_is(
    tmp_path, step, since_best, last, patience, expected
):
    run = tiny.pretraining_config(tmp_path, max_steps=20, early_stopping=patience, eval_freq=1).run
    assert is_trained(run, step, since_best, last) is expected


@pytest.mark.parametrize(
    ("values", "larger", "reason"),
    [
        ([4.0, 4.5, 4.6], False, "held-out loss below 4.0000, the value of update 10"),
        ([0.4, 0.3, 0.2], True, "loss above 0.4000, the value of update 10"),
        ([NAN, NAN], False, "finite held-out loss"),
    ],
)
def test_early_stopping_says_after_what_it_ends(values, larger, reason):
    guard = EvaluationGuard(LoopState(), BestMetric("eval_loss", larger_is_better=larger, early_stopping=2))
    with messages() as said:
        for number, value in enumerate(values, start=1):
            guard.observe(10 * number, {"eval_loss": value})
    step = 10 * len(values)
    assert said == [f"early stopping after update {step}: 2 evaluations without a {reason}"] and guard.has_stopped


def test_what_the_summary_says_of_the_evaluations():
    guard, *_ = follow([4.0, 4.5, 4.6], early_stopping=2)
    assert guard.figures() == {
        "best_eval_loss": 4.0,
        "best_step": 10,
        "ends_with_best": True,
        "stopped_early": True,
        "early_stopping": 2,
    }
    guard = EvaluationGuard(LoopState(), BestMetric("eval_f1", larger_is_better=True))
    guard.observe(0, {"eval_f1": 0.25, "eval_exact": 0.125})
    assert guard.figures() == {"initial_eval_f1": 0.25, "initial_eval_exact": 0.125}


@pytest.mark.parametrize(
    ("losses", "settings", "is_best"),
    [
        ([5.0, 4.0, 4.1], {"early_stopping": 5}, True),
        ([5.0, 4.0, 4.01], {"early_stopping": 5}, False),  # the last is as good
        ([5.0, 4.0, 4.1], {}, False),
        ([5.0, 4.0, 4.01], {"is_result": True}, True),
        ([NAN, NAN], {"is_result": True}, False),
    ],
)
def test_whether_a_run_ends_with_its_best_weights(losses, settings, is_best):
    guard, *_ = follow([np.float32(loss) for loss in losses], **settings)
    assert guard.figures().get("ends_with_best", False) == is_best and not guard.has_stopped
    assert json.loads(json.dumps(asdict(guard.state)))["ends_with_best"] == is_best


def test_a_loss_that_is_no_number_is_worse_than_any():
    state = LoopState()
    guard, best, *_ = follow([NAN, 5.0, 4.0, NAN], state, early_stopping=3)
    assert best == [False, True, True, False]
    assert not guard.has_stopped and state.evaluations.best == (30, 4.0) and state.evaluations.ends_with_best
    resumed = EvaluationGuard(written_and_read(state), BestMetric("eval_loss", early_stopping=3))
    assert resumed.state.ends_with_best and resumed.observe(50, {"eval_loss": 3.0})
