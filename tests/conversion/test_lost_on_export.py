"""Parts of a prediction outside the network: in serving.json, or in a note with their cost on held-out rows."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert.conversion.lost_on_export import facts_beside_network, what_is_lost
from bert.conversion.model import Model, read
from bert.conversion.settings import ConversionRequest
from bert.conversion.task_file import read_usage
from bert.conversion.usage import Usage, VectorForm
from bert.model.head_specs import TOKEN_WEIGHTS
from tests.inference import models
from tests.inference.models import export
from tests.support import foreign

HELD_OUT = {"whole": {"accuracy": 0.7417, "macro_f1": 0.7}, "token weights": {"accuracy": 0.6583, "macro_f1": 0.625}}
HELD_OUT["threshold"] = {"accuracy": 0.775, "macro_f1": 0.5}
URGENT = Usage("ours", 9, ("text",), positive_label="fox", threshold=0.3125, held_out=HELD_OUT)
FORMATS = ("native", "hf", "paddlenlp", "onnx", "openvino", "triton", "paddle-inference")


def model_of(folder: Path, task: str, usage: Usage, **changes) -> Model:
    models.model(folder, task, usage, **changes)
    return read(ConversionRequest(source=str(folder), target=folder / "x", to_format="hf"))


def token_weights() -> dict[str, np.ndarray]:
    return {TOKEN_WEIGHTS: np.ones((foreign.PADDED, 3), "float32")}


@pytest.mark.parametrize("to_format", FORMATS)
def test_each_format_names_what_it_leaves_out_with_its_cost(tmp_path, to_format):
    model = model_of(tmp_path / "m", "sequence-classification", URGENT, **token_weights())
    lines = what_is_lost(model, to_format)
    tokens = [line for line in lines if "token weights" in line]
    thresholds = [line for line in lines if "no threshold" in line]
    assert len(tokens) == (to_format in ("hf", "paddlenlp")) and len(thresholds) == (to_format != "native")
    assert len(lines) == len(tokens) + len(thresholds)
    if tokens:
        said = "it has accuracy 65.8%  macro_f1 62.5%, not accuracy 74.2%  macro_f1 70.0%"
        assert said in tokens[0] and f"ignores the {foreign.VOCAB * 3} token weights" in tokens[0]
    if thresholds:
        assert "predict fox from a probability of 0.312 on" in thresholds[0]
        assert "it has accuracy 77.5%  macro_f1 50.0%, not accuracy 74.2%" in thresholds[0]
        assert ("task.json" in thresholds[0]) == (to_format in ("hf", "paddlenlp"))


def test_a_cost_that_was_not_measured_is_not_named(tmp_path):
    usage = Usage("ours", 9, ("text",), positive_label="fox", threshold=0.25)
    model = model_of(tmp_path / "m", "sequence-classification", usage, **token_weights())
    tokens, threshold = what_is_lost(model, "hf")
    assert "the scores of the training are not its scores" in tokens and "accuracy" not in tokens + threshold
    plain = model_of(tmp_path / "plain", "sequence-classification", Usage("ours", 9, ("text",)))
    assert [what_is_lost(plain, to_format) for to_format in FORMATS] == [[]] * len(FORMATS)


def test_prefixes_and_pooling_of_vectors_are_named_where_no_library_applies_them(tmp_path):
    form = VectorForm(pooling="mean", normalize=True, query_prefix="query: ", passage_prefix="")
    model = model_of(tmp_path / "m", "encoder", Usage("pairs", 9, vectors=form))
    assert what_is_lost(model, "hf") == [], "sentence-transformers reads them"
    (onnx,) = what_is_lost(model, "onnx")
    assert onnx == "The network adds no prefix: put 'query: ' before a query."
    (paddle,) = what_is_lost(model, "paddlenlp")
    assert paddle == f"{onnx} PaddleNLP gives hidden states: the vector of a text is the mean of the states of all " + (
        "tokens, scaled to length 1."
    )


@pytest.mark.parametrize(
    ("task", "usage", "decision"),
    [
        ("sequence-classification", URGENT, {"positive_label": "fox", "threshold": 0.3125}),
        ("sequence-classification", Usage("ours", 9, label_separator=";"), {"several_labels": True, "threshold": 0.5}),
        ("sequence-classification", Usage("ours", 9), None),
        (
            "token-classification",
            Usage("ner", 9, word_rules={"hyphens": True}),
            {"word_rules": {"hyphens": True}, "document_context": False},
        ),
    ],
)
def test_serving_json_has_the_length_the_normalisation_and_the_decision(tmp_path, task, usage, decision):
    facts = facts_beside_network(model_of(tmp_path / "m", task, usage))
    assert facts["max_seq_length"] == 9 and facts["normalization"]["do_lower_case"] is True
    assert facts.get("decision") == decision
    assert facts_beside_network(model_of(tmp_path / "n", task, Usage("ours")))["max_seq_length"] == foreign.POSITIONS


def test_an_export_has_them_in_its_serving_json_and_its_notes(tmp_path):
    pytest.importorskip("onnxruntime")
    models.model(tmp_path / "m", "sequence-classification", URGENT, **token_weights())
    served = json.loads((export(tmp_path / "m", tmp_path / "x", "--format", "onnx") / "serving.json").read_text())
    assert served["max_seq_length"] == 9 and served["decision"] == {"positive_label": "fox", "threshold": 0.3125}
    card = (tmp_path / "x/README.md").read_text()
    for text in (card, (tmp_path / "x/conversion.json").read_text()):
        assert "predict fox from a probability of 0.312 on" in " ".join(text.split())
    assert read_usage(tmp_path / "x") == URGENT
