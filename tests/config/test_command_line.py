"""Flags and YAML: every field has a flag; a mistake gives one line with value, rule and remedy, and exit code 2."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from bert.commands import classify, ner, pretrain
from bert.config.command_line import parse_arguments, parser_of, run_entry
from bert.config.flags import choices_of, flag_name, flat_fields, members
from bert.config.run_file import dump_yaml
from bert.config.setting_sources import resolve_config
from bert.config.training_settings import BUILT_IN_MODELS
from bert.launching.arguments import LauncherParser
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY as PRETRAINING
from bert.pretraining.recipes import RECIPES

BASE = ["--config", "quickstart_phase1"]
FLAT = flat_fields(PretrainingConfig)

RECIPE = RECIPES["quickstart_phase1"]()
# Fields whose values are limited by other fields, and what else must change for a value to be possible.
LIMITED = {"hidden_size": 512, "num_attention_heads": 8, "bert_model": "bert-tiny", "amp_dtype": "bfloat16"}
LIMITED |= {"max_seq_length": 72, "max_predictions_per_seq": 7, "last_step_of_checkpoint": "auto", "epochs": 1.25}
LIMITED |= {"report_to": "wandb,mlflow"}
COMPANIONS = {
    "use_pure_fp16": {"amp": True},
    "fuse_attention": {"amp": True},
    "last_step_of_checkpoint": {"from_checkpoint": "d"},
    "from_phase1_final_params": {"phase": 2},
    "lr_decay_share": {"lr_schedule": "wsd"},
    "finish_in": {"lr_schedule": "wsd"},
    "data_loader": {"masking": "static"},
    "model_type": {"objective": "mlm"},
    "batch_size_warmup_min_size": {"batch_size_warmup_sequences": 9},
    "batch_size_warmup_sequences": {"batch_size_warmup_min_size": 9},
}


def sample(name):
    """Return a value of a field that differs from the recipe's."""
    section, field = FLAT[name]
    value = getattr(getattr(RECIPE, section), name)
    if name in LIMITED:
        return LIMITED[name]
    if isinstance(value, bool):
        return not value
    if choices := choices_of(field):
        return next(choice for choice in reversed(choices) if choice != value)
    if Path in members(field):
        return Path("elsewhere")
    if isinstance(value, float) and value:
        return value / 2 if value < 1 else value * 2
    if isinstance(value, int):
        return value + 1
    return {int: 3, float: 1e-3, str: "other"}[members(field)[0]]


SAMPLES = {name: sample(name) for name in FLAT}


def flag_words(name, value):
    flag = "--" + name.replace("_", "-")
    if name == "phase":
        return [f"--phase{value}"]
    if isinstance(value, bool):
        return [flag if value else "--no-" + flag[2:]]
    return [flag, str(value)]


def companions_of(name):
    return [word for item in COMPANIONS.get(name, {}).items() for word in flag_words(*item)]


def parse(words):
    return parse_arguments(PRETRAINING, words)


def error_of(capsys, words):
    with pytest.raises(SystemExit) as exit_info:
        parse_arguments(PRETRAINING, words)
    assert exit_info.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    assert all(line.startswith("error: ") for line in err.splitlines())
    return err


def test_every_flag_and_every_key_of_a_file_lands_in_its_field(tmp_path):
    file, wrong, model = tmp_path / "settings.yaml", [], PretrainingConfig.model_fields["model"].annotation.model_fields
    dropped = {"epochs": {"max_steps"}, "masked_lm_ratio": {"max_predictions_per_seq"}, "bert_model": model.keys()}
    for name, value in SAMPLES.items():
        in_yaml = str(value) if isinstance(value, Path) else value
        file.write_text(yaml.safe_dump({"config": "quickstart_phase1", **COMPANIONS.get(name, {}), name: in_yaml}))
        typed = parse([*BASE, *companions_of(name), *flag_words(name, value)])
        if resolve_config({"config": str(file)}, PRETRAINING) != typed:
            wrong.append(f"{name} in YAML")
        before, after = ({key: item for _, part in config for key, item in part} for config in (RECIPE, typed))
        changed = {key for key, item in after.items() if item != before[key]}
        if name not in changed or after[name] != value:
            wrong.append(f"--{name}")
        others = changed - {name, *COMPANIONS.get(name, {}), *dropped.get(name, ())}
        wrong += [f"--{name} changes {other}" for other in others]
    assert not wrong


def test_every_field_explains_itself():
    text = " ".join(parser_of(PRETRAINING).format_help().split())
    for name, (_, field) in FLAT.items():
        assert len(field.description) > 10, name
        assert flag_name(name) in text or name == "phase", name


def test_help_is_grouped_and_exits_with_0(capsys):
    with pytest.raises(SystemExit) as exit_info:
        parse_arguments(PRETRAINING, ["--help"])
    assert exit_info.value.code == 0
    text = capsys.readouterr().out
    positions = [text.index(f"\n{section}:") for section in PretrainingConfig.model_fields]
    assert positions == sorted(positions)
    assert max(map(len, text.splitlines())) <= 120


def test_help_shows_the_values_of_a_switch_and_none_of_a_boolean():
    text = parser_of(PRETRAINING).format_help()
    assert "--unpad [auto|on|off], --no-unpad\n" in text and "--amp, --no-amp " in text


def test_the_command_line_wins_over_the_file_the_file_over_the_recipe(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("config: phase2_large\nlearning-rate: 6e-3\nseed: 7\n")
    config = parse(["--config", str(file), "--seed", "11"])
    assert (config.run.phase, config.optimizer.learning_rate, config.run.seed) == (2, 6e-3, 11)


VALUES = {  # what is typed -> a setting and its value
    "--amp": ("amp", True),
    "--amp true": ("amp", True),
    "--amp=True": ("amp", True),
    "--amp 1": ("amp", True),
    "--no-fuse-mha": ("fuse_mha", False),
    "--fuse-mha false": ("fuse_mha", False),
    "--fuse-mha=False": ("fuse_mha", False),
    "": ("fuse_linear", "auto"),
    "--fuse-linear": ("fuse_linear", "on"),
    "--fuse-linear true": ("fuse_linear", "on"),
    "--fuse-linear on": ("fuse_linear", "on"),
    "--no-fuse-linear": ("fuse_linear", "off"),
    "--fuse-linear=False": ("fuse_linear", "off"),
    "--fuse-linear auto": ("fuse_linear", "auto"),
    "--finish-in 90": ("finish_in", 90),
    "--finish-in 90s": ("finish_in", 90),
    "--finish-in 10m": ("finish_in", 600),
    "--finish-in 1.5h": ("finish_in", 5400),
    "--finish-in .5H": ("finish_in", 1800),
    "--eval-dir None": ("eval_dir", None),
}


def test_booleans_switches_durations_and_none_may_be_written_in_several_ways():
    wrong = []
    for words, (name, value) in VALUES.items():
        config = parse([*BASE, "--lr-schedule", "wsd", *words.split()])
        wrong += [] if getattr(getattr(config, FLAT[name][0]), name) == value else [words]
    assert not wrong


@pytest.mark.parametrize(("text", "value"), [("true", "on"), ("off", "off"), ("'on'", "on"), ("auto", "auto")])
def test_a_switch_in_a_file_of_an_earlier_version_was_a_boolean(tmp_path, text, value):
    file = tmp_path / "settings.yaml"
    file.write_text(f"config: phase2_large\nfuse_linear: {text}\n")
    assert parse(["--config", str(file)]).hardware.fuse_linear == value


def test_variables_in_paths_are_filled_in(monkeypatch):
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", "/prepared")
    assert parse(["--config", "phase1_large"]).data.input_dir == Path("/prepared/pretrain/phase1/unbinned/parquet")
    monkeypatch.delenv("BERT_PREP_WORKING_DIR")
    assert "$BERT_PREP_WORKING_DIR" in str(parse(["--config", "phase1_large"]).data.input_dir)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--config phase1_large --masked-lm-ratio 0.3", (0.3, 40)),
        ("--config phase2_large --masked-lm-ratio 0.3", (0.3, 160)),
        ("--config phase1_large --masked-lm-ratio 0.15", (0.15, 20)),
        ("--config phase1_large --masked-lm-ratio 0.99", (0.99, 128)),
        ("--config phase1_large --masked-lm-ratio 0.3 --max-predictions-per-seq 38", (0.3, 38)),
        ("--config phase1_large --max-predictions-per-seq 25", (0.15, 25)),
        ("--phase1 --max-seq-length 256 --masked-lm-ratio 0.4 --input-dir a --vocab-file b --max-steps 1", (0.4, 107)),
    ],
)
def test_predictions_follow_the_share_of_masked_tokens_unless_they_are_given(words, expected):
    data = parse(words.split()).data
    assert (data.masked_lm_ratio, data.max_predictions_per_seq) == expected


def test_predictions_that_cut_the_share_of_masked_tokens_are_refused(capsys):
    error = error_of(capsys, "--config phase1_large --masked-lm-ratio 0.3 --max-predictions-per-seq 20".split())
    assert "max_predictions_per_seq=20 must be at least 38 for masked_lm_ratio=0.3 of 128 tokens" in error
    assert "pass --max-predictions-per-seq 40, or leave it out" in error


def test_a_model_file_wins_over_the_name_and_a_flag_over_the_file(tmp_path):
    file = tmp_path / "bert_config.json"
    file.write_text(BUILT_IN_MODELS["bert-mini"].to_json())
    config = parse([*BASE, "--bert-model", "mine", "--config-file", str(file), "--num-hidden-layers", "3"])
    assert (config.run.bert_model, config.model.hidden_size, config.model.num_hidden_layers) == ("mine", 256, 3)
    again = resolve_config({"config": "quickstart_phase1", "config_file": None}, PRETRAINING)
    assert again.model == BUILT_IN_MODELS["bert-quickstart"]


@pytest.mark.parametrize("name", RECIPES)
def test_shown_settings_can_be_fed_back(name, tmp_path):
    config = parse(["--config", name, "--num-hidden-layers", "3", "--seed", "5"])
    (tmp_path / "shown.yaml").write_text(dump_yaml(config))
    assert parse(["--config", str(tmp_path / "shown.yaml")]) == config


def test_show_config_and_dry_run_are_answered_and_end(capsys):
    shown = {}
    for flags in (["--show-config"], ["--dry-run"], ["--show-config", "--dry-run"]):
        with pytest.raises(SystemExit) as ended:
            parse_arguments(PRETRAINING, [*BASE, *flags])
        assert ended.value.code == 0
        shown[" ".join(flags)] = capsys.readouterr().out
    config, plan, both = shown.values()
    assert "max_steps: " in config and "sequences an update" in plan and "max_steps: " not in plan
    assert both == config + plan


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "one of --phase1 and --phase2 must be given"),
        ("--phase1", "--input-dir must be given"),
        ("--phase1 --input-dir a", "--vocab-file must be given"),
        ("--phase1 --input-dir a --vocab-file b", "--max-steps must be given"),
        ("--phase1 --phase2", "not allowed with argument --phase1"),
        ("--config phase1_lrge", "config=phase1_lrge must be a recipe or a YAML file; did you mean phase1_large?"),
        ("--config zzz", "the recipes are phase1_large"),
        ("--config phase1_large --lerning-rate 3", "--lerning-rate is not a flag; did you mean --learning-rate?"),
        ("--config phase1_large --learning-rates 3", "--learning-rates is not a flag; give each --learning-rate an"),
        ("--config phase1_large --no-fit-batch-size", "a batch that does not fit"),
        ("--config phase1_large --probe-file a.csv", "--probe-file is not a flag; fine-tune the finished model on the"),
        ("--config phase1_large --best-by probe", "--best-by is not a flag; the weights with the lowest held-out loss"),
        ("--config phase1_large --learning-r 3", "--learning-r is not a flag"),
        ("--config phase1_large --lr 3", "--lr is not a flag; did you mean --learning-rate?"),
        ("--config phase1_large --per_device_train_batch_size 3", "did you mean --batch-size?"),
        ("--config phase1_large --use_fp16", "--use-fp16 is not a flag; did you mean --amp?"),
        ("--config phase1_large --checkpoint_activations", "did you mean --recompute?"),
        ("--config phase1_large --use_xla", "--use-xla is not a flag; no compiler is used; --fuse-attention"),
        ("--config phase1_large --use_horovod", "--use-horovod is not a flag; Fleet takes its place: --num-gpus"),
        ("--config phase1_large --eval_batch_size 8", "evaluated whole, with --batch-size; drop it"),
        ("--config phase1_large --model_name_or_path x", "did you mean --from-pretrained-params?"),
        ("--config phase1_large --qwxz 3", "--qwxz is not a flag; see --help"),
        ("--config phase1_large stray", "stray is not a flag; see --help"),
        ("--config phase1_large --learning-rate fast", "learning_rate=fast must be a valid number"),
        ("--config phase1_large --learning-rate", "expected one argument"),
        (
            "--config phase1_large --batch-size 0",
            "batch_size=0 must be greater than or equal to 1; change --batch-size",
        ),
        ("--config phase1_large --batch-size 1.5", "batch_size=1.5 must be a valid integer"),
        ("--config phase1_large --batch-size none", "batch_size=none must be a valid integer"),
        ("--config phase1_large --finish-in 10x", "finish_in=10x must be a duration above 0: 90, 90s, 10m or 2h"),
        ("--config phase1_large --finish-in 10m", "finish_in=600 needs lr_schedule=wsd, whose decay can begin at any"),
        ("--config phase1_large --lr-decay-share 0.2", "lr_decay_share=0.2 has no effect with lr_schedule=polynomial"),
        (
            "--config phase1_large_pytorch --lr-schedule cosine",
            "lr_decay_power=0.5 has no effect with lr_schedule=cosine; drop --lr-decay-power (its default is 1.0), or",
        ),
        ("--config phase1_large --seed -1", "seed=-1 must be greater than or equal to 0"),
        ("--config phase1_large --warmup-proportion 1", "warmup_proportion=1 must be less than 1"),
        ("--config phase1_large --learning-rate inf", "learning_rate=inf must be a finite number"),
        ("--config phase1_large --optimizer lamb", "optimizer=lamb must be one of Lamb, AdamW; did you mean Lamb?"),
        ("--config phase1_large --amp maybe", "amp=maybe must be a valid boolean"),
        ("--config phase1_large --fuse-linear sometimes", "fuse_linear=sometimes must be one of auto, on, off"),
        ("--config phase1_large --no-amp 3", "--no-amp=3 takes no value"),
        ("--config phase1_large --bert-model bert-bse-uncased", "did you mean bert-base-uncased?"),
        ("--config phase1_large --config-file none.json", "config_file=none.json must be readable JSON"),
        ("--config phase1_large --hidden-size 1023", "hidden_size=1023 must be a multiple of num_attention_heads=16"),
        ("--config phase1_large --max-seq-length 1024", "must be at most max_position_embeddings=512"),
        ("--config phase1_large --last-step-of-checkpoint newest --from-checkpoint c", "must be auto, none or a step"),
        ("--config phase1_large --last-step-of-checkpoint auto", "needs from_checkpoint"),
    ],
)
def test_mistakes_on_the_command_line(capsys, words, text):
    assert text in error_of(capsys, words.split())


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("lerning_rate: 1", "lerning_rate=1 in .* is not a setting; did you mean learning_rate?"),
        ("batch_size: true", "batch_size=true must not be true or false"),
        ("batch_size: [1, 2]", "batch_size=.* must be a valid integer"),
        ("batch_size: 12abc", "batch_size=12abc must be a valid integer"),
        ("batch_size:", "batch_size=None must be a valid integer"),
        ("learning_rate: .nan", "learning_rate=nan must be a finite number"),
        ("optimizer: 3", "optimizer=3 must be one of Lamb, AdamW"),
        ("output_dir: 2024", "output_dir=2024 must be a path, in quotes if it is of digits alone; change --output-dir"),
        ("bert_model: a/b\nhidden_size: 8", "bert_model=a/b must be of letters, digits, .*; change --bert-model"),
        ("data:\n  batch_size: 3", "data=.* is not a setting"),
        ("seed: 1\nseed: 2", "seed is given twice .again in line 2."),
        ("- seed", "must hold lines of `name: value`"),
        ("seed", "must hold lines of `name: value`"),
        ("seed: [", "must be readable YAML"),
        ("", "must hold lines of `name: value`"),
        ("config: no_such", "config=no_such must be a recipe or a YAML file"),
        ("seed: !!python/object/apply:os.system ['true']", "must be readable YAML"),
    ],
)
def test_mistakes_in_a_file(capsys, tmp_path, content, text):
    file = tmp_path / "settings.yaml"
    file.write_text(content)
    assert re.search(text, error_of(capsys, ["--config", str(file)]))


def test_a_file_that_is_its_own_parent_is_refused(capsys, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(f"config: {file}\n")
    assert "must not name itself" in error_of(capsys, ["--config", str(file)])


def test_all_mistakes_are_told_at_once(capsys):
    err = error_of(capsys, [*BASE, "--batch-size", "0", "--seed", "x"])
    assert len(err.splitlines()) == 2


def test_a_file_of_ner_is_named_and_not_a_mode(capsys):
    for typed in ("train", "eval", "predict"):
        _, mistakes = LauncherParser(ner.LAUNCHER).read_known([f"--{typed}", "words.conll"])
        assert mistakes == [f"--{typed} is not a flag; did you mean --{typed}-file?"]


def test_help_shows_types_in_capitals_and_a_stage_where_a_run_begins():
    shown = " ".join(parser_of(PRETRAINING).format_help().split())
    assert "--max-steps INT" in shown and "--input-dir PATH" in shown and "--learning-rate FLOAT" in shown
    beginning = shown[shown.index("where to begin") : shown.index("model:")]
    assert "--phase1" in beginning and "--config NAME_OR_FILE" in beginning


DOUBLES = {  # an older name -> the public name, by the parser of a command that has it
    "--num-processes 2": ("--num-gpus 2", pretrain.LAUNCHER),
    "--keep-best-checkpoint": ("--keep-best", pretrain.LAUNCHER),
    "--no-keep-best-checkpoint": ("--no-keep-best", pretrain.LAUNCHER),
    "--phase2-keep-best-checkpoint false": ("--phase2-keep-best false", pretrain.LAUNCHER),
    "--lang de": ("--language de", pretrain.LAUNCHER),
    "--lang=pl": ("--language=pl", classify.LAUNCHER),
    "--group-column patient": ("--group-by patient", classify.LAUNCHER),
}


@pytest.mark.parametrize("old", DOUBLES)
def test_one_public_name_for_one_thing_and_the_older_one_is_read_as_it(old):
    new, launcher = DOUBLES[old]
    parser = LauncherParser(launcher)
    values, mistakes = parser.read_known(old.split())
    assert (values, mistakes) == parser.read_known(new.split()) and values and not mistakes
    listed = set(re.findall(r"--[a-z0-9-]+", parser.format_help()))
    name, hidden = (words.partition("=")[0].split()[0].replace("--no-", "--") for words in (new, old))
    assert hidden not in listed and name.replace("--phase2-", "--") in listed


def test_show_config_prints_one_end_of_line_and_takes_true_or_false(capsys):
    with pytest.raises(SystemExit):
        parse([*BASE, "--show-config"])
    shown = capsys.readouterr().out
    assert shown.endswith("\n") and not shown.endswith("\n\n")
    for value in ("true", "False"):
        assert parse([*BASE, "--show-config", value]) == parse(BASE)
    assert "show_config=maybe must be true, false or nothing" in error_of(capsys, [*BASE, "--show-config", "maybe"])


def test_a_run_gets_its_settings_and_its_task_when_its_files_are_there(monkeypatch):
    done = []
    run, task = lambda config, opened: done.append((config, opened)) or 7, SimpleNamespace(open="opened")
    tasks = {"bert.training.training_run:run": run, PRETRAINING.task: task}
    monkeypatch.setattr("bert.config.command_line.load_task", tasks.__getitem__)
    monkeypatch.setattr(PretrainingConfig, "prepare_files", lambda config: done.append("files"))
    assert run_entry(PRETRAINING, BASE) == 7
    assert done == ["files", (parse(BASE), "opened")]


def test_a_missing_file_ends_a_run_before_its_task_is_loaded(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("bert.config.command_line.load_task", None)
    with pytest.raises(SystemExit) as ended:
        run_entry(
            PRETRAINING, [*BASE, "--input-dir", str(tmp_path / "none"), "--from-pretrained-params", str(tmp_path)]
        )
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("error: ")
