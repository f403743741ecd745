"""A classifier's last checkpoint has the calibrated head for predictions, and the trained one for further training."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert.checkpoints import state as checkpoint
from bert.checkpoints.directories import CheckpointError, verify
from bert.checkpoints.progress import LoopState, Progress
from bert.model.head_specs import TOKEN_WEIGHTS

TRAINED = {
    "a.weight": np.arange(6, dtype="float32").reshape(2, 3),
    "classifier.weight": np.array([[1, 3], [5, 7], [9, 11]], "float32"),
    "classifier.bias": np.array([0.7, -0.3], "float32"),
}
FITTED = {TOKEN_WEIGHTS: np.array([[0.1, 0.2], [0.3, 0.7]], "float32")}
OPTIMIZER = {"a.weight/moment": np.full((2, 3), 4, "float32")}
PROGRESS = Progress("glue-custom", 3, 0, 1, 6, "data", {"applied": 3}, None, {}, {})


def saved(folder: Path, fitted=FITTED) -> Path:
    return checkpoint.save(folder, "bert", {**TRAINED, **fitted}, OPTIMIZER, PROGRESS, {"task.json": b"{}"})


def calibrated(temperature: float, fitted=FITTED) -> dict[str, np.ndarray]:
    head = {name: array for name, array in {**TRAINED, **fitted}.items() if name != "a.weight"}
    return {name: array / np.float32(temperature) for name, array in head.items()}


def check(folder: Path, final, fitted) -> None:
    """Check that the weights to use have the final head, and that a resumed training finds its own bytes."""
    verify(folder)
    found = load_file(folder / "bert.safetensors")
    assert found.keys() == {*TRAINED, *final}
    for name, array in {**TRAINED, **final}.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    parameters, optimizer, progress = checkpoint.load(folder)
    assert {name: array.tobytes() for name, array in parameters.items()} == {
        name: array.tobytes() for name, array in TRAINED.items()
    }
    assert optimizer.keys() == OPTIMIZER.keys() and progress.step == 3
    kept = checkpoint.load_fitted(folder)
    assert kept.keys() == fitted.keys() and all((kept[name] == fitted[name]).all() for name in kept)
    tensors = checkpoint.load_parameters(folder)
    assert tensors.keys() == found.keys(), "a folder has one file of weights to use"


@pytest.mark.parametrize("fitted", [FITTED, {}], ids=["with token weights", "without"])
def test_a_calibrated_checkpoint_resumes_from_the_trained_head(tmp_path, fitted):
    folder = saved(tmp_path, fitted)
    check(folder, fitted, fitted)
    final = calibrated(3.0, fitted)
    assert checkpoint.calibrate(tmp_path, "bert", 3, fitted, final, {"task.json": '{"a": 1}'}) == folder
    check(folder, final, fitted)
    assert json.loads((folder / "task.json").read_text()) == {"a": 1}
    again = calibrated(1.7, fitted)  # by another evaluation, of a repeated command
    checkpoint.calibrate(tmp_path, "bert", 3, fitted, again, {})
    check(folder, again, fitted)


def test_what_is_calibrated_already_is_not_written_again(tmp_path):
    folder, final = saved(tmp_path), calibrated(3.0)
    checkpoint.calibrate(tmp_path, "bert", 3, FITTED, final, {})
    inode = (folder / "bert.safetensors").stat().st_ino
    checkpoint.calibrate(tmp_path, "bert", 3, FITTED, final, {"task.json": "{}"})
    assert (folder / "bert.safetensors").stat().st_ino == inode
    check(folder, final, FITTED)


def test_a_task_without_a_calibration_leaves_the_tensors_alone(tmp_path):
    folder = saved(tmp_path, {})
    inode = (folder / "bert.safetensors").stat().st_ino
    checkpoint.calibrate(tmp_path, "bert", 3, {}, {}, {"task.json": "{}"})
    assert (folder / "bert.safetensors").stat().st_ino == inode
    assert not (folder / "bert_trained_head.safetensors").exists()


def test_an_evaluation_after_the_save_changes_the_fitted_parameters_alone(tmp_path):
    folder = saved(tmp_path)
    inode = (folder / "bert.safetensors").stat().st_ino
    checkpoint.amend(tmp_path, "bert", 3, LoopState(fitting=0.5), {}, FITTED)
    assert (folder / "bert.safetensors").stat().st_ino == inode
    assert checkpoint.load(folder)[2].carried.fitting == 0.5
    others = {TOKEN_WEIGHTS: FITTED[TOKEN_WEIGHTS] * 2}
    checkpoint.amend(tmp_path, "bert", 3, LoopState(), {}, others)
    check(folder, others, others)
    checkpoint.calibrate(tmp_path, "bert", 3, others, calibrated(2.0, others), {})
    checkpoint.amend(tmp_path, "bert", 3, LoopState(), {}, {})
    check(folder, {}, {})


def test_a_full_disk_refuses_a_calibration_before_anything_is_written(tmp_path, monkeypatch):
    folder = saved(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    with pytest.raises(CheckpointError, match="free and the checkpoint needs"):
        checkpoint.calibrate(tmp_path, "bert", 3, FITTED, calibrated(3.0), {})
    check(folder, FITTED, FITTED)
