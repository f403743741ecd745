"""Flags and YAML: every field has a flag, every mistake one line with value, rule and remedy, and exit code 2."""

import re
from pathlib import Path

import pytest
import yaml

from bert.config.command_line import dump_yaml, parse_arguments, parse_flags, parser_of, resolve_config
from bert.config.flags import choices_of, flat_fields, members
from bert.config.training_settings import BUILT_IN_MODELS
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
    "best_by": {"probe_file": "lines.csv"},
    "batch_size_warmup_min_size": {"batch_size_warmup_sequences": 9},
    "batch_size_warmup_sequences": {"batch_size_warmup_min_size": 9},
}


def sample(name):
    """A value of a field that differs from the recipe's."""
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


@pytest.mark.parametrize("name", SAMPLES)
def test_every_flag_lands_in_its_field(name):
    section, value = FLAT[name][0], SAMPLES[name]
    after = parse([*BASE, *companions_of(name), *flag_words(name, value)])
    assert getattr(getattr(RECIPE, section), name) != value, "the sample must differ from the recipe"
    assert getattr(getattr(after, section), name) == value
    companions = set(COMPANIONS.get(name, {}))
    # The one replaces the other.
    companions |= {"epochs": {"max_steps"}, "masked_lm_ratio": {"max_predictions_per_seq"}}.get(name, set())
    changed = {
        key
        for part in PretrainingConfig.model_fields
        for key, old in getattr(RECIPE, part)
        if getattr(getattr(after, part), key) != old
    }
    assert changed - companions - {name} <= (
        PretrainingConfig.model_fields["model"].annotation.model_fields.keys() if name == "bert_model" else set()
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_every_key_of_a_file_lands_in_its_field(name, tmp_path):
    file = tmp_path / "settings.yaml"
    value = str(SAMPLES[name]) if isinstance(SAMPLES[name], Path) else SAMPLES[name]
    file.write_text(yaml.safe_dump({"config": "quickstart_phase1", **COMPANIONS.get(name, {}), name: value}))
    config = resolve_config({"config": str(file)}, PRETRAINING)
    assert getattr(getattr(config, FLAT[name][0]), name) == SAMPLES[name]


def test_every_field_explains_itself():
    text = " ".join(parser_of(PRETRAINING).format_help().split())
    for name, (_, field) in FLAT.items():
        assert len(field.description) > 10, name
        assert f"--{name.replace('_', '-')}" in text or name == "phase", name


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


@pytest.mark.parametrize(
    ("words", "amp", "fuse_mha"),
    [
        (["--amp"], True, True),
        (["--amp", "true"], True, True),
        (["--amp=True"], True, True),
        (["--amp", "1"], True, True),
        (["--no-fuse-mha"], False, False),
        (["--fuse-mha", "false"], False, False),
        (["--fuse-mha=False"], False, False),
    ],
)
def test_a_boolean_may_be_written_in_several_ways(words, amp, fuse_mha):
    config = parse([*BASE, *words])
    assert (config.precision.amp, config.hardware.fuse_mha) == (amp, fuse_mha)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ([], "auto"),
        (["--fuse-linear"], "on"),
        (["--fuse-linear", "true"], "on"),
        (["--fuse-linear", "on"], "on"),
        (["--no-fuse-linear"], "off"),
        (["--fuse-linear=False"], "off"),
        (["--fuse-linear", "auto"], "auto"),
    ],
)
def test_a_switch_may_be_left_to_the_program_and_keeps_the_flags_of_a_boolean(words, value):
    assert parse([*BASE, *words]).hardware.fuse_linear == value


@pytest.mark.parametrize(("text", "value"), [("true", "on"), ("off", "off"), ("'on'", "on"), ("auto", "auto")])
def test_a_switch_in_a_file_of_an_earlier_version_was_a_boolean(tmp_path, text, value):
    file = tmp_path / "settings.yaml"
    file.write_text(f"config: phase2_large\nfuse_linear: {text}\n")
    assert parse(["--config", str(file)]).hardware.fuse_linear == value


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), (".5 H", 1800)])
def test_a_duration_has_a_unit_or_is_in_seconds(text, seconds):
    assert parse([*BASE, "--lr-schedule", "wsd", "--finish-in", text]).run.finish_in == seconds


def test_none_takes_a_value_away():
    assert parse([*BASE, "--eval-dir", "None"]).data.eval_dir is None
    assert parse(["--config", "phase1_large", "--global-batch-size", "none"]).batch.global_batch_size is None


def test_variables_in_paths_are_filled_in(monkeypatch):
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", "/prepared")
    assert parse(["--config", "phase1_large"]).data.input_dir == Path("/prepared/pretrain/phase1/unbinned/parquet")
    monkeypatch.delenv("BERT_PREP_WORKING_DIR")
    assert "$BERT_PREP_WORKING_DIR" in str(parse(["--config", "phase1_large"]).data.input_dir)


def test_the_defaults_that_users_know():
    config = parse("--phase1 --input-dir a --vocab-file v --max-steps 7".split())
    run, optimizer = config.run, config.optimizer
    assert (run.log_freq, run.num_steps_per_checkpoint, run.seed, run.report_file, run.model_prefix) == (
        10,
        100,
        42,
        Path("report.json"),
        "bert_paddle",
    )
    assert (run.benchmark_steps, run.benchmark_warmup_steps, config.batch.gradient_merge_steps) == (20, 20, 1)
    assert (
        optimizer.optimizer,
        optimizer.learning_rate,
        optimizer.warmup_start_lr,
        optimizer.warmup_proportion,
        optimizer.epsilon,
        optimizer.weight_decay,
    ) == ("Lamb", 1e-4, 0.0, 0.01, 1e-6, 0.01)
    assert (config.data.max_seq_length, config.data.max_predictions_per_seq, config.batch.batch_size) == (512, 80, 32)


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
        ("--config phase1_large --learning-rates 3", "it was left out: give each --learning-rate an --output-dir"),
        ("--config phase1_large --learning-r 3", "--learning-r is not a flag"),
        ("--config phase1_large --lr 3", "--lr is not a flag; did you mean --learning-rate?"),
        ("--config phase1_large --per_device_train_batch_size 3", "did you mean --batch-size?"),
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


def test_only_given_flags_are_returned():
    assert parse_flags(["--seed", "3", "--amp"], PRETRAINING) == {"seed": "3", "amp": "true"}
