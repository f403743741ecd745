"""`--report-to`: what TensorBoard, Weights & Biases and MLflow receive from a run and from a resumed one.

The tests skip where a package is missing: `bash scripts/setup.sh tensorboard mlflow` installs them.
"""

import importlib.util
import sys
import types

import pytest

from bert.config.training_settings import HardwareSettings
from bert.reporting.trackers import check_trackers
from tests.reporting.test_curves import run_log, train

KEPT = [(step, 8.0 if step <= 5 else 5.0) for step in range(1, 11)]  # steps 6 and 7 were lost and done again


def run_and_resume(directory, name: str) -> None:
    log = run_log(directory, trackers=[name])
    train(log, range(1, 8), loss=lambda step: 8.0)  # killed: not closed, but what was written has reached the disk
    if name == "tensorboard":
        log.trackers[0][1].writer.close()
        (file,) = (directory / "tensorboard").iterdir()  # the second file is named by the second it begins in
        file.rename(file.with_name(f"{file.name}.1"))
    if name == "mlflow":
        importlib.import_module("mlflow").flush_async_logging()
    log = run_log(directory, first_step=5, trackers=[name])
    train(log, range(6, 11), loss=lambda step: 5.0)
    log.summary({"mfu": 0.25})
    log.close()


def test_tensorboard_shows_a_resumed_run_as_one_curve(tmp_path):
    tensorboard = pytest.importorskip("tensorboardX")
    run_and_resume(tmp_path, "tensorboard")
    events = []
    for path in sorted((tmp_path / "tensorboard").iterdir(), reverse=True):
        events += [tensorboard.proto.event_pb2.Event.FromString(data) for data in records(path.read_bytes())]
    starts = [event.step for event in events if event.session_log.status == 1]
    assert starts == [1, 6]  # TensorBoard drops what came before from step 6 on
    losses = [(e.step, v.simple_value) for e in events for v in e.summary.value if v.tag == "train/loss"]
    assert losses[-5:] == KEPT[5:] and losses[:5] == KEPT[:5]
    assert {v.tag for e in events for v in e.summary.value} >= {"eval/masked_lm_loss", "final/mfu"}


def records(data: bytes) -> list[bytes]:
    """Return the contents of a file of TFRecords."""
    contents, place = [], 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 8], "little")
        contents.append(data[place + 12 : place + 12 + size])
        place += 16 + size
    return contents


def test_mlflow_shows_a_resumed_run_as_one(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a server has the same interface
    run_and_resume(tmp_path / "runs/phase1", "mlflow")
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("bert-on-paddle").experiment_id])
    assert run.info.run_name == "runs/phase1" and run.info.status == "FINISHED"
    assert run.data.params["learning_rate"] == "0.006" and run.data.metrics["final/mfu"] == 0.25
    rows = client.get_metric_history(run.info.run_id, "train/loss")
    assert {(row.step, row.value) for row in rows} == {*KEPT, (6, 8.0), (7, 8.0)}


def test_weights_and_biases_gets_a_resumed_run_as_one(tmp_path, monkeypatch):
    calls = []

    def init(**settings):
        calls.append(settings)
        return types.SimpleNamespace(
            id=settings["id"] or "abc", log=calls.append, define_metric=lambda *_, **__: None, finish=lambda: None
        )

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    run_and_resume(tmp_path / "runs/phase1", "wandb")
    starts = [call for call in calls if "project" in call]
    assert [(call["id"], call["resume"], call["name"]) for call in starts] == [
        (None, "allow", "runs/phase1"),
        ("abc", "allow", "runs/phase1"),
    ]
    assert starts[0]["config"]["optimizer"]["optimizer"] == "Lamb"
    losses = {call["step"]: call["train/loss"] for call in calls if "train/loss" in call}
    assert sorted(losses.items()) == KEPT


def test_names_are_checked_and_a_missing_package_is_named_before_the_run(monkeypatch):
    assert HardwareSettings(report_to="wandb,mlflow").trackers() == ["visualdl", "wandb", "mlflow"]
    assert HardwareSettings(visualdl=False).trackers() == []
    with pytest.raises(ValueError, match="report_to=wandb,neptune must be none, or names of tensorboard"):
        HardwareSettings(report_to="wandb,neptune")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="tensorboard needs the package tensorboardX; run .*setup.sh tensorboard"):
        check_trackers(["visualdl", "tensorboard"])
    monkeypatch.undo()
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setitem(sys.modules, "mlflow", types.SimpleNamespace(__spec__=types.SimpleNamespace()))
    with pytest.raises(ValueError, match="mlflow needs the address of your server in MLFLOW_TRACKING_URI; export it"):
        check_trackers(["mlflow"])
