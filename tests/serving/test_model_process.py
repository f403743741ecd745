"""The model process: results as `predict` gives them, for every head and for exports; one bad input costs no other."""

import dataclasses
import json
import time

import numpy as np
import pytest

from bert.inference.command_line import ModelSettings
from bert.inference.heads import load_from_settings, load_model
from bert.runtime.paddle_api import place_of
from bert.serving.model_process import ModelServer
from bert.serving.schemas import request_schemas
from bert.serving.settings import Limits
from bert.serving.worker import DONE, ENCODE, FAILED, LATE, PREDICT, REFUSED, Batch
from tests.inference import models
from tests.inference.models import export

TEXTS = {
    "pretraining": [["word1 [MASK] word3"], ["[MASK]"]],
    "question-answering": [["word1?", "word2 word3, word4"], ["word5?", "word6 " * 30]],
    "sequence-classification": [["word1 word2"], ["word3", "word4"]],
    "token-classification": [["word5, word6 (word7)."], ["word1"]],
}


folders = models.folders  # fixture


def server(folder, **settings) -> ModelServer:
    return ModelServer(load_from_settings(ModelSettings(model=str(folder), device="cpu", cpu_threads=1, **settings)))


def answer(serving: ModelServer, inputs, kind: str = PREDICT, top_k: int = 5, seconds: float = 600):
    return serving.answer(Batch(kind, time.monotonic() + seconds, 8, [(tuple(texts), top_k) for texts in inputs]))


@pytest.mark.parametrize("task", TEXTS)
def test_every_head_answers_as_predict_does_and_as_its_schema_says(folders, task):
    serving = server(folders[task])
    figures, outcomes = answer(serving, TEXTS[task])
    assert [mark for mark, _ in outcomes] == [DONE, DONE]
    results = [json.loads(text) for _, text in outcomes]
    assert results == load_model(folders[task], device="cpu").predict([tuple(texts) for texts in TEXTS[task]])
    request, whole_answer = request_schemas(serving.describe("notes"), PREDICT, Limits())
    whole_answer.model_validate({"results": results})
    names = ("question", "context") if task == "question-answering" else ("text", "text_pair")
    request.model_validate({"inputs": [dict(zip(names, texts, strict=False)) for texts in TEXTS[task]]})
    assert 0 < figures.tokens <= figures.padded_tokens and figures.seconds > 0
    vectors = answer(serving, [["word1"], ["word2 word3"]], ENCODE)[1]
    expected = load_model(folders[task], "encoder", device="cpu").encode(["word1", "word2 word3"])
    np.testing.assert_allclose([json.loads(text)["vector"] for _, text in vectors], expected, rtol=1e-5, atol=1e-6)


def test_a_bad_input_costs_the_others_nothing(folders, monkeypatch):
    serving = server(folders["pretraining"])
    inputs = [["a [MASK]"], ["no mask here"], ["[MASK] b"]]
    _, outcomes = answer(serving, inputs)
    assert [mark for mark, _ in outcomes] == [DONE, REFUSED, DONE] and b"no [MASK] in the text" in outcomes[1][1]
    run = serving.model.run

    def fails(requests):
        if ("[MASK] b",) in requests:
            raise RuntimeError("at b")
        return run(requests)

    monkeypatch.setattr(serving.model, "run", fails)
    _, outcomes = answer(serving, inputs)
    assert [mark for mark, _ in outcomes] == [DONE, REFUSED, FAILED] and b"RuntimeError: at b" in outcomes[2][1]


def test_each_input_has_its_own_number_of_candidates(folders):
    serving = server(folders["pretraining"])
    inputs = [(("a [MASK]",), top_k) for top_k in (2, 7, 1)]
    _, outcomes = serving.answer(Batch(PREDICT, time.monotonic() + 60, 8, inputs))
    assert [len(json.loads(text)["masks"][0]) for _, text in outcomes] == [2, 7, 1]


def test_the_fingerprint_is_of_all_that_decides_results(folders):
    folder = folders["sequence-classification"]
    settings = [{}, {"max_seq_length": 8}, {"do_lower_case": "false"}, {"do_lower_case": "true"}]
    prints = [server(folder, **each).describe("notes").fingerprint for each in (*settings, {})]
    assert len(set(prints[:4])) == 3 and prints[4] == prints[0]


def test_what_is_too_late_is_not_run(folders):
    serving = server(folders["sequence-classification"])
    figures, outcomes = answer(serving, [["word1"], ["word2"]], seconds=-1)
    assert [mark for mark, _ in outcomes] == [LATE, LATE] and figures.tokens == 0


def test_damaged_weights_are_found_before_the_model_is_ready(folders):
    serving = server(folders["sequence-classification"])
    network = serving._forward.__self__
    values = network.scope.find_var("classifier.bias").get_tensor()
    values.set(np.full(3, np.nan, "float32"), place_of("cpu"))
    with pytest.raises(ValueError, match="the model's outputs are NaN or infinite"):
        serving.warm_up()


@pytest.mark.parametrize("form", ["paddle-inference", "onnx"])
def test_exports_are_served(folders, tmp_path, form):
    if form == "onnx":
        pytest.importorskip("onnxruntime")
    source = folders["sequence-classification"]
    serving = server(export(source, tmp_path / "export", "--format", form))
    assert not serving.describe("notes").can_encode
    opened = serving.model.opened
    assert serving.describe("notes").name == opened.usage.name
    serving.model.opened = dataclasses.replace(opened, usage=dataclasses.replace(opened.usage, name="custom"))
    assert serving.describe("notes").name == "notes"
    _, outcomes = answer(serving, TEXTS["sequence-classification"])
    (expected, _) = load_model(source, device="cpu").predict(["word1 word2", ("word3", "word4")])
    assert json.loads(outcomes[0][1])["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
