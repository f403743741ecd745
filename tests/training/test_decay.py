"""The decay of a stable learning rate, with a simulated clock: its start, end, resuming, and longer runs."""

import json
import shutil

import numpy as np
import pytest

from bert.checkpoints.directories import STABLE, list_steps, named_step
from bert.checkpoints.state import CheckpointError
from bert.config.training_settings import derive
from bert.reporting.logs import Log
from bert.training.interruption import FINISH_FILE, StopRequest
from tests.support import runs, tiny

PEAK = 0.01


class Clock:
    """Moves by `seconds(step)` for every update; the process began 2 seconds before."""

    def __init__(self, seconds=lambda step: 1.0):
        self.now, self._seconds = 1000.0, seconds
        self.stop = StopRequest(lambda: self.now, age_seconds=2.0)

    def change(self, step, feeds):
        self.now += self._seconds(step)
        return feeds

    def elapsed(self) -> float:
        return self.now - self.stop.started


def settings(directory, **changes):
    values = {"lr_schedule": "wsd", "lr_decay_share": 0.2, "max_steps": 1000, "warmup_proportion": 0.002}
    values |= {"log_freq": 2, "num_steps_per_checkpoint": 1000, "learning_rate": PEAK, "keep_checkpoints": 1}
    return tiny.pretraining_config(directory, **{**values, **changes})


def folder(parent, name):
    (parent / name).mkdir()
    return parent / name


def train(config, clock=None, last_step=1000, **options):
    clock = clock or Clock()
    log = Log(config.stage_dir(), None, total_steps=config.run.max_steps)
    change = options.pop("change", clock.change)
    run = runs.run(config, last_step, log=log, stop=clock.stop, change=change, **options)
    log.close()
    return run


def resuming(config, step="auto", **changes):
    return derive(config, from_checkpoint=config.run.output_dir, last_step_of_checkpoint=step, **changes)


def rates(config) -> dict[int, float]:
    """Return the rate of each logged update; of an update that was made twice, the later rate."""
    rows = map(json.loads, (config.stage_dir() / "metrics.jsonl").read_text().splitlines())
    return {row["step"]: row["learning_rate"] for row in rows if "learning_rate" in row}


@pytest.mark.long
def test_without_a_limit_of_time_the_decay_is_the_last_share_of_the_updates(tmp_path):
    long = settings(folder(tmp_path, "long"), max_steps=20, log_freq=1, warmup_proportion=0.7)
    train(long, last_step=16)
    np.testing.assert_allclose(rates(long)[13], PEAK * 13 / 14, rtol=1e-6, err_msg="a long warm-up stays")
    config = settings(folder(tmp_path, "short"), max_steps=20, log_freq=1, warmup_proportion=0.1)
    outcome = train(config, last_step=20).outcome
    assert (outcome.step, outcome.finished, outcome.decay.first, outcome.decay.last) == (20, True, 16, 20)
    expected = [PEAK / 2, *15 * [PEAK], *(PEAK * share for share in (1, 0.75, 0.5, 0.25))]
    np.testing.assert_allclose([rates(config)[step] for step in range(1, 21)], expected, rtol=1e-6)
    assert list_steps(config.checkpoint_dir()) == [16, 20] and named_step(config.checkpoint_dir(), STABLE) == 16


@pytest.mark.parametrize("log_freq", [7, 50])
def test_the_run_ends_in_time_however_seldom_it_logs(tmp_path, log_freq):
    config, clock = settings(tmp_path, finish_in=52, log_freq=log_freq, num_steps_per_checkpoint=20), Clock()
    outcome = train(config, clock).outcome
    assert outcome.finished and outcome.interrupted_by is None
    assert 50.4 <= clock.elapsed() <= 52
    assert outcome.decay.first == 39, "the last update before 10.4 s are left"
    assert rates(config)[outcome.step] == pytest.approx(PEAK / (outcome.step - 39), rel=0.05)
    assert named_step(config.checkpoint_dir(), STABLE) == 39


@pytest.mark.long
@pytest.mark.parametrize("eval_freq", [10, 0])
def test_evaluations_are_part_of_the_time_and_the_last_is_measured_before_the_decay(tmp_path, eval_freq):
    config, clock, steps = settings(tmp_path, finish_in=62, eval_freq=eval_freq), Clock(), []

    def evaluate(step):
        steps.append(step)
        clock.now += 4.0
        return {"eval_masked_lm_loss": 1.0}

    outcome = train(config, clock, evaluate=evaluate).outcome
    assert outcome.finished and 58 <= clock.elapsed() <= 62, "a regular evaluation may not fit before the last"
    assert steps == ([10, 20, 30, outcome.step] if eval_freq else [outcome.decay.first, outcome.step])


def test_too_little_time_decays_at_once_and_max_steps_are_the_most(tmp_path):
    short = settings(folder(tmp_path, "short"), finish_in=4)
    outcome = train(short).outcome
    assert outcome.finished and (outcome.decay.first, outcome.decay.last) == (2, 7), "a few updates in any case"
    few = settings(folder(tmp_path, "few"), finish_in=900, max_steps=10)
    outcome = train(few).outcome
    assert outcome.finished and (outcome.decay.first, outcome.decay.last) == (8, 10)


def test_a_run_killed_in_its_decay_repeats_what_was_decided(tmp_path):
    """The second start has no limit of time: it follows the recorded rates to the recorded last step."""
    whole, parts = (settings(folder(tmp_path, name), finish_in=32, log_freq=1) for name in ("whole", "parts"))
    uninterrupted = train(whole)
    decay = uninterrupted.outcome.decay
    train(parts, last_step=decay.first + 2)
    resumed = train(resuming(parts, finish_in=None))
    assert resumed.outcome.decay == decay and resumed.outcome.finished
    assert rates(parts) == rates(whole)
    tiny.assert_identical(resumed.parameters, uninterrupted.parameters)


@pytest.mark.long
@pytest.mark.parametrize("more", [{"finish_in": 22}, {"max_steps": 60}], ids=["time", "updates"])
def test_a_longer_run_continues_before_the_decay_without_a_jump(tmp_path, more):
    config = settings(tmp_path, max_steps=20, log_freq=1)
    whole = train(derive(config, output_dir=tmp_path / "whole", max_steps=60), last_step=20)
    train(config)
    assert list_steps(config.checkpoint_dir()) == [16, 20]
    assert train(resuming(config, finish_in=22)).outcome.step == 20, "without a summary it was killed at its end"
    (config.stage_dir() / "summary.json").write_text('{"steps": 20}')
    run = train(resuming(config, **{"max_steps": 60, **more}), last_step=20)
    assert (config.checkpoint_dir() / "20.set-aside-1").is_dir(), "the decayed one, whatever the first save"
    assert any("a longer run continues at step 16, before the decay" in line for line in run.said)
    assert [rates(config)[step] for step in (17, 18, 19, 20)] == [pytest.approx(PEAK)] * 4
    tiny.assert_identical(run.parameters, whole.parameters)
    finished = train(resuming(config, **{"max_steps": 60, **more})).outcome
    assert finished.finished and finished.decay.first > 20
    assert list_steps(config.checkpoint_dir()) == [finished.decay.first, finished.step]
    again = train(resuming(config, max_steps=60)).outcome
    assert (again.step, again.finished) == (finished.step, True), "it stays finished"


@pytest.mark.long
def test_a_longer_run_needs_the_checkpoint_before_the_decay(tmp_path):
    config = settings(tmp_path, max_steps=10)
    train(config)
    shutil.rmtree(config.checkpoint_dir() / "8")
    with pytest.raises(CheckpointError, match="8, the last checkpoint before the decay, is not there.* name a step"):
        train(resuming(config, max_steps=20))
    run = train(resuming(config, 10, max_steps=20), last_step=12)
    assert run.outcome.metrics["learning_rate"] == pytest.approx(PEAK)
    assert any(line.startswith("extended from 10 to 20 updates; learning rate continues at 0.01") for line in run.said)


def test_the_warm_up_ends_before_the_decay_where_fewer_updates_fit_than_were_expected(tmp_path):
    """Updates are ten times slower than expected: 60 fit, and the warm-up would have been 100."""
    config, clock = settings(tmp_path, finish_in=62, log_freq=2, warmup_proportion=0.1), Clock()
    resumed = resuming(config, finish_in=None)
    train(config, clock, last_step=20)
    state = json.loads((config.checkpoint_dir() / "20/bert_paddle_progress.json").read_text())["carried"]
    assert 15 <= state["warmup_steps"] <= 30
    outcome = train(resuming(config, finish_in=42)).outcome
    assert outcome.finished and outcome.decay.rate == pytest.approx(PEAK)
    logged = [rates(config)[step] for step in sorted(rates(config))]
    peak = logged.index(max(logged))
    assert logged[:peak] == sorted(logged[:peak]) and resumed.optimizer.warmup_proportion == 0.1


@pytest.mark.parametrize(("expected", "fitting", "warmup"), [(240, 0.5, 12), (90, 1.3, 12), (130, 1.0, 13)])
def test_the_schedule_follows_the_updates_that_fit_where_they_differ_by_a_fifth(tmp_path, expected, fitting, warmup):
    """120 updates of a second fit, whatever was expected; the measured speed counts from a twentieth of the time on."""
    config, clock = settings(tmp_path, finish_in=124, expected_steps=expected, warmup_proportion=0.1), Clock()
    run = train(config, clock, last_step=20)
    state = json.loads((config.checkpoint_dir() / "20/bert_paddle_progress.json").read_text())["carried"]
    assert state["fitting"] == pytest.approx(fitting, abs=0.06) and run.outcome.decay is None
    planned = next(step for step, rate in rates(config).items() if rate == pytest.approx(PEAK))
    assert abs(planned - warmup) <= 1
    said = [line for line in run.said if "updates fit in the time" in line]
    assert len(said) == (fitting != 1.0) and all(f"instead of {expected}; the warm-up has " in line for line in said)
    resumed = train(resuming(config, finish_in=104))
    assert resumed.outcome.finished and 110 <= resumed.outcome.step <= 124
    assert not [line for line in resumed.said if "updates fit" in line], "the state has them"


@pytest.mark.parametrize(("text", "last"), [("", 15), ("9s", 18), ("1h", 1000)])
def test_a_file_begins_the_decay(tmp_path, text, last):
    """An empty file asks for a decay in a fifth of the 10 s until then, or in the least number of updates."""
    config, clock = settings(tmp_path, log_freq=1), Clock()
    config.run.output_dir.mkdir()
    clock.stop.watch(config.run.output_dir)
    file = config.run.output_dir / FINISH_FILE

    def change(step, feeds):
        if step == 9:
            file.write_text(text)
        return clock.change(step, feeds)

    outcome = train(config, clock, last_step=20, change=change).outcome
    assert not file.exists() and outcome.decay.first == 10
    assert abs(outcome.decay.last - last) <= 1, "saves take real time"


def test_a_file_that_cannot_be_obeyed_is_removed_with_a_warning(tmp_path):
    for name, text, schedule, rule in (
        ("bad", "soon", "wsd", "FINISH says 'soon' and is ignored: it must be empty or say 90, 90s, 10m or 2h"),
        ("other", "", "polynomial", "FINISH needs --lr-schedule wsd and is ignored; a file STOP saves and ends"),
    ):
        config, clock = tiny.pretraining_config(folder(tmp_path, name), lr_schedule=schedule), Clock()
        config.run.output_dir.mkdir()
        clock.stop.watch(config.run.output_dir)
        (config.run.output_dir / FINISH_FILE).write_text(text)
        run = train(config, clock, last_step=3)
        assert rule in run.said and run.outcome.decay is None
        assert not (config.run.output_dir / FINISH_FILE).exists()
