"""From arguments to processes. The training script is a stand-in without Paddle; the real one has its tests."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bert.config.base import derive
from bert.exit_codes import INTERRUPTED
from bert.launching import launcher, quickstart
from bert.launching import report as launch_report
from bert.launching.plan import REPOSITORY, parse_launch_arguments
from bert.launching.preparation import Steps, prepare_shards

STAND_IN = """
import json, pathlib, signal, sys, time
import yaml
settings = yaml.safe_load(open(sys.argv[sys.argv.index("--config") + 1]))
phase = settings["phase"]
output = pathlib.Path(settings["output_dir"])
folder = output / f"phase{phase}"
folder.mkdir(parents=True, exist_ok=True)
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
print("training", phase, flush=True)
if settings["seed"] == 666:
    sys.exit(3)
while settings["seed"] == 75 and not stopped:
    time.sleep(0.05)
step = 1 if stopped else settings["steps_this_run"] or settings["max_steps"]
(output / settings["bert_model"] / f"phase{phase}" / str(step)).mkdir(parents=True, exist_ok=True)
summary = {"steps": step, "final_loss": 7.5, "eval_masked_lm_loss": 5.5, "unigram_entropy": 6.0}
(folder / "summary.json").write_text(json.dumps(summary))
rows = [{"step": 1, "masked_lm_loss": 7.0}, {"step": 2, "eval_masked_lm_loss": 6.5}]
(folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows) + '{"step": 3, "mas')
if stopped:
    print("saved", len(stopped), flush=True)
    sys.exit(75)
"""


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with data as the quickstart makes it, and a stand-in for run_pretraining.py in `code`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    (tmp_path / "code").mkdir()
    (tmp_path / "code/run_pretraining.py").write_text(STAND_IN)
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n")
    for phase in (1, 2):
        (tmp_path / f"shards{phase}").mkdir()
        (tmp_path / f"shards{phase}/shard-0.parquet").write_text("")
    return tmp_path


def command(*more):
    """Both phases of BERT-large with the stand-in; few of the settings matter to it."""
    return [
        "--config",
        "large",
        "--num-gpus",
        "1",
        "--device",
        "cpu",
        "--code-dir",
        "code",
        "--vocab-file",
        "vocab.txt",
        "--phase1-input-dir",
        "shards1",
        "--phase2-input-dir",
        "shards2",
        "--output-dir",
        "out",
        *more,
    ]


def start(*more):
    return subprocess.Popen(
        [sys.executable, "-m", "bert.launching.launcher", "pretraining", *command(*more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


# ---- devices and commands --------------------------------------------------------------------------------------------


def test_more_processes_than_gpus_are_refused_unless_the_cpu_is_meant(monkeypatch):
    monkeypatch.setattr(launcher, "num_gpus", lambda: 2)
    with pytest.raises(ValueError, match="num_gpus=8 must be at most the 2 GPUs of this machine; pass --num-gpus 2"):
        launcher._check_devices(parse_launch_arguments(["256"]))
    assert launcher._check_devices(parse_launch_arguments(["256", "--device", "cpu"])) is None
    assert launcher._check_devices(parse_launch_arguments(["--config", "large", "--num-gpus", "2"])) == "0,1"
    monkeypatch.setattr(launcher, "num_gpus", lambda: 0)
    assert launcher._check_devices(parse_launch_arguments([])) is None


def test_commands_of_one_process_several_and_several_nodes():
    config = parse_launch_arguments([]).phases[0]

    def words(*flags, devices=None):
        plan = parse_launch_arguments(["--config", "quickstart", *flags])
        return " ".join(launcher.training_command(plan, config, Path("p.yaml"), devices)[1:])

    script = f"{REPOSITORY / 'run_pretraining.py'} --config p.yaml"
    assert "-m paddle.distributed.launch" in words() and words().endswith(script)
    assert f"--nproc_per_node 1 {script}" in words("--num-gpus", "1")
    assert f"--nproc_per_node 2 {script}" in words("--num-gpus", "2")
    assert f"--devices 0,1 {script}" in words("--num-gpus", "2", devices="0,1")
    nodes = words("--num-nodes", "2", "--num-gpus", "1", "--master", "127.0.0.1:6070", "--node-rank", "1")
    assert "--nnodes 2 --master 127.0.0.1:6070 --host 127.0.0.1 --rank 1" in nodes
    assert "phase1/launch/node1 " in nodes  # the nodes share the folder


# ---- where a phase starts -----------------------------------------------------------------------------------------


def test_a_phase_continues_itself_else_starts_where_phase_1_ended(tmp_path):
    one, two = (derive(config, output_dir=tmp_path) for config in parse_launch_arguments([]).phases)
    assert launcher.with_start(one, previous=one) == one
    start_of_two = launcher.with_start(two, previous=one).initialization
    assert start_of_two.from_phase1_final_params == one.checkpoint_dir()
    chosen = derive(two, from_pretrained_params="mine")
    assert launcher.with_start(chosen, previous=one) == chosen
    both = [derive(config, from_pretrained_params="mine") for config in (one, two)]
    assert launcher.with_start(both[0], previous=both[0]) == both[0]
    second = launcher.with_start(both[1], previous=both[0]).initialization
    assert (second.from_pretrained_params, second.from_phase1_final_params) == (None, one.checkpoint_dir())
    (two.checkpoint_dir() / "40").mkdir(parents=True)
    continued = launcher.with_start(two, previous=one).initialization
    assert (continued.from_checkpoint, continued.last_step_of_checkpoint) == (two.checkpoint_dir(), "auto")
    assert continued.from_phase1_final_params is None
    assert launcher.with_start(chosen, previous=one).initialization == continued  # the same command continues
    other = derive(two, from_checkpoint="elsewhere", last_step_of_checkpoint="auto")
    assert launcher.with_start(other, previous=one).initialization == continued
    back = derive(two, from_checkpoint="elsewhere", last_step_of_checkpoint=20)
    assert launcher.with_start(back, previous=one) == back


def test_done_means_all_steps_and_their_checkpoint(tmp_path):
    config = derive(parse_launch_arguments([]).phases[0], output_dir=tmp_path, max_steps=7)
    config.stage_dir().mkdir(parents=True)
    (config.stage_dir() / "summary.json").write_text(json.dumps({"steps": 7}))
    assert not launcher.is_done(config)
    (config.checkpoint_dir() / "7").mkdir(parents=True)
    assert launcher.is_done(config) and not launcher.is_done(derive(config, benchmark=True))
    assert not launcher.is_done(derive(config, max_steps=8))


def test_phase_2_waits_for_the_whole_of_phase_1(workplace):
    process = start("--seed", "4", "--steps-this-run", "4")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "phase 1 has steps left" in output, output
    assert "training 2" not in output


# ---- running ------------------------------------------------------------------------------------------------------


def test_both_phases_summary_picture_and_done(workplace):
    process = start("--create-logfile")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "training 1" in output and "training 2" in output and "Next, try:" in output
    assert "5.500" in output and "6.000" in output
    summary = json.loads((workplace / "out/summary.json").read_text())
    assert summary["phase1"]["steps"] == 7038 and summary["phase2"]["steps"] == 1563
    assert (workplace / "out/loss.png").stat().st_size > 1000
    launched = (workplace / "out/phase2/launch.yaml").read_text()
    assert "from_phase1_final_params: out/bert-large-uncased/phase1" in launched
    assert "from_phase1_final_params: null" in (workplace / "out/phase2.yaml").read_text()
    assert [path.read_text() for path in sorted((workplace / "out").glob("*gbs65536*.log"))] == ["training 1\n"]

    again = start()
    output, _ = again.communicate(timeout=60)
    assert again.returncode == 0 and "Already done" in output and "training 1" not in output

    one_phase = start("--phase2")
    one_phase.communicate(timeout=60)
    assert json.loads((workplace / "out/summary.json").read_text()) == summary

    other = start("--learning-rate", "1e-3")
    output, _ = other.communicate(timeout=60)
    assert other.returncode == 2 and "learning_rate=0.001 differs from 0.006" in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_is_passed_on_once_and_the_exit_code_says_try_again(workplace, number):
    process = start("--seed", "75")
    assert process.stdout.readline() == "training 1\n"
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75, output
    assert "saved 1" in output and "the same command continues" in output
    assert not (workplace / "out/phase2.yaml").exists()


def test_nobody_reading_the_output_is_no_failure(workplace):
    process = start()
    assert [process.stdout.readline() for _ in range(2)] == ["training 1\n", "training 2\n"]
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert (workplace / "out/summary.json").exists()


def test_a_failure_ends_the_run_with_its_code(workplace):
    process = start("--seed", "666")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 3 and "error: phase 1 ended with exit code 3" in output


def test_a_signal_before_training_stops_too(workplace):
    runner = launcher.Runner()
    try:
        runner._on_signal(signal.SIGTERM, None)
        assert runner.run([sys.executable, "-c", "1/0"]) == INTERRUPTED
    finally:
        for name in ("SIGTERM", "SIGHUP", "SIGUSR1"):
            signal.signal(signal.Signals[name], signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_workers_of_paddles_launcher_are_told_directly(tmp_path):
    """Paddle's launcher would kill them 30 seconds after its own SIGTERM, in the middle of a long save."""
    script = "import subprocess, sys; subprocess.Popen(['sleep', '30']).wait()"
    process = subprocess.Popen([sys.executable, "-c", script, "paddle.distributed.launch"])
    try:
        deadline = time.monotonic() + 20
        while not (workers := launcher._workers(process)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(workers) == 1
        assert Path(f"/proc/{workers[0]}/cmdline").read_bytes().startswith((b"sleep", sys.executable.encode()))
    finally:
        for pid in launcher._workers(process):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()


# ---- data on demand -----------------------------------------------------------------------------------------------


def test_the_quickstart_makes_its_data_once(tmp_path):
    config = derive(
        parse_launch_arguments([]).phases[1],
        input_dir=tmp_path / "s/train",
        eval_dir=tmp_path / "s/eval",
        vocab_file=tmp_path / "vocab.txt",
    )
    products = [product for _, _, product in quickstart.commands(config)]
    ran = []

    def run(words):
        ran.append(words[2])
        product = products[len(ran) - 1]
        product.parent.mkdir(parents=True, exist_ok=True)
        product.write_text("made")
        return 0

    assert quickstart.prepare(config, run) == 0
    modules = ["data.examples.sample_corpus", "data.train_vocabulary", *["data.preprocess_bert_pretrain"] * 2]
    assert ran == modules
    assert quickstart.prepare(config, run) == 0 and ran == modules
    train, held_out = (words for _, words, _ in quickstart.commands(config)[2:])
    assert train[train.index("--bin-size") + 1] == "32" and "--bin-size" not in held_out
    assert "held_out/source" in " ".join(held_out) and "held_out" not in " ".join(train)


def test_a_step_that_failed_or_changed_is_repeated(tmp_path):
    codes, product = iter([3, 0, 0]), tmp_path / "product"
    ran = []

    def run(words):
        ran.append(words)
        product.write_text("")
        return next(codes)

    steps = Steps(tmp_path / "prepared.json", run)
    assert steps.step("title", ["make", "1"], product) == 3
    assert steps.step("title", ["make", "1"], product) == 0
    assert steps.step("title", ["make", "1"], product) == 0
    assert steps.step("title", ["make", "2"], product) == 0
    assert ran == [["make", "1"], ["make", "1"], ["make", "2"]]
    (tmp_path / "prepared.json").write_text("{cut")
    codes = iter([0])
    assert steps.step("title", ["make", "2"], product) == 0 and len(ran) == 4


def test_what_was_made_from_a_product_made_anew_is_made_anew(tmp_path):
    ran = []

    def run(words):
        ran.append(words[-1])
        (tmp_path / words[-1]).parent.mkdir(exist_ok=True)
        (tmp_path / words[-1]).write_text("")
        return 0

    def make_all(version):
        steps = Steps(tmp_path / "prepared.json", run)
        for command in (["corpus", version, "text"], ["preprocess", "shards/manifest.json"]):
            assert steps.step("title", command, tmp_path / command[-1]) == 0

    make_all("1")
    make_all("1")
    assert ran == ["text", "shards/manifest.json"]
    (tmp_path / "shards/of-the-old-text.parquet").write_text("")
    make_all("2")
    assert ran == ["text", "shards/manifest.json"] * 2
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["manifest.json"]


def test_a_step_without_its_product_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="should exist after `make`"):
        Steps(tmp_path / "prepared.json", lambda words: 0).step("title", ["make"], tmp_path / "product")


def test_missing_shards_are_made_from_wikipedia(tmp_path, capsys):
    source = tmp_path / "wikipedia"
    plan = parse_launch_arguments([*["-"] * 16, str(tmp_path / "one"), str(tmp_path / "two"), "-", "-", str(source)])
    with pytest.raises(ValueError, match="has no shards and wikipedia_source=.* no text to make them from; pass"):
        prepare_shards(plan, plan.phases[0], lambda words: 0)
    source.mkdir()
    (source / "0.txt").write_text("wiki-1 text")
    commands = []
    for config in plan.phases:
        prepare_shards(plan, config, lambda words: commands.append(" ".join(words)) or 0)
    for text in ("--target-seq-length 128", "--num-shards 4096", "--sample-ratio 0.9", "--seed 12439", "--masking"):
        assert text in commands[0]
    assert "--bin-size" not in commands[0] and "--bin-size 64" in commands[1]
    assert "--target-seq-length 512" in commands[1] and "--max-predictions-per-seq 80" in commands[1]


def test_shards_that_are_there_are_not_made_unless_unfinished(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one/part.0.parquet").write_text("")
    plan = parse_launch_arguments([*["-"] * 16, str(tmp_path / "one")])
    assert prepare_shards(plan, plan.phases[0], lambda words: 1 / 0) == 0
    (tmp_path / "one/.unfinished").mkdir()
    with pytest.raises(ValueError, match="no text to make them from"):
        prepare_shards(plan, plan.phases[0], lambda words: 0)
    (tmp_path / "one/manifest.json").write_text("{}")  # vouches for all; only tidying up was left to do
    assert prepare_shards(plan, plan.phases[0], lambda words: 1 / 0) == 0


def test_an_unset_variable_is_named(monkeypatch):
    monkeypatch.delenv("BERT_PREP_WORKING_DIR", raising=False)
    plan = parse_launch_arguments(["256"])
    with pytest.raises(ValueError, match="set BERT_PREP_WORKING_DIR"):
        prepare_shards(plan, plan.phases[0], lambda words: 0)


# ---- the report ---------------------------------------------------------------------------------------------------


def test_the_table_leaves_out_what_is_unknown(capsys):
    launch_report.print_table({"phase1": {"steps": 7}, "phase2": {"eval_masked_lm_loss": 5.25}})
    out = capsys.readouterr().out
    assert "5.250" in out and "-" in out and "phase 2" in out


def test_repeated_steps_count_once_and_a_cut_line_not_at_all(tmp_path):
    config = derive(parse_launch_arguments([]).phases[0], output_dir=tmp_path)
    config.stage_dir().mkdir()
    (config.stage_dir() / "metrics.jsonl").write_text(
        '{"step": 2, "loss": 3}\n{"step": 1, "loss": 2}\n{"step": 2, "loss": 4}\n'
        '{"step": 2, "eval_masked_lm_loss": 5}\n{"st'
    )
    assert launch_report._metrics(config) == [
        {"step": 1, "loss": 2},
        {"step": 2, "loss": 4},
        {"step": 2, "eval_masked_lm_loss": 5},
    ]


PASSING_ON = """
import subprocess, sys
from pathlib import Path
from bert.launching.launch_progress import pass_on
process = subprocess.Popen([sys.executable, "-c", "for i in range(9999): print('line', i, flush=True)"],
                           stdout=subprocess.PIPE)
pass_on(process, Path(sys.argv[1]), None)
sys.exit(process.wait())
"""


@pytest.mark.parametrize("broken", ["log", "folder", "stdout"])
def test_output_that_goes_nowhere_does_not_end_the_training(tmp_path, broken):
    (tmp_path / "file").write_text("")
    log = {"log": Path("/dev/full"), "folder": tmp_path / "file" / "log", "stdout": tmp_path / "log"}[broken]
    found = subprocess.Popen(
        [sys.executable, "-c", PASSING_ON, str(log)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if broken == "stdout":
        found.stdout.close()  # as `| head` does
        assert "console output failed and is switched off" in found.stderr.read()
        assert found.wait(timeout=60) == 0 and len(log.read_text().splitlines()) == 9999
        return
    stdout, stderr = found.communicate(timeout=60)
    assert found.returncode == 0 and len(stdout.splitlines()) == 9999
    assert stderr.count("failed and is switched off") == 1
