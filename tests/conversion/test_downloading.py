"""A model's source: a path if it exists, otherwise the name of a published model."""

import json
import logging
import re
from pathlib import Path

import pytest

import run_convert
from bert.conversion import locating
from bert.conversion.task_file import read_usage
from bert.conversion.tokenizer_settings import stated_normalization, tokenizer_warnings
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.usage import Usage, usage_texts
from bert.finetuning.model_files import implied_by_weights
from bert.tokenization.normalization import ACCENTED, CASED, UNCASED
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from data.download_vocabulary import VOCABULARIES
from data.fetching import model_cache
from data.fetching.published_models import PINS_FILE, ModelName, known_names, parse_name, pin_of
from data.fetching.transfer import check_checksum
from tests.conversion.test_round_trips import TASKS, native


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def asked(monkeypatch) -> list[ModelName]:
    """Return the models that would be fetched."""
    models: list[ModelName] = []
    monkeypatch.setattr(model_cache, "fetch_model", lambda model, **options: models.append(model) or Path(model.name))
    return models


def test_names_of_published_models(asked):
    names = {
        "bert-base-uncased": "google-bert/bert-base-uncased",
        "google/bert_uncased_L-2_H-128_A-2": "google/bert_uncased_L-2_H-128_A-2",
        "dmis-lab/biobert-v1.1@main": "dmis-lab/biobert-v1.1@main",
        "macbert-base-chinese": "paddlenlp/macbert-base-chinese",
        "uer/chinese-roberta-mini": "paddlenlp/uer/chinese-roberta-mini",
        "paddlenlp/bert-base-uncased": "paddlenlp/bert-base-uncased",
    }
    for name in names:
        assert locating.resolve(name) == locating.resolve(Path(name)) == Path(asked[-1].name)
    assert [str(model) for model in asked[::2]] == [*names.values()]


def test_a_folder_of_that_name_wins(asked, tmp_path):
    Path("google-bert/bert-base-uncased").mkdir(parents=True)
    Path("bert-base-cased").mkdir()
    assert locating.resolve("google-bert/bert-base-uncased") == Path("google-bert/bert-base-uncased")
    assert locating.resolve("bert-base-cased") == Path("bert-base-cased")
    assert not asked


def test_a_mistyped_path_is_not_looked_for_on_a_hub(asked):
    Path("results/phase1").mkdir(parents=True)
    for source, text in {
        "./results/phse1": r"results/phase1\?",
        "results/phse1": r"did you mean results/phase1\?",
        "reslts/phase1": r"reslts/phase1 does not exist; did you mean results/phase1\?",
        "results/phase1/99": "results/phase1/99 does not exist",
        "rsults/phase2/7": r"rsults/phase2/7 does not exist; did you mean results\?",
        "tests/phase2/7": "tests/phase2/7 does not exist; name a checkpoint",  # results is another word
        "results/quickstart": r"does not exist; `bash scripts/run_pretraining.sh` makes results/quickstart\. Or name a",
        "results/quickstart/phase1": r"phase1 does not exist; `bash scripts/run_pretraining.sh` makes",
        "bert-base-uncasd": r"did you mean bert-base-uncased or",
        "model.safetensors": "does not exist; name a checkpoint",
        "mine/model.bin": "mine/model.bin does not exist",
        "data/weights": "data/weights does not exist",
        "~/nothing": "~/nothing does not exist",
        "../somewhere": "does not exist",
        "a/b/c": "a/b/c does not exist",
        "owner/..": "does not exist",
        "paddlenlp/unknown": "does not exist",
        "https://host/model": "does not exist",
        "": "'' does not exist; name a checkpoint directory",
    }.items():
        with pytest.raises(ConversionError, match=text) as error:
            locating.resolve(source)
        assert not asked and "\n" not in str(error.value)


def test_the_pins_are_well_formed():
    assert PINS_FILE.is_file() and pin_of(parse_name("bert-base-uncased")).files["model.safetensors"][1] == 440_449_768
    for name in known_names():
        pin = pin_of(parse_name(name))
        assert pin is None or len(pin.revision) == 40
        for sha256, num_bytes in pin.files.values() if pin else ():
            assert check_checksum(f"sha256:{sha256}") and num_bytes > 10
        if pin and name in VOCABULARIES:
            assert pin.files["vocab.txt"] == VOCABULARIES[name]


def test_what_is_kept_is_read_again(tmp_path):
    usage = Usage("RTE", 99, ("sätze", "b"), regression=True)
    for name, text in usage_texts(usage, CASED, ("no", "yes")).items():
        (tmp_path / name).write_text(text)
    assert read_usage(tmp_path) == usage and stated_normalization(tmp_path) == {"lowercase": False}
    assert json.loads((tmp_path / "labels.json").read_text()) == ["no", "yes"]
    assert usage_texts(Usage("phase2", 99), None).keys() == {"task.json"}


def test_a_damaged_file_is_named(tmp_path):
    for text in ("{}", '{"text_columns": 3}', '{"text_columns": [], "more": 1}', "[", '{"text_columns": []}'[:-1]):
        (tmp_path / "task.json").write_text(text)
        with pytest.raises(ValueError, match="task.json"):
            read_usage(tmp_path)


@pytest.mark.parametrize("to_format", ["native", "hf", "paddlenlp"])
def test_conversions_keep_the_use(tmp_path, to_format):
    source = native(tmp_path / "m", TASKS["sequence-classification"])
    (source / "manifest.json").unlink()
    usage = Usage("RTE", 9, ("a", "b"))
    for name, text in usage_texts(usage, ACCENTED).items():
        (source / name).write_text(text)
    arguments = ["--from", str(source), "--to", str(tmp_path / "x"), "--to-format", to_format]
    assert run_convert.main(arguments) == 0
    assert read_usage(tmp_path / "x") == usage and stated_normalization(tmp_path / "x") == {
        "lowercase": True,
        "strip_accents": False,
    }


@pytest.mark.parametrize("words", ["word", "Word"])
@pytest.mark.parametrize("stated", ["tokenizer_config.json", None])
def test_fine_tuning_and_conversion_infer_one_case(tmp_path, words, stated):
    """The case that a file states wins over the vocabulary, in both ways of opening a model."""
    source = native(tmp_path / "m", TASKS["encoder"])
    (source / "manifest.json").unlink()
    (source / "vocab.txt").write_text((source / "vocab.txt").read_text().replace("word", words))
    if stated:
        (source / stated).write_text('{"do_lower_case": true}')
    lowercase = stated is not None or words == "word"
    implied = implied_by_weights({"from_pretrained_params": source})
    assert implied.get("do_lower_case", True) is lowercase
    assert run_convert.main(["--from", str(source), "--to", str(tmp_path / "x"), "--to-format", "native"]) == 0
    assert stated_normalization(tmp_path / "x")["lowercase"] is lowercase


def test_the_case_of_a_vocabulary_shows_in_any_script():
    for tokens, case in {
        "the ##s 7": UNCASED,
        "the ##S 7": CASED,
        "\u4e2d ##\u4e2d \u56fd \u00b5m": UNCASED,  # Chinese, as in bert-base-chinese
        "\ud55c\uad6d\uc5b4 ##\uc5b4 seoul": ACCENTED,  # Korean syllables, which stripping takes apart
        "\u0939\u093f\u0928\u094d\u0926\u0940 2": ACCENTED,  # Hindi with its vowel signs
        "sch\u00f6n m\u00fcller": ACCENTED,
        "\u041c\u0438\u0440 \u043c\u0438\u0440": CASED,
        " ".join(f"w{number}" for number in range(2000)) + " na\u00efve": UNCASED,  # one oddity is no case
    }.items():
        assert Vocabulary((*SPECIAL_TOKENS, "[Odd]", *tokens.split())).normalization() == case, tokens


@pytest.mark.parametrize(
    ("name", "content", "lowercase", "told"),
    [
        ("tokenizer_config.json", {"strip_accents": False}, True, None),
        ("tokenizer_config.json", {"strip_accents": True}, False, None),
        ("tokenizer_config.json", {"tokenize_chinese_chars": False}, True, "tokenize_chinese_chars=false of"),
        ("tokenizer.json", {"normalizer": {"strip_accents": False}}, True, None),
        ("tokenizer.json", {"normalizer": {"handle_chinese_chars": False}}, False, "tokenize_chinese_chars=false of"),
        ("tokenizer_config.json", {"strip_accents": None, "tokenize_chinese_chars": True}, True, None),
        ("tokenizer.json", {"normalizer": None}, True, None),
        ("tokenizer.json", [], True, None),
    ],
)
def test_a_tokenizer_that_is_not_followed_is_told(tmp_path, caplog, capsys, name, content, lowercase, told):
    source = native(tmp_path / "m", TASKS["encoder"])
    (source / "manifest.json").unlink()
    (source / name).write_text(json.dumps(content))
    with caplog.at_level(logging.WARNING, "bert"):
        implied = implied_by_weights({"from_pretrained_params": source, "do_lower_case": str(lowercase).lower()})
    case = "--lowercase" if lowercase else "--no-lowercase"
    arguments = ["--from", str(source), "--to", str(tmp_path / "x"), "--to-format", "hf", case]
    assert run_convert.main(arguments) == 0
    accents = (
        {**content, **(content.get("normalizer") or {})}.get("strip_accents") if isinstance(content, dict) else None
    )
    assert stated_normalization(tmp_path / "x").get("strip_accents") == implied.get("strip_accents") == accents
    found = tokenizer_warnings(source)
    assert len(found) == (told is not None)
    for line in found:
        assert re.search(told, line) and line in caplog.messages
        assert f"warning: {line}" in capsys.readouterr().out
