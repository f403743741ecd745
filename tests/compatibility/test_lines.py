"""Command lines of NVIDIA's Paddle trainer, and the settings they give; lines of its other trainers are refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.commands import fine_tuning, pretrain
from bert.commands.__main__ import main
from bert.commands.pretrain import parse_launch_arguments
from bert.commands.slurm import launch_arguments, node_arguments
from bert.config.command_line import parse_arguments
from bert.launching import ranks
from bert.pretraining.entry import ENTRY as PRETRAINING
from bert.pretraining.recipes import RECIPES
from data.preprocess_bert_pretrain import main as preprocess
from tests.support import corpora
from tests.support.commands import refused
from tests.support.jobs import execution_of
from tests.support.launching import LAUNCHERS

# ---- words -----------------------------------------------------------------------------------------------------------

# The lines of its README: <batch> <rate> <precision> ...
_README = "256 6e-3 amp 8 0.2843 7038 200 false 32 0 bert_pretraining 32 4e-3 0.128 1563 128 /path/to/dataset/phase1 "
_README += "/path/to/dataset/phase2 /workspace/bert None /path/to/wikipedia/source 32 128 4 0.9 64 static None false"
_PUBLISHED = {"bert_model": "bert-large-uncased", "hidden_size": 1024, "output_dir": REPOSITORY / "results"}
LINES = {  # of run_pretraining.sh -> settings of both phases; its presets: tests/test_scripts.py
    _README + " 10 10 true": {**_PUBLISHED, "amp": True, "seed": 0},
    "256 6e-3 fp16 8": {"amp": True, "seed": 12439},
}
_START = "results/bert-large-uncased/phase2/1563"
_SQUAD = {"bert_model": "bert-large-uncased", "epochs": 2, "learning_rate": 4.6e-5, "warmup_proportion": 0.2}
_SQUAD |= {"batch_size": 16, "predict_batch_size": 16, "max_steps": -1}
SQUAD_LINES = {  # of run_squad.sh, with the precision and the mode of the case
    f"{_START} 2 16 4.6e-5 0.2 {precision} 8 1 /prep/v1.1 vocab/bert-large-uncased-vocab.txt /workspace/bert/results "
    f"{mode} bert_configs/bert-large-uncased.json -1 false 100 100": {
        **_SQUAD,
        "amp": True,
        "do_train": "train" in mode,
        "do_eval": "eval" in mode,
        "do_predict": mode not in ("train",),
        "report_file": Path(f"/workspace/bert/results/dllogger_8_{precision}.json"),
    }
    # + stands for a space in an argument, as in quotes
    for mode, precision in (("eval", "amp"), ("prediction", "amp"), ("train+eval", "fp16"))
}


def differences(config, expected):
    """Return `NAME: VALUE, not EXPECTED` for each setting that is not as expected."""
    values = {name: value for _, section in config for name, value in dict(section).items()}
    return [f"{name}: {values[name]}, not {value}" for name, value in expected.items() if values[name] != value]


def test_words_of_pretraining_are_the_published_recipe(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    wrong = []
    for line, expected in LINES.items():
        plan = parse_launch_arguments(line.split())
        for config, total, rate in zip(plan.phases, (65_536, 32_768), (6e-3, 4e-3), strict=True):
            wrong += [(line, name) for name in differences(config, {**expected, "learning_rate": rate})]
            assert config.batch.resolved_global_batch_size(8) == total
            if len(words := line.split()) > 16:
                assert config.data.input_dir == Path(words[15 + config.run.phase])
        assert plan.ranks.num_processes == 8 and plan.launch.shards.wikipedia_source.name == "source"
    assert not wrong


def test_words_of_squad_are_their_presets(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", str(tmp_path / "prep"))
    vocabulary = tmp_path / "prep/vocab/bert-large-uncased-vocab.txt"
    for folder in (vocabulary.parent, tmp_path / _START):
        folder.mkdir(parents=True)
    vocabulary.touch()
    wrong = []
    for line, expected in SQUAD_LINES.items():
        words = [word.replace("+", " ") for word in line.split()]
        (config,) = fine_tuning.planned_of(LAUNCHERS["squad"], [*words, "--device", "cpu"]).plan.phases
        wrong += [(line, name) for name in differences(config, {**expected, "vocab_file": vocabulary})]
    assert not wrong
    flags = ["--device", "cpu", "--output-dir", "out", "--num-gpus", "2"]  # which win over the words
    (config,) = fine_tuning.planned_of(LAUNCHERS["squad"], [*words, *flags]).plan.phases
    assert config.run.report_file == Path("out/dllogger_2_fp16.json")


FOREIGN = {  # lines of NVIDIA's PyTorch and TensorFlow scripts -> what the refusal says
    "squad 10 5e-6 fp16 true 10 384 128 large 1.1 model.ckpt 1.1": "argument 3 is a precision .fp16., .*batch_size: ",
    "squad 8 12 5e-6 fp16 true large 1.1 2": "argument 4 is a precision .fp16.",
    "squad ckpt.pt 2.0 24 3e-5 fp16 8 42 /squad": "argument 5 is a precision .fp16.",
    "glue MRPC 16 3e-6 fp16 true 8 128 64 large": "9 positional arguments .* must be TASK DATA_DIR CHECKPOINT",
    "glue ckpt.pt /d /v.txt None /o sst-2 8 128 4": "9 positional arguments .* must be TASK DATA_DIR",
    "pretraining 8192 6e-3 fp16 8 0.2843 7038 200 false": "batch_size=8192 .*PyTorch .*--config large_pytorch",
    "pretraining 1024 6e-3 fp16 8 0.2843 7038 200 false true": "batch_size=1024 is of NVIDIA's PyTorch",
    "pretraining 64 8 8 7.5e-4 5e-4 fp16 true 8 2000": "argument 6 is a precision .fp16.",
    "pretraining 14 8 1e-4 fp16 true 8": "argument 4 is a precision .fp16.",
}


@pytest.mark.parametrize("line", FOREIGN)
def test_lines_of_other_trainers_are_refused_with_the_page_of_the_flags(line):
    task, *words = line.split()
    with refused(f"{FOREIGN[line]}.*docs/from_nvidia.md"):
        main([task, *words])


# ---- flags -----------------------------------------------------------------------------------------------------------

_PHASE_1 = "--phase1 --max-steps 9 --input-dir shards --vocab-file v.txt"
FLAGS = {  # of run_pretraining.py -> settings
    _PHASE_1: {"bert_model": "bert-large-uncased", "hidden_size": 1024},
    f"{_PHASE_1} --bert-model bert-base-cased": {"bert_model": "bert-base-cased", "vocab_size": 28_996},
    f"{_PHASE_1} --bert-model custom --config-file bert_configs/bert-base-cased.json": {"hidden_size": 768},
    f"{_PHASE_1} --vocab-file=vocab/bert-large-uncased-vocab.txt": {
        "vocab_file": Path("/prep/vocab/bert-large-uncased-vocab.txt")
    },
    f"{_PHASE_1} --vocab-file=vocab/there.txt": {"vocab_file": Path("vocab/there.txt")},
    f"{_PHASE_1} --show-config True": {"max_steps": 9},
    f"{_PHASE_1} --show-config=False": {"max_steps": 9},
    f"{_PHASE_1} --vocab_file a_b --learning_rate=3e-4": {"vocab_file": Path("a_b"), "learning_rate": 3e-4},
}


def test_flags_of_pretraining_are_read_as_there(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", "/prep")
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab/there.txt").touch()
    wrong = []
    for line, expected in FLAGS.items():
        wrong += [(line, name) for name in differences(parse_arguments(PRETRAINING, line.split()), expected)]
    assert not wrong


def test_the_named_arguments_of_their_readme_are_the_published_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = """--input-dir=/path/to/dataset/phase1 --vocab-file=vocab/bert-large-uncased-vocab.txt
        --output-dir=./results --bert-model=bert-large-uncased --from-checkpoint=./results/bert-large-uncased/phase1
        --last-step-of-checkpoint=auto --batch-size=256 --max-steps=7038 --num-steps-per-checkpoint=200 --log-freq=1
        --max-seq-length=128 --max-predictions-per-seq=20 --gradient-merge-steps=32 --amp --use-dynamic-loss-scaling
        --optimizer=Lamb --phase1 --scale-loss=1048576 --learning-rate=6e-3 --warmup-proportion=0.2843
        --report-file=./results/dllogger_p1.json"""
    config, recipe = parse_arguments(PRETRAINING, words.split()), RECIPES["phase1_large"]()
    assert (config.model, config.optimizer, config.precision) == (recipe.model, recipe.optimizer, recipe.precision)
    assert config.batch.resolved_global_batch_size(8) == recipe.batch.global_batch_size
    assert config.checkpoint_dir() == Path("results/bert-large-uncased/phase1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--optimizer DistributedFusedLamb", "optimizer=DistributedFusedLamb must be Lamb, the same method"),
        ("--phase2", "phase1"),
        ("--show-config maybe", "show_config=maybe must be"),
        ("--bert-model custom", "bert_model=custom must be a built-in model, or come with --config-file"),
    ],
)
def test_what_is_refused_on_purpose_says_so_in_a_line(capsys, words, message):
    with pytest.raises(SystemExit) as stop:
        parse_arguments(PRETRAINING, [*_PHASE_1.split(), *words.split()])
    assert stop.value.code == 2 and message in capsys.readouterr().err


GLUON = {  # GluonNLP's flag -> ours
    "--data x": "--input-dir",
    "--data_eval x": "--eval-dir",
    "--num_steps 9": "--max-steps",
    "--lr 1e-4": "--learning-rate",
    "--warmup_ratio 0.1": "--warmup-proportion",
    "--accumulate 4": "--gradient-merge-steps",
    "--ckpt_dir x": "--output-dir",
    "--ckpt_interval 9": "--num-steps-per-checkpoint",
    "--start_step 9": "--from-checkpoint",
    "--dtype float16": "--amp",
    "--gpus 0,1": "--num-gpus",
    "--log_interval 9": "--log-freq",
}


def test_gluonnlps_flags_name_ours(capsys):
    for theirs, ours in GLUON.items():
        with pytest.raises(SystemExit):
            pretrain.main(["--phase1", *theirs.split()])
        error = capsys.readouterr().err
        assert f"did you mean {ours}?" in error or f"{ours} " in error, theirs


# ---- scripts and run.sub ---------------------------------------------------------------------------------------------


def test_create_datasets_passes_what_lddl_was_given(tmp_path, capsys):
    """The script makes Wikipedia, SQuAD, and shards with the values that NVIDIA's run_pretraining.sh gives LDDL."""
    done = subprocess.run(
        ["bash", REPOSITORY / "data/create_datasets_from_start.sh", "--dry-run"],
        env={**os.environ, "BERT_PREP_WORKING_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    made = [line.split()[3:] for line in done.stderr.splitlines() if line.startswith("+ python -m ")]
    assert made[0][:3] == ["data.download_wikipedia", "--output-dir", f"{tmp_path}/wikipedia"]
    assert made[-1] == ["data.download_squad", "--output-dir", f"{tmp_path}/download/squad"]
    shards = [words[1:] for words in made if words[0] == "data.preprocess_bert_pretrain"]
    for words, phase in zip(shards, ("phase1/unbinned", "phase2/bin_size_64"), strict=True):
        flags = dict(zip(words[::2], words[1::2], strict=True))
        assert flags["--output-dir"] == f"{tmp_path}/pretrain/{phase}/parquet"
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
    monkeypatch.setattr("bert.commands.pretrain.num_gpus", lambda: gpus)
    monkeypatch.setattr("bert.jobs.job.execute", lambda *_: 0)
    assert pretrain.main(["--output-dir", str(tmp_path), "--device", "cpu"]) == 0
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


def test_a_benchmark_line_shows_all_its_mistakes_at_once(tmp_path, monkeypatch, capsys):
    """The words are NVIDIA's, in its order, with data of another masking, a small model and too many GPUs."""
    monkeypatch.setattr(ranks, "num_gpus", lambda: 0)
    corpora.write_vocabulary(tmp_path / "vocab.txt")
    model = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    (tmp_path / "small.json").write_text(json.dumps({**model, "max_position_embeddings": 128}))
    corpora.write_shards(tmp_path / "unmasked", [corpora.random_table(64, seed=3, masked=False, longest=30)])
    words = _README.split() + ["1", "1", "true"]
    words[16], words[17], words[27], words[28] = (
        str(tmp_path / "unmasked"),
        "none",
        str(tmp_path / "small.json"),
        "true",
    )
    with pytest.raises(SystemExit):
        pretrain.main([*words, "--vocab-file", str(tmp_path / "vocab.txt"), "--output-dir", str(tmp_path / "out")])
    *lines, _ = capsys.readouterr().err.split("\n")
    expected = (
        "error: max_seq_length=512 must be at most max_position_embeddings=128 of the model; lower "
        "--phase2-max-seq-length,",
        f"error: vocab_file={tmp_path}/vocab.txt has ",
        f"error: {tmp_path}/unmasked: masking=static needs shards with masks, and these have none; pass --masking",
        "error: num_gpus=8 must be at most the 0 GPUs of this machine",
    )
    assert len(lines) == 4 and all(map(str.startswith, lines, expected)), lines
    assert lines[0].endswith(f"(max_position_embeddings: {tmp_path}/small.json)")
    assert not (tmp_path / "out").exists()


def test_a_benchmark_ends_with_its_throughput_by_their_name(capsys, tmp_path):
    for phase, rate in ((1, 5541.25), (2, 2109.0)):
        folder = tmp_path / f"phase{phase}/benchmark"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(f'{{"training_sequences_per_second": {rate}}}')
    job = pretrain.planned(["--benchmark", "--output-dir", str(tmp_path), "--device", "cpu"]).job
    execution = execution_of(tmp_path, steps=job.steps)
    assert job.steps[-1].run(execution) == 0
    shown = capsys.readouterr().out
    assert (
        "phase 1: training_sequences_per_second 5,541.2" in shown
        and "phase 2: training_sequences_per_second 2,109" in shown
    )
