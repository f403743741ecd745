"""Tests of exports in INT8, float16 and bfloat16: `Predictor` loads them, and inaccurate ones are refused."""

import json

import numpy as np
import pytest

from bert.config.architecture import BertConfig
from bert.conversion.usage import Usage
from bert.inference import onnx_graph, predictor
from bert.inference.export_files import TOLERANCES
from bert.inference.predictor import Predictor
from bert.inference.samples import random_sample, read_texts
from bert.runtime.paddle_api import IS_PADDLE_3
from tests.inference import models
from tests.inference.models import export

LINES = "".join(f"word{i % 20} word{i % 7}\tword{i % 11} word{i % 3} word{i % 5}\n" for i in range(40))


folders = models.folders  # fixture


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    file = tmp_path_factory.mktemp("precisions") / "texts.tsv"
    file.write_text(LINES)
    return file


def description_of(folder) -> dict:
    return json.loads((folder / "serving.json").read_text())


KINDS = [  # each format, precision and task once
    pytest.param("sequence-classification", "onnx", "int8", ()),
    *(
        pytest.param(*kind, marks=pytest.mark.long)
        for kind in (
            ("token-classification", "onnx", "fp16", ()),
            ("question-answering", "onnx", "int8", ("--calibration",)),
            ("token-classification", "paddle-inference", "bfloat16", ()),
            ("encoder", "openvino", "bfloat16", ()),
            ("token-classification", "openvino", "int8", ("--calibration",)),
            ("encoder", "paddle-inference", "int8", ("--calibration",)),
        )
    ),
]


@pytest.mark.parametrize(("task", "to_format", "precision", "more"), KINDS)
def test_every_precision_is_checked_and_loads(folders, texts, tmp_path, capsys, task, to_format, precision, more):
    if IS_PADDLE_3 and (to_format, precision) == ("paddle-inference", "int8"):
        pytest.skip("Paddle 3 has no quantiser")
    if to_format == "openvino":
        pytest.importorskip("nncf" if precision == "int8" else "openvino")
    words = [word for flag in (*more, "--sample") for word in (flag, texts)]
    folder = export(folders[task], tmp_path / "x", "--format", to_format, "--precision", precision, *words)
    served = description_of(folder)
    check = served["check"]
    assert served["precision"] == precision and check["sample"] == "texts.tsv" and check["sequences"] == 40
    assert 0 <= check["relative_error"] <= check["tolerance"] == TOLERANCES[precision]
    exact, rough = Predictor(export(folders[task], tmp_path / "float32", "--format", "onnx")), Predictor(folder)
    feed = exact.tokenize(read_texts(texts))
    expected, outputs = exact.run(feed), rough.run(feed)
    largest = max(float(np.abs(expected[name] - outputs[name]).max()) for name in expected)
    is_float32 = "this processor computes it in float32" in capsys.readouterr().out
    assert (largest < 1e-5) == is_float32, "the precision is really another one"
    assert (task == "encoder") == (check["same_decision"] is None)


def test_a_calibration_may_be_a_table_with_the_columns_of_the_training(tmp_path):
    source = models.model(tmp_path / "m", "sequence-classification", Usage("ours", 9, ("headline",)))
    (tmp_path / "texts.csv").write_text("id,headline\n" + "1,word1 word2\n2,word3\n" * 9)
    words = ("--format", "onnx", "--precision", "int8", "--calibration", tmp_path / "texts.csv")
    check = description_of(export(source, tmp_path / "x", *words))["check"]
    assert (check["sample"], check["sequences"], check["tokens"]) == ("texts.csv", 18, 9 * (4 + 3))


def refusal(capsys, source, target, *arguments: object) -> str:
    """Return the line on standard error; nothing is written."""
    with pytest.raises(SystemExit) as stopped:
        export(source, target, *arguments)
    err = capsys.readouterr().err
    assert stopped.value.code == 2 and err.count("\n") == 1
    assert not [path for path in target.parent.iterdir() if "x" in path.name and path.is_dir()], (
        "nothing partial is left"
    )
    return err


def test_int8_of_paddle_is_refused_under_paddle_3(folders, texts, tmp_path, monkeypatch, capsys):
    words = ["--format", "paddle-inference", "--precision", "int8", "--calibration", texts]
    if not IS_PADDLE_3:
        export(folders["encoder"], tmp_path / "before", *words)
    monkeypatch.setattr(predictor, "IS_PADDLE_3", True)
    if not IS_PADDLE_3:
        with pytest.raises(ValueError, match="needs the quantiser of Paddle 2.6, and this is"):
            Predictor(tmp_path / "before")
    assert "--output-format onnx --precision int8" in refusal(capsys, folders["encoder"], tmp_path / "x", *words)


def test_an_export_that_is_too_far_off_is_not_written(folders, tmp_path, capsys, monkeypatch):
    source, words = folders["sequence-classification"], ["--format", "onnx"]
    err = refusal(capsys, source, tmp_path / "x", *words, "--precision", "int8", "--tolerance", "1e-9")
    assert "above the tolerance 1e-09" in err
    monkeypatch.setattr(onnx_graph, "_MASKED_SCORE", 0.0)  # a wrong graph: padding is attended
    assert "differs from the model" in refusal(capsys, source, tmp_path / "x", *words)


def test_layers_can_stay_in_float32(folders, tmp_path, caplog):
    words = ["--format", "onnx", "--precision", "int8", "--keep-float", "*.output.dense"]
    folder = export(folders["sequence-classification"], tmp_path / "x", *words)
    kept = description_of(folder)["quantization"]["float32_layers"]
    assert "bert.encoder.layer.0.output.dense" in kept and "classifier" in kept
    assert not any("intermediate" in name for name in kept)
    assert not [record for record in caplog.records if "pre-processing" in record.message]  # ONNX Runtime's advice
    assert not list(folder.glob("*-model.onnx")), "nothing is left of the steps in between"


WRONG = {
    "--format onnx --precision bfloat16": "onnx is written in float32, fp16, int8",
    "--format hf --precision int8": "hf is written in float32",
    "--format paddle-inference --precision int8": "needs typical texts: --calibration FILE",
    "--format openvino --precision fp16": "openvino is written in float32, bfloat16, int8",
    "--format openvino --precision int8": "int8 of openvino needs typical texts: --calibration",
    "--format onnx --keep-float *": "are for INT8; add --precision int8",
    "--format onnx --tolerance -1": "tolerance=-1 must be greater than 0; change --tolerance",
    "--format hf --tolerance 1": "hf is not checked by a sample",
    "--output-format onnx --precision int8 --keep-float nothing": "no layer has this name",
    "--output-format onnx --precision int8 --calibration nowhere": "nowhere: No such file",
    "--format onnx --sample {empty}": "holds no text",
    "--format onnx --sample {bad}": "bad.jsonl:1: the object has the keys x",
}


def test_a_wrong_request_is_one_line(folders, tmp_path, capsys):
    places = {"empty": tmp_path / "empty.txt", "bad": tmp_path / "bad.jsonl"}
    places["empty"].write_text("")
    places["bad"].write_text('{"x": 1}\n')
    source = folders["sequence-classification"]
    said = {words: refusal(capsys, source, tmp_path / "x", *words.format(**places).split()) for words in WRONG}
    assert {words: err for words, err in said.items() if WRONG[words] not in err} == {}


def test_the_random_sample_is_the_same_every_time_and_fits_the_model():
    config = BertConfig(
        vocab_size=106,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=37,
        max_position_embeddings=17,
    )
    sample, other = random_sample(config), random_sample(config)
    assert len(sample.table) == 64
    for left, right in zip(sample.batches(), other.batches(), strict=True):
        assert all(np.array_equal(left[name], right[name]) for name in left)
        assert left["input_ids"].shape[1] <= 17 and left["input_ids"].max() < 106
    (joined,) = sample.batches(64)
    assert joined["input_ids"].shape[0] == 64 and joined["attention_mask"].sum() == len(sample.table.input_ids)
