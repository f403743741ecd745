"""Measuring the candidates of a plan for own text: how the ranks are started and ended."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert.config.training_settings import derive
from bert.launching import settings
from bert.own_text import speed
from bert.own_text.speed import _measure
from bert.own_text.speed_probe import made_up_batch
from bert.pretraining.recipes.published import quickstart_phase2
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("device", "options", "visible"), [("gpu", "--devices 4,5", "4,5,6,7"), ("cpu", "--nproc_per_node 2", "-1,-1")]
)
def test_the_probe_has_the_devices_of_a_training(monkeypatch, device, options, visible):
    started = []

    def run(command, env):
        started.append((" ".join(command), env["CUDA_VISIBLE_DEVICES"]))
        target = next(word for word in command if word.endswith("speeds.json"))
        with open(target, "w") as file:
            json.dump({target.replace("speeds.json", "mini.yaml"): 80.0}, file)
        return 0, ""

    monkeypatch.setattr(speed, "_run", run)
    monkeypatch.setattr(settings, "num_gpus", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 5, 6, 7")
    speeds = _measure({"mini": "{}"}, SimpleNamespace(device=device, ranks=2))
    assert speeds == {"mini": 80.0}
    ((command, seen),) = started
    assert options in command and seen == visible


def test_a_model_that_is_too_slow_is_refused_and_its_ranks_are_ended(monkeypatch, tmp_path):
    rank = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    start = "import subprocess, sys, time; subprocess.Popen(sys.argv[2:], start_new_session=True); time.sleep(60)"
    pid_file = tmp_path / "pid"
    command = [sys.executable, "-c", start, "paddle.distributed.launch", sys.executable, "-c", rank, str(pid_file)]
    monkeypatch.setattr(speed, "_TIMEOUT_SECONDS", 3.0)
    assert speed._run(command, os.environ) == (None, "")
    wait_until(lambda: not Path(f"/proc/{pid_file.read_text()}").exists())
    monkeypatch.setattr(speed, "_run", lambda command, environment: (None, ""))
    monkeypatch.setattr(settings, "num_gpus", lambda: 0)
    with pytest.raises(ValueError, match="the model large is too slow here .* pass a smaller --config"):
        _measure({"large": "{}"}, SimpleNamespace(device="cpu", ranks=2))


PADDED_PROGRAM = SimpleNamespace(
    objective=SimpleNamespace(packing=lambda: None),
    main=SimpleNamespace(global_block=lambda: SimpleNamespace(has_var=lambda name: True)),
)


@pytest.mark.parametrize(("share", "masked"), [(0.15, 88), (0.25, 152)])
def test_made_up_samples_are_as_long_as_real_ones(share, masked):
    real, changes = 76, {"masked_lm_ratio": share, "max_predictions_per_seq": 33}
    config = derive(quickstart_phase2(), batch_size=8, masking="dynamic", **changes)
    feed = made_up_batch(config, PADDED_PROGRAM)
    assert feed["input_ids"].shape == (8, 128) and feed["input_ids"].max() < config.model.vocab_size
    assert feed["attention_mask"].sum(axis=1).tolist() == [real] * 8 and feed["attention_mask"][:, real - 1].all()
    assert feed["masked_lm_positions"].shape == (masked,)
    assert (feed["masked_lm_positions"] % 128).max() < real
