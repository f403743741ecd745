"""NVIDIA's scripts as typed: words of its README and of its files of presets, the environment of its run.sub."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.config.architecture import BUILT_IN_MODELS
from bert.launching import finetuning, pretraining
from bert.launching.finetuning_tasks import TASKS
from bert.launching.pretraining_plan import parse_launch_arguments
from bert.launching.slurm import launch_arguments, node_arguments
from data.preprocess_bert_pretrain import main as preprocess

# What its presets print, and the lines of its README: <batch> <rate> <precision> ...
_DATA = "/prep/pretrain/phase1/unbinned/parquet/ /prep/pretrain/phase2/bin_size_64/parquet/ /workspace/bert None"
_PRESET = "bert_lamb_pretraining {} 4e-3 0.128 1563 {} " + _DATA + " /prep/wikipedia/source/ 128 128 4 0.9 64 static "
_PRESET += "bert_configs/bert-large-uncased.json false 10 10"
_README = "256 6e-3 amp 8 0.2843 7038 200 false 32 0 bert_pretraining 32 4e-3 0.128 1563 128 /path/to/dataset/phase1 "
_README += "/path/to/dataset/phase2 /workspace/bert None /path/to/wikipedia/source 32 128 4 0.9 64 static None false"
LINES = {
    "preset amp": "256 6e-3 amp 8 0.2843 7038 200 false 32 42 " + _PRESET.format(32, 128),
    "preset tf32": "128 6e-3 tf32 8 0.2843 7038 200 false 64 42 " + _PRESET.format(16, 256),
    "29 words": _README,
    "32 words": _README + " 10 10 true",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_words_of_pretraining_are_the_published_recipe(line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    plan = parse_launch_arguments(line.split())
    assert plan.ranks.num_processes == 8 and plan.launch.shards.wikipedia_source.name == "source"
    for config, total, data in zip(plan.phases, (65_536, 32_768), line.split()[16:18], strict=True):
        assert config.batch.resolved_global_batch_size(8) == total and config.data.input_dir == Path(data)
        assert config.run.bert_model == "bert-large-uncased" and config.model == BUILT_IN_MODELS["bert-large-uncased"]
        assert config.run.seed == int(line.split()[9]) and config.run.output_dir == Path("/workspace/bert/results")
        assert config.precision.amp == (" amp " in line) and (config.precision.tf32 == "on") == (" tf32 " in line)
    assert [config.optimizer.learning_rate for config in plan.phases] == [6e-3, 4e-3]


@pytest.mark.parametrize(
    ("mode", "precision"),
    [("train", "amp"), ("eval", "amp"), ("prediction", "amp"), ("train_eval", "amp"), ("train eval", "fp16")],
)
def test_words_of_their_presets_of_squad(mode, precision, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", str(tmp_path / "prep"))
    vocabulary, start = tmp_path / "prep/vocab/bert-large-uncased-vocab.txt", "results/bert-large-uncased/phase2/1563"
    for folder in (vocabulary.parent, tmp_path / start):
        folder.mkdir(parents=True)
    vocabulary.touch()
    line = f"{start} 2 16 4.6e-5 0.2 {precision} 8 1 /prep/v1.1 vocab/bert-large-uncased-vocab.txt"
    words = [*line.split(), "/workspace/bert/results", mode]
    words += "bert_configs/bert-large-uncased.json -1 false 100 100".split()
    (config,) = finetuning.plan_of(TASKS["squad"], [*words, "--device", "cpu"]).phases
    assert config.checkpoint_dir() == Path("/workspace/bert/results/bert-large-uncased/squad")
    assert config.data.vocab_file == vocabulary
    assert config.run.report_file == Path(f"/workspace/bert/results/dllogger_8_{precision}.json")
    flags = ["--device", "cpu", "--output-dir", "out", "--num-gpus", "2"]  # which win over the words
    assert finetuning.plan_of(TASKS["squad"], [*words, *flags]).phases[0].run.report_file == Path(
        f"out/dllogger_2_{precision}.json"
    )
    assert config.batch.batch_size == config.batch.predict_batch_size == 16
    assert (config.run.do_train, config.run.do_eval) == ("train" in mode, "eval" in mode)


def test_create_datasets_passes_what_lddl_was_given(tmp_path, capsys):
    """Its script makes Wikipedia and SQuAD; ours also what its run_pretraining.sh passes to LDDL."""
    done = subprocess.run(
        ["bash", REPOSITORY / "data/create_datasets_from_start.sh", "--dry-run"],
        env={**os.environ, "BERT_PREP_WORKING_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    made = [line.split()[3:] for line in done.stderr.splitlines() if line.startswith("+ python -m ")]
    assert made[0][:3] == ["data.download_wikipedia", "--outdir", f"{tmp_path}/wikipedia"]
    assert made[-1] == ["data.download_squad", "--outdir", f"{tmp_path}/download/squad"]
    shards = [words[1:] for words in made if words[0] == "data.preprocess_bert_pretrain"]
    for words, phase in zip(shards, ("phase1/unbinned", "phase2/bin_size_64"), strict=True):
        flags = dict(zip(words[::2], words[1::2], strict=True))
        assert flags["--sink"] == f"{tmp_path}/pretrain/{phase}/parquet"
        assert (flags["--duplicate-factor"], flags["--sample-ratio"], flags["--masking"]) == ("5", "0.9", "static")
        assert flags["--num-shards"] == "4096" and flags["--wikipedia"] == f"{tmp_path}/wikipedia/source"
        with pytest.raises(SystemExit):
            preprocess(words)  # the flags are read, then the text is missed
        assert f"{tmp_path}" in (error := capsys.readouterr().err) and "unrecognized" not in error


@pytest.mark.parametrize(("phase", "steps"), [(1, "7,038"), (2, "1,563")])
def test_scripts_of_one_phase_are_the_published_recipe(phase, steps):
    done = subprocess.run(
        ["bash", f"scripts/run_pretraining_p{phase}.sh", "--dry-run"],
        cwd=REPOSITORY,
        env={"PATH": "/usr/bin:/bin", "BERT_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"phase      {phase}," in done.stdout and "bert-large-uncased" in done.stdout and steps in done.stdout


@pytest.mark.parametrize(("gpus", "is_said"), [(0, False), (1, False), (8, True)])
def test_without_arguments_several_gpus_are_told_of_the_published_recipe(monkeypatch, capsys, tmp_path, gpus, is_said):
    for module in ("bert.launching.pretraining", "bert.launching.pretraining_plan"):
        monkeypatch.setattr(f"{module}.num_gpus", lambda: gpus)
    monkeypatch.setattr(pretraining, "_run", lambda *_: 0)
    assert pretraining.main(["--output-dir", str(tmp_path), "--device", "cpu"]) == 0
    assert ("run_pretraining.sh --config large" in capsys.readouterr().out) == is_said


def test_run_sub_takes_the_defaults_of_theirs_typed_out():
    theirs = {
        "NUM_SHARDS_PER_WORKER": "none",
        "BIN_SIZE": "none",
        "INIT_CHECKPOINT": "none",
        "RERUN_DASK": "false",
        "PRECISION": "fp16",
        "PHASE": "1",
        "TRAIN_BATCH_SIZE": "256",
        "GRADIENT_ACCUMULATION_STEPS": "8",
        "IMAGE_VERSION": "22.12-py3",
        "USE_JEMALLOC": "true",
    }
    flags = " ".join(launch_arguments(theirs))
    assert "--amp" in flags and "--phase1" in flags and "num-shards-per-worker" not in flags


@pytest.mark.parametrize(
    ("line", "total"),
    [
        ("TRAIN_BATCH_SIZE=256 GRADIENT_ACCUMULATION_STEPS=8 PHASE=1", 65_536),
        ("TRAIN_BATCH_SIZE=32 GRADIENT_ACCUMULATION_STEPS=32 PHASE=2 INIT_CHECKPOINT=/phase1", 32_768),
    ],
)
def test_run_sub_on_four_nodes_as_in_their_readme(line, total):
    variables = dict(word.split("=") for word in line.split())
    variables |= {"SLURM_JOB_NUM_NODES": "4", "SLURM_NODEID": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20017"}
    plan = parse_launch_arguments([*launch_arguments(variables), *node_arguments(variables)])
    (config,) = plan.phases
    assert plan.world_size() == 32 and config.batch.resolved_global_batch_size(32) == total


def test_run_sub_does_not_make_shards_anew():
    with pytest.raises(
        ValueError, match="RERUN_DASK=true would make the shards anew at each requeue; delete their folder"
    ):
        launch_arguments({"RERUN_DASK": "true"})


def test_a_benchmark_ends_with_its_throughput_by_their_name(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(pretraining, "is_done", lambda config: True)
    for phase, rate in ((1, 5541.25), (2, 2109.0)):
        folder = tmp_path / f"phase{phase}/benchmark"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(f'{{"training_sequences_per_second": {rate}}}')
    assert pretraining.main(["--benchmark", "--output-dir", str(tmp_path), "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert (
        "phase 1: training_sequences_per_second 5,541.2" in shown
        and "phase 2: training_sequences_per_second 2,109" in shown
    )
