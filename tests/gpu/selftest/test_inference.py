"""Checks of an exported model: sentences a second in half precision, and correct answers."""

import re
import sys
from typing import Any

import pytest

from bert.inference.export_files import TOLERANCES
from tests.gpu.selftest.bench import json_in

pytestmark = pytest.mark.gpu
TIMEOUT_SECONDS = 1200.0
MODELS = {"gpu": ("bert-large-uncased", 384), "cpu": ("bert-tiny", 64)}  # and tokens of a question with its context


@pytest.mark.parametrize("engine", ["paddle", "tensorrt", "onnx"])
def test_inference(bench, engine):
    """Measure sentences a second of an export, and compare its outputs with float32 (ONNX: with the CPU's)."""
    machine = bench.machine
    if engine == "tensorrt" and machine.device == "cpu":
        pytest.skip("TensorRT needs a GPU")
    device = "tensorrt" if engine == "tensorrt" else machine.device
    to_format = "onnx" if engine == "onnx" else "paddle-inference"
    words = ["tests.gpu.selftest.measured_inference", str(bench.folder / f"exports-{engine}"), to_format, device]
    command = [sys.executable, "-m", *words, *map(str, MODELS[machine.device])]
    figures = json_in(bench.run(command, TIMEOUT_SECONDS))
    bench.figures |= figures
    found = figures["precisions"]
    if (reason := found["float32"].get("refused")) and (
        device == "tensorrt" or re.search("needs .*onnx", reason, re.IGNORECASE)  # another package
    ):
        pytest.skip(reason)
    assert not reason, reason
    bench.text = f"{figures['model']}, {figures['tokens']} tokens, sentences/s of batches of " + "; ".join(
        f"{batch}: " + " / ".join(f"{row['sentences per second'][batch]:,.1f}" for row in measured(found).values())
        for batch in found["float32"]["sentences per second"]
    )
    bench.text += f" ({' / '.join(measured(found))})"
    wrong = {
        name: row["relative error"]
        for name, row in measured(found).items()
        if not row["relative error"] <= TOLERANCES[name.split()[0]]
    }
    assert not wrong, f"{bench.text}; relative errors beside float32 are too large: {wrong}"
    if machine.device == "gpu" and machine.capability() >= (7, 0):  # with half-precision matrix units
        on_card = {name: row for name, row in measured(found).items() if "CPU" not in name}
        fastest = [max(row["sentences per second"].values()) for row in on_card.values()]
        assert len(fastest) > 1 and max(fastest[1:]) > fastest[0], f"{bench.text}; half precision is no faster"


def measured(found: dict[str, Any]) -> dict[str, Any]:
    """Return the precisions that this machine computes."""
    return {name: row for name, row in found.items() if "refused" not in row}
