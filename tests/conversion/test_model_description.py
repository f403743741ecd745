"""The small files beside a model's weights, each written by hand."""

import json

import pytest

from bert.config.architecture import BertConfig
from bert.conversion.model_description import (
    Usage,
    VectorForm,
    architecture_of,
    kept_texts,
    named_classes,
    read_description,
    read_labels,
    read_usage,
    stated_normalization,
    tokenizer_warnings,
    usage_texts,
)
from bert.conversion.untrusted_files import ConversionError
from bert.tokenization.normalization import Normalization

SIZES = {"hidden_size": 24, "num_hidden_layers": 2}


@pytest.fixture
def put(tmp_path):
    def put(name, value):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(value if isinstance(value, str) else json.dumps(value))
        return tmp_path / name

    return put


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


USAGE = Usage(
    name="custom",
    max_seq_length=3,
    text_columns=("first", "second"),
    word_rules={"w 9": True},
    vectors=VectorForm(pooling="cls", dimensions=(64, 32)),
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
    assert json.loads(kept_texts(tmp_path)["task.json"]) == json.loads(texts["task.json"])


@pytest.mark.parametrize(
    "changes",
    [
        {"max_seq_length": 2},
        {"text_columns": None},
        {"word_rules": {"a": "x"}},
        {"vectors": {"pooling": "max"}},
        {"a": 1},
    ],
)
def test_a_usage_that_describes_no_task_is_refused(put, tmp_path, changes):
    put("task.json", {**json.loads(USAGE.to_json()), **changes})
    with pytest.raises(ConversionError, match="does not describe a task"):
        read_usage(tmp_path)


def test_another_librarys_model_may_have_several_labels(put, tmp_path):
    assert read_usage(tmp_path) == Usage() and kept_texts(tmp_path) == {}
    put("config.json", {"problem_type": "multi_label_classification"})
    assert read_usage(tmp_path) == Usage(label_separator=",")
    assert json.loads(kept_texts(tmp_path)["task.json"])["label_separator"] == ","
    put("question_answering.json", {"doc_stride": 3})
    assert kept_texts(tmp_path).keys() == {"task.json", "question_answering.json"}
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
    assert ("task.json" in kept_texts(tmp_path)) == (form is not None)


def test_the_tokenizers_own_settings_come_before_those_of_its_pipeline(put, tmp_path):
    assert stated_normalization(tmp_path) == {}
    put("tokenizer_config.json", {"do_lower_case": False, "strip_accents": None, "word_segmenter": "jieba"})
    put("tokenizer.json", {"normalizer": {"strip_accents": True, "lowercase": True}})
    assert stated_normalization(tmp_path) == {"lowercase": False, "word_segmenter": "jieba"}
    put("vocab.txt", "[PAD]\n")  # the tokenizer.json is then beside it
    assert stated_normalization(tmp_path) == {"lowercase": False, "strip_accents": True, "word_segmenter": "jieba"}
    put("tokenizer_config.json", {"do_lower_case": "no", "strip_accents": False})
    assert stated_normalization(tmp_path) == {"strip_accents": False}


def test_chinese_characters_that_stay_whole_are_warned_of(put, tmp_path):
    put("tokenizer_config.json", {"tokenize_chinese_chars": False})
    assert tokenizer_warnings(tmp_path) == []  # the rules of its tokenizer.json are followed
    put("vocab.txt", "[PAD]\n")
    (warning,) = tokenizer_warnings(tmp_path)
    assert warning.startswith(f"tokenize_chinese_chars=false of the tokenizer in {tmp_path} is not followed")
    put("tokenizer.json", {"normalizer": {"handle_chinese_chars": False}})
    put("tokenizer_config.json", {"tokenize_chinese_chars": True})
    assert tokenizer_warnings(tmp_path) == []
    put("tokenizer_config.json", {})
    assert len(tokenizer_warnings(tmp_path)) == 1
    put("tokenizer.json", "{")
    assert tokenizer_warnings(tmp_path) == []
