"""Exported models give the outputs of our network within 1e-5, through Paddle Inference and ONNX.

BERT_FULL_FAULTS=1 tries 50 inputs instead of 3. ONNX models run on ONNX Runtime of the environment in BERT_TORCH_VENV,
or without it on the `onnx` package's reference evaluator.
"""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import run_export
from bert.inference.predictor import Predictor
from tests.conversion import test_parity
from tests.conversion.test_parity import INPUTS, TORCH_PYTHON, TORCH_VENV, compare, random_feed
from tests.conversion.test_round_trips import TASKS

checkpoints, expected = test_parity.checkpoints, test_parity.expected  # fixtures
SERVED = [task for task in TASKS if task != "pretraining"]


def export(checkpoint: Path, target: Path, to_format: str) -> Path:
    assert run_export.main(["--checkpoint", str(checkpoint), "--to", str(target), "--format", to_format]) == 0
    return target


@pytest.mark.thorough
@pytest.mark.parametrize("task", SERVED)
def test_paddle_inference_serves_the_same_outputs(checkpoints, expected, tmp_path, task, record_property):
    record_property("trials", INPUTS)
    model = Predictor(export(checkpoints[task], tmp_path / "x", "paddle-inference"))
    compare(model.run(random_feed()), expected[task], random_feed()["attention_mask"])
    assert model.description["labels"] == (["cat", "dog", "fox"] if "classification" in task else None)
    assert len(model.texts(["word1 word2", ("word3", "word4 word5 word6")])) == len(expected[task])


def run_onnx(path: Path, feed: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    if TORCH_VENV is None:
        from onnx.reference import ReferenceEvaluator

        session = ReferenceEvaluator(str(path))
        return dict(zip(session.output_names, session.run(None, feed), strict=True))
    code = (
        "import sys, numpy as np, onnxruntime as ort; session = ort.InferenceSession(sys.argv[1]);"
        "np.savez(sys.argv[3], **dict(zip([o.name for o in session.get_outputs()],"
        "session.run(None, dict(np.load(sys.argv[2]))))))"
    )
    np.savez(folder / "feed.npz", **feed)
    arguments = [str(path), str(folder / "feed.npz"), str(folder / "o.npz")]
    subprocess.run([str(TORCH_PYTHON), "-c", code, *arguments], check=True)
    with np.load(folder / "o.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("task", SERVED)
def test_onnx_gives_the_same_outputs(checkpoints, expected, tmp_path, task, record_property):
    record_property("trials", INPUTS)
    pytest.importorskip("onnx", reason="needs requirements-export.txt")
    exported, feed = export(checkpoints[task], tmp_path / "x", "onnx"), random_feed()
    compare(run_onnx(exported / "model.onnx", feed, tmp_path), expected[task], feed["attention_mask"])


def test_a_pretrained_model_is_served_as_its_encoder(checkpoints, tmp_path, capsys):
    exported = export(checkpoints["pretraining"], tmp_path / "x", "paddle-inference")
    assert "left out: masked-LM head, not used by encoder" in capsys.readouterr().out
    assert Predictor(exported).outputs == ["last_hidden_state", "pooler_output"]


def test_a_folder_that_is_no_export_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not an export for Paddle Inference"):
        Predictor(tmp_path)
