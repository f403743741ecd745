"""The time share of a training, and when it is finished."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.commands.pretrain import job_of, parse_launch_arguments
from bert.config.training_settings import derive
from bert.exit_codes import INTERRUPTED
from bert.jobs import training
from bert.jobs.job import Execution, Job
from bert.jobs.record import JobRecord
from bert.jobs.training import Train, trainings
from bert.launching.ranks import Ranks
from tests.support.jobs import StandInRunner, StandInStep


class Place:
    """Holds two trainings of one job, whose ranks are a stand-in.

    Attributes:
        done: the stages that are done.
        decay: of the newest checkpoint of every training.
        launched: (stage, seconds) of every start.
        codes: exit codes of the next starts instead of success.
    """

    def __init__(self, folder, monkeypatch) -> None:
        self.folder, self.done, self.decay, self.launched, self.codes = folder, set(), None, [], []
        words = ["--config", "base", "--output-dir", str(folder), "--lr-schedule", "wsd"]
        self.configs = parse_launch_arguments(words).phases
        monkeypatch.setattr(training, "is_done", lambda config: config.stage() in self.done)
        monkeypatch.setattr(training, "newest_loop_state", lambda config: {"decay": self.decay} if self.decay else {})
        monkeypatch.setattr(training, "launch", self._launch)

    def steps(self, *shares) -> tuple[Train, ...]:
        pairs = zip(self.configs, shares, strict=True)
        return tuple(Train(script=Path("s"), config=config, ranks=Ranks(), share=share) for config, share in pairs)

    def execution(self, hours, used=0.0, shares=(3.0, 1.0), facts=None) -> Execution:
        job = Job("test", self.folder, self.steps(*shares), hours=hours)
        return Execution(job, JobRecord(self.folder, used, facts), StandInRunner())

    def _launch(self, script, config, ranks, runner, **start) -> int:
        self.launched.append((config.stage(), config.run.finish_in))
        code = self.codes.pop(0) if self.codes else 0
        if code == 0:
            self.done.add(config.stage())
        return code


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_the_time_is_divided_by_the_shares_of_what_is_left(place):
    """900 of 1,800 s are used, 8 are kept for each training; the shares are three quarters of 884, then all of 892."""
    execution = place.execution(hours=0.5, used=900)
    one, two = execution.job.steps
    assert one.seconds(execution) == pytest.approx(884 * 3 / 4) and two.seconds(execution) == pytest.approx(884 / 4)
    place.done.add("phase1")
    assert two.seconds(execution) == pytest.approx(892) and one.seconds(execution) is None


def test_without_hours_the_updates_decide(place):
    execution = place.execution(hours=None)
    assert [step.seconds(execution) for step in execution.job.steps] == [None, None]
    assert execution.run(execution.job.steps[0]) == 0 and place.launched == [("phase1", None)]


def test_hours_that_are_used_up_are_refused_with_hours_that_suffice(place):
    for used, shares in ((1799.0, (3.0, 1.0)), (1790.0, (1.0, 99.0)), (5000.0, (1.0, 1.0))):
        execution = place.execution(hours=0.5, used=used, shares=shares)
        with pytest.raises(ValueError, match="hours=0.5 leave no time for training: .* were used; pass") as refused:
            execution.job.steps[0].seconds(execution)
        hours = float(re.search(r"at least --hours ([0-9.]+), which continues", str(refused.value)).group(1))
        assert hours < (used + 1500) / 3600, "not many more"
        enough = place.execution(hours=hours, used=used + training.LEAST_SECONDS, shares=shares)  # after a start
        assert enough.job.steps[0].seconds(enough) >= training.LEAST_SECONDS


def test_a_decay_that_has_begun_ends_where_it_was_planned(place):
    place.decay = {"first": 10, "last": 20}
    execution = place.execution(hours=0.5, used=5000)
    one, _ = execution.job.steps
    (one.config.checkpoint_dir() / "15").mkdir(parents=True)
    assert one.seconds(execution) is None
    assert execution.run(one) == 0 and place.launched == [("phase1", None)]


def test_a_decay_that_has_ended_gives_no_more_time(place):
    """An earlier training used more time than the hours that are given now."""
    place.decay = {"first": 10, "last": 20}
    execution = place.execution(hours=0.5, used=5000)
    one, _ = execution.job.steps
    (one.config.checkpoint_dir() / "20").mkdir(parents=True)
    with pytest.raises(ValueError, match="hours=0.5 leave no time for training"):
        one.seconds(execution)


def test_more_hours_than_before_train_on(place):
    execution = place.execution(hours=0.5)
    for step in execution.job.steps:
        assert execution.run(step) == 0
    assert [stage for stage, _ in place.launched] == ["phase1", "phase2"]
    facts = json.loads(json.dumps(execution.record.facts))  # as they are read again
    assert facts == {"finished": {"phase1": 0.5, "phase2": 0.5}}, "without the folder, which may be moved"
    for hours, more in ((0.5, []), (0.25, []), (None, []), (1.0, ["phase1", "phase2"])):
        place.launched.clear()
        again = place.execution(hours, used=1800.0, facts=facts)
        assert [step.is_done(again) for step in again.job.steps] == [not more] * 2
        assert [again.run(step) for step in again.job.steps] == [0, 0]
        assert [stage for stage, _ in place.launched] == more
    assert place.launched[0][1] == pytest.approx((1800 - 2 * 8) * 3 / 4, abs=1)


def test_a_training_that_stopped_is_not_recorded_as_finished(place):
    place.codes = [INTERRUPTED]
    execution = place.execution(hours=0.5)
    one, _ = execution.job.steps
    assert execution.run(one) == INTERRUPTED and execution.record.facts == {}
    assert not one.is_done(execution) and execution.run(one) == 0 and one.is_done(execution)


def test_a_training_that_ended_after_its_launcher_was_killed_is_done(place):
    """The killed launcher could not record the hours; the hours that are given now are not known to be more."""
    place.done.add("phase1")
    execution = place.execution(hours=0.5)
    assert execution.job.steps[0].is_done(execution)


def test_a_training_that_repeats_is_never_done(place):
    place.done |= {"phase1"}
    step = replace(place.steps(1.0, 1.0)[0], repeats=True)
    execution = Execution(Job("test", place.folder, (step,)), JobRecord(place.folder), StandInRunner())
    assert not step.is_done(execution) and execution.run(step) == 0 and len(place.launched) == 1


def test_a_training_with_updates_left_keeps_the_next_waiting(place):
    execution = place.execution(hours=None)
    one, two = execution.job.steps
    assert one.left(execution) == "phase1 has steps left; the same command continues"
    place.done.add("phase1")
    assert one.left(execution) == ""
    benchmark = replace(two, config=derive(two.config, benchmark=True))
    assert benchmark.left(execution) == "", "a benchmark is never done"


def test_a_benchmark_that_measures_nothing_is_refused_before_the_ranks_start(place):
    step = replace(place.steps(1.0, 1.0)[0], script=REPOSITORY / "run_pretraining.py")
    short = derive(step.config, benchmark=True, max_steps=20, benchmark_warmup_steps=20, lr_schedule="linear")
    with pytest.raises(ValueError, match="benchmark=true would measure nothing in phase1: max_steps=20 leaves 20"):
        replace(step, config=short).check(here=False)
    replace(step, config=derive(short, max_steps=21)).check(here=False)


def test_the_phases_of_a_preset_share_the_time_by_their_work(tmp_path):
    """BERT-large: 7,038 updates of 65,536 x 128 tokens, then 1,563 of 32,768 x 512: attention costs more there."""
    plan = parse_launch_arguments(["--config", "large", "--hours", "10"])
    one, two = trainings(job_of(plan))
    tokens = (7038 * 65_536 * 128) / (1563 * 32_768 * 512)
    assert 0.7 * tokens < one.share / two.share < tokens


def test_data_that_are_to_be_made_take_what_their_step_expects(place, monkeypatch):
    """Of 1,800 s the second training's mining is expected to take 100, and 8 are kept for each training."""
    mining = StandInStep("mining", place.folder, [])
    monkeypatch.setattr(StandInStep, "expected_seconds", lambda step, execution: 100.0)
    execution = place.execution(hours=0.5, shares=(1.0, 1.0))
    one, two = execution.job.steps
    execution.job = replace(execution.job, steps=(one, replace(two, data=(mining,))))
    assert one.seconds(execution) == pytest.approx((1800 - 8 - 8 - 100) / 2)
    mining.product.touch()
    assert one.seconds(execution) == pytest.approx((1800 - 8 - 8) / 2)
