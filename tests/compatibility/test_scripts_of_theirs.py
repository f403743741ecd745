"""NVIDIA's scripts as typed: the two of single phases, and run_pretraining.sh without arguments on several GPUs."""

import subprocess
import sys

import pytest

from bert import REPOSITORY
from bert.launching import pretraining
from bert.launching.slurm import launch_arguments


@pytest.mark.parametrize(("phase", "steps"), [(1, "7,038"), (2, "1,563")])
def test_scripts_of_one_phase_are_the_published_recipe(phase, steps):
    done = subprocess.run(
        ["bash", f"scripts/run_pretraining_p{phase}.sh", "--dry-run"],
        cwd=REPOSITORY,
        env={"PATH": "/usr/bin:/bin", "BERT_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"phase      {phase}," in done.stdout and "bert-large-uncased" in done.stdout and steps in done.stdout


@pytest.mark.parametrize(("gpus", "is_said"), [(0, False), (1, False), (8, True)])
def test_without_arguments_several_gpus_are_told_of_the_published_recipe(monkeypatch, capsys, tmp_path, gpus, is_said):
    for module in ("bert.launching.pretraining", "bert.launching.pretraining_plan"):
        monkeypatch.setattr(f"{module}.num_gpus", lambda: gpus)
    monkeypatch.setattr(pretraining, "_run", lambda *_: 0)
    assert pretraining.main(["--output-dir", str(tmp_path), "--device", "cpu"]) == 0
    assert ("run_pretraining.sh --config large" in capsys.readouterr().out) == is_said


def test_run_sub_takes_the_defaults_of_theirs_typed_out():
    theirs = {
        "NUM_SHARDS_PER_WORKER": "none",
        "BIN_SIZE": "none",
        "INIT_CHECKPOINT": "none",
        "RERUN_DASK": "false",
        "PRECISION": "fp16",
        "PHASE": "1",
        "TRAIN_BATCH_SIZE": "256",
        "GRADIENT_ACCUMULATION_STEPS": "8",
        "IMAGE_VERSION": "22.12-py3",
        "USE_JEMALLOC": "true",
    }
    flags = " ".join(launch_arguments(theirs))
    assert "--amp" in flags and "--phase1" in flags and "num-shards-per-worker" not in flags


def test_a_benchmark_ends_with_its_throughput_by_their_name(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(pretraining, "is_done", lambda config: True)
    for phase, rate in ((1, 5541.25), (2, 2109.0)):
        folder = tmp_path / f"phase{phase}/benchmark"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(f'{{"training_sequences_per_second": {rate}}}')
    assert pretraining.main(["--benchmark", "--output-dir", str(tmp_path), "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert (
        "phase 1: training_sequences_per_second 5,541.2" in shown
        and "phase 2: training_sequences_per_second 2,109" in shown
    )
