"""Limits on the content of a file, and the shapes that tensors of a model must have."""

import json
import os

import numpy as np
import pytest

from bert.config.architecture import BertConfig
from bert.conversion.raw_tensors import check_volume
from bert.conversion.tensor_names import check_parameters, count_layers, heads_of, with_question_answering_head
from bert.conversion.untrusted_files import (
    ConversionError,
    count_elements,
    excerpt,
    map_file,
    read_json,
    regular_file,
    write_json,
)
from tests.support import foreign


def test_only_ordinary_files_with_content_are_opened(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    assert regular_file(tmp_path / "a") == 3 and map_file(tmp_path / "a")[:] == b"abc"
    for name, text in (
        ("none", "cannot be read .No such file"),
        ("empty", "is empty"),
        ("pipe", "must be an ordinary file"),
        (".", "must be an ordinary file"),
    ):
        with pytest.raises(ConversionError, match=text):
            map_file(tmp_path / name)


def test_json_of_a_limited_size_is_read(tmp_path):
    write_json(tmp_path / "a", {"é": [1]})
    assert (tmp_path / "a").read_text().endswith("\n") and read_json(tmp_path / "a", "x") == {"é": [1]}
    size = (tmp_path / "a").stat().st_size
    assert read_json(tmp_path / "a", "x", size) == {"é": [1]}
    with pytest.raises(ConversionError, match="a must be JSON with sizes, of at most 0 MB; check the file"):
        read_json(tmp_path / "a", "sizes", size - 1)
    for content in ("{", "[" * 100_000):
        (tmp_path / "a").write_text(content)
        with pytest.raises(ConversionError, match="must be JSON with sizes .(JSONDecode|Recursion)Error: .*; fetch"):
            read_json(tmp_path / "a", "sizes")


def test_a_size_of_three_files_is_the_most_that_tensors_have(tmp_path):
    """A file may hold a tied decoder twice."""
    check_volume({"a": np.zeros(3, np.float32), "b": np.zeros(6, np.float32)}, tmp_path, 12)
    with pytest.raises(ConversionError, match="has 12 bytes and tensors of 37: they overlap"):
        check_volume({"a": np.zeros(9, np.float32), "b": np.zeros(1, np.uint8)}, tmp_path, 12)


@pytest.mark.parametrize(
    ("shape", "count"), [((), 1), ((2, 3), 6), ((0, 5), 0), ((1,) * 8, 1), ((10**9, 10**9, 10**9), 10**27)]
)
def test_elements_of_a_shape_are_counted_exactly(shape, count):
    assert count_elements(shape) == count
    for wrong in ([2, 3], (1,) * 9, (2, -1), (2.0,), (True,), ("3",), None):
        with pytest.raises(ConversionError, match="shape is not a tuple of at most 8 sizes"):
            count_elements(wrong)


def test_values_of_untrusted_files_are_shown_in_short():
    assert (
        excerpt("a\n" + "x" * 100) == repr("a\n" + "x" * 78)
        and excerpt([1]) == "a list"
        and excerpt(None) == "a NoneType"
    )


@pytest.mark.parametrize(
    ("names", "layers"),
    [
        (["bert.encoder.layer.0.output.dense.weight", "bert.encoder.layer.1.output.dense.weight"], 2),
        (["encoder.layers.0.x", "encoder.layers.1.x", "encoder.layers.2.x"], 3),
        (["bert/encoder/layer_0/x", "bert/encoder/layer_1/x"], 2),
        (["model.layers.0.x", "layers.1.x"], 2),
        (["bert.encoder.layer.999999999.x", "bert.encoder.layer.0.x"], 2),
        (["bert.encoder.layer.5.x"], 1),
        (["bert.pooler.dense.bias"], 0),
    ],
)
def test_layers_are_counted_without_trusting_their_numbers(names, layers):
    assert count_layers(names) == layers


CONFIG = BertConfig(**{**foreign.CONFIG, "vocab_size": foreign.VOCAB})


@pytest.mark.parametrize(
    ("name", "shape", "line"),
    [
        ("cls.seq_relationship.weight", (8, 3), "cls.seq_relationship.weight is [8, 3], must be [8, 2]"),
        ("bert.pooler.dense.bias", (8, 1), "bert.pooler.dense.bias is [8, 1], must be [8]"),
        ("bert.pooler.dense.weight", (8, 9), "bert.pooler.dense.weight is [8, 9], must be [8, 8]"),
        (
            "bert.embeddings.token_type_embeddings.weight",
            (3, 8),
            "token_type_embeddings.weight is [3, 8], must be [2, 8]",
        ),
        ("bert.encoder.layer.1.output.dense.weight", None, "missing: bert.encoder.layer.1.output.dense.weight [13, 8]"),
        ("cls.predictions.bias", None, "missing: cls.predictions.bias [29]"),
    ],
)
def test_parameters_have_the_shapes_of_the_description(name, shape, line):
    parameters = {name: np.zeros(shape) for name, shape in foreign.shapes().items()}
    check_parameters(parameters, "title", CONFIG)
    check_parameters(parameters, "title")
    changed = {key: array for key, array in parameters.items() if key != name}
    changed |= {} if shape is None else {name: np.zeros(shape)}
    with pytest.raises(ConversionError) as refusal:
        check_parameters(changed, "title", CONFIG)
    first, difference = str(refusal.value).splitlines()
    assert first == "title:" and difference.startswith("  ") and difference.endswith(line)


def test_the_layers_of_the_description_are_all_there():
    parameters = {name: np.zeros(shape) for name, shape in foreign.shapes().items() if "layer.1." not in name}
    check_parameters(parameters, "title")
    with pytest.raises(ConversionError, match="^title:\n  1 layers, num_hidden_layers is 2$"):
        check_parameters(parameters, "title", CONFIG)
    modern = CONFIG.model_copy(update={"model_type": "modernbert", "num_hidden_layers": 1})
    with pytest.raises(ConversionError, match="the weights are of a BERT, model_type is modernbert"):
        check_parameters(parameters, "title", modern)


def test_at_most_twenty_differences_are_shown():
    parameters = {name: np.zeros((*shape, 1)) for name, shape in foreign.shapes().items()}
    with pytest.raises(ConversionError) as refusal:
        check_parameters(parameters, "title", CONFIG)
    assert len(str(refusal.value).splitlines()) == 21


def test_heads_are_those_of_which_a_tensor_is_there():
    parameters = {name: np.zeros(1) for name in ("classifier.bias", "bert.pooler.dense.weight", "x")}
    assert heads_of(parameters) == ("pooler", "classifier")
    assert with_question_answering_head({"classifier.bias": 1, "a.classifier.bias": 2}) == {
        "qa_outputs.bias": 1,
        "a.classifier.bias": 2,
    }


def test_an_untrusted_deep_description_is_refused_in_one_line(tmp_path):
    (tmp_path / "a").write_text(json.dumps("x" * 300)[:-1])
    with pytest.raises(ConversionError) as refusal:
        read_json(tmp_path / "a", "sizes")
    assert len(str(refusal.value).splitlines()) == 1


def test_without_words_only_the_words_are_missing():
    """Without the word embeddings, the sizes that other tensors share with them are unknown."""
    parameters = {name: np.zeros(shape) for name, shape in foreign.shapes().items() if "word_embeddings" not in name}
    with pytest.raises(
        ConversionError, match="^title:\n  missing: bert.embeddings.word_embeddings.weight .'any', 'any'.$"
    ):
        check_parameters(parameters, "title")
