"""Tests of a classifier with token weights: every way of using it gives the probabilities of a NumPy reference.

The parts are in the weights: no program adds token weights or divides by a temperature beside the network.
"""

import importlib.util
import json
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import run_predict
from bert.checkpoints import directories as checkpoint_files
from bert.config.architecture import BertConfig
from bert.conversion.reading import read_pretrained
from bert.conversion.usage import Usage
from bert.inference.heads import load_from_settings, load_model
from bert.inference.settings import ModelSettings
from bert.model.head_specs import TOKEN_WEIGHTS, with_temperature
from bert.runtime.paddle_api import IS_PADDLE_3
from bert.serving.messages import DONE, PREDICT, Batch
from bert.serving.model_process import ModelServer
from tests.conversion.test_round_trips import convert
from tests.inference import models
from tests.inference.models import export, records
from tests.references import encoders
from tests.support import foreign

LABELS = models.LABELS["sequence-classification"]
TEXTS = ["word1 word2", "word3", "word4 word4 word5 word6 word7", "word1 word9 word9 word9"]


def token_weights(seed: int = 2) -> np.ndarray:
    return np.random.RandomState(seed).randn(foreign.PADDED, len(LABELS)).astype("float32")


def by_hand(parameters, temperature: float = 1.0, several: bool = False) -> np.ndarray:
    """Return float64 [texts, labels], computed text by text, without padding."""
    model, rows = BertConfig(**foreign.CONFIG), []
    for text in TEXTS:
        ids = [foreign.TOKENS.index(token) for token in f"[CLS] {text} [SEP]".split()]
        places, visible = np.arange(len(ids))[None], np.ones((1, len(ids), len(ids)), bool)
        states = encoders.bert(parameters, model, np.array([ids]), np.zeros_like(places), places, visible)
        logits = encoders.dense(encoders.pooled(states, parameters), parameters, "classifier")[0]
        for index in ids:
            logits = logits + parameters[TOKEN_WEIGHTS][index] / len(ids) ** 0.5
        rows.append(logits / temperature)
    return 1 / (1 + np.exp(-np.array(rows))) if several else encoders.softmax(np.array(rows))


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "m"
    return models.model(
        folder, "sequence-classification", Usage("ours", 12, ("text",)), **{TOKEN_WEIGHTS: token_weights()}
    )


def probabilities(results) -> np.ndarray:
    return np.array([[result["probabilities"][label] for label in LABELS] for result in results])


def parameters_of(folder: Path):
    return load_file(folder / "bert_paddle.safetensors")


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_a_checkpoint_gives_those_of_numpy_for_padded_and_packed_batches(source, batch_size):
    expected = by_hand(parameters_of(source))
    assert np.abs(expected - by_hand({**parameters_of(source), TOKEN_WEIGHTS: 0 * token_weights()})).max() > 0.1
    found = load_model(source, batch_size=batch_size).predict(TEXTS)
    np.testing.assert_allclose(probabilities(found), expected, atol=2e-6)


def test_run_predict_and_the_server_give_those_of_numpy(source, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    assert run_predict.main([str(source), str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.jsonl")]) == 0
    found = records((tmp_path / "out.jsonl").read_text())
    np.testing.assert_allclose(probabilities(found), by_hand(parameters_of(source)), atol=2e-6)
    server = ModelServer(load_from_settings(ModelSettings(model=str(source), device="cpu", cpu_threads=1)))
    batch = Batch(PREDICT, time.monotonic() + 600, len(TEXTS), [((text,), 5) for text in TEXTS])
    _, outcomes = server.answer(batch)
    assert {mark for mark, *_ in outcomes} == {DONE}
    answers = probabilities([json.loads(text) for _, text, _ in outcomes])
    np.testing.assert_allclose(answers, by_hand(parameters_of(source)), atol=2e-6)


TOLERANCES = {"float32": 3e-6, "fp16": 2e-3, "bfloat16": 0.02, "int8": 0.05}
EXPORTS = [
    ("paddle-inference", "float32"),
    ("onnx", "float32"),
    ("openvino", "float32"),
    ("onnx", "fp16"),
    ("onnx", "int8"),
    ("openvino", "int8"),
    ("paddle-inference", "int8"),
]


@pytest.mark.parametrize(("to_format", "precision"), EXPORTS)
def test_every_export_gives_those_of_numpy(source, tmp_path, to_format, precision):
    if (to_format, precision, IS_PADDLE_3) == ("paddle-inference", "int8", True):
        pytest.skip("Paddle 3 has no quantiser")
    for package in {"openvino": ("openvino", "nncf"), "onnx": ("onnxruntime",)}.get(to_format, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} not found")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS * 10))
    words = ["--precision", precision]
    if precision == "int8" and to_format != "onnx":
        words += ["--calibration", tmp_path / "texts.txt"]
    exported = export(source, tmp_path / "x", "--format", to_format, *words)
    assert not {"temperature", "token_weights"} & json.loads((exported / "task.json").read_text()).keys()
    found = load_model(exported, batch_size=len(TEXTS)).predict(TEXTS)
    np.testing.assert_allclose(probabilities(found), by_hand(parameters_of(source)), atol=TOLERANCES[precision])


@pytest.mark.parametrize("several", [False, True])
def test_a_temperature_in_the_weights_divides_the_logits(tmp_path, several):
    """The cases are classes, of which a text has one, and labels, of which it may have several."""
    usage = Usage("ours", 12, ("text",), label_separator=";" if several else None)
    cold = models.model(tmp_path / "cold", "sequence-classification", usage, **{TOKEN_WEIGHTS: token_weights()})
    raw = parameters_of(cold)
    expected = by_hand(raw, 2.5, several)
    assert np.abs(expected - by_hand(raw, 1.0, several)).max() > 0.05
    warm = with_temperature(raw, 2.5)
    assert {array.dtype.name for array in warm.values()} == {"float32"}
    changed = {name for name, array in warm.items() if not np.array_equal(array, raw[name])}
    assert changed == {"classifier.weight", "classifier.bias", TOKEN_WEIGHTS}
    save_file(warm, cold / "bert_paddle.safetensors", {"format": "pd"})
    (cold / checkpoint_files.MANIFEST).unlink()
    checkpoint_files.write_manifest(cold, step=7)
    np.testing.assert_allclose(probabilities(load_model(cold).predict(TEXTS)), expected, atol=2e-6)


@pytest.mark.parametrize("to_format", ["native", "hf", "paddlenlp"])
def test_a_conversion_keeps_the_token_weights_and_says_which_libraries_do_not_use_them(source, tmp_path, to_format):
    converted = convert(source, tmp_path / "x", to_format)
    report = (converted / "conversion.json").read_text()
    number = foreign.VOCAB * len(LABELS)
    library = {"hf": "transformers", "paddlenlp": "PaddleNLP"}.get(to_format)
    said = f"{library} ignores the {number} token weights of this classifier"
    assert (said in report) == (library is not None)
    assert library is None or said in (converted / "README.md").read_text()
    kept = read_pretrained(converted).parameters[TOKEN_WEIGHTS]
    rows = foreign.PADDED if to_format == "native" else foreign.VOCAB
    np.testing.assert_array_equal(kept[:rows], token_weights()[:rows])
    assert kept.shape == (foreign.PADDED, 3) and not kept[rows:].any()
    np.testing.assert_allclose(
        probabilities(load_model(converted).predict(TEXTS)), by_hand(parameters_of(source)), atol=2e-6
    )


def test_an_encoder_of_a_classifier_has_no_token_weights(source, tmp_path):
    encoder = convert(source, tmp_path / "e", "native", "--task", "encoder")
    assert TOKEN_WEIGHTS not in read_pretrained(encoder).parameters
    assert "left out: token weights, not used by encoder" in (encoder / "conversion.json").read_text()


def test_token_weights_of_other_sizes_are_refused(tmp_path):
    folder = models.model(
        tmp_path / "m", "sequence-classification", Usage("ours", 12), **{TOKEN_WEIGHTS: token_weights()[:7]}
    )
    with pytest.raises(ValueError, match=rf"{TOKEN_WEIGHTS} is \[7, 3\], must be \[32, 'any'\]"):
        load_model(folder)
