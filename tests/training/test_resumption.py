"""The checkpoint from which a run resumes, and whether it may; without programs or tensors.

Whole runs that resume: tests/checkpoints/test_state.py.
"""

import json
from dataclasses import replace

import pytest

from bert.checkpoints.directories import write_checkpoint
from bert.checkpoints.progress import DecayState, LoopState, Progress
from bert.checkpoints.state import CheckpointError
from bert.config.training_settings import derive
from bert.pretraining.config import PretrainingConfig
from bert.training.resumed_schedule import outlasts_decay, resume_schedule, schedule_of
from bert.training.resumption import (
    changed_settings,
    check_continues,
    checkpoint_to_continue,
    folder_of_steps,
    is_own,
    stable_checkpoint,
)
from tests.support import runs, tiny
from tests.support.messages import messages
from tests.training.decay_plan import Plan

WARMUP = {"batch_size": 4, "global_batch_size": 12, "batch_size_warmup_min_size": 4, "batch_size_warmup_sequences": 25}


def save(config, *steps: int, stage: str = "phase1", model: str = "bert-test"):
    for step in steps:
        folder = config.run.output_dir / model / stage
        write_checkpoint(folder, step, lambda path: (path / "bert_paddle_progress.json").write_text("{}"))


def resuming(config, step=None, **changes):
    return derive(config, from_checkpoint=config.run.output_dir, last_step_of_checkpoint=step, **changes)


# Which checkpoint


def test_the_newest_valid_step_or_the_one_that_is_named(tmp_path):
    config = tiny.pretraining_config(tmp_path)
    save(config, 2, 10, 9)
    parent = config.checkpoint_dir()
    for source in (config.run.output_dir, parent.parent, parent):
        for step, expected in ((None, "10"), ("auto", "10"), (9, "9"), (2, "2")):
            found = checkpoint_to_continue(derive(config, from_checkpoint=source, last_step_of_checkpoint=step))
            assert found.directory == parent / expected
    for step in (None, "auto", 9):
        named = derive(config, from_checkpoint=parent / "9", last_step_of_checkpoint=step)
        assert checkpoint_to_continue(named).directory == parent / "9"
    with pytest.raises(
        CheckpointError, match=r"last_step_of_checkpoint=3 is not in .*, which holds \[2, 9, 10\]; name"
    ):
        checkpoint_to_continue(resuming(config, 3))
    with pytest.raises(CheckpointError, match="last_step_of_checkpoint=2 is not in .*/9, which holds no steps"):
        checkpoint_to_continue(derive(config, from_checkpoint=parent / "9", last_step_of_checkpoint=2))


def test_auto_begins_anew_only_in_the_runs_own_folder_without_a_checkpoint(tmp_path):
    config = tiny.pretraining_config(tmp_path)
    assert checkpoint_to_continue(resuming(config, "auto")) is None
    with pytest.raises(CheckpointError, match="holds no valid checkpoint of phase1; check the folder, or pass --from"):
        checkpoint_to_continue(resuming(config))
    with pytest.raises(CheckpointError, match="holds no valid checkpoint of phase1"):
        checkpoint_to_continue(derive(config, from_checkpoint=tmp_path, last_step_of_checkpoint="auto"))
    own = config.checkpoint_dir()
    assert [is_own(path, config) for path in (config.run.output_dir, own, own.parent, own / "2", tmp_path)] == [
        *(True, True, True),
        *(False, False),
    ]
    (tmp_path / "link").symlink_to(config.run.output_dir)
    config.run.output_dir.mkdir()
    assert is_own(tmp_path / "link", config), "by another name"
    save(config, 4)
    (own / "4" / "manifest.json").unlink()
    with pytest.raises(
        CheckpointError, match="holds checkpoints of phase1, none of them valid; nothing was overwritten"
    ):
        checkpoint_to_continue(resuming(config, "auto"))


def test_checkpoints_of_another_model_or_program_are_refused_by_name(tmp_path):
    config = tiny.pretraining_config(tmp_path)
    save(config, 4, model="bert-other")
    with pytest.raises(
        CheckpointError, match="no checkpoint of bert_model=bert-test, but of bert-other; pass --bert-m"
    ):
        checkpoint_to_continue(resuming(config, "auto"))
    save(config, 4)
    assert checkpoint_to_continue(resuming(config, "auto")) is not None
    (config.checkpoint_dir() / "4" / "model.pdparams").touch()
    for source, step in ((config.checkpoint_dir() / "4", None), (config.run.output_dir, 4)):
        with pytest.raises(CheckpointError, match="is of another Paddle program, .* pass --from-pretrained-params"):
            checkpoint_to_continue(derive(config, from_checkpoint=source, last_step_of_checkpoint=step))


def test_the_steps_of_a_stage_are_looked_for_in_the_folder_in_that_of_the_stage_and_of_the_model(tmp_path):
    config = tiny.pretraining_config(tmp_path)
    assert folder_of_steps(config.run.output_dir, config, "phase1") is None
    save(config, 4)
    save(config, 7, stage="phase2")
    folder = config.run.output_dir / "bert-test"
    assert folder_of_steps(config.run.output_dir, config, "phase1") == folder / "phase1"
    assert folder_of_steps(folder, config, "phase2") == folder / "phase2"
    assert folder_of_steps(folder / "phase2", config, "phase1") == folder / "phase2", "the given one before all"


# The checkpoint before a decay


def decayed(config, first=8, last=10, step=10, **settings) -> Progress:
    progress = runs.fresh_progress(
        config, step=step, carried=LoopState(decay=DecayState(first, last, first, first, 0.1))
    )
    return replace(progress, settings={**progress.settings, "run": {**progress.settings["run"], **settings}})


def test_a_longer_run_continues_before_the_decay(tmp_path):
    config = tiny.pretraining_config(tmp_path, lr_schedule="wsd", max_steps=10)
    save(config, 8, 10)
    source, resumed = checkpoint_to_continue(resuming(config, "auto")), decayed(config)
    with messages() as said:
        stable = stable_checkpoint(resuming(config, "auto", max_steps=20), source, resumed)
    assert stable.directory == config.checkpoint_dir() / "8"
    assert said == [
        "the learning rate of step 10 has decayed; a longer run continues at step 8, before the decay, and its first "
        "save sets the later steps aside"
    ]
    same = resuming(config, "auto")
    for settings, progress in (
        (same, resumed),
        (resuming(config, 10, max_steps=20), resumed),
        (resuming(config, "auto", max_steps=20), decayed(config, step=8)),
        (resuming(config, "auto", max_steps=20, lr_schedule="linear"), resumed),
        (resuming(config, "auto", max_steps=20), runs.fresh_progress(config)),
    ):
        assert stable_checkpoint(settings, source, progress) is None
    (config.checkpoint_dir() / "8").rename(tmp_path / "away")
    with pytest.raises(CheckpointError, match="8, the last checkpoint before the decay, is not there, and step 10 is"):
        stable_checkpoint(resuming(config, "auto", max_steps=20), source, resumed)


def test_whether_a_run_is_to_last_longer_than_its_decay(tmp_path):
    config = tiny.pretraining_config(tmp_path, lr_schedule="wsd", max_steps=20)
    resumed = decayed(config, max_steps=20)
    assert not outlasts_decay(resuming(config, "auto"), resumed), "the same length"
    assert not outlasts_decay(resuming(config, "auto", max_steps=15), resumed)
    assert outlasts_decay(resuming(config, "auto", max_steps=21), resumed)
    assert outlasts_decay(resuming(config, 8), resumed), "of step 8 more updates than the time had given"
    assert not outlasts_decay(resuming(config, "auto", finish_in=60), resumed), "it was killed in its decay"
    assert outlasts_decay(resuming(config, "auto", finish_in=60), decayed(config, step=8)), "it had not begun"
    config.stage_dir().mkdir(parents=True)
    for steps, is_over in ((10, True), (9, False)):
        (config.stage_dir() / "summary.json").write_text(json.dumps({"steps": steps}))
        assert outlasts_decay(resuming(config, "auto", finish_in=60), resumed) is is_over
    constant = resuming(config, "auto", lr_schedule="constant", max_steps=30)
    assert not outlasts_decay(constant, resumed) and not outlasts_decay(config, runs.fresh_progress(config))


# Whether it may


def test_a_run_of_other_samples_is_refused_with_every_difference(tmp_path):
    config = tiny.pretraining_config(tmp_path)
    progress = runs.fresh_progress(config)
    check_continues(replace(progress, step=7), progress, config)
    other = replace(progress, stage="phase2", seed=5, global_batch_size=8, data_fingerprint="others")
    with pytest.raises(CheckpointError) as error:
        check_continues(other, progress, config)
    assert str(error.value).splitlines() == [
        "this run does not continue the checkpoint:",
        "  stage is phase2 in the checkpoint, phase1 in this run",
        "  seed is 5 in the checkpoint, 42 in this run",
        "  global_batch_size is 8 in the checkpoint, 12 in this run",
        f"  the training data in {config.data.input_dir} are not those with which the run began",
        "  Use the settings and data it was started with, or a new run with --from-pretrained-params",
    ]


@pytest.mark.parametrize(
    ("before", "now", "line"),
    [
        (3000, 2990, "gave 3,000 examples when the run began, and give 2,990 now"),
        (3000, 3000, "give 3,000 examples as when the run began, but not the same ones"),
        (None, 2990, "are not those with which the run began"),  # by an earlier version
    ],
)
def test_other_data_are_named_with_their_sizes(tmp_path, before, now, line):
    config = tiny.pretraining_config(tmp_path)
    started = runs.fresh_progress(config, num_examples=before)
    with pytest.raises(CheckpointError) as error:
        check_continues(started, replace(started, data_fingerprint="edited", num_examples=now), config)
    assert f"the training data in {config.data.input_dir} {line}" in str(error.value)
    assert "fingerprint" not in str(error.value)


def test_settings_of_other_data_have_their_remedies(tmp_path):
    config = tiny.pretraining_config(tmp_path, masking="dynamic", whole_word_masking=True)
    now = runs.fresh_progress(config, data_fingerprint="others")
    before = runs.fresh_progress(derive(config, whole_word_masking=False, max_predictions_per_seq=5))
    before.settings["data"]["eval_dir"], now.settings["data"]["eval_dir"] = None, "held_out"
    with pytest.raises(CheckpointError) as error:
        check_continues(before, now, config)
    assert str(error.value).splitlines()[-3:] == [
        "  eval_dir=held_out was None: drop --eval-dir",
        "  max_predictions_per_seq=3 was 5: pass --max-predictions-per-seq 5",
        "  whole_word_masking=True was False: pass --no-whole-word-masking",
    ]


@pytest.mark.parametrize(
    ("name", "value"), [("batch_size_warmup_sequences", 50), ("batch_size_warmup_min_size", 8), ("batch_size", 2)]
)
def test_another_warm_up_of_the_batch_is_refused(tmp_path, name, value):
    """Another warm-up gives other samples to each update; another division of a batch does not."""
    grows = {**WARMUP, "global_batch_size": 24}
    config = tiny.pretraining_config(tmp_path, **grows)
    now = runs.fresh_progress(derive(config, **{name: value}))
    before = runs.fresh_progress(config)
    if name == "batch_size":
        check_continues(before, now, config)
        return
    with pytest.raises(CheckpointError, match=f"{name} is {grows[name]} in the checkpoint, {value} in this run"):
        check_continues(before, now, config)
    plain = runs.fresh_progress(tiny.pretraining_config(tmp_path, batch_size=4, global_batch_size=24))
    with pytest.raises(CheckpointError, match=f"{name} is {grows[name]} in the checkpoint, None in this run"):
        check_continues(before, plain, config)


def test_settings_that_changed_are_named_with_both_values(tmp_path):
    config = tiny.pretraining_config(tmp_path)
    before = runs.fresh_progress(config)
    other = derive(config, learning_rate=0.5, max_steps=30, from_checkpoint=tmp_path, device="auto")
    now = runs.fresh_progress(other)
    assert sorted(changed_settings(before, now, PretrainingConfig)) == [
        "learning_rate 0.01 -> 0.5",
        "max_steps 20 -> 30",
    ]
    del before.settings["optimizer"]["beta2"]  # a version without it had its default
    assert len(list(changed_settings(before, now, PretrainingConfig))) == 2
    different = runs.fresh_progress(derive(config, beta2=0.5))
    assert list(changed_settings(before, different, PretrainingConfig)) == ["beta2 0.999 -> 0.5"]


# The schedule of an extended run


def test_an_extended_run_keeps_the_warm_up_that_it_had(tmp_path):
    values = {"lr_schedule": "linear", "lr_decay_share": 0.15, "end_learning_rate": 0.0, "warmup_proportion": 0.25}
    before = tiny.pretraining_config(tmp_path, learning_rate=0.01, **values, max_steps=8)
    extended = Plan(tmp_path, 8, max_steps=32, **values)
    progress = runs.fresh_progress(before, step=8, counters={"applied_updates": 7}, carried=extended.state)
    progress.carried.evaluations.since_best, progress.carried.evaluations.above = 3, 2
    with messages() as said:
        resume_schedule(extended.config, extended.device, progress)
    assert progress.carried.warmup_steps == 2
    expected = schedule_of(extended.config, 2)
    assert extended.rates().tolist() == expected.table().tolist()
    rate, last = 0.01 * (32 - 7) / 30, 0.01 * (8 - 6) / 6
    assert said == [
        f"extended from 8 to 32 updates; learning rate continues at {rate:.3g} (the last update had {last:.3g})"
    ]
    assert (progress.carried.evaluations.since_best, progress.carried.evaluations.above) == (0, 0), "patience anew"


def test_a_run_of_the_same_length_keeps_its_schedule_and_patience(tmp_path):
    values = {"lr_schedule": "linear", "lr_decay_share": 0.15, "end_learning_rate": 0.0}
    plan = Plan(tmp_path, 8, max_steps=20, warmup_proportion=0.25, **values)
    progress = runs.fresh_progress(plan.config, step=8, carried=LoopState(decay=DecayState(5, 9, 5, 5, 0.1)))
    progress.carried.evaluations.since_best = 3
    with messages() as said:
        resume_schedule(plan.config, plan.device, progress)
    assert said == [] and progress.carried.evaluations.since_best == 3
    assert progress.carried.warmup_steps is None and progress.carried.decay is None, "linear has no such decay"
    assert plan.rates().tolist() == schedule_of(plan.config).table().tolist()
    more = derive(plan.config, warmup_proportion=0.5)
    resume_schedule(more, plan.device, progress)
    assert plan.rates().tolist() == schedule_of(more, 10).table().tolist(), "another warm-up was asked for"
    fresh = runs.fresh_progress(plan.config)
    fresh.carried.decay = DecayState(5, 9, 5, 5, 0.1)
    resume_schedule(plan.config, plan.device, fresh)
    assert fresh.carried.decay is not None, "nothing is resumed at step 0"


def test_a_run_that_outlasts_its_decay_is_stable_again(tmp_path):
    found = []
    for max_steps in (20, 60):
        plan = Plan(tmp_path, 10, max_steps=max_steps)
        progress = runs.fresh_progress(derive(plan.config, max_steps=20), step=10)
        progress.carried.decay = DecayState(8, 20, 8, 8, 0.01)
        resume_schedule(plan.config, plan.device, progress)
        found.append(progress.carried.decay is None)
    assert found == [False, True]


def test_a_benchmark_says_nothing_of_its_length(tmp_path):
    plan = Plan(tmp_path, 8, max_steps=32)
    progress = runs.fresh_progress(derive(plan.config, max_steps=8), step=8)
    with messages() as said:
        resume_schedule(derive(plan.config, benchmark=True), plan.device, progress)
    assert said == []


def test_the_warm_up_of_a_run_by_time_is_a_share_of_the_updates_that_were_expected(tmp_path):
    values = {"finish_in": 100, "expected_steps": 60, "warmup_proportion": 0.1}
    plan = Plan(tmp_path, 8, max_steps=1000, **values)
    progress = runs.fresh_progress(plan.config, step=8)
    resume_schedule(derive(plan.config, max_steps=1000, expected_steps=90), plan.device, progress)
    assert progress.carried.warmup_steps == 6
    progress.carried.warmup_steps = 4
    resume_schedule(plan.config, plan.device, progress)
    assert progress.carried.warmup_steps == 4, "it followed the speed before"
