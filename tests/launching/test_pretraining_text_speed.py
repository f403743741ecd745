"""Measuring the candidates of a plan for own text: how the ranks are started."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from bert.launching import pretraining_text_speed, ranks
from bert.launching.pretraining_text_speed import _measure


@pytest.mark.parametrize(
    ("device", "options", "visible"), [("gpu", "--devices 4,5", "4,5,6,7"), ("cpu", "--nproc_per_node 2", "-1,-1")]
)
def test_the_probe_has_the_devices_of_a_training(monkeypatch, device, options, visible):
    started = []

    def run(command, env, **_):
        started.append((" ".join(command), env["CUDA_VISIBLE_DEVICES"]))
        target = next(word for word in command if word.endswith("speeds.json"))
        with open(target, "w") as file:
            json.dump({target.replace("speeds.json", "mini.phase1.yaml"): 80.0, "start_seconds": 9.0}, file)
        return SimpleNamespace(returncode=0, stdout="")

    monkeypatch.setattr(pretraining_text_speed, "subprocess", SimpleNamespace(**vars(subprocess) | {"run": run}))
    monkeypatch.setattr(ranks, "num_gpus", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 5, 6, 7")
    speeds = _measure({"mini.phase1": "{}"}, SimpleNamespace(device=device, ranks=2))
    assert speeds == {"mini.phase1": 80.0, "start_seconds": 9.0}
    ((command, seen),) = started
    assert options in command and seen == visible
