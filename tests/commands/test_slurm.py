"""run.sub's environment becomes the launcher's flags; a job without progress is not requeued for ever."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.commands import slurm, slurm_plan
from bert.commands.pretrain import parse_launch_arguments, planned
from bert.launching import ranks
from bert.pretraining.slurm_variables import OF_A_PHASE, OF_ALL_PHASES, SPECIAL, errors_name_variables
from tests.support.jobs import StandInStep


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", "/data")


def plan(**variables: str):
    return parse_launch_arguments([*slurm.launch_arguments(variables), *slurm.node_arguments(variables)])


def test_nothing_set_is_bert_large_in_both_phases_on_eight_gpus():
    found = plan()
    assert [config.run.phase for config in found.phases] == [1, 2]
    assert found.phases[0].run.bert_model == "bert-large-uncased" and found.phases[0].run.seed == 12439
    assert (found.ranks.num_nodes, found.ranks.num_processes) == (1, 8)
    assert found.phases[0].batch.gradient_accumulation_steps(8) == 32


def test_the_variables_users_know_reach_the_settings():
    words = (
        "PHASE=1 SEED=31 TRAIN_BATCH_SIZE=64 GRADIENT_ACCUMULATION_STEPS=16 GPUS=4 BIN_SIZE=32 NUM_WORKERS=3 "
        "MASKING=dynamic PRECISION=tf32 INIT_CHECKPOINT=/old/run NUM_SHARDS_PER_WORKER=7 SAMPLE_RATIO=0.5 "
        "DASK_TASKS_PER_NODE=11 SLURM_JOB_NUM_NODES=4 SLURM_NODEID=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=20017"
    )
    found = plan(**dict(word.split("=") for word in words.split()))
    (config,) = found.phases
    assert (config.run.phase, config.run.seed, config.data.num_workers) == (1, 31, 3)
    assert (config.data.masking, config.precision.tf32, config.precision.amp) == ("dynamic", "on", False)
    assert config.data.input_dir == Path("/data/pretrain/phase1/bin_size_32/parquet")
    assert config.batch.resolved_global_batch_size(16) == 64 * 16 * 16
    start = config.initialization
    assert (start.from_checkpoint, start.last_step_of_checkpoint) == (Path("/old/run"), "auto")
    assert (found.ranks.num_processes, found.ranks.num_nodes, found.ranks.node_rank) == (4, 4, 2)
    assert found.ranks.master == "10.0.0.1:20017"
    making = found.launch.shards
    assert (making.num_shards_per_worker, making.sample_ratio, making.num_dask_workers) == (7, 0.5, 11)
    assert making.phase1_bin_size == 32


def test_more_nodes_keep_the_recipes_global_batch():
    """With the accumulation of eight GPUs, the global batch would be four times as large on four nodes."""
    four = {"SLURM_JOB_NUM_NODES": "4", "SLURM_NODEID": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1"}
    for variables in ({}, {"TRAIN_BATCH_SIZE": "128"}, {"GRADIENT_ACCUMULATION_STEPS": "none"}):
        first = plan(**four, **variables).phases[0]
        assert first.batch.resolved_global_batch_size(32) == 65_536


def test_one_environment_serves_both_phases_or_one_at_a_time():
    variables = {"TRAIN_BATCH_SIZE": "16", "TRAIN_BATCH_SIZE_PHASE2": "2", "LEARNING_RATE_PHASE2": "1e-3"}
    one, two = plan(**variables).phases
    assert (one.batch.batch_size, two.batch.batch_size, two.optimizer.learning_rate) == (16, 2, 1e-3)
    assert one.optimizer.learning_rate == 6e-3
    (alone,) = plan(**variables, PHASE="1").phases
    assert alone == one
    (alone,) = plan(**variables, PHASE="2", INIT_CHECKPOINT="/phase1").phases
    assert (alone.batch.batch_size, alone.optimizer.learning_rate) == (2, 1e-3)
    (alone,) = plan(TRAIN_BATCH_SIZE="4", PHASE="2", INIT_CHECKPOINT="/phase1").phases
    assert alone.batch.batch_size == 4


@pytest.mark.parametrize(
    ("name", "amp", "tf32"),
    [("amp", True, "auto"), ("fp16", True, "auto"), ("fp32", False, "off"), ("tf32", False, "on")],
)
def test_fp32_is_not_tf32(name, amp, tf32):
    for config in plan(PRECISION=name).phases:
        assert (config.precision.amp, config.precision.tf32) == (amp, tf32)


def test_no_gpu_means_ranks_on_the_cpu():
    found = plan(GPUS="0", CPU_RANKS="2")
    assert found.ranks.num_processes == 2 and found.phases[0].hardware.device == "cpu"
    assert plan(GPUS="0").ranks.num_processes == 1


def test_phase_2_never_starts_from_random_weights(tmp_path):
    with pytest.raises(ValueError, match="PHASE=2 starts from phase 1, which is not finished in OUTPUT_DIR=out; train"):
        plan(PHASE="2", OUTPUT_DIR="out")
    (tmp_path / "out/phase1").mkdir(parents=True)
    summary = tmp_path / "out/phase1/summary.json"
    summary.write_text(json.dumps({"steps": 3, "finished": False}))
    with pytest.raises(ValueError, match="not finished"):
        plan(PHASE="2", OUTPUT_DIR="out")
    summary.write_text(json.dumps({"steps": 7, "finished": True}))
    (config,) = plan(PHASE="2", OUTPUT_DIR="out").phases
    assert config.initialization.from_phase1_final_params == Path("out")
    (config,) = plan(PHASE="2", INIT_CHECKPOINT="/phase1").phases
    assert config.initialization.from_phase1_final_params == Path("/phase1")


@pytest.mark.parametrize(
    ("variable", "rule"),
    [
        ("PHASE=3", "PHASE=3 must be one of both, 1, 2"),
        ("PRECISION=fp8", "PRECISION=fp8 must be one of amp, fp32, tf32, fp16"),
        ("RERUN_DASK=true", "RERUN_DASK=true .* delete their folder"),
        ("BIN_SIZE=48", "phase1_bin_size"),
        ("GPUS=eight", "num_gpus=eight must be a valid integer"),
        ("TRAIN_BATCH_SIZE=100", "global_batch_size=65536 must be a multiple of batch_size x world_size = 100 x 8"),
        ("CONFIG=lage", "did you mean large"),
    ],
)
def test_mistakes_are_refused_and_name_the_variable(variable, rule):
    """The user has typed no flag, so the flag alone would not name the setting to change."""
    variables = dict([variable.split("=")])
    with pytest.raises(ValueError, match=rule) as error, errors_name_variables(variables):
        plan(**variables)
    assert variable in str(error.value)


def test_every_variable_is_in_the_help(capsys):
    assert slurm.main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name in [*SPECIAL, *OF_ALL_PHASES, *OF_A_PHASE]:
        assert f"  {name}" in shown


# ---- the first node's step -------------------------------------------------------------------------------------------


def tiny_plan(folder: Path):
    return planned(
        shlex.split(f"--config base --num-gpus 1 --output-dir {folder / 'out'} --input-dir {folder / 'shards'}")
    )


def test_three_runs_without_progress_are_the_last(tmp_path):
    job, found = {"SLURM_JOB_ID": "17"}, tiny_plan(tmp_path)
    for _ in range(3):
        slurm.note_progress(found, job)
    with pytest.raises(ValueError, match="3 runs of job 17 in a row saved no checkpoint and made no shards; raise"):
        slurm.note_progress(found, job)
    slurm.note_progress(found, job)  # submitted anew by a user who knows better


@pytest.mark.parametrize(
    "made",
    [
        "out/bert-base-uncased/phase1/40",
        "out/bert-base-uncased/phase2/3",
        "shards/.unfinished/7",
        "shards/.unfinished/0123abcd/block-7",
        "shards/shard-0.parquet",
    ],
)
def test_a_checkpoint_or_a_shard_is_progress(tmp_path, made):
    job, found = {"SLURM_JOB_ID": "17"}, tiny_plan(tmp_path)
    for _ in range(3):
        slurm.note_progress(found, job)
    (tmp_path / made).mkdir(parents=True)
    for _ in range(3):
        slurm.note_progress(found, job)


def test_shards_are_asked_for_once_on_the_first_node(tmp_path, monkeypatch, capsys):
    made, asked = [], []

    def data_steps(name, config, preparation, ranks, for_all_nodes):
        asked.append((config.run.phase, for_all_nodes))
        return (StandInStep(f"shards {config.run.phase}", tmp_path, made),)

    monkeypatch.setattr(slurm, "data_steps", data_steps)
    monkeypatch.setattr(ranks, "num_gpus", lambda: 8)
    words = ["--config", "base", "--num-nodes", "2", "--master", "127.0.0.1:9", "--num-gpus", "8"]
    assert slurm.prepare(words, {"SLURM_JOB_ID": "1"}) == 0
    assert made == ["shards 1", "shards 2"] and asked == [(1, True), (2, True)]
    for question in (["--dry-run"], ["--show-config"], ["--plan", "--hardware", "2x8xA100-80GB"]):
        assert slurm.prepare([*words, *question], {"SLURM_JOB_ID": "1"}) == 0  # the training command answers
    assert slurm.prepare(words, {"SLURM_JOB_ID": "2", "PREPROCESS": "never"}) == 0
    assert made == ["shards 1", "shards 2"]
    with pytest.raises(SystemExit) as stopped:
        slurm.prepare(words, {"SLURM_JOB_ID": "2", "PREPROCESS": "sometimes"})
    assert stopped.value.code == 2
    assert "PREPROCESS=sometimes must be one of auto, only, never" in capsys.readouterr().err


def test_a_dry_run_of_the_preparation_names_the_shards_that_are_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ranks, "num_gpus", lambda: 8)
    words = ["--config", "base", "--num-gpus", "8", "--output-dir", str(tmp_path), "--dry-run"]
    assert slurm.prepare(words, {}) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("prepare: checks the settings, then makes the missing data:\n1. fetching the vocabulary\n")
    assert "2. making the shards of phase1 from /data/wikipedia/source" in shown
    assert "4. making the shards of phase2" in shown
    (vocabulary := tmp_path / "vocab.txt").touch()
    words += ["--vocab-file", str(vocabulary)]
    for phase in (1, 2):
        shards = tmp_path / f"phase{phase}"
        shards.mkdir()
        (shards / "part.parquet").touch()
        words += [f"--phase{phase}-input-dir", str(shards)]
    assert slurm.prepare(words, {}) == 0
    assert capsys.readouterr().out == "prepare: checks the settings; no data are missing before the training\n"
    assert slurm.prepare(words, {"PREPROCESS": "never"}) == 0
    assert capsys.readouterr().out == "prepare: checks the settings; PREPROCESS=never, so no shards are made\n"
    assert {path.name for path in tmp_path.iterdir()} == {"vocab.txt", "phase1", "phase2"}


def test_a_job_without_its_gpus_ends_before_shards_are_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(slurm, "data_steps", lambda *_, **__: pytest.fail("made shards"))
    monkeypatch.setattr(ranks, "num_gpus", lambda: 0)
    with pytest.raises(SystemExit):
        slurm.prepare(["--config", "base", "--num-gpus", "8", "--output-dir", str(tmp_path)], {"SLURM_JOB_ID": "1"})
    assert "num_gpus=8 must be at most the 0 GPUs" in (said := capsys.readouterr().err)
    assert "where Slurm manages GPUs, ask for them: sbatch --gpus-per-node 8" in said


# ---- own text --------------------------------------------------------------------------------------------------------


@pytest.fixture
def text(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    lines = [f"note {number} of the river and the trees, with {7 * number} birds in it." for number in range(300)]
    (folder / "notes.txt").write_text("\n".join(lines))
    return str(folder)


def own_text(text: str, *flags: str, **variables: str):
    return planned(slurm.command_line(["--text", text, *flags], variables))


def test_own_text_trains_on_a_job_of_one_node(text):
    """run.sub always sets OUTPUT_DIR; the folder of own text is named by the text."""
    command = own_text(
        text,
        SLURM_JOB_NUM_NODES="1",
        CODE_DIR="/code",
        OUTPUT_DIR="/code/results",
        PHASE="both",
        SEED="3",
        TRAIN_BATCH_SIZE="16",
    )
    assert command.job.output_dir == Path("results/notes")
    (step,) = command.job.steps
    assert step.text.settings == {"seed": 3, "batch_size": 16} and step.text.model is None
    assert step.text.num_processes is None  # the plan takes what the node has
    command = own_text(text, CONFIG="mini", GPUS="2", OUTPUT_DIR="/other", PRECISION="fp32")
    assert (command.job.output_dir, command.job.steps[0].text.num_processes) == (Path("/other"), 2)
    assert command.job.steps[0].text.model == "mini"
    on_cpu = own_text(text, GPUS="0", CPU_RANKS="2").job.steps[0].text
    assert (on_cpu.num_processes, on_cpu.setting("device")) == (2, "cpu")


def test_the_evening_is_own_text_too():
    command = planned(slurm.command_line([], {"CONFIG": "evening"}))
    assert command.job.steps[0].text.documentation is not None


@pytest.mark.parametrize(
    ("variables", "rule"),
    [
        ({"SLURM_JOB_NUM_NODES": "2"}, "the job has 2 nodes, and --text trains on one machine; submit it with -N1"),
        ({"BIN_SIZE": "64"}, "BIN_SIZE=64 is for a training on shards; unset it"),
        ({"PHASE": "1"}, "PHASE=1 is for a training on shards; unset it"),
        ({"PREPROCESS": "only"}, "PREPROCESS=only is for a training on shards"),
        ({"MAX_STEPS_PHASE2": "9"}, "MAX_STEPS_PHASE2=9 is for"),
    ],
)
def test_own_text_refuses_variables_by_their_names(text, variables, rule):
    with pytest.raises(ValueError, match=rule):
        own_text(text, **variables)


def test_the_first_nodes_step_checks_own_text(text, tmp_path):
    words = slurm.command_line(["--text", text, "--output-dir", str(tmp_path / "out")], {})
    for _ in range(4):  # the number of runs without progress that are allowed, and the first
        assert slurm.prepare(words, {"SLURM_JOB_ID": "9"}) == 0
        (tmp_path / "out/data").mkdir(exist_ok=True)
        (tmp_path / "out/data" / str(len(list((tmp_path / "out/data").iterdir())))).touch()
    with pytest.raises(SystemExit):
        for _ in range(4):
            slurm.prepare(words, {"SLURM_JOB_ID": "9"})


# ---- on a login node -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "nodes", "seconds", "others"),
    [
        ("-N4 --dry-run", 4, None, "--dry-run"),
        ("--nodes=2 -t 30", 2, 1800, ""),
        ("-N 3 --time 1-12:30 --dry-run", 3, 36.5 * 3600, "--dry-run"),
        ("--time=2-00 --max-steps 7", 1, 2 * 86400, "--max-steps 7"),
        ("-t10:30", 1, 630, ""),
        ("-t1-00:00:05", 1, 86405, ""),
        ("--nodes 5 --time=4:00:00", 5, 14400, ""),
    ],
)
def test_options_of_sbatch_are_read_as_sbatch_reads_them(words, nodes, seconds, others):
    options, left = slurm_plan.read_sbatch_options(words.split())
    assert (options.num_nodes, options.seconds, left) == (nodes, seconds, others.split())


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("-N few", "nodes=few must be a number"),
        ("--time soon", "time=soon must be a time of sbatch"),
        ("-p gpu", "-p is for sbatch"),
    ],
)
def test_other_options_of_sbatch_are_refused(words, rule):
    with pytest.raises(ValueError, match=rule):
        slurm_plan.read_sbatch_options(words.split())


def login_node(capsys, words: str, **variables: str) -> str:
    """Return the output of `run.sub WORDS` outside of a job, without line breaks."""
    options, flags = slurm_plan.read_sbatch_options(words.split())
    variables |= slurm_plan.variables_of(options)
    slurm_plan.show(slurm.command_line(flags, variables), options)
    printed = capsys.readouterr()
    return " ".join((printed.out + printed.err).split())


def test_a_quarter_of_the_nodes_is_planned_with_its_batch_and_time(capsys, tmp_path):
    """NVIDIA's line is for four nodes of eight: 256 x 8 x 32 = 65,536 sequences an update."""
    line = {"TRAIN_BATCH_SIZE": "256", "GRADIENT_ACCUMULATION_STEPS": "8", "OUTPUT_DIR": str(tmp_path / "out")}
    shown = login_node(capsys, "--dry-run -N1 -t 2:00:00", **line)
    assert "256 x 8 micro-steps x 8 ranks = 16,384 sequences an update" in shown
    assert "an update reads 16,384 sequences, 0.25 times the recipe's 65,536, with the recipe's rate 0.006" in shown
    assert "so its 7,038 updates read 0.25 times the recipe's samples" in shown
    assert "pass --phase1-gradient-merge-steps 32, or about --phase1-learning-rate 0.003, by the root" in shown
    assert "phase2: an update" not in shown
    assert "the time limit is 2.0 hours: two minutes before it the job saves" in shown
    assert "The first node is alone at first: making the shards of phase1 from /data/wikipedia/source" in shown
    mended = login_node(capsys, "--dry-run -N1 --phase1-gradient-merge-steps 32", **line)
    assert "times the recipe's" not in mended
    theirs = login_node(capsys, "--dry-run -N4 --time=2-00", **line)
    assert "times the recipe's" not in theirs and "within the time limit of 2.0 days" in theirs
    assert not (tmp_path / "out").exists()


def test_a_login_node_refuses_what_the_job_would_refuse(capsys):
    with pytest.raises(ValueError, match="must be a multiple of batch_size x world_size = 100 x 32"):
        login_node(capsys, "--dry-run -N4", TRAIN_BATCH_SIZE="100")
    with pytest.raises(ValueError, match="nothing is asked"):
        login_node(capsys, "-N4")


@pytest.mark.long
def test_run_sub_prints_the_plan_in_a_job_and_outside_of_one(tmp_path, text):
    """srun and scontrol are stand-ins; srun's runs the command here."""
    for name, body in {
        "srun": 'while [[ "$1" == --* ]]; do shift; done; exec "$@"',
        "scontrol": f'echo "   NodeAddr=127.0.0.1"; echo "   Command={REPOSITORY}/run.sub"',
    }.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "BERT_PYTHON": sys.executable,
        "OUTPUT_DIR": str(tmp_path / "out"),
    }
    in_job = {"SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "n1"}
    for variables in ({}, in_job):
        command = ["bash", str(REPOSITORY / "run.sub"), "--text", text, "--max-steps", "7", "--dry-run"]
        done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        assert "training phase1" in done.stdout and ("Slurm: 1 node" in done.stdout) == (not variables)
        assert not (tmp_path / "out/data").exists()
