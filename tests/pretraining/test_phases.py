"""The step that trains a phase."""

import pytest

from bert.commands.pretrain import job_of, parse_launch_arguments
from bert.jobs import training
from bert.jobs.job import Execution
from bert.jobs.record import JobRecord
from tests.support.jobs import StandInRunner


@pytest.mark.parametrize(("words", "expected"), [([], None), (["--finish-in", "60"], None), (["--hours", "1"], 500)])
def test_with_hours_the_updates_are_the_most(tmp_path, monkeypatch, words, expected):
    """With --hours, --max-steps is the maximum, so the warm-up becomes a share of the updates that fit."""
    launched = []
    monkeypatch.setattr(training, "launch", lambda script, config, *_, **__: launched.append(config) or 75)
    line = [
        "--config",
        "quickstart_phase1",
        "--max-steps",
        "500",
        "--lr-schedule",
        "wsd",
        "--output-dir",
        str(tmp_path),
        *words,
    ]
    job = job_of(parse_launch_arguments(line))
    phase = job.steps[0]
    assert phase.run(Execution(job, JobRecord(tmp_path), StandInRunner())) == 75
    assert launched[0].run.expected_steps == expected and phase.config.run.expected_steps is None
    assert launched[0].expects_fewer_steps() == (expected is not None)
