"""The end of an interval of updates: what is looked at, in which order."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from bert.training import trainer as module
from bert.training.health_checks import TrainingDiverged
from bert.training.trainer import Trainer


def test_a_spike_at_the_end_is_rolled_back_before_the_run_counts_as_diverged(monkeypatch):
    def diverged(*_):
        raise TrainingDiverged("far too high")

    found = SimpleNamespace(metrics={"step_cost": 1.0, "loss": 90.0}, loss_sum=90.0, micro_steps=1)
    monkeypatch.setattr(module, "collect", lambda *_: found)
    monkeypatch.setattr(module, "check_finite", lambda *_: None)
    monkeypatch.setattr(module, "check_divergence", diverged)
    run = Trainer.__new__(Trainer)
    for name in ("program", "device", "throughput", "watchdog", "stop_on_any_rank", "log", "config", "spikes"):
        setattr(run, f"_{name}", MagicMock())
    run._step, run._epoch, run._sequences_per_update, run._num_samples = 60, 0, 8, 0
    run._divergence, run._held_out = None, MagicMock()
    run._config.run.benchmark, run._config.run.log_freq = False, 10
    run._program.objective.chance_loss.return_value = 9.0
    monkeypatch.setattr(run, "_seconds_left", lambda: 0.0)
    run._spikes.observe.return_value = SimpleNamespace(step=40, carried={})
    assert run._end_interval().step == 40 and run._step == 40
    run._spikes.observe.return_value = None
    with pytest.raises(TrainingDiverged):
        run._end_interval()
