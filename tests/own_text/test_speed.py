"""Measuring the candidates of a plan for own text: how the ranks are started and ended."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bert.config.training_settings import derive
from bert.launching import ranks
from bert.own_text import speed
from bert.own_text.speed import _measure
from bert.own_text.speed_probe import made_up_batch
from bert.pretraining.recipes.published import quickstart_phase2


class Probe:
    """Stands in for the process that measures."""

    def __init__(self, code: int) -> None:
        self.returncode = code

    def communicate(self):
        return "", None


def test_the_probe_has_the_devices_of_a_training(monkeypatch):
    started, begun = [], time.time()

    def begin(command, variables, **_):
        started.append((" ".join(command), variables["CUDA_VISIBLE_DEVICES"]))
        target = next(word for word in command if word.endswith("speeds.json"))
        speeds = {target.replace("speeds.json", "mini.yaml"): 80.0}
        Path(target).write_text(json.dumps({"began": begun + 27, "speeds": speeds}))
        return Probe(0)

    monkeypatch.setattr(speed, "start_process", begin)
    monkeypatch.setattr(ranks, "num_gpus", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 5, 6, 7")
    for device, slowness in (("gpu", 3.375), ("cpu", 4)):  # of 8 and 6.8 seconds, at most 4
        speeds, measured = _measure({"mini": "{}"}, SimpleNamespace(device=device, ranks=2))
        assert speeds == {"mini": 80.0} and slowness - 0.5 < measured <= slowness
    (on_gpu, visible), (on_cpu, hidden) = started
    assert "--devices 4,5" in on_gpu and visible == "4,5,6,7"
    assert "--nproc_per_node 2" in on_cpu and hidden == "-1,-1"


def test_a_model_that_is_too_slow_is_refused(monkeypatch):
    monkeypatch.setattr(speed, "start_process", lambda *command, **settings: Probe(1))
    placement = SimpleNamespace(device="cpu", ranks=2)
    with pytest.raises(ValueError, match="ended with exit code 1: it wrote nothing"):
        _measure({"large": "{}"}, placement)
    monkeypatch.setattr("bert.own_text.constants.PROBE_TIMEOUT_SECONDS", 0)
    with pytest.raises(ValueError, match="the model large is too slow here .* pass a smaller --config"):
        _measure({"large": "{}"}, placement)


def test_made_up_samples_are_as_long_as_real_ones():
    program = SimpleNamespace(
        objective=SimpleNamespace(packing=lambda: None),
        main=SimpleNamespace(global_block=lambda: SimpleNamespace(has_var=lambda name: True)),
    )
    for share, masked in ((0.15, 88), (0.25, 152)):
        changes = {"masked_lm_ratio": share, "max_predictions_per_seq": 33}
        config = derive(quickstart_phase2(), batch_size=8, masking="dynamic", **changes)
        feed = made_up_batch(config, program, 1)
        assert feed["input_ids"].shape == (8, 128) and feed["input_ids"].max() < config.model.vocab_size
        mask, lengths = feed["attention_mask"], feed["attention_mask"].sum(axis=1)
        assert (mask == (np.arange(128) < lengths[:, None])).all() and len(set(lengths)) > 4
        assert lengths.min() >= 24 and abs(lengths.mean() - 76) < 20
        assert feed["masked_lm_positions"].shape == (masked,) and mask.reshape(-1)[feed["masked_lm_positions"]].all()


@pytest.mark.parametrize(
    ("seconds", "ranks", "slowness"),
    [(1.0, 1, 1.0), (1.8, 1, 1.0), (3.6, 1, 2.0), (20.0, 1, 4.0), (6.8, 2, 1.0), (13.6, 2, 2.0), (3.6, 2, 1.0)],
)
def test_the_start_of_ranks_is_compared_with_that_of_as_many_on_an_idle_machine(seconds, ranks, slowness):
    """One rank takes 1.8 s; Paddle's launcher, which starts several, 5 s more."""
    assert speed._slowness(seconds, SimpleNamespace(device="cpu", ranks=ranks)) == pytest.approx(slowness)
