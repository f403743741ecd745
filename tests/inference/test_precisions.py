"""Exports in INT8, float16 and bfloat16: checked before they are written, loaded by `Predictor`, refused if far off."""

import json

import numpy as np
import pytest

import run_export
from bert.config.architecture import BertConfig
from bert.inference import onnx_graph, predictor
from bert.inference.exporting import TOLERANCES
from bert.inference.predictor import Predictor
from bert.inference.samples import random_sample, read_texts
from bert.runtime.paddle_api import IS_PADDLE_3
from tests.inference.models import model

LINES = "".join(f"word{i % 20} word{i % 7}\tword{i % 11} word{i % 3} word{i % 5}\n" for i in range(40))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("precisions")
    (root / "texts.tsv").write_text(LINES)
    for task in ("sequence-classification", "token-classification", "question-answering", "encoder"):
        model(root / task, task)
    return root


def export(folder, task: str, target, *arguments: object) -> dict:
    """Run the command; returns serving.json."""
    words = ["--checkpoint", folder / task, "--to", target, *arguments]
    assert run_export.main([str(word) for word in words]) == 0
    return json.loads((target / "serving.json").read_text())


KINDS = [
    ("onnx", "float32", ()),
    ("onnx", "fp16", ()),
    ("onnx", "int8", ()),
    ("onnx", "int8", ("--calibration",)),
    ("paddle-inference", "bfloat16", ()),
    ("paddle-inference", "int8", ("--calibration",)),
]


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("sequence-classification", KINDS[2]),
        *[
            pytest.param(task, kind, marks=pytest.mark.thorough)
            for task in ("sequence-classification", "token-classification", "question-answering", "encoder")
            for kind in KINDS
        ],
    ],
)
def test_every_precision_is_checked_and_loads(folder, tmp_path, task, kind):
    to_format, precision, more = kind
    if IS_PADDLE_3 and kind == KINDS[-1]:
        pytest.skip("Paddle 3 has no quantiser")
    texts = folder / "texts.tsv"
    words = [word for flag in more for word in (flag, texts)]
    served = export(
        folder, task, tmp_path / "x", "--format", to_format, "--precision", precision, *words, "--sample", texts
    )
    check = served["check"]
    assert served["precision"] == precision and check["sample"] == "texts.tsv" and check["sequences"] == 40
    assert 0 <= check["relative_error"] <= check["tolerance"] == TOLERANCES[precision]
    exact, rough = Predictor(folder_of_float32(folder, task, tmp_path)), Predictor(tmp_path / "x")
    feed = exact.tokenize(read_texts(texts))
    wanted, found = exact.run(feed), rough.run(feed)
    largest = max(float(np.abs(wanted[name] - found[name]).max()) for name in wanted)
    assert (largest < 1e-5) == (precision == "float32"), "the precision is really another one"
    assert (task == "encoder") == (check["same_decision"] is None)


def test_int8_of_paddle_is_refused_under_paddle_3(folder, tmp_path, monkeypatch, capsys):
    texts = folder / "texts.tsv"
    words = ["--format", "paddle-inference", "--precision", "int8", "--calibration", texts]
    if not IS_PADDLE_3:
        export(folder, "encoder", tmp_path / "x", *words)
    monkeypatch.setattr(predictor, "IS_PADDLE_3", True)
    if not IS_PADDLE_3:
        with pytest.raises(ValueError, match="needs the quantiser of Paddle 2.6, and this is"):
            Predictor(tmp_path / "x")
    command = ["--checkpoint", folder / "encoder", "--to", tmp_path / "y", *words]
    with pytest.raises(SystemExit):
        run_export.main([str(word) for word in command])
    assert "--format onnx --precision int8" in capsys.readouterr().err and not (tmp_path / "y").exists()


def folder_of_float32(folder, task, tmp_path):
    target = tmp_path / "float32"
    export(folder, task, target, "--format", "onnx")
    return target


def test_an_export_that_is_too_far_off_is_not_written(folder, tmp_path, capsys):
    arguments = ["--format", "onnx", "--precision", "int8", "--tolerance", "1e-9"]
    with pytest.raises(SystemExit) as stopped:
        export(folder, "sequence-classification", tmp_path / "x", *arguments)
    err = capsys.readouterr().err
    assert stopped.value.code == 2 and err.count("\n") == 1 and "above the tolerance 1e-09" in err
    assert not list(tmp_path.iterdir()), "nothing partial is left"


def test_a_wrong_graph_is_found_by_the_check(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(onnx_graph, "_MASKED_SCORE", 0.0)  # padding is attended
    with pytest.raises(SystemExit):
        export(folder, "sequence-classification", tmp_path / "x", "--format", "onnx")
    assert "differs from the model" in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_layers_can_stay_in_float32(folder, tmp_path, caplog):
    arguments = ["--format", "onnx", "--precision", "int8", "--keep-float", "*.output.dense"]
    served = export(folder, "sequence-classification", tmp_path / "x", *arguments)
    kept = served["quantization"]["float32_layers"]
    assert "bert.encoder.layer.0.output.dense" in kept and "classifier" in kept
    assert not any("intermediate" in name for name in kept)
    assert not [record for record in caplog.records if "pre-processing" in record.message]  # ONNX Runtime's advice
    assert not list((tmp_path / "x").glob("*-model.onnx")), "nothing is left of the steps in between"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "onnx", "--precision", "bfloat16"], "onnx is written in float32, fp16, int8"),
        (["--format", "hf", "--precision", "int8"], "hf is written in float32"),
        (["--format", "paddle-inference", "--precision", "int8"], "needs typical texts: --calibration FILE"),
        (["--format", "onnx", "--keep-float", "*"], "are for INT8; add --precision int8"),
        (["--format", "onnx", "--tolerance", "-1"], "must be a positive number"),
        (["--format", "hf", "--tolerance", "1"], "hf is not checked by a sample"),
        (["--format", "onnx", "--precision", "int8", "--keep-float", "nothing"], "no layer has this name"),
        (["--format", "onnx", "--precision", "int8", "--calibration", "nowhere"], "nowhere: No such file"),
        (["--format", "onnx", "--sample", "{empty}"], "holds no text"),
        (["--format", "onnx", "--sample", "{bad}"], "bad.jsonl:1: the object has the keys x"),
    ],
)
def test_a_wrong_request_is_one_line(folder, tmp_path, capsys, arguments, message):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n')
    places = {"empty": tmp_path / "empty.txt", "bad": tmp_path / "bad.jsonl"}
    with pytest.raises(SystemExit) as stopped:
        export(folder, "sequence-classification", tmp_path / "x", *[word.format(**places) for word in arguments])
    err = capsys.readouterr().err
    assert stopped.value.code == 2 and message in err and err.count("\n") == 1 and not (tmp_path / "x").exists()


def test_the_random_sample_is_the_same_every_time_and_fits_the_model():
    config = BertConfig(
        vocab_size=106,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=37,
        max_position_embeddings=17,
    )
    one, other = random_sample(config), random_sample(config)
    assert len(one.table) == 64 and all(batch["input_ids"].shape[1] <= 17 for batch in one.batches())
    assert all(
        np.array_equal(left[name], right[name])
        for left, right in zip(one.batches(), other.batches(), strict=True)
        for name in left
    )
    assert max(int(batch["input_ids"].max()) for batch in one.batches()) < 106
    (joined,) = one.batches(64)
    assert joined["input_ids"].shape[0] == 64 and joined["attention_mask"].sum() == len(one.table.input_ids)
