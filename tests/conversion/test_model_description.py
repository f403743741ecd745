"""Descriptions of a model beside its weights, each written by hand."""

import json

import pytest

from bert.config.architecture import BertConfig
from bert.conversion.model_description import architecture_of, named_classes, read_description, read_labels
from bert.conversion.untrusted_files import ConversionError

SIZES = {"hidden_size": 24, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("task", "model_type", "theirs", "paddlenlps"),
    [
        ("pretraining", "bert", "BertForPreTraining", "BertForPretraining"),
        ("pretraining", "roberta", "RobertaForMaskedLM", "RobertaForMaskedLM"),
        ("pretraining", "modernbert", "ModernBertForMaskedLM", "ModernBertForMaskedLM"),
        ("token-classification", "roberta", "RobertaForTokenClassification", "RobertaForTokenClassification"),
        ("question-answering", "bert", "BertForQuestionAnswering", "BertForQuestionAnswering"),
    ],
)
def test_classes_are_named_as_the_libraries_name_them(task, model_type, theirs, paddlenlps):
    config = BertConfig(model_type=model_type)
    assert (architecture_of(task, config), architecture_of(task, config, -1)) == (theirs, paddlenlps)


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ({"architectures": ["BertForTokenClassification"]}, "token-classification"),
        ({"architectures": ["XLMRobertaForMaskedLM", "x"], "model_type": "xlm-roberta"}, "masked-lm"),
        ({"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert"}, "masked-lm"),
        ({"init_class": "BertForPretraining"}, "pretraining"),
        ({"architectures": [], "init_class": "BertForMaskedLM"}, "masked-lm"),
        ({"architectures": ["GPT2"]}, None),
        ({}, None),
    ],
)
def test_the_task_is_that_of_the_class(put, values, task):
    notes: list[str] = []
    path = put("config.json", {**SIZES, "num_attention_heads": 4, "made_by": "a", "zeal": 3, **values})
    described = read_description(path, notes)
    assert described.task == task and described.config.hidden_size == 24 and described.labels is None
    unused = [f"config.json: not used: {'made_by, zeal'}"]
    strange = ["config.json: architectures=['GPT2'] is no task that is known here; the heads tell it"]
    assert notes == unused + (strange if values == {"architectures": ["GPT2"]} else [])
    read_description(path)  # without notes


def test_classes_are_read_by_their_numbers(put):
    sizes = {**SIZES, "num_attention_heads": 4}
    for id2label, labels in (
        ({"1": "b", "0": "a"}, ("a", "b")),
        ({str(number): f"L{number}" for number in range(11)}, tuple(f"L{number}" for number in range(11))),
        ({"0": 7}, ("7",)),
        ({"1": "b", "2": "c"}, None),
        ({"0": "a", "2": "c"}, None),
        ({}, None),
        (["a"], None),
    ):
        assert read_description(put("config.json", {**sizes, "id2label": id2label})).labels == labels
    with pytest.raises(ConversionError, match="id2label: the label 'a.nb' has a control character"):
        read_description(put("config.json", {**sizes, "id2label": {"0": "a\nb"}}))


def test_sizes_of_an_older_paddlenlp_are_nested_and_the_outer_ones_win(put):
    inner = {**SIZES, "num_attention_heads": 4, "vocab_size": 99}
    path = put("model_config.json", {"init_args": [inner, 3], "init_class": "BertForMaskedLM", "vocab_size": 104})
    described = read_description(path)
    assert (described.config.hidden_size, described.config.vocab_size, described.task) == (24, 104, "masked-lm")


@pytest.mark.parametrize("values", [{"hidden_size": 24}, {"num_hidden_layers": 2}, [1], {}])
def test_a_description_without_sizes_is_refused(put, values):
    with pytest.raises(ConversionError, match="must give hidden_size and num_hidden_layers"):
        read_description(
            put("config.json", {**values, "num_attention_heads": 4} if isinstance(values, dict) else values)
        )


def test_a_modernbert_may_leave_its_sizes_out(put):
    assert read_description(put("config.json", {"model_type": "modernbert"})).config.hidden_size == 768


def test_labels_are_a_list_of_words(put, tmp_path):
    assert read_labels(tmp_path) is None
    put("labels.json", ["b", "a"])
    assert read_labels(tmp_path) == ("b", "a")
    for wrong in ({"0": "a"}, ["a", 1], "x"):
        put("labels.json", json.dumps(wrong))
        with pytest.raises(ConversionError, match="must be JSON with a list of the classes, in order"):
            read_labels(tmp_path)


def test_classes_without_names_are_numbered():
    assert named_classes(("a", "b"), 2) == ("a", "b")
    assert named_classes(("a", "b"), 3) == named_classes((), 3) == ("LABEL_0", "LABEL_1", "LABEL_2")
