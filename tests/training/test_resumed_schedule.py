"""The schedule of an extended run: new length, unchanged warm-up."""

import pytest

from bert.config.training_settings import derive
from bert.training.resumed_schedule import schedule_of
from tests.support import runs, tiny


def settings(directory, **changes):
    return tiny.pretraining_config(directory, **{"warmup_proportion": 0.25, "num_steps_per_checkpoint": 100, **changes})


def resuming(config, **changes):
    return derive(config, from_checkpoint=config.run.output_dir, **changes)


@pytest.mark.long
def test_an_extended_run_says_at_which_rate_it_continues_and_keeps_its_warmup(tmp_path):
    config = settings(tmp_path, max_steps=8)  # 2 updates of warm-up
    runs.run(config, 8)
    longer = resuming(config, max_steps=32)  # a quarter of it would be 8 updates of warm-up
    run = runs.run(longer, 9)
    (line,) = [line for line in run.said if line.startswith("extended")]
    assert line == ("extended from 8 to 32 updates; learning rate continues at 0.008 (the last update had 0.00167)")
    assert schedule_of(longer, warmup_steps=2).learning_rate_at(8) == pytest.approx(0.008)
    assert run.outcome.metrics["learning_rate"] == pytest.approx(0.008)


@pytest.mark.long
def test_a_resume_of_an_extended_run_is_the_uninterrupted_extended_run(tmp_path):
    parts, whole = (settings(tmp_path, output_dir=tmp_path / name, max_steps=4) for name in ("parts", "whole"))
    for config in (parts, whole):
        runs.run(config, 4)
    uninterrupted = runs.run(resuming(whole, max_steps=12), 12)
    runs.run(resuming(parts, max_steps=12), 7)
    resumed = runs.run(resuming(parts, max_steps=12), 12)
    tiny.assert_identical(resumed.parameters, uninterrupted.parameters)
    assert not [line for line in resumed.said if line.startswith("extended")], "said once, where it happens"


@pytest.mark.long
def test_a_shortened_run_decays_earlier(tmp_path):
    config = settings(tmp_path, max_steps=16)
    runs.run(config, 6)
    run = runs.run(resuming(config, max_steps=8), 8)
    assert run.outcome.finished and any(line.startswith("shortened from 16 to 8 updates") for line in run.said)
