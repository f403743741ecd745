"""Layers of settings, files of settings, and words of other trainers."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Literal

import pytest
import yaml
from pydantic import Field

from bert.config.command_line import SettingsParser, answered, take_questions, with_dashes
from bert.config.entry_point import Inquiry, Rule
from bert.config.nvidia_image import built_in_model, with_own_vocabulary
from bert.config.plain_yaml import plain_yaml, read_yaml
from bert.config.run_file import dump_yaml
from bert.config.setting_errors import explain, suggest, usage_errors
from bert.config.setting_sources import merged, read_settings, resolve_config
from bert.config.settings_base import Settings, seconds_of
from bert.pretraining.entry import ENTRY as PRETRAINING
from tests.config.test_training_settings import tiny_config

RULES = [Rule(given=("a", "b"), drops=("c", "d")), Rule(given=("c",), drops=("e",))]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([{"x": 1}, {"y": 2}], {"x": 1, "y": 2}),
        ([{"x": 1}, {"x": 2}], {"x": 2}),
        ([{"c": 1, "d": 2, "e": 3}, {"a": 4}], {"e": 3, "a": 4}),  # a drops c and d
        ([{"c": 1, "e": 3}, {"b": 4, "c": 5}], {"b": 4, "c": 5}),  # c of this layer stays, and drops e
        ([{"c": 1, "a": 4}, {"a": "4"}], {"c": 1, "a": "4"}),  # the value that it had: nothing is dropped
        ([{"c": 1}, {"a": "none"}], {"c": 1, "a": "none"}),
        ([{"c": 1}, {"a": -1}], {"c": 1, "a": -1}),
        ([{"a": 4}, {"c": 1}], {"a": 4, "c": 1}),  # only what is below
    ],
)
def test_a_setting_drops_what_contradicts_it_in_the_layers_below(layers, expected):
    before = [dict(layer) for layer in layers]
    assert merged(layers, RULES) == expected
    assert layers == before


def test_a_file_may_be_the_parent_of_others_up_to_seven_deep(tmp_path):
    """The flags count as a layer."""
    (tmp_path / "0.yaml").write_text("config: quickstart_phase1\nseed: 7\nmax-steps: 30\n")
    for number in range(1, 7):
        parent = tmp_path / f"{number - 1}.yaml"
        (tmp_path / f"{number}.yaml").write_text(f"config: {parent}\nlog_freq: {number}\n")
    config = resolve_config({"config": str(tmp_path / "5.yaml"), "eval_freq": "3"}, PRETRAINING)
    assert (config.run.seed, config.run.max_steps, config.run.log_freq, config.run.eval_freq) == (7, 30, 5, 3)
    with pytest.raises(ValueError, match="6.yaml must not name itself as its own parent"):
        resolve_config({"config": str(tmp_path / "6.yaml")}, PRETRAINING)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: {b: {c: 1}}", None),
        ("a: {b: {c: {d: 1}}}", "line 1 has nesting of more than 3 levels"),
        ("a: {b: 1}\nc: {d: {e: 1}}\nf: [[1], [2], [3]]", None),  # each is closed before the next
        ("a: " + "x" * 3000, None),
        ("a: 1\nb: " + "x" * 3001, "line 2 has a value of 3001 characters"),
        ("a: &n 1\nb: *n", "line 2 has the reference *n"),
        ("a: 1\nb: 2\na: 3", "a is given twice (again in line 3)"),
        ("a: 1\n? [b]\n: 2", "line 2 must be `name: value`; the name is not a word"),
        ("a: !!bool x", "a value is not what its tag"),
        ("a: !!timestamp x", "a value is not what its tag"),
        ("a: [", "while parsing"),
    ],
)
def test_yaml_is_as_plain_as_settings(text, problem):
    if problem is None:
        assert plain_yaml(text) == yaml.safe_load(text)
    else:
        with pytest.raises(ValueError, match=re.escape(problem)):
            plain_yaml(text)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("- 1", r"must hold lines of `name: value`, not '\[1\]'"),
        ("seed: [", "must be readable YAML: while parsing"),
        (None, "must be readable YAML"),
        ("max-steps: 1\nmax_steps: 2", "gives a setting twice, with - and with _ in its name"),
        ("bert_model: 3", "bert_model=3 in .* must be a name or a path"),
        ("config: 3", "config=3 in .* must be a name or a path"),
        ("sead: 3", "sead=3 in .* is not a setting; did you mean seed?"),
        ("bert_model: own", "bert_model=own must be a built-in model, or come with --config-file"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused(tmp_path, content, problem):
    path = tmp_path / "a.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=problem):
        read_yaml(path)
        resolve_config({"config": str(path)}, PRETRAINING)


def test_a_file_with_a_removed_setting_that_was_off_is_read(tmp_path):
    """Commit 88b30792 wrote this config.yaml: that version had two more settings."""
    path, complete = tmp_path / "config.yaml", dump_yaml(tiny_config())
    path.write_text(complete + "\nprobe_file: null\nbest_by: loss\n")
    assert resolve_config({"config": str(path)}, PRETRAINING) == tiny_config()
    for name, value in (("probe_file", "lines.csv"), ("best_by", "probe")):
        path.write_text(f"{complete}\n{name}: {value}\n")
        with pytest.raises(ValueError, match=f"{name}='{value}' in .* is not a setting; .*scripts/run_classify.sh"):
            resolve_config({"config": str(path)}, PRETRAINING)


def test_none_and_variables_are_read_in_values(monkeypatch):
    monkeypatch.setenv("PLACE", "/there")
    values = {name: value for section in tiny_config().model_dump().values() for name, value in section.items()}
    given = {"steps_this_run": "None", "eval_dir": "null", "input_dir": "$PLACE/a", "vocab_file": "$NOWHERE/v", "x": 1}
    config = read_settings(type(tiny_config()), {**values, **given})
    assert (config.run.steps_this_run, config.data.eval_dir) == (None, None)
    assert (str(config.data.input_dir), str(config.data.vocab_file)) == ("/there/a", "$NOWHERE/v")
    assert config.run.seed == tiny_config().run.seed


@pytest.mark.parametrize(
    ("word", "known", "suggestion"),
    [
        ("peak_lr", ["learning_rate", "seed"], "did you mean learning_rate?"),
        ("--Learning-Rat", ["learning_rate", "seed"], "did you mean learning_rate?"),
        ("sed", ["learning_rate", "seed", "need"], "did you mean seed?"),
        ("per_device_train_batch_size", ["batch_size", "predict_batch_size"], "did you mean batch_size?"),
        ("PEAK_LR", ["learning_rate"], "did you mean learning_rate?"),
        ("SEED", ["seed"], "did you mean seed?"),
        ("peak_lr", ["seed"], "see there"),  # learning_rate is no setting of this command
        ("local_rank", ["seed"], "Fleet takes its place: --num-gpus and --num-nodes of the scripts"),
        ("xyz", ["seed"], "see there"),
    ],
)
def test_a_word_of_another_trainer_or_a_similar_one_is_named(word, known, suggestion):
    assert suggest(word, known, "see there") == suggestion


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        (" 90 S ", 90.0),
        ("1.5m", 90.0),
        (".5h", 1800.0),
        ("2.h", 7200.0),
        *((text, None) for text in ("0", "0h", "", "h", "-1", "1d", "1h30m", "1e3", "nan")),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text, seconds):
    assert seconds_of(text) == seconds


def test_values_are_frozen_and_a_boolean_is_no_number():
    class Own(Settings):
        count: int = 1
        flag: bool = True

    assert Own(flag=False, count=2).count == 2
    for values in ({"count": True}, {"count": False}, {"other": 1}):
        with pytest.raises(ValueError, match=next(iter(values))):
            Own(**values)
    with pytest.raises(ValueError, match="frozen"):
        Own().count = 3


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--max_steps=3_000", "--max-steps=3_000"),
        ("--max_steps", "--max-steps"),
        ("a_b=c_d", "a_b=c_d"),
        ("-a_b", "-a_b"),
    ],
)
def test_flags_may_be_written_with_underlines_and_values_stay(word, expected):
    assert with_dashes(word) == expected


def test_questions_are_answered_in_their_order_for_the_ranks_that_will_run(capsys):
    def inquiry(name: str) -> Inquiry:
        return Inquiry(
            lambda group: None,
            lambda flags: flags.pop(name, None),
            lambda request, configs, ranks: f"{name} {request} {configs} {ranks}",
        )

    flags, entry = {"a": 0, "b": 1, "c": 2}, SimpleNamespace(inquiries=[inquiry("b"), inquiry("x"), inquiry("a")])
    questions = take_questions(flags, entry)
    assert flags == {"c": 2}
    assert answered(questions, ["settings"], 4) and not answered([], ["settings"], 4)
    assert capsys.readouterr().out == "b 1 ['settings'] 4\na 0 ['settings'] 4\n"


def test_a_wrong_choice_is_told_with_all_choices_and_none_if_it_may_be_left_out():
    class Own(Settings):
        required: Literal["a", "b"] = Field("a", description="x")
        optional: Literal["a", "b"] | None = Field(None, description="x")
        number: int = Field(1, ge=1, description="x")

    for values, line in (
        ({"required": "zz"}, "required=zz must be one of a, b; change --required"),
        ({"optional": "zz"}, "optional=zz must be one of a, b, none; change --optional"),
        ({"number": 0}, "number=0 must be greater than or equal to 1; change --number"),
    ):
        with pytest.raises(ValueError) as refusal:
            Own(**values)
        assert explain(refusal.value) == [line]
        assert explain(refusal.value, "a.yaml") == [line.rpartition("; ")[0] + "; change it in a.yaml"]
    assert explain(ValueError("as it is")) == ["as it is"]


def test_groups_of_flags_are_made_once_and_flags_are_not_abbreviated():
    parser = SettingsParser(prog="x")
    assert parser.group("data") is parser.group("data") and parser.group("other") is not parser.group("data")
    parser.group("data").add_argument("--input-dir")
    assert parser.read(["--input_dir=a_b"]) == {"input_dir": "a_b"} and parser.read([]) == {}
    for words, problem in (
        (["--input", "a"], "--input is not a flag"),
        (["--inputs-dir=a"], "did you mean --input-dir"),
    ):
        with pytest.raises(ValueError, match=problem):
            parser.read(words)


def test_paths_of_nvidias_image_stand_for_built_in_models_and_downloaded_vocabularies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", str(tmp_path / "data"))
    folder = tmp_path / "bert_configs"
    for path, model in (
        ("bert_configs/large.json", "bert-large-uncased"),
        ("/workspace/bert/bert_configs/base.json", "bert-base-uncased"),
        ("bert_configs/bert-tiny.json", "bert-tiny"),
        ("bert_configs/huge.json", None),
        ("other/large.json", None),
    ):
        assert built_in_model(type(folder)(path)) == model
    folder.mkdir()
    (folder / "large.json").write_text("{}")
    assert built_in_model(type(folder)("bert_configs/large.json")) is None

    name, downloaded = "vocab/bert-base-vocab.txt", tmp_path / "data/vocab/bert-base-vocab.txt"
    others = {"seed": 3}
    assert with_own_vocabulary({**others, "vocab_file": name}, has_weights=False) == {
        **others,
        "vocab_file": downloaded,
    }
    assert with_own_vocabulary({**others, "vocab_file": name}, has_weights=True) == others
    downloaded.parent.mkdir(parents=True)
    downloaded.write_text("[PAD]\n")
    assert with_own_vocabulary({**others, "vocab_file": name}, has_weights=True)["vocab_file"] == downloaded
    for own in ("vocab/words.txt", "elsewhere/bert-base-vocab.txt"):
        assert with_own_vocabulary({"vocab_file": own}, has_weights=True) == {"vocab_file": own}
    (tmp_path / "vocab").mkdir()
    (tmp_path / name).write_text("[PAD]\n")
    assert with_own_vocabulary({"vocab_file": name}, has_weights=True) == {"vocab_file": name}


def test_a_recipe_may_hold_some_settings_and_name_another():
    recipes = {**PRETRAINING.recipes, "own": lambda: {"config": "quickstart_phase1", "seed": 9, "log_freq": 2}}
    config = resolve_config({"config": "own", "log_freq": "5"}, replace(PRETRAINING, recipes=recipes))
    whole = resolve_config({"config": "quickstart_phase1"}, PRETRAINING)
    assert (config.run.seed, config.run.log_freq, config.run.max_steps) == (9, 5, whole.run.max_steps)


def test_a_closed_pipe_before_a_run_is_no_success(monkeypatch):
    """The pipe closes before the run begins, so the exit code is 2."""
    monkeypatch.setattr("bert.command_errors.discard_output", lambda: None)
    with pytest.raises(SystemExit) as ended, usage_errors():
        raise BrokenPipeError
    assert ended.value.code == 2
