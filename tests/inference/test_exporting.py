"""Tests that exports for Paddle Inference and ONNX give the outputs of our network, within 1e-5.

BERT_FULL_FAULTS=1 tries 50 inputs instead of 3. ONNX models run on ONNX Runtime.
"""

import json
import re
import sys
import types
from importlib.machinery import ModuleSpec

import numpy as np
import pytest

from bert.conversion.reading import read_pretrained
from bert.conversion.usage import Usage
from bert.inference.heads import load_model
from bert.inference.paddle_program import Network
from bert.inference.predictor import Predictor
from bert.model.head_specs import TOKEN_WEIGHTS
from tests.conversion import test_parity
from tests.conversion.test_parity import compare, random_feed
from tests.conversion.test_round_trips import TASKS
from tests.inference.models import export, feed_of, model
from tests.support import foreign

checkpoints, expected = test_parity.checkpoints, test_parity.expected  # fixtures
SERVED = [task for task in TASKS if task != "pretraining"]


@pytest.mark.parametrize(("task", "to_format"), [*((task, "onnx") for task in SERVED), ("encoder", "openvino")])
def test_onnx_and_openvino_give_the_same_outputs(checkpoints, expected, tmp_path, task, to_format):
    pytest.importorskip("openvino" if to_format == "openvino" else "onnxruntime")
    exported, feed = export(checkpoints[task], tmp_path / "x", "--format", to_format), random_feed()
    compare(Predictor(exported).run(feed), expected[task], feed["attention_mask"])


@pytest.mark.parametrize("task", SERVED)
def test_paddle_inference_takes_texts_of_any_length(checkpoints, tmp_path, task):
    """Paddle Inference pads to multiples of 8, or to the model's longest length; ONNX gives our outputs."""
    ours, onnx = (
        Predictor(export(checkpoints[task], tmp_path / kind, "--format", kind)) for kind in ("paddle-inference", "onnx")
    )
    for length in range(1, foreign.POSITIONS + 1):
        feed = feed_of(list(range(5, 5 + length)), list(range(6, 6 + length)))
        compare(ours.run(feed), onnx.run(feed), feed["attention_mask"])


@pytest.mark.parametrize("to_format", ["paddle-inference", "onnx", "openvino"])
def test_a_pretrained_model_keeps_its_masked_lm_head(checkpoints, tmp_path, to_format):
    """The export's logits of every token are our network's at each position, and it fills masks alike."""
    pytest.importorskip({"onnx": "onnxruntime", "openvino": "openvino"}.get(to_format, "paddle"))
    source = model(tmp_path / "m", "pretraining")
    exported = export(source, tmp_path / "x", "--format", to_format)
    feed = random_feed()
    shape, places = feed["input_ids"].shape, np.flatnonzero(feed["attention_mask"])
    pretrained = read_pretrained(source)
    network = Network(pretrained.parameters, pretrained.config)
    wanted = network.run("masked-lm", {**feed, "masked_lm_positions": places})["masked_lm_logits"]
    found = Predictor(exported).run(feed)["masked_lm_logits"]
    assert found.shape == (*shape, foreign.VOCAB)
    np.testing.assert_allclose(found.reshape(-1, foreign.VOCAB)[places], wanted[:, : foreign.VOCAB], atol=1e-5)
    texts = ["word1 [MASK] word3", "[MASK] word2 word3 word4 [MASK]"]
    for there, here in zip(load_model(exported).predict(texts), load_model(source).predict(texts), strict=True):
        assert there["filled"] == here["filled"]
        likely = [[[fill["probability"] for fill in mask] for mask in result["masks"]] for result in (there, here)]
        np.testing.assert_allclose(*likely, atol=1e-5)


def test_a_pretrained_model_is_served_as_its_encoder_where_that_is_asked_for(checkpoints, tmp_path, capsys):
    words = ("--format", "paddle-inference", "--task", "encoder")
    exported = export(checkpoints["pretraining"], tmp_path / "x", *words)
    assert "left out: masked-LM head, not used by encoder" in capsys.readouterr().out
    assert Predictor(exported).outputs == ["last_hidden_state", "pooler_output"]


@pytest.mark.parametrize(
    ("to_format", "package"),
    [
        *(("onnx", package) for package in ("onnx", "onnxruntime", "ml_dtypes")),
        ("openvino", "onnx"),
        ("openvino", "nncf"),
    ],
)
def test_a_format_without_its_packages_is_one_line_with_the_remedy(tmp_path, capsys, monkeypatch, to_format, package):
    for name in ("openvino", "nncf"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        sys.modules[name].__spec__ = ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "texts.txt").write_text("word1\n")
    words = ["--precision", "int8", "--calibration", tmp_path / "texts.txt"]
    with pytest.raises(SystemExit) as stopped:
        export(tmp_path / "not read", tmp_path / "x", "--format", to_format, *words)
    err = capsys.readouterr().err
    assert stopped.value.code == 2 and err.count("\n") == 1 and not (tmp_path / "x").exists()
    assert f"--format {to_format} needs the {package} package" in err and f"scripts/setup.sh {to_format}" in err


@pytest.mark.parametrize(
    ("to_format", "package", "file"),
    [("onnx", "onnxruntime", "model.onnx"), ("openvino", "openvino", "openvino_model.xml")],
)
def test_an_export_without_what_runs_it_says_that_it_needs_it(tmp_path, monkeypatch, to_format, package, file):
    description = {"format": to_format, "inputs": ["input_ids"], "outputs": {"logits": ["batch", 2]}, "max_length": 9}
    for name, content in (("serving.json", json.dumps(description)), (file, ""), ("openvino_model.bin", "")):
        (tmp_path / name).write_text(content)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=f"{file} needs the {package} package, which is not installed; .*{to_format}"):
        Predictor(tmp_path)


def test_a_damaged_export_is_refused_by_its_name(tmp_path):
    pytest.importorskip("onnxruntime")
    description = {"format": "onnx", "inputs": ["input_ids"], "outputs": {"logits": ["batch", 2]}, "max_length": 9}
    (tmp_path / "model.onnx").touch()
    for change in ({"max_length": "x"}, {"inputs": ["ids"]}, {"outputs": 3}):
        (tmp_path / "serving.json").write_text(json.dumps(description | change))
        with pytest.raises(ValueError, match=f"serving.json does not describe an export .*{next(iter(change))}"):
            Predictor(tmp_path)
    (tmp_path / "serving.json").write_text(json.dumps(description))
    for content in (b"", b"\x08\x07\xed\xa0", b"no model" * 99):
        (tmp_path / "model.onnx").write_bytes(content)
        with pytest.raises(ValueError, match="model.onnx cannot be used .*; export the model again"):
            Predictor(tmp_path)


@pytest.mark.parametrize(
    ("task", "to_format", "requests"),
    [
        pytest.param("encoder", "paddle-inference", ["word1 word2"], marks=pytest.mark.long),
        ("sequence-classification", "paddle-inference", [("word1", "word2 word3")]),
        ("sequence-classification", "onnx", [("word1", "word2 word3"), ("word4", "word5")]),
    ],
)
def test_an_export_is_used_like_its_checkpoint(tmp_path, task, to_format, requests):
    weights = {TOKEN_WEIGHTS: np.random.RandomState(2).randn(foreign.VOCAB + 3, 3).astype("float32")}
    source = model(tmp_path / "m", task, Usage("ours", 9), **(weights if "classification" in task else {}))
    wanted, exported = load_model(source), load_model(export(source, tmp_path / "x", "--format", to_format))
    assert exported.opened.task == task and exported.max_seq_length == wanted.max_seq_length
    card = (tmp_path / "x/README.md").read_text()
    library = "onnx" if to_format == "onnx" else "paddlepaddle"
    assert f"library_name: {library}" in card and "bert-on-paddle predict x" in card and "not recorded" in card
    there, here = exported.predict(requests), wanted.predict(requests)
    numbers = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
    assert numbers.sub("", str(there)) == numbers.sub("", str(here))
    found, known = (list(map(float, numbers.findall(str(result)))) for result in (there, here))
    np.testing.assert_allclose(found, known, atol=1e-5)
    if task == "encoder":
        return
    feed = random_feed()
    feed["attention_mask"][1] = 0  # a server's batch that is not full
    assert np.isfinite(Predictor(tmp_path / "x").run(feed)["logits"]).all()
    encoder = load_model(export(source, tmp_path / "e", "--format", to_format, "--task", "encoder"))
    assert encoder.opened.task == "encoder"
    model(tmp_path / "n", task, Usage("ours", 9))
    assert load_model(tmp_path / "n").predict(requests) != here
    with pytest.raises(ValueError, match="without the outputs of encoder; use a checkpoint"):
        exported.encode(["word1"])
    with pytest.raises(ValueError, match="is an export of .*task=masked-lm needs a masked-LM head"):
        load_model(tmp_path / "x", "masked-lm")
    description = tmp_path / "x/serving.json"
    description.write_text(description.read_text().replace("logits", "others"))
    with pytest.raises(ValueError, match="serving.json lacks .*logits of .*; export the model again"):
        load_model(tmp_path / "x")


@pytest.mark.parametrize("outputs", [1, 3])
def test_an_export_without_names_of_classes_gives_what_its_checkpoint_gives(tmp_path, outputs):
    """One output gives a number; several are named LABEL_0, LABEL_1 ..."""
    head = np.random.RandomState(1).randn(foreign.HIDDEN, outputs).astype("float32")
    changes = {"classifier.weight": head, "classifier.bias": np.ones(outputs, "float32")}
    source = model(tmp_path / "m", "sequence-classification", Usage("ours", 9, regression=outputs == 1), **changes)
    for name in ("labels.json", "manifest.json"):
        (source / name).unlink(missing_ok=True)
    exported = export(source, tmp_path / "x", "--format", "paddle-inference")
    (wanted,), (found,) = (load_model(folder).predict(["word1 word2"]) for folder in (source, exported))
    assert found.get("label") == wanted.get("label") and ("value" in found) == (outputs == 1)
    assert found.get("probabilities", found) == pytest.approx(wanted.get("probabilities", wanted), abs=1e-5)
