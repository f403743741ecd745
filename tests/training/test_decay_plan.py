"""Decisions of rank 0 about a decay, without a training: fixed speed, measured costs, and rates."""

import numpy as np
import pytest

from bert.checkpoints.progress import DecayState, LoopState, Totals
from bert.checkpoints.writer import SaveTimes
from bert.training.decay import rescaled_warmup
from bert.training.interruption import FINISH_FILE
from tests.support.messages import messages
from tests.training.decay_plan import END, PEAK, Plan

SAVE = SaveTimes(5, wait_seconds=1.0, copy_seconds=2.0, write_seconds=3.5)


@pytest.mark.parametrize(
    ("evaluation", "is_async", "updates"),
    [
        (None, None, 49),  # of 50 s half a second is for the end of the process
        (4.0, None, 45),
        (4.0, True, 42),  # the copy of 3 s, and while the thread writes the evaluation of 4 s
        (2.0, True, 43),  # the write of 3.5 s takes longer than the evaluation
        (2.0, False, 41),  # 6.5 s of the save, and then the evaluation
    ],
)
def test_the_time_of_the_end_is_kept_free(tmp_path, evaluation, is_async, updates):
    plan = Plan(tmp_path, finish_in=100, async_checkpoint=is_async is not False, eval_freq=0)
    if evaluation is not None:
        plan.time_limit.evaluated(evaluation)
    if is_async is not None:
        plan.time_limit.saved(SAVE)
    with messages() as said:
        decay = plan.begin(10, 50.0)
    assert said == [f"the learning rate decays from 0.01 after update 10, in the last about {updates} updates"]
    assert (decay.first, decay.last, plan.decay.last_step) == (10, 10 + updates, 10 + updates)
    assert plan.events == [("decay", 10, 0, {"learning_rate": pytest.approx(PEAK), "last_step": 10 + updates})]


def test_a_decay_has_five_updates_in_any_case(tmp_path):
    plan = Plan(tmp_path, finish_in=100)
    assert plan.begin(10, 99.0).last == 15
    plan.now, plan.speed = plan.now + 9, 60.0
    plan.after_interval(11)
    assert plan.state.decay.last == 15
    assert Plan(tmp_path, finish_in=100, max_steps=12).begin(10, 99.0).last == 12, "if the run has so many"


@pytest.mark.parametrize(("speed", "updates"), [(1.02, 30), (0.5, 47), (2.0, 19)])
def test_evaluations_and_saves_before_the_last_update_take_of_the_time(tmp_path, speed, updates):
    """Of 42.5 s, evaluations take 4 s after updates 20, 30 ..., and a save takes 3 s after update 50."""
    plan = Plan(tmp_path, finish_in=100, eval_freq=10, num_steps_per_checkpoint=50)
    plan.speed = speed
    plan.time_limit.evaluated(4.0)
    plan.time_limit.saved(SAVE)
    last = plan.begin(10, 50.0).last
    needed = {
        number: number * speed + sum(4 for step in range(11, 10 + number) if step % 10 == 0)
        + sum(3 for step in range(11, 10 + number) if step % 50 == 0)
        for number in range(1, 200)
    }  # fmt: skip
    assert max(number for number, seconds in needed.items() if seconds <= 42.5) == updates == last - 10


def test_the_decay_begins_when_its_share_of_the_time_is_left(tmp_path):
    """The share is a fifth of the 100 s, or of the whole run after an earlier start; speed is of a recent quarter."""
    plan = Plan(tmp_path, finish_in=100)
    plan.now += 30
    plan.after_interval(30)
    assert plan.windows[0] == 0.25 * (70 - 20)
    assert not plan.decay.begins_at(79) and plan.decay.begins_at(80) and plan.decay.begins_at(999)
    assert not plan.decay.begins_at(1000), "there is nothing after the last update"
    second = Plan(tmp_path, finish_in=100, state=LoopState(totals=Totals(total_seconds=50)))
    second.now += 30
    second.after_interval(30)
    assert not second.decay.begins_at(69) and second.decay.begins_at(70)
    slow = Plan(tmp_path, finish_in=100)
    slow.now, slow.speed = slow.now + 90, 5.0
    slow.after_interval(18)
    assert slow.decay.begins_at(18), "at once, as too little time is left"
    few = Plan(tmp_path, finish_in=10_000, max_steps=100)
    few.after_interval(5)
    assert not few.decay.begins_at(79) and few.decay.begins_at(80), "where the updates end before the time"


def test_without_a_limit_of_time_the_settings_decide(tmp_path):
    plan = Plan(tmp_path, max_steps=50)
    assert not plan.decay.needs_evaluation() and plan.decay.known_last_step == 50 == plan.decay.last_step
    assert plan.time_limit.seconds_left(77.0) == 77.0
    plan.after_interval(20)
    assert not plan.decay.begins_at(39) and plan.decay.begins_at(40)
    decay = plan.begin(40, 10.0)
    assert (decay.first, decay.last) == (40, 50)
    timed = Plan(tmp_path, finish_in=100)
    assert timed.decay.known_last_step is None and timed.decay.needs_evaluation()
    timed.time_limit.evaluated(0.0)
    assert not timed.decay.needs_evaluation()
    timed.now += 60
    assert [timed.time_limit.seconds_left(seconds) for seconds in (30.0, 50.0)] == [30.0, 40.0]
    timed.now += 60
    assert timed.time_limit.seconds_left(30.0) == 0.0


def test_the_rates_fall_from_that_of_the_next_update_to_the_end(tmp_path):
    """The update after the last would have the end's rate; skipped updates are counted apart."""
    plan = Plan(tmp_path, max_steps=50)
    plan.applied(37)
    plan.decay.begin(40, 0)
    assert plan.state.decay == DecayState(40, 50, 40, 37, pytest.approx(PEAK))
    rates = plan.rates()
    np.testing.assert_allclose(rates[1:37], PEAK, rtol=1e-6)
    expected = [END + (PEAK - END) * (1 - number / 10) for number in range(10)]
    np.testing.assert_allclose(rates[37:47], expected, rtol=1e-5)
    np.testing.assert_allclose(rates[47:], END, rtol=1e-5)
    resumed = Plan(tmp_path, 45, plan.state, max_steps=50)
    np.testing.assert_array_equal(resumed.rates(), rates)


@pytest.mark.parametrize(
    ("speed", "last"),
    [
        (1.0, 89),  # 79.5 s for 79 updates were planned after update 10
        (1.019, 89),  # 2% fewer: not corrected
        (1.03, 87),
        (0.8, 108),
        (8.0, 23),
        (60.0, 15),  # five in any case
    ],
)
def test_the_end_follows_the_speed_that_is_measured(tmp_path, speed, last):
    plan = Plan(tmp_path, finish_in=100)
    assert plan.begin(10, 20.0).last == 89
    plan.now, plan.speed = plan.now + 4.0, speed
    plan.applied(14)
    plan.after_interval(14)
    decay = plan.state.decay
    assert decay.last == last == plan.decay.last_step and decay.first == 10
    if last != 89:
        rate = END + (PEAK - END) * (1 - 4 / 79)
        assert (decay.step, decay.applied, decay.rate) == (14, 14, pytest.approx(rate))
        expected = [END + (rate - END) * (1 - number / (last - 14)) for number in range(last - 14)]
        np.testing.assert_allclose(plan.rates()[14:last], expected, rtol=1e-5)


def test_after_its_last_update_a_decay_is_not_extended(tmp_path):
    plan = Plan(tmp_path, finish_in=100)
    plan.begin(10, 20.0)
    plan.now, plan.speed = plan.now + 40.0, 0.5
    plan.applied(89)
    plan.after_interval(89)
    assert plan.state.decay.last == 89 and len(plan.events) == 1


def test_a_run_that_was_shortened_in_its_decay_ends_with_it(tmp_path):
    state = LoopState(decay=DecayState(40, 60, 40, 40, PEAK))
    plan = Plan(tmp_path, 45, state, max_steps=50)
    rate = END + (PEAK - END) * (1 - 5 / 20)
    assert (plan.state.decay.first, plan.state.decay.last, plan.state.decay.step) == (40, 50, 45)
    expected = [END + (rate - END) * (1 - number / 5) for number in range(5)]
    np.testing.assert_allclose(plan.rates()[45:], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("seconds", "expected", "fitting"),
    [
        (4.0, 300, None),  # too early to say: of 100 s a twentieth
        (6.0, 300, 98 / 300),
        (50.0, 110, None),  # 10% fewer are no change
        (50.0, 125, 98 / 125),
        (50.0, 81, 98 / 81),
    ],
)
def test_the_schedule_counts_from_the_updates_that_fit(tmp_path, seconds, expected, fitting):
    """98 or 99 updates of a second fit into 100 s, without the half second of the end."""
    plan = Plan(tmp_path, finish_in=100, expected_steps=expected)
    plan.now += seconds
    plan.applied(int(seconds) - 1)
    with messages() as said:
        plan.after_interval(int(seconds) - 1)
    assert plan.state.fitting == pytest.approx(fitting or 1.0, abs=1.5 / expected)
    assert len(said) == (fitting is not None)
    if fitting:
        last = round(plan.state.fitting * expected)
        assert said[0].startswith(f"about {last:,} updates fit in the time instead of {expected:,}")
        assert plan.events[0][:3] == ("speed", int(seconds) - 1, 0) and plan.events[0][3]["expected_steps"] == last


def test_the_warm_up_is_a_share_of_the_updates_that_fit_until_it_is_over(tmp_path):
    """The share is a tenth, but at most half of the updates that are left before the decay."""
    found = []
    for step, seconds, expected in ((8, 8.0, 400), (30, 30.0, 200), (5, 50.0, 400)):
        plan = Plan(tmp_path, finish_in=100, expected_steps=expected, warmup_proportion=0.1)
        plan.now, plan.speed = plan.now + seconds, seconds / step
        plan.applied(step)
        plan.after_interval(step)
        found.append((plan.state.warmup_steps, plan.events[0][3]["warmup_steps"]))
        peak = plan.rates()[: found[-1][1]]
        assert peak[-1] == pytest.approx(PEAK) and (np.diff(peak) > 0).all()
    assert found[0] == (9, 9), "99 fit, and 8 are over"
    assert found[1] == (None, 20), "it is over, as it was planned"
    assert found[2] == (6, 6), "9 fit, 3 of them before the decay"


@pytest.mark.parametrize(("text", "seconds"), [("", 12.0), ("90s", 90.0), ("2m", 120.0), ("soon", None)])
def test_a_file_gives_the_time_that_is_left(tmp_path, text, seconds):
    """An empty file gives the decay's share of the time until now."""
    plan = Plan(tmp_path)
    plan.run_seconds = 60.0
    plan.stop.watch(tmp_path)
    (tmp_path / FINISH_FILE).write_text(text)
    plan.applied(50)
    plan.after_interval(50)
    assert plan.decay.begins_at(50) == (seconds is not None) and not (tmp_path / FINISH_FILE).exists()
    assert plan.time_limit.seconds_left(10_000.0) == (seconds or 10_000.0)
    if seconds:
        assert plan.begin(50, 0.0).last == 50 + int(seconds - 0.5)


def test_an_empty_file_in_a_decay_changes_nothing_and_a_duration_corrects_it(tmp_path):
    plan = Plan(tmp_path, max_steps=100)
    plan.stop.watch(tmp_path)
    plan.begin(80, 0.0)
    for text, last in (("", 100), ("10s", 90)):
        (tmp_path / FINISH_FILE).write_text(text)
        plan.applied(81)
        plan.after_interval(81)
        assert plan.decay.last_step == last


@pytest.mark.parametrize(
    ("planned", "rescaled", "applied", "before_decay", "warmup"),
    [
        (20, 12, 5, 100, 12),
        (20, 30, 5, 100, 30),
        (20, 12, 5, 10, 10),  # at most half of the updates before the decay
        (20, 12, 12, 100, 20),  # over by the new length: as it was planned
        (20, 30, 20, 100, 20),  # over as it was planned
        (20, 30, 5, 1, 20),  # the decay begins at once
    ],
)
def test_a_warm_up_is_rescaled_until_it_is_over(planned, rescaled, applied, before_decay, warmup):
    assert rescaled_warmup(planned, rescaled, applied, before_decay) == warmup
