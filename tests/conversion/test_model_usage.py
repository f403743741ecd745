"""The files beside the weights that say how a model is used: written, read, copied by conversions."""

import json
import logging
import re

import pytest

import run_convert
from bert.conversion.model_description import Usage, read_usage, stated_lower_case, tokenizer_warnings, usage_texts
from bert.finetuning.model_files import implied_by_weights
from bert.tokenization.vocabulary import SPECIAL_TOKENS, is_cased
from tests.conversion.test_round_trips import TASKS, native


def test_what_is_kept_is_read_again(tmp_path):
    usage = Usage("RTE", 99, ("sätze", "b"), regression=True)
    for name, text in usage_texts(usage, False, ("no", "yes")).items():
        (tmp_path / name).write_text(text)
    assert read_usage(tmp_path) == usage and stated_lower_case(tmp_path) is False
    assert json.loads((tmp_path / "labels.json").read_text()) == ["no", "yes"]
    assert usage_texts(Usage("phase2", 99), None).keys() == {"task.json"}


@pytest.mark.parametrize(
    ("name", "content", "length"),
    [
        ("bert_progress.json", {"settings": {"data": {"max_seq_length": 77}}}, 77),
        ("question_answering.json", {"windows": {"max_seq_length": 78}}, 78),
        ("bert_progress.json", {"settings": None}, None),
    ],
)
def test_older_checkpoints_say_their_length_elsewhere(tmp_path, name, content, length):
    (tmp_path / name).write_text(json.dumps(content))
    assert read_usage(tmp_path) == Usage(max_seq_length=length)


@pytest.mark.parametrize(
    "text",
    ["{}", '{"text_columns": 3}', '{"text_columns": [], "more": 1}', "[", '{"text_columns": [], "max_seq_length": 1}'],
)
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "task.json").write_text(text)
    with pytest.raises(ValueError, match="task.json"):
        read_usage(tmp_path)


@pytest.mark.parametrize("to_format", ["native", "hf", "paddlenlp"])
def test_conversions_keep_the_use(tmp_path, to_format):
    source = native(tmp_path / "m", TASKS["sequence-classification"])
    (source / "manifest.json").unlink()
    usage = Usage("RTE", 9, ("a", "b"))
    for name, text in usage_texts(usage, False).items():
        (source / name).write_text(text)
    arguments = ["--from", str(source), "--to", str(tmp_path / "x"), "--to-format", to_format]
    assert run_convert.main(arguments) == 0
    assert read_usage(tmp_path / "x") == usage and stated_lower_case(tmp_path / "x") is False


@pytest.mark.parametrize("words", ["word", "Word"])
@pytest.mark.parametrize("stated", ["tokenizer_config.json", "bert_progress.json", "question_answering.json", None])
def test_fine_tuning_and_conversion_infer_one_case(tmp_path, words, stated):
    """What a file states wins over the vocabulary, in both ways of opening a model."""
    source = native(tmp_path / "m", TASKS["encoder"])
    (source / "manifest.json").unlink()
    (source / "vocab.txt").write_text((source / "vocab.txt").read_text().replace("word", words))
    contents = {
        "tokenizer_config.json": {"do_lower_case": True},
        "bert_progress.json": {"settings": {"data": {"do_lower_case": True}}},
        "question_answering.json": {"windows": {"lowercase": True}},
    }
    if stated:
        (source / stated).write_text(json.dumps(contents[stated]))
    lowercase = stated is not None or words == "word"
    implied = implied_by_weights({"from_pretrained_params": source})
    assert implied.get("do_lower_case", True) is lowercase
    assert run_convert.main(["--from", str(source), "--to", str(tmp_path / "x"), "--to-format", "native"]) == 0
    assert stated_lower_case(tmp_path / "x") is lowercase
    assert is_cased(["[CLS]", "[unused1]", "[Odd]", words]) is (words == "Word")


@pytest.mark.parametrize(
    ("tokens", "cased"),
    [
        ("the ##s 7", False),
        ("the ##S 7", True),
        ("\u4e2d ##\u4e2d \u56fd \u00b5m", False),  # Chinese, as in bert-base-chinese
        ("\ud55c\uad6d\uc5b4 ##\uc5b4 seoul", True),  # Korean syllables, which lower-casing takes apart
        ("\u1112\u1161\u11ab ##\u1100 seoul", False),
        ("\u0939\u093f\u0928\u094d\u0926\u0940 2", True),  # Hindi with its vowel signs
        ("\u0939\u0928\u0926 2", False),
        ("na\u00efve", True),
        (" ".join(f"w{number}" for number in range(2000)) + " na\u00efve", False),  # one oddity is no case
    ],
)
def test_the_case_of_a_vocabulary_shows_in_any_script(tokens, cased):
    assert is_cased([*SPECIAL_TOKENS, "[Odd]", *tokens.split()]) is cased


@pytest.mark.parametrize(
    ("name", "content", "lowercase", "told"),
    [
        ("tokenizer_config.json", {"strip_accents": False}, True, "strip_accents=false of .* do_lower_case=false"),
        ("tokenizer_config.json", {"strip_accents": True}, False, "strip_accents=true of .* strip them from the text"),
        ("tokenizer_config.json", {"tokenize_chinese_chars": False}, True, "tokenize_chinese_chars=false of"),
        ("tokenizer.json", {"normalizer": {"strip_accents": False}}, True, "strip_accents=false of"),
        ("tokenizer.json", {"normalizer": {"handle_chinese_chars": False}}, False, "tokenize_chinese_chars=false of"),
        ("tokenizer_config.json", {"strip_accents": None, "tokenize_chinese_chars": True}, True, None),
        ("tokenizer_config.json", {"strip_accents": True}, True, None),
        ("tokenizer_config.json", {"strip_accents": False}, False, None),
        ("tokenizer.json", {"normalizer": None}, True, None),
        ("tokenizer.json", [], True, None),
    ],
)
def test_a_tokenizer_that_is_not_followed_is_told(tmp_path, caplog, capsys, name, content, lowercase, told):
    source = native(tmp_path / "m", TASKS["encoder"])
    (source / "manifest.json").unlink()
    (source / name).write_text(json.dumps(content))
    with caplog.at_level(logging.WARNING, "bert"):
        implied_by_weights({"from_pretrained_params": source, "do_lower_case": str(lowercase).lower()})
    case = "--do-lower-case" if lowercase else "--no-do-lower-case"
    arguments = ["--from", str(source), "--to", str(tmp_path / "x"), "--to-format", "hf", case]
    assert run_convert.main(arguments) == 0
    found = tokenizer_warnings(source, lowercase)
    assert len(found) == (told is not None)
    for line in found:
        assert re.search(told, line) and line in caplog.messages
        assert f"warning: {line}" in capsys.readouterr().out


def test_a_damaged_tokenizer_json_beside_a_vocabulary_is_not_read(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    assert tokenizer_warnings(tmp_path, True) == []
