"""Three ways to choose a training: no arguments, 32 positional arguments, names and flags."""

import re
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.commands.__main__ import main
from bert.commands.pretrain import LAUNCHER, POSITIONAL, parse_launch_arguments
from bert.config.training_settings import BUILT_IN_MODELS, derive
from bert.launching.arguments import LauncherParser
from bert.launching.ranks import quickstart_processes
from bert.pretraining.recipes import PRESETS, RECIPES
from tests.support.commands import refused
from tests.support.launching import LAUNCHERS


def flat(plan) -> dict:
    """Return all settings of a plan by name; settings of a phase as `1.batch_size`."""
    values = {name: value for _, section in plan.launch for name, value in section}
    for config in plan.phases:
        values |= {f"{config.run.phase}.{name}": value for _, section in config for name, value in section}
    return values


def both(**values) -> dict:
    return {f"{phase}.{name}": value for phase in (1, 2) for name, value in values.items()}


MINI = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
REPORTS = {f"{phase}.report_file": Path(f"c/results/dllogger_p{phase}.json") for phase in (1, 2)}
LANDINGS = {  # name -> (a value unlike the default, the settings that it changes), in NVIDIA's order
    "batch_size": ("13", {"1.batch_size": 13}),
    "learning_rate": ("5e-3", {"1.learning_rate": 5e-3}),
    "precision": ("tf32", both(amp=False, tf32="on")),
    "num_gpus": ("3", {"num_processes": 3}),
    "warmup_proportion": ("0.5", {"1.warmup_proportion": 0.5}),
    "max_steps": ("11", {"1.max_steps": 11}),
    "num_steps_per_checkpoint": ("7", both(num_steps_per_checkpoint=7)),
    "create_logfile": ("true", {"create_logfile": True}),
    "gradient_merge_steps": ("5", {"1.gradient_merge_steps": 5}),
    "seed": ("9", both(seed=9)),
    "job_name": ("mine", {"job_name": "mine"}),
    "batch_size_phase2": ("17", {"2.batch_size": 17}),
    "learning_rate_phase2": ("3e-3", {"2.learning_rate": 3e-3}),
    "warmup_proportion_phase2": ("0.4", {"2.warmup_proportion": 0.4}),
    "max_steps_phase2": ("19", {"2.max_steps": 19}),
    "gradient_merge_steps_phase2": ("6", {"2.gradient_merge_steps": 6}),
    "input_dir": ("a", {"1.input_dir": Path("a")}),
    "input_dir_phase2": ("b", {"2.input_dir": Path("b")}),
    "code_dir": ("c", {"code_dir": Path("c"), **both(output_dir=Path("c/results")), **REPORTS}),
    "init_checkpoint": ("d", {"1.from_checkpoint": Path("d"), "1.last_step_of_checkpoint": "auto"}),
    "wikipedia_source": ("e", {"wikipedia_source": Path("e")}),
    "num_dask_workers": ("21", {"num_dask_workers": 21}),
    "num_shards_per_worker": ("23", {"num_shards_per_worker": 23}),
    "num_workers": ("2", both(num_workers=2)),
    "sample_ratio": ("0.3", {"sample_ratio": 0.3}),
    "phase2_bin_size": ("128", {"phase2_bin_size": 128}),
    "masking": ("dynamic", both(masking="dynamic")),
    "bert_config": ("model.json", both(**MINI)),
    "benchmark": ("true", both(benchmark=True)),
    "benchmark_steps": ("27", both(benchmark_steps=27)),
    "benchmark_warmup_steps": ("29", both(benchmark_warmup_steps=29)),
    "fuse_mha": ("false", both(fuse_mha=False, fuse_attention="off")),
}


def test_each_positional_argument_changes_its_settings_and_no_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.json").write_text(BUILT_IN_MODELS["bert-mini"].to_json())
    assert list(LANDINGS) == [row.name for row in POSITIONAL] and len(LANDINGS) == 32
    before, after = (
        flat(parse_launch_arguments(words)) for words in (["-"], [value for value, _ in LANDINGS.values()])
    )
    expected = {name: value for _, settings in LANDINGS.values() for name, value in settings.items()}
    assert {name: value for name, value in after.items() if before[name] != value} == expected


def test_positional_defaults_are_the_published_recipe(monkeypatch):
    monkeypatch.delenv("BERT_PREP_WORKING_DIR", raising=False)
    plan = parse_launch_arguments(["256"])
    for config, name in zip(plan.phases, ("phase1_large", "phase2_large"), strict=True):
        recipe = RECIPES[name]()
        changed = derive(
            config,
            batch_size=recipe.batch.batch_size,  # NVIDIA's phase 2 has smaller micro-batches, and as large updates
            global_batch_size=recipe.batch.global_batch_size,
            gradient_merge_steps=1,
            benchmark_steps=20,
            benchmark_warmup_steps=20,
            log_freq=10,
            output_dir="results",
            report_file=recipe.run.report_file,
        )
        assert changed == recipe
        assert config.batch.resolved_global_batch_size(8) == recipe.batch.global_batch_size
        assert config.run.report_file == REPOSITORY / f"results/dllogger_p{config.run.phase}.json"


def test_flags_may_follow_positional_arguments():
    plan = parse_launch_arguments(["128", "--vocab-file", "v", "--phase2-seed", "3", "--dry-run"])
    assert [config.run.seed for config in plan.phases] == [12_439, 3]
    assert plan.questions and plan.phases[0].data.vocab_file == Path("v")


def test_without_arguments_it_is_the_quickstart():
    plan = parse_launch_arguments([])
    assert (plan.name, plan.world_size()) == ("quickstart", quickstart_processes("auto"))
    assert [config.run.bert_model for config in plan.phases] == ["bert-quickstart"] * 2


def test_each_phase_has_its_own_report():
    files = [config.run.report_file for config in parse_launch_arguments(["--config", "large"]).phases]
    assert files == [Path("results/phase1/report.json"), Path("results/phase2/report.json")]


@pytest.mark.parametrize("flag", ["--input-dir", "--phase2-eval-dir", "--vocab-file"])
def test_the_quickstart_never_makes_its_data_where_a_user_keeps_theirs(flag, tmp_path):
    with pytest.raises(ValueError, match="is not where the quickstart makes its data; to train on yours, name a"):
        parse_launch_arguments([flag, str(tmp_path)])


@pytest.mark.parametrize(
    "words", [["--phase1-dry-run"], ["--config", "base", "--phase1", "--phase2-max-steps", "3"], ["--phase1-phase2"]]
)
def test_what_would_have_no_effect_is_refused(words):
    with pytest.raises(ValueError, match="has no effect here|is not a setting of a phase|is not a flag"):
        parse_launch_arguments(words)


def test_a_preset_brings_its_ranks():
    nodes = ["--master", "a:1"]
    assert parse_launch_arguments(["--config", "dgxa100-80g_4x8gpu_amp", *nodes]).ranks.num_nodes == 4
    assert parse_launch_arguments(["--config", "base"]).world_size() == PRESETS["base"].world_size()


def test_one_phase_of_a_preset_and_one_recipe():
    assert [c.run.phase for c in parse_launch_arguments(["--config", "large", "--phase2"]).phases] == [2]
    assert [c.run.phase for c in parse_launch_arguments(["--config", "phase1_base"]).phases] == [1]
    plan = parse_launch_arguments("--phase1 --input-dir a --vocab-file v --max-steps 3 --num-processes 2".split())
    assert (len(plan.phases), plan.world_size()) == (1, 2)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("256 6e-3 int8", "precision=int8 must be one of amp, fp32, tf32"),
        ("256 fast", "learning_rate=fast must be a valid number"),
        ("256 6e-3 amp eight", "num_gpus=eight must be a valid integer"),
        (" ".join(["-"] * 25 + ["48"]), "phase2_bin_size=48 must be one of 32, 64, 128, 256, 512, none"),
        (" ".join(["-"] * 24 + ["2"]), "sample_ratio=2 must be less than or equal to 1; change --sample-ratio"),
        (" ".join(["-"] * 33), "33 positional arguments must be at most 32"),
        ("256 --config large", "contradicts the positional arguments"),
        ("--config larg", "config=larg must be a preset, a recipe or a YAML file; did you mean large?"),
        ("--config large --phase1-batch-siz 3", "--phase1-batch-siz is not a flag; did you mean --phase1-batch-size?"),
        ("--config large --phase2-lr 3", "--phase2-lr is not a flag; did you mean --phase2-learning-rate?"),
        ("--config large --phase2-learning-rate 0", "must be greater than 0; change --phase2-learning-rate"),
        ("--config large --phase2-seed 3 --max-steps x", "change --max-steps"),
        ("--phase1-config base", "it is not a setting of a phase: give it without phase1-"),
        ("--config large --num-gpu 3", "--num-gpu is not a flag; did you mean --num-gpus?"),
        ("--config large --num-gpus 7", "global_batch_size=65536 must be a multiple of batch_size x world_size"),
        (
            "--hours 1 --lr-schedule cosine",
            "lr_schedule=cosine needs the number of updates, which --hours=1 leaves open",
        ),
        ("--config dgxa100-80g_4x8gpu_amp", "num_nodes=4 needs the address of the first node; pass --master"),
    ],
)
def test_wrong_arguments_are_refused(words, text):
    with refused(re.escape(text)):
        main(["pretraining", *words.split()])


def test_an_unknown_task_is_refused(capsys):
    assert main([]) == main(["cooking"]) == 2
    assert "error: cooking must be one of pretraining, squad, glue, " in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "TASK is one of pretraining, squad, glue, " in capsys.readouterr().out


@pytest.mark.parametrize("task", ["pretraining", "squad", "glue", "ner", "vectors"])
def test_help_is_short_and_leads_to_its_topics(task, capsys):
    parser = LauncherParser(LAUNCHER if task == "pretraining" else LAUNCHERS[task])
    short = parser.help_about("")
    assert "--config NAME_OR_FILE" in short  # tests/test_help.py counts its lines
    topics = "".join(short.split("More: --help ")[1].split()).split("|")
    assert ("recipes" in topics) == (task != "vectors") and "nodes" in topics
    assert all(parser.help_about(topic) for topic in topics)
    assert "--num-nodes" in parser.help_about("nodes") and "--num-nodes" not in short
    with pytest.raises(SystemExit) as ended:
        main([task, "--help"])
    assert ended.value.code in (None, 0) and capsys.readouterr().out == f"{short}\n"
    with refused("did you mean nodes?"):
        main([task, "--help", "node"])


@pytest.mark.parametrize(("task", "begins"), [("pretraining", "--words NUMBER"), ("vectors", "Train")])
def test_help_after_a_text_is_about_text_where_there_is_such_a_group(task, begins, capsys):
    with pytest.raises(SystemExit):
        main([task, "--text", "notes", "--help"])
    out = capsys.readouterr().out
    assert out.startswith(begins) and ("--deduplicate" in out) == (task == "pretraining")
    assert ("For all others type --help without --text." in out) == (task == "pretraining")


def test_dry_run_and_show_config_print_both_phases(capsys):
    assert main(["pretraining", "--config", "large", "--dry-run"]) == 0
    assert capsys.readouterr().out.count("65,536 sequences") == 1
    assert main(["pretraining", "--config", "large", "--show-config"]) == 0
    assert capsys.readouterr().out.count("max_steps: ") == 2
