"""Tests of the model process: results equal `predict` for every head and export, also beside a bad input."""

import dataclasses
import functools
import json
import time

import numpy as np
import psutil
import pytest
import requests

from bert.checkpoints.directories import MANIFEST, write_manifest
from bert.conversion.usage import Usage
from bert.inference.heads import load_from_settings
from bert.inference.settings import ModelSettings
from bert.runtime.paddle_api import place_of
from bert.serving.messages import DONE, ENCODE, FAILED, LATE, PREDICT, REFUSED, Batch, Outcome
from bert.serving.model_process import ModelServer
from bert.serving.schemas import request_schemas
from bert.serving.settings import Limits
from tests.inference import models
from tests.inference.models import export
from tests.serving import servers
from tests.support import foreign

TEXTS = {
    "pretraining": [["word1 [MASK] word3"], ["[MASK]"]],
    "question-answering": [["word1?", "word2 word3, word4"], ["word5?", "word6 " * 30]],
    "sequence-classification": [["word1 word2"], ["word3", "word4"]],
    "token-classification": [["word5, word6 (word7)."], ["word1"]],
}


folders = models.folders  # fixture


def server(folder, **settings) -> ModelServer:
    return ModelServer(load_from_settings(ModelSettings(model=str(folder), device="cpu", cpu_threads=1, **settings)))


@pytest.fixture(scope="module")
def served(folders):
    """Make the server of a task's model once."""
    return functools.cache(lambda task: server(folders[task]))


def answer(serving: ModelServer, inputs, kind: str = PREDICT, top_k: int = 5, seconds: float = 600):
    return serving.answer(Batch(kind, time.monotonic() + seconds, 8, [(tuple(texts), top_k) for texts in inputs]))


@pytest.mark.parametrize("task", TEXTS)
def test_every_head_answers_as_predict_does_and_as_its_schema_says(served, task):
    serving = served(task)
    figures, outcomes = answer(serving, TEXTS[task])
    assert [mark for mark, *_ in outcomes] == [DONE, DONE]
    results = [json.loads(text) for _, text, _ in outcomes]
    assert results == serving.model.predict([tuple(texts) for texts in TEXTS[task]])
    request, whole_answer = request_schemas(serving.describe("notes"), PREDICT, Limits())
    whole_answer.model_validate({"results": results, "truncated": 0})
    names = ("question", "context") if task == "question-answering" else ("text", "text_pair")
    request.model_validate({"inputs": [dict(zip(names, texts, strict=False)) for texts in TEXTS[task]]})
    assert 0 < figures.tokens <= figures.padded_tokens and figures.seconds > 0
    vectors = answer(serving, [["word1"], ["word2 word3"]], ENCODE)[1]
    expected = serving.model.encode(["word1", "word2 word3"])
    np.testing.assert_allclose([json.loads(text)["vector"] for _, text, _ in vectors], expected, rtol=1e-5, atol=1e-6)


def test_the_figures_of_a_batch_are_its_tokens_and_those_with_padding(served):
    """Texts have 1, 2 and 3 words, each with [CLS] and [SEP]; two texts run at a time, by length."""
    serving, widths = served("sequence-classification"), []
    run = serving._forward

    def noted(task, feed):
        widths.append(feed["input_ids"].shape)
        return run(task, feed)

    serving._forward = noted
    try:
        inputs = [((text,), 5) for text in ("word1", "word1 word2 word3", "word1 word2")]
        figures, _ = serving.answer(Batch(PREDICT, time.monotonic() + 60, 2, inputs))
    finally:
        serving._forward = run
    assert sorted(rows for rows, _ in widths) == [1, 2]
    assert figures.tokens == 3 + 4 + 5 and figures.padded_tokens == sum(rows * width for rows, width in widths)
    assert 0 < figures.seconds < 60
    vectors = serving.answer(Batch(ENCODE, time.monotonic() + 60, 8, inputs))[1]
    assert [json.loads(each.json)["tokens"] for each in vectors] == [3, 5, 4]


def test_inputs_whose_ends_are_not_read_are_marked(folders):
    """8 tokens fit, two of them [CLS] and [SEP]: six words are read whole, seven are not."""
    serving, six = server(folders["sequence-classification"], max_seq_length=8), "word1 " * 6
    for kind, inputs in ((PREDICT, [[six], [six + "word2"], ["word1", six]]), (ENCODE, [[six], [six + "word2"]])):
        figures, outcomes = answer(serving, inputs, kind)
        assert [outcome.truncated for outcome in outcomes] == [False, True, True][: len(inputs)]
        assert figures.truncated == len(inputs) - 1
    figures, outcomes = answer(serving, [["word1"]])
    assert (figures.truncated, outcomes[0].truncated) == (0, False), "each batch counts its own"


def test_inputs_whose_deadline_passed_are_late_before_they_run(served):
    figures, outcomes = answer(served("sequence-classification"), [["word1"], ["word2"]], seconds=-0.001)
    assert outcomes == [Outcome(LATE)] * 2 and figures.tokens == figures.padded_tokens == 0
    figures, outcomes = answer(served("pretraining"), [["no mask"], ["[MASK]"]], seconds=-0.001)
    assert [mark for mark, *_ in outcomes] == [REFUSED, LATE]


def test_a_bad_input_costs_the_others_nothing(served, monkeypatch):
    serving = served("pretraining")
    inputs = [["a [MASK]"], ["no mask here"], ["[MASK] b"]]
    _, outcomes = answer(serving, inputs)
    assert [mark for mark, *_ in outcomes] == [DONE, REFUSED, DONE] and b"no [MASK] in the text" in outcomes[1][1]
    run = serving.model.run

    def fails(requests):
        if ("[MASK] b",) in requests:
            raise RuntimeError("at b")
        return run(requests)

    monkeypatch.setattr(serving.model, "run", fails)
    _, outcomes = answer(serving, inputs)
    assert [mark for mark, *_ in outcomes] == [DONE, REFUSED, FAILED] and b"RuntimeError: at b" in outcomes[2][1]


def test_each_input_has_its_own_number_of_candidates(served):
    serving = served("pretraining")
    inputs = [(("a [MASK]",), top_k) for top_k in (2, 7, 1)]
    _, outcomes = serving.answer(Batch(PREDICT, time.monotonic() + 60, 8, inputs))
    assert [len(json.loads(text)["masks"][0]) for _, text, _ in outcomes] == [2, 7, 1]


def test_the_fingerprint_is_of_all_that_decides_results(folders, tmp_path):
    folder = folders["sequence-classification"]
    settings = [{}, {"max_seq_length": 8}, {"do_lower_case": "false"}, {"do_lower_case": "true"}]
    prints = [server(folder, **each).describe("notes").fingerprint for each in (*settings, {})]
    assert len(set(prints[:4])) == 3 and prints[4] == prints[0]
    opened = server(folder).model.opened
    (tmp_path / "task.json").write_text(" " * (1 << 21) + '{"threshold": 0.5}')  # large, as with weights of tokens
    before = dataclasses.replace(opened, path=tmp_path).fingerprint()
    (tmp_path / "task.json").write_text(" " * (1 << 21) + '{"threshold": 0.6}')
    assert dataclasses.replace(opened, path=tmp_path).fingerprint() != before


def test_damaged_weights_are_found_before_the_model_is_ready(folders):
    serving = server(folders["sequence-classification"])
    network = serving._forward.__self__
    values = network.scope.find_var("classifier.bias").get_tensor()
    values.set(np.full(3, np.nan, "float32"), place_of("cpu"))
    with pytest.raises(ValueError, match="the model's outputs are NaN or infinite"):
        serving.warm_up()


def test_an_export_is_served(served, folders, tmp_path):
    serving = server(export(folders["sequence-classification"], tmp_path / "export", "--format", "paddle-inference"))
    assert not serving.describe("notes").can_encode
    opened = serving.model.opened
    assert serving.describe("notes").name == opened.usage.name
    serving.model.opened = dataclasses.replace(opened, usage=dataclasses.replace(opened.usage, name="custom"))
    assert serving.describe("notes").name == "notes"
    found, expected = (
        json.loads(answer(each, TEXTS["sequence-classification"])[1][0].json)
        for each in (serving, served("sequence-classification"))
    )
    assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)


@pytest.mark.long
def test_the_model_process_does_not_grow_with_the_shapes_of_its_batches(tmp_path):
    """Each shape of a batch has kernels of its own; without a limit on those kept, the process grows by 40 MB here."""
    folder, positions = tmp_path / "model", 128
    table = np.random.default_rng(0).normal(size=(positions, foreign.HIDDEN)).astype("float32")
    usage = Usage("sequence-classification", positions)
    models.model(folder, "sequence-classification", usage, **{"bert.embeddings.position_embeddings.weight": table})
    (folder / "bert_config.json").write_text(json.dumps({**foreign.CONFIG, "max_position_embeddings": positions}))
    (folder / MANIFEST).unlink()
    write_manifest(folder, step=7)
    rng, sizes = np.random.default_rng(1), []
    with servers.serving(tmp_path, folder, "--cpu-threads", "1") as running, requests.Session() as session:
        for number in range(400):
            texts = [" ".join(["word1"] * length) for length in rng.integers(1, 200, rng.integers(1, 13))]
            path = ("predict", "encode")[number % 2]
            answer = session.post(f"{running.url}/{path}", json={"inputs": texts}, timeout=60)
            assert answer.status_code == 200
            if number in (50, 399):
                sizes.append(psutil.Process(running.model_pid()).memory_info().rss)
    assert sizes[1] - sizes[0] < 12 << 20, sizes
