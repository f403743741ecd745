"""Nodes and devices of a run's processes, and the command that starts them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bert.commands import pretrain
from bert.commands.pretrain import parse_launch_arguments
from bert.launching import ranks
from bert.launching.ranks import Ranks, quickstart_processes, ranks_command, start_of_ranks


def test_processes_and_nodes(monkeypatch):
    monkeypatch.setattr(ranks, "num_gpus", lambda: 4)
    assert Ranks(num_processes=3).devices("auto") == "0,1,2"
    with pytest.raises(ValueError, match="num_gpus=5 must be at most the 4 GPUs of this machine; pass --num-gpus 4"):
        Ranks(num_processes=5).devices("auto")
    with pytest.raises(ValueError, match="num_nodes=2 needs the address of the first node; pass --master HOST:PORT"):
        Ranks(num_nodes=2).devices("cpu")
    words = "--num-gpus 1 --num-nodes 2 --node-rank 1 --master a:1".split()
    assert parse_launch_arguments(words).ranks == Ranks(num_processes=1, num_nodes=2, node_rank=1, master="a:1")
    with pytest.raises(ValueError, match="num_gpus=two must be a valid integer.*change --num-gpus"):
        parse_launch_arguments(["--num-gpus", "two"])


@pytest.mark.parametrize(
    ("visible", "count", "devices"),
    [
        (None, 8, "0,1"),
        ("4,5,6,7", 4, "4,5"),
        ("5", 1, None),
        ("GPU-8932f937-d72c,GPU-74dee6a9-0e66", 2, "GPU-8932f937-d72c,GPU-74dee6a9-0e66"),
        ("6,-1,7", 1, None),
        ("4, 5", 2, "4,5"),
        ("9", 0, None),
        ("", 0, None),
    ],
)
def test_gpus_are_those_that_are_visible_by_their_names_there(tmp_path, monkeypatch, visible, count, devices):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nfor i in 0 1 2 3 4 5 6 7; do echo GPU $i: A100; done\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert ranks.num_gpus() == count
    if devices is None:
        rule = f"num_gpus=2 must be at most the {count} GPUs" if count else "device=gpu needs paddlepaddle-gpu"
        with pytest.raises(ValueError, match=rule):
            Ranks(num_processes=2).devices("gpu")
        return
    assert Ranks(num_processes=2).devices("gpu") == devices
    if visible is not None:
        from paddle.distributed.launch.context.device import Device

        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", Ranks(num_processes=2).environment("gpu")["CUDA_VISIBLE_DEVICES"])
        assert Device.parse_device().get_selected_devices(devices) == ["0", "1"], "as Paddle's launcher reads it"
        with pytest.raises(ValueError, match="'0' is not in list"):
            Device.parse_device().get_selected_devices("0,1")


@pytest.mark.parametrize("visible", [None, "", "0", "4, 5", "GPU-8932f937-d72c"])
def test_ranks_on_the_cpu_are_started_whatever_gpus_are_visible(monkeypatch, visible):
    """Paddle's launcher fails if CUDA_VISIBLE_DEVICES has fewer entries than there are ranks."""
    from paddle.distributed.launch.context.device import Device

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert visible == "4, 5" or len(Device.parse_device().get_selected_devices()) < 2
    else:
        assert Ranks(num_processes=2).environment("gpu") == Ranks().environment("auto") == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", Ranks(num_processes=2).environment("cpu")["CUDA_VISIBLE_DEVICES"])
    assert Device.parse_device().get_selected_devices() == ["0", "1"]


def test_more_processes_than_gpus_are_refused_unless_the_cpu_is_meant(monkeypatch):
    def devices(*words):
        plan = parse_launch_arguments(words)
        return plan.ranks.devices(plan.phases[0].hardware.device)

    for module in (ranks, pretrain):
        monkeypatch.setattr(module, "num_gpus", lambda: 2)
    with pytest.raises(ValueError, match="num_gpus=8 must be at most the 2 GPUs of this machine; pass --num-gpus 2"):
        devices("256")
    assert devices("256", "--device", "cpu") is None
    assert devices("--config", "large", "--num-gpus", "2") == "0,1"
    for module in (ranks, pretrain):
        monkeypatch.setattr(module, "num_gpus", lambda: 0)
    assert devices() is None and Ranks().devices("auto") is None
    with pytest.raises(ValueError, match="device=gpu needs paddlepaddle-gpu"):  # before data is made
        Ranks().devices("gpu")


def test_several_ranks_start_through_paddles_launcher_and_a_single_one_without_it():
    def words(devices=None, **ranks):
        program = ["run_x.py", "--config", "p.yaml"]
        return " ".join(start_of_ranks(Ranks(**ranks), "auto", devices, Path("logs"), program).command)

    script = "run_x.py --config p.yaml"
    assert words() == f"{sys.executable} -u {script}"
    assert "-m paddle.distributed.launch" in words(num_processes=2)
    assert words(num_processes=2).endswith(f"--nproc_per_node 2 {script}")
    assert words(num_processes=2, devices="0,1").endswith(f"--devices 0,1 {script}")
    assert "-m paddle.distributed.launch" in words(num_nodes=2, master="10.0.0.1:6070")


SHOWN = """
import json, os, sys
from pathlib import Path
names = [name for name in os.environ if name.startswith(("PADDLE_", "FLAGS_", "CUDA_"))]
Path(sys.argv[1]).write_text(json.dumps({name: os.environ[name] for name in names}))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("device", "devices", "visible"),
    [("cpu", None, None), ("auto", None, None), ("gpu", "5", "5,3"), ("gpu", "GPU-a", "GPU-a")],
)
def test_a_single_rank_has_the_variables_that_paddles_launcher_gives_it(
    tmp_path, monkeypatch, device, devices, visible
):
    for name in list(os.environ):
        if name.startswith(("PADDLE_", "FLAGS_", "CUDA_")):
            monkeypatch.delenv(name)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (tmp_path / "rank.py").write_text(SHOWN)
    one, found = Ranks(), []
    begun = start_of_ranks(one, device, devices, tmp_path, [tmp_path / "rank.py", tmp_path / "seen"])
    launcher = ranks_command(one, devices, tmp_path, [tmp_path / "rank.py", tmp_path / "seen"])
    for command, variables in (begun, (launcher, one.environment(device))):
        subprocess.run(command, env={**os.environ, **variables}, check=True, timeout=120)
        seen = json.loads((tmp_path / "seen").read_text())
        seen.pop("PADDLE_BACKUP_ENV_PATH", None)  # of the launcher's own file
        found.append({name: re.sub(r"^[\d.]+:\d+$", "ADDRESS", text) for name, text in seen.items()})
    assert found[0] == found[1] and len(found[0]) >= 13


@pytest.mark.parametrize(
    ("processors", "quota", "gpus", "device", "processes"),
    [
        (1, None, 0, "auto", 1),
        (2, None, 0, "auto", 2),
        (64, None, 0, "auto", 2),
        (64, 1.0, 0, "auto", 1),
        (64, 2.0, 0, "auto", 2),
        (64, None, 8, "auto", 1),
        (64, None, 8, "cpu", 2),
    ],
)
def test_the_quickstart_uses_two_processors_or_one_gpu(processors, quota, gpus, device, processes, monkeypatch):
    monkeypatch.setattr(ranks, "allowed_processors", lambda: list(range(processors)))
    monkeypatch.setattr(ranks, "cpu_quota", lambda: quota)
    monkeypatch.setattr(ranks, "num_gpus", lambda: gpus)
    assert quickstart_processes(device) == processes
