"""The comparisons run, small and without PyTorch. What else is measured is run by the tests of the documents."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from tests.benchmarks.compare_training import check_same_model
from tests.benchmarks.serving import make_model


def run(module: str, *words: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *map(str, words)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done


@pytest.mark.nightly
@pytest.mark.long
def test_training_is_compared_with_paddlenlps(tmp_path):
    pytest.importorskip("paddlenlp")
    words = ("--cases", "bert-tiny", "--folder", tmp_path, "--warmup-steps", 1, "--megabytes", 1)
    done = run("compare_training", *words, "--rounds", 2, "--updates", 2, "--all")
    (case,) = json.loads(Path(tmp_path, "results.json").read_text())["cases"]
    names = ["this project", "this project, padded", "PaddleNLP, dygraph", "this project, bfloat16"]
    assert [row["name"] for row in case["rows"]] == names and case["rows"][0]["over_ours"] == 1
    assert all(row["loss_after"] < row["loss_before"] and row["mfu"] > 0 for row in case["rows"])
    assert "left out, no --torch-python" in done.stderr and "| PaddleNLP, dygraph |" in done.stdout
    assert "| all | " in run("compare_training", *words, "--profile").stdout


def test_competitors_that_train_other_models_are_not_compared():
    ours = {"loss_before": 5.0, "loss_after": 4.0, "precision": "float32"}
    check_same_model({"ours": ours, "half": {**ours, "precision": "bfloat16", "loss_before": 5.04}})
    for changes, message in (({"loss_before": 5.1}, "do not train the same model"), ({"loss_after": 5.5}, "not learn")):
        with pytest.raises(RuntimeError, match=message):
            check_same_model({"ours": ours, "other": {**ours, **changes}})


@pytest.mark.nightly
@pytest.mark.long
def test_all_exports_are_compared(tmp_path):
    folder = tmp_path / "work"
    (tmp_path / "model").mkdir()
    words = (
        "--checkpoint",
        make_model(tmp_path / "model", "tiny"),
        "--folder",
        folder,
        "--batch-sizes",
        2,
        "--lengths",
        16,
        "--threads",
        1,
    )
    done = run("inference", *words, "--rounds", 2, "--seconds", 0.1)
    rows = json.loads((folder / "results.json").read_text())["rows"]
    assert {row["case"] for row in rows} == {"2 x 16", "2 x mix", "2 x mix sorted by length"}
    assert {row["precision"] for row in rows} == {"float32", "bfloat16", "INT8"}
    assert all(row["latency_p50_ms"] > 0 and row["same_decision"] > 0.5 for row in rows)
    assert "sequences per CPU second" in done.stdout
