"""The comparison of exports runs, small and without PyTorch; the tests of the documents run the other programs."""

import json
import subprocess
import sys

import pytest

from bert import REPOSITORY
from tests.benchmarks.serving import make_model


def run(module: str, *words: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *map(str, words)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done


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
