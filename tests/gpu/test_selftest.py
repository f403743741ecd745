"""The GPU self-test on this CPU, and failures of its numeric checks."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert import REPOSITORY
from tests.gpu.selftest import test_recipes
from tests.gpu.selftest.bench import Bench
from tests.gpu.selftest.machine import Machine
from tests.gpu.selftest.test_trainings import compare, loss_problem


@pytest.fixture
def bench(tmp_path):
    return Bench(Machine("cpu", 2), tmp_path, tmp_path / "logs/check.log")


def selftest(*words, **environment):
    command = ["bash", "scripts/run_gpu_selftest.sh", *words]
    return subprocess.run(command, cwd=REPOSITORY, env=os.environ | environment, capture_output=True, text=True)


@pytest.mark.nightly
@pytest.mark.long
def test_one_check_of_each_kind_passes_on_this_cpu(tmp_path):
    """On a CPU fused kernels are plain operators, and the small models of all recipes are alike."""
    chosen = ("doctor", "nccl", "kernels", "fused-kernels-float16", "train-packed-fused", "resume-amp", "ranks-all")
    chosen += ("evaluation", "throughput-phase1_large-plain", "inference-paddle", "inference-tensorrt")
    only = [word for name in chosen for word in ("--only", name)]
    done = selftest("--device", "cpu", "--output-dir", str(tmp_path), *only)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert f"Send back {tmp_path}/results.jsonl" in done.stdout
    machine, *rows = map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())
    assert machine["device"] == "cpu" and [row["name"] for row in rows[:3]] == [
        "doctor",
        "nccl",
        "fused-kernels-float16",
    ]
    assert all(any(row["name"].startswith(name) for row in rows) for name in chosen)
    others = {row["name"]: row["result"] for row in rows if row["result"] != "passed"}
    assert others == {"inference-tensorrt": "could not run"}
    for row in rows:
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{row['name']} ")]
        assert row["text"] and line.split(maxsplit=1)[1] == f"{row['result']:13} {row['text']}"


@pytest.mark.nightly
@pytest.mark.long
def test_checks_are_listed_and_wrong_flags_say_what_to_type(tmp_path):
    for words, expected in (
        (("--again", "failed"), "--again: every start runs its checks again; --only NAME runs some"),
        (("--device", "cpu", "--only", "trian"), "only=trian must begin the name of a check: "),
        (("--device", "cpu", "--gpus", "2"), "gpus=2 is for GPUs; drop --gpus, or --device cpu"),
        ((), "the self-test needs a GPU, and nvidia-smi lists none; "),
    ):
        done = selftest(*words, "--output-dir", str(tmp_path), CUDA_VISIBLE_DEVICES="")
        assert done.returncode != 0 and expected in done.stdout + done.stderr, done.stdout + done.stderr
    listed = selftest("--list", "--device", "cpu").stdout.splitlines()
    assert "tests/gpu/selftest/test_recipes.py::test_throughput[phase1_base]" in listed


def test_a_command_that_fails_or_hangs_is_ended_and_shown_by_its_last_lines(bench, capsys):
    """The child leads a group of its own, as the ranks of Paddle's launcher do."""
    with pytest.raises(AssertionError, match="exit code 3: "):
        bench.run(["bash", "-c", "seq 0 99; exit 3"], 60)
    assert capsys.readouterr().out.split() == [str(number) for number in range(60, 100)]
    assert bench.run(["bash", "-c", "seq 0 99; exit 3"], 60, allowed_codes=(0, 3)).startswith("0\n")
    child = bench.folder / "child"
    with pytest.raises(AssertionError, match="not finished after 2 s"):
        bench.run(["bash", "-c", f"setsid sleep 77 & echo $! > {child}; wait"], 2)
    assert not Path("/proc", child.read_text().strip(), "fd/0").exists()  # a zombie has no open files


FALLING = [9.0 - 0.04 * step for step in range(20)]


@pytest.mark.parametrize(
    ("losses", "reference", "problem"),
    [
        (FALLING, FALLING, ""),
        ([*FALLING[:-1], float("nan")], None, "19 losses are finite, there must be 20"),
        ([9.0] * 20, None, "the loss does not fall"),
        ([loss + 0.1 for loss in FALLING], FALLING, "the first loss is 9.1000, in float32 9.0"),
        ([9.0 - 0.01 * step for step in range(20)], FALLING, "the mean of the last five losses is 8.8300"),
    ],
)
def test_losses_must_be_finite_fall_and_be_near_those_of_float32(losses, reference, problem):
    assert loss_problem(losses, reference).startswith(problem)
    assert bool(loss_problem(losses, reference)) == bool(problem)


def series(losses, norms):
    values = {"loss": losses, "gradient_norm": norms}
    return SimpleNamespace(of_updates=lambda name: values[name])


def test_losses_and_gradient_norms_are_compared_update_by_update(bench):
    one, skipped = series([9.0, 8.0], [2.0, 1.0]), series([9.0, 8.0], [None, 1.0])
    compare(series([9.0, 8.004], [2.0, 1.004]), one, 1e-3, bench)
    compare(skipped, skipped, 0.0, bench)  # by both
    for other in (series([9.0, 8.016], [2.0, 1.0]), series([9.0, 8.0], [4.0, 2.0]), series([9.0], [2.0]), skipped):
        with pytest.raises(AssertionError, match="differs by"):
            compare(other, one, 1e-3, bench)


def test_much_slower_than_planned_or_much_more_memory_is_a_shortfall():
    def problems(speed, gigabytes, device="gpu"):
        figures = {"sequences per second": speed, "planned sequences per second": 100.0, "speed is judged": True}
        figures |= {"peak bytes": {"allocated": gigabytes * 1e9}, "estimated bytes": {"total": 40e9}}
        return test_recipes.shortfalls(figures, device)

    assert problems(80.0, 43) == problems(200.0, 10) == problems(1.0, 90, "cpu") == []
    assert problems(70.0, 43) == ["below 75% of the planned speed"]
    assert problems(100.0, 45) == ["more than 110% of the estimated memory"]
    assert problems(None, 43) == ["no update was measured"]
