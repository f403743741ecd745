"""Classifiers of version 88b30792, with calibration in task.json, predict as they did then.

tests/golden/old_classifier was written by that commit: `run_glue.py` trained six updates on train.csv with dev.csv to
evaluate on, `run_export.py` wrote onnx/, and `run_predict.py` gave predictions.jsonl for the lines of texts.txt, equal
for both.
"""

import json
import shlex
import shutil
from base64 import b64decode, b64encode
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import run_glue
from bert import REPOSITORY
from bert.checkpoints import state as checkpoint
from bert.conversion.old_calibration import with_old_calibration, without_old_calibration
from bert.conversion.reading import read_pretrained
from bert.conversion.untrusted_files import ConversionError
from bert.inference.heads import load_model
from bert.model.head_specs import TOKEN_WEIGHTS
from bert.runtime.paddle_api import static
from tests.conversion.test_round_trips import convert
from tests.inference.models import export, records

OLD = REPOSITORY / "tests/golden/old_classifier"
STEP = "run/tiny/glue-custom/6"
TEXTS = (OLD / "texts.txt").read_text().splitlines()
KNOWN = records((OLD / "predictions.jsonl").read_text())


def task_of(folder: Path) -> dict:
    return json.loads((folder / "task.json").read_text())


def check_predictions(folder: Path, tolerance: float = 2e-6) -> None:
    found = load_model(folder).predict(TEXTS)
    assert [result["label"] for result in found] == [result["label"] for result in KNOWN]
    for result, known in zip(found, KNOWN, strict=True):
        assert result["probabilities"] == pytest.approx(known["probabilities"], abs=tolerance)


def test_the_old_folder_has_both_beside_its_weights():
    task = task_of(OLD / STEP)
    assert task["temperature"] > 1.9 and len(b64decode(task["token_weights"])) == 77 * 2 * 2
    assert not (load_file(OLD / STEP / "bert_paddle.safetensors").keys() & {TOKEN_WEIGHTS})


@pytest.mark.parametrize("folder", ["run", STEP])
def test_an_old_folder_gives_the_same_probabilities(folder):
    check_predictions(OLD / folder)


def test_an_old_export_gives_the_same_probabilities():
    pytest.importorskip("onnxruntime")
    check_predictions(OLD / "onnx")


@pytest.mark.parametrize("to_format", ["native", "hf"])
def test_a_conversion_of_an_old_folder_has_both_in_its_weights(tmp_path, to_format):
    converted = convert(OLD / "run", tmp_path / "x", to_format)
    assert without_old_calibration(task_of(OLD / STEP)) == task_of(converted) != task_of(OLD / STEP)
    check_predictions(converted)
    check_predictions(convert(converted, tmp_path / "y", "native"))


def test_a_new_export_of_an_old_folder_has_both_in_its_weights(tmp_path):
    exported = export(OLD / "run", tmp_path / "x", "--format", "paddle-inference")
    assert not task_of(exported).keys() & {"temperature", "token_weights"}
    check_predictions(exported)


@pytest.mark.long
def test_an_old_training_resumes_from_its_trained_head_and_ends_in_the_new_form(tmp_path):
    """Without an update left, the evaluation finds the same temperature and token weights again."""
    shutil.copytree(OLD / "run", tmp_path / "run")
    words = (
        f"--task-name custom --train-file {OLD}/train.csv --eval-file {OLD}/dev.csv --do-train --do-eval --batch-size "
        "20 --max-steps 6 --eval-freq 3 --num-steps-per-checkpoint 3 --learning-rate 3e-3 --max-seq-length 16 --device "
        f"cpu --no-visualdl --report-file {tmp_path}/report.json --bert-model tiny --vocab-file {OLD}/{STEP}/vocab.txt "
        f"--config-file {OLD}/{STEP}/bert_config.json --output-dir {tmp_path}/run --from-checkpoint {tmp_path}/run "
        "--last-step-of-checkpoint auto"
    )
    with static.scope_guard(static.Scope()):
        assert run_glue.main(shlex.split(words)) == 0
    folder = tmp_path / STEP
    task = task_of(folder)
    held_out = task.pop("held_out")  # the old program did not write it, nor the settings of a reranker
    assert task.pop("reranking") is None
    assert task == without_old_calibration(task_of(OLD / STEP))
    assert held_out["whole"]["accuracy"] == 0.85 and held_out.keys() == {"whole", "token weights"}
    check_predictions(tmp_path / "run", 1e-3)  # its token weights were rounded to float16
    trained = load_file(OLD / STEP / "bert_paddle.safetensors")
    for name, array in checkpoint.load(folder)[0].items():
        np.testing.assert_array_equal(array, trained[name], err_msg=name)
    calibrated = read_pretrained(folder).parameters
    temperature = task_of(OLD / STEP)["temperature"]
    np.testing.assert_allclose(calibrated["classifier.bias"], trained["classifier.bias"] / temperature, rtol=1e-3)
    assert TOKEN_WEIGHTS in calibrated


def parameters() -> dict[str, np.ndarray]:
    rng = np.random.RandomState(3)
    names = {"classifier.weight": (5, 3), "classifier.bias": (3,), "bert.pooler.dense.bias": (5,)}
    return {name: rng.randn(*shape).astype("float32") for name, shape in names.items()}


def write(folder: Path, **task) -> Path:
    (folder / "task.json").write_text(json.dumps(task))
    return folder


def test_old_keys_become_tensors_by_the_formula_of_the_logits(tmp_path):
    """logits = (states @ weight + bias + sum of token weights / root of their number) / temperature."""
    before, table = parameters(), np.arange(12, dtype="<f2").reshape(4, 3)
    text = b64encode(table.tobytes()).decode()
    after = with_old_calibration(before, write(tmp_path, temperature=2.0, token_weights=text))
    states, ids = np.array([0.5, -1, 2, 0, 1]), [1, 3, 3, 2]
    old = (states @ before["classifier.weight"] + before["classifier.bias"] + table[ids].sum(0) / 2) / 2.0
    new = states @ after["classifier.weight"] + after["classifier.bias"] + after[TOKEN_WEIGHTS][ids].sum(0) / 2
    np.testing.assert_allclose(new, old, rtol=1e-6)
    assert after["bert.pooler.dense.bias"] is before["bert.pooler.dense.bias"]
    assert with_old_calibration(before, write(tmp_path, temperature=1.0, token_weights=None)).keys() == before.keys()
    assert with_old_calibration({"bert.pooler.dense.bias": 0}, write(tmp_path, temperature=2.0)).keys() == {
        "bert.pooler.dense.bias"
    }


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"token_weights": "AAAA"}, "token_weights in .*task.json are damaged or not of 3 classes"),
        ({"token_weights": "no base64!"}, "are damaged or not of 3 classes"),
        ({"token_weights": [1]}, "are damaged or not of 3 classes"),
        ({"temperature": 0}, "temperature=0 in .*task.json must be a positive number"),
        ({"temperature": "2"}, "temperature='2' in .*task.json must be a positive number"),
    ],
)
def test_damaged_old_keys_are_refused(tmp_path, task, message):
    with pytest.raises(ConversionError, match=message):
        with_old_calibration(parameters(), write(tmp_path, **task))
