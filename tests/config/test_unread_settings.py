"""Requested settings without effect are named, with the settings that they need."""

import pytest

from bert.commands.pretrain import LAUNCHER, plan_of, planned
from bert.config.command_line import parse_arguments
from bert.config.flags import flat_fields
from bert.config.setting_sources import resolve_config
from bert.config.settings_base import ReadWith
from bert.config.unread_settings import unread_warnings
from bert.finetuning.ner.config import ENTRY as NER
from bert.finetuning.squad.config import ENTRY as SQUAD
from bert.glue.config import ENTRY as GLUE
from bert.launching.arguments import read_command_line
from bert.pretraining.entry import ENTRY
from bert.pretraining.launch_settings import PretrainingLaunch
from bert.vectors.settings import ENTRY as VECTORS

ENTRIES = (ENTRY, SQUAD, NER, GLUE, VECTORS)
PHASE_1 = {"phase": 1, "max_steps": 7, "input_dir": "shards", "vocab_file": "vocab.txt"}
ANSWERS = {"do_predict": True, "predict_file": "questions.json", "vocab_file": "vocab.txt"}


def warnings_of(entry, settings, **typed):
    return unread_warnings(resolve_config({**settings, **typed}, entry), typed)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ({"benchmark_steps": 3}, "--benchmark-steps 3 has no effect without --benchmark; drop it"),
        ({"scale_loss": 64}, "--scale-loss 64 has no effect without --amp; drop it"),
        ({"use_dynamic_loss_scaling": False}, "--use-dynamic-loss-scaling false has no effect without --amp; drop it"),
        ({"loss_scale_growth_interval": 5}, "--loss-scale-growth-interval 5 has no effect without --amp; drop it"),
        (
            {"local_attention": 64},
            "--local-attention 64 has no effect with --model-type bert, as it needs --model-type modernbert; drop it",
        ),
        ({"eval_freq": 5}, "--eval-freq 5 has no effect without --eval-dir; drop it"),
        ({"early_stopping_from": 0.5}, "--early-stopping-from 0.5 has no effect without --early-stopping; drop it"),
        (
            {"always_adapt": True, "optimizer": "AdamW"},
            "--always-adapt true has no effect with --optimizer AdamW, as it needs --optimizer Lamb; drop it",
        ),
        (
            {"initial_attention": "neighbours", "from_pretrained_params": "weights"},
            "--initial-attention neighbours has no effect with --from-pretrained-params; drop it",
        ),
        (
            {"fuse_linear": "on", "device": "cpu"},
            "--fuse-linear on has no effect with --device cpu, as it needs --device auto or --device gpu; drop it",
        ),
        (
            {"loss_spike_action": "rollback", "loss_spike_factor": 0},
            "--loss-spike-action rollback has no effect without",
        ),
    ],
)
def test_a_setting_for_nothing_is_named_with_what_it_needs(typed, text):
    (line,) = warnings_of(ENTRY, PHASE_1, **typed)
    assert line.startswith(text)


@pytest.mark.parametrize(
    "typed",
    [
        {"benchmark_steps": 3, "benchmark": True},
        {"scale_loss": 64, "amp": True},
        {"loss_scale_growth_interval": 5, "amp": True},
        {"local_attention": 64, "model_type": "modernbert"},
        {"eval_freq": 5, "eval_dir": "held_out"},
        {"early_stopping_from": 0.5, "early_stopping": 2, "eval_dir": "held_out"},
        {"initial_attention": "neighbours"},
        {"fuse_linear": "on"},
        {"num_workers": 9},
        {"benchmark_steps": 20, "scale_loss": 2**20},  # defaults, which users of NVIDIA's scripts type
    ],
)
def test_what_is_read_is_not_named(typed):
    assert warnings_of(ENTRY, PHASE_1, **typed) == []


def test_one_of_several_settings_is_enough():
    typed = {"predict_batch_size": 3, "null_score_diff_threshold": 1.5}
    (line,) = warnings_of(SQUAD, ANSWERS, **typed)
    assert line.startswith("--null-score-diff-threshold 1.5 has no effect without --version-2-with-negative")


def test_epochs_beside_updates_are_named():
    (line,) = warnings_of(SQUAD, {**ANSWERS, "do_train": True, "train_file": "t.json"}, epochs=3, max_steps=4)
    assert line == "--epochs 3 has no effect with --max-steps 4, as it needs --max-steps -1; drop it"


def test_readers_of_lddl_are_refused_and_those_of_a_preset_are_not(monkeypatch):
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", "/data")

    def plan(*words):
        return plan_of(read_command_line(LAUNCHER, words))

    rule = "--num-workers 8 has no effect with --data-loader lddl, as it needs --data-loader own; drop it"
    with pytest.raises(ValueError, match=rule):
        plan("--config", "base", "--data-loader", "lddl", "--num-workers", "8")
    with pytest.raises(ValueError, match="--phase2-num-workers 8 has no effect with"):
        plan("--config", "base", "--data-loader", "lddl", "--phase2-num-workers", "8")
    assert plan("--config", "base", "--data-loader", "lddl").warnings == []
    words = [*["-"] * 23, "8", "--data-loader", "lddl"]  # NVIDIA's positional arguments always have readers
    assert not [line for line in plan(*words).warnings if "workers" in line]
    shown = plan("--config", "base", "--phase1-scale-loss", "64", "--phase1-amp", "false").warnings
    assert shown == ["--phase1-scale-loss 64 has no effect without --amp; drop it"]


def test_settings_of_the_launch_are_named_too(monkeypatch, tmp_path):
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", str(tmp_path))
    words = ["--config", "base", "--num-nodes", "1", "--master", "a:1", "--wikipedia-source", str(tmp_path)]
    folders = []
    for phase in (1, 2):
        folders.append(tmp_path / f"shards{phase}")
        words += [f"--phase{phase}-input-dir", str(folders[-1])]
    master = "--master a:1 has no effect with --num-nodes 1; drop it"
    assert planned(words).plan.warnings == [master]  # the shards are missing, and made of that text
    for folder in folders:
        folder.mkdir()
        (folder / "shard-0.parquet").touch()
    there = f"has no effect, as the shards are there: {folders[0]}, {folders[1]}"
    assert planned(words).plan.warnings == [master, f"--wikipedia-source {tmp_path} {there}"]
    several = ["--config", "base", "--num-nodes", "2", "--master", "a:1"]
    assert not [line for line in planned(several).plan.warnings if "master" in line]


def test_the_python_entry_points_name_it_too(capsys, tmp_path):
    words = [f"--{name.replace('_', '-')}={value}" for name, value in PHASE_1.items() if name != "phase"]
    parse_arguments(ENTRY, ["--phase1", *words, "--benchmark-steps", "3"])
    assert "warning: --benchmark-steps 3 has no effect without --benchmark" in capsys.readouterr().err


def test_recipes_give_nothing_for_nothing():
    """No recipe has a setting without effect, except eval_freq and eval_samples."""
    for name, recipe in ENTRY.recipes.items():
        values = {field: value for _, part in recipe() for field, value in part}
        typed = [field for field in values if field not in ("eval_freq", "eval_samples")]
        assert unread_warnings(recipe(), typed) == [], name


def test_what_a_field_needs_exists():
    """A rule that names no existing setting would always hold, silently."""
    fields = [flat_fields(entry.config_class) for entry in ENTRIES]
    fields.append(flat_fields(PretrainingLaunch))
    known = {name for names in fields for name in names}
    rules = [rule for names in fields for _, field in names.values() for rule in field.metadata]
    named = {name for rule in rules if isinstance(rule, ReadWith) for name in rule.names}
    assert len(named) >= 15 and named <= known
