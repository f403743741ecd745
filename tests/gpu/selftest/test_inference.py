"""Checks of an exported model: how many sentences a second it answers in half precision, and whether rightly."""

import sys
from typing import Any

import pytest

from bert.inference.exporting import TOLERANCES
from tests.gpu.selftest.bench import Bench, json_in

pytestmark = pytest.mark.gpu
TIMEOUT_SECONDS = 1200.0
MODELS = {"gpu": ("bert-large-uncased", 384), "cpu": ("bert-tiny", 64)}  # and tokens of a question with its context


@pytest.mark.parametrize("engine", ["paddle", "tensorrt"])
def test_inference(bench, engine):
    """Sentences a second of an export for Paddle Inference, and its outputs beside those of float32."""
    machine = bench.machine
    if engine == "tensorrt" and machine.device == "cpu":
        pytest.skip("TensorRT needs a GPU")
    device = "tensorrt" if engine == "tensorrt" else machine.device
    words = ["tests.gpu.selftest.measured_inference", str(bench.folder / f"exports-{engine}"), device]
    command = [sys.executable, "-m", *words, *map(str, MODELS[machine.device])]
    judge_inference(json_in(bench.run(command, TIMEOUT_SECONDS)), bench)


def judge_inference(figures: dict[str, Any], bench: Bench) -> None:
    """Args:
    figures: what measured_inference.py prints.
    """
    bench.figures |= figures
    found = figures["precisions"]
    if (reason := found["float32"].get("refused")) and figures["device"] == "tensorrt":
        pytest.skip(reason)
    assert not reason, reason
    bench.text = f"{figures['model']}, {figures['tokens']} tokens, sentences/s of batches of " + "; ".join(
        f"{batch}: " + " / ".join(f"{row['sentences per second'][batch]:,.1f}" for row in measured(found).values())
        for batch in found["float32"]["sentences per second"]
    )
    bench.text += f" ({' / '.join(measured(found))})"
    wrong = {
        n: row["relative error"] for n, row in measured(found).items() if not row["relative error"] <= TOLERANCES[n]
    }
    assert not wrong, f"{bench.text}; relative errors beside float32 are too large: {wrong}"
    if bench.machine.device == "gpu" and bench.machine.capability() >= (7, 0):  # with half-precision matrix units
        fastest = [max(row["sentences per second"].values()) for row in measured(found).values()]
        assert len(fastest) > 1 and max(fastest[1:]) > fastest[0], f"{bench.text}; half precision is no faster"


def measured(found: dict[str, Any]) -> dict[str, Any]:
    """The precisions that this machine computes."""
    return {name: row for name, row in found.items() if "refused" not in row}
