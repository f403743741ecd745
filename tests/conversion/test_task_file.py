"""Tests of reading how a model is used from task.json or sentence-transformers' files, written by hand."""

import json

import pytest

from bert.conversion.task_file import files_to_copy, read_usage
from bert.conversion.tokenizer_settings import stated_normalization
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.usage import Usage, VectorForm, usage_texts
from bert.tokenization.normalization import Normalization

USAGE = Usage(
    name="custom",
    max_seq_length=3,
    text_columns=("first", "second"),
    word_rules={"w 9": True},
    vectors=VectorForm(pooling="cls", dimensions=(64, 32), hybrid_weight=0.65),
)


def test_a_written_usage_is_read_back(put, tmp_path):
    texts = usage_texts(USAGE, Normalization(lowercase=False), ("ä", "b"))
    assert (
        texts.keys() == {"task.json", "tokenizer_config.json", "labels.json"} and '["ä", "b"]\n' == texts["labels.json"]
    )
    assert usage_texts(USAGE, None).keys() == usage_texts(USAGE, None, ()).keys() == {"task.json"}
    for name, text in texts.items():
        put(name, text)
    assert read_usage(tmp_path) == USAGE
    assert stated_normalization(tmp_path)["lowercase"] is False
    assert json.loads(files_to_copy(tmp_path)["task.json"]) == json.loads(texts["task.json"])


@pytest.mark.parametrize(
    "changes",
    [
        {"max_seq_length": 2},
        {"text_columns": None},
        {"word_rules": {"a": "x"}},
        {"vectors": {"pooling": "max"}},
        {"vectors": {"hybrid_weight": 1.5}},
        {"vectors": {"hybrid_weight": "much"}},
        {"a": 1},
    ],
)
def test_a_usage_that_describes_no_task_is_refused(put, tmp_path, changes):
    put("task.json", {**json.loads(USAGE.to_json()), **changes})
    with pytest.raises(ConversionError, match="does not describe a task"):
        read_usage(tmp_path)


def test_another_librarys_model_may_have_several_labels(put, tmp_path):
    assert read_usage(tmp_path) == Usage() and files_to_copy(tmp_path) == {}
    put("config.json", {"problem_type": "multi_label_classification"})
    assert read_usage(tmp_path) == Usage(label_separator=",")
    assert json.loads(files_to_copy(tmp_path)["task.json"])["label_separator"] == ","
    put("question_answering.json", {"doc_stride": 3})
    assert files_to_copy(tmp_path).keys() == {"task.json", "question_answering.json"}
    put("config.json", {"problem_type": "single_label_classification"})
    assert read_usage(tmp_path) == Usage()


TRANSFORMER, POOLING, NORMALIZE = (
    {"type": f"sentence_transformers.models.{n}"} for n in ("Transformer", "Pooling", "Normalize")
)


@pytest.mark.parametrize(
    ("modules", "pooling", "prompts", "form"),
    [
        ([TRANSFORMER, POOLING], {"pooling_mode_mean_tokens": True}, None, VectorForm("mean", False)),
        ([TRANSFORMER, POOLING, NORMALIZE], {"pooling_mode_cls_token": True}, None, VectorForm("cls", True)),
        ([TRANSFORMER, POOLING], {"pooling_mode": "cls"}, None, VectorForm("cls", False)),
        (
            [TRANSFORMER, POOLING],
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False, "word_embedding_dimension": 8},
            {"query": "query: ", "corpus": "c: ", "passage": "passage: ", "document": ""},
            VectorForm("mean", False, "query: ", "passage: "),
        ),
        (
            [TRANSFORMER, POOLING],
            {"pooling_mode_mean_tokens": True},
            {"document": "d: ", "passage": "p: "},
            VectorForm("mean", False, "", "d: "),
        ),
        ([TRANSFORMER, POOLING], {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, None, None),
        ([TRANSFORMER, POOLING], {"pooling_mode_max_tokens": True}, None, None),
        ([TRANSFORMER, POOLING, POOLING], {"pooling_mode_mean_tokens": True}, None, None),
        ([POOLING, TRANSFORMER], {"pooling_mode_mean_tokens": True}, None, None),
        ([TRANSFORMER], {"pooling_mode_mean_tokens": True}, None, None),
    ],
)
def test_vectors_of_sentence_transformers_are_made_as_they_say(put, tmp_path, modules, pooling, prompts, form):
    put("modules.json", modules)
    put("1_Pooling/config.json", pooling)
    put("sentence_bert_config.json", {"max_seq_length": 96})
    if prompts:
        put("config_sentence_transformers.json", {"prompts": prompts})
    usage = read_usage(tmp_path)
    assert usage == (Usage() if form is None else Usage(max_seq_length=96, vectors=form))
    assert ("task.json" in files_to_copy(tmp_path)) == (form is not None)


def test_prompts_that_are_no_names_with_texts_are_refused(put, tmp_path):
    put("modules.json", [TRANSFORMER, POOLING])
    put("1_Pooling/config.json", {"pooling_mode": "cls"})
    put("config_sentence_transformers.json", {"prompts": ["query: "]})
    with pytest.raises(ConversionError, match="prompts must be names with their texts"):
        read_usage(tmp_path)
