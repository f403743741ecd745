"""A training that was begun with one version of Paddle continues with another one as without the change.

The other version is that of the environment which scripts/setup.sh made for it; without one the test is skipped.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.runtime.paddle_api import IS_PADDLE_3
from tests.faults.trainings import Data, make_data

STEPS, STOP = 12, 5


def train(python: Path | str, data: Data, output: Path, *more: str) -> dict[int, float]:
    """The losses of all updates so far; the command is the user's."""
    done = subprocess.run(
        [str(python), str(REPOSITORY / "run_pretraining.py"), *data.argv(output, *more, steps=STEPS)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    rows = [json.loads(line) for line in (output / "phase1/metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


@pytest.fixture(scope="module")
def other_python() -> Path:
    python = REPOSITORY / (".venv" if IS_PADDLE_3 else ".venv-paddle3.1") / "bin/python"
    if not python.exists():
        pytest.skip(f"{python} does not exist; BERT_PADDLE={'2.6' if IS_PADDLE_3 else '3.1'} bash scripts/setup.sh")
    return python


@pytest.mark.long
def test_a_run_goes_on_under_another_paddle_and_back(other_python, tmp_path):
    data = make_data(tmp_path / "data")
    expected = train(sys.executable, data, tmp_path / "whole")
    assert sorted(expected) == list(range(1, STEPS + 1))
    for name, first, second in (("there", sys.executable, other_python), ("back", other_python, sys.executable)):
        train(first, data, tmp_path / name, "--steps-this-run", str(STOP))
        found = train(second, data, tmp_path / name)
        assert found.keys() == expected.keys()
        for step, loss in expected.items():
            assert found[step] == pytest.approx(loss, abs=1e-5), (name, step)
