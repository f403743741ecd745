"""Pre-training from arguments to results. The training script is a stand-in; the real one has its own tests."""

import json
import signal
import subprocess
import sys

import pytest

from bert import REPOSITORY
from bert.commands.pretrain import first_start, parse_launch_arguments
from bert.config.training_settings import derive
from bert.launching.previous_run import continuation

STAND_IN = """
import json, pathlib, signal, sys, time
import yaml
from bert.checkpoints.directories import write_checkpoint
sections = json.load(open(sys.argv[sys.argv.index("--run") + 1]))
settings = {name: value for section in sections.values() for name, value in section.items()}
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
write_checkpoint(output / settings["bert_model"] / f"phase{phase}", step, lambda folder: None)
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


# Both phases of BERT-large with the stand-in; few of the settings matter to it.
COMMAND = (
    "--config large --num-gpus 1 --device cpu --code-dir code --vocab-file vocab.txt --phase1-input-dir shards1 "
    "--phase2-input-dir shards2 --output-dir out"
)


def start(*more, command=COMMAND):
    words = [sys.executable, "-m", "bert.commands", "pretraining", *command.split(), *more]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(*more, **options):
    """Return (exit code, output)."""
    process = start(*more, **options)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def start_of(config, previous):
    return derive(config, **continuation(config) or first_start(config, previous))


def test_a_phase_continues_itself_else_starts_where_phase_1_ended(tmp_path):
    one, two = (derive(config, output_dir=tmp_path) for config in parse_launch_arguments([]).phases)
    assert start_of(one, previous=one) == one
    start_of_two = start_of(two, previous=one).initialization
    assert start_of_two.from_phase1_final_params == one.checkpoint_dir()
    chosen = derive(two, from_pretrained_params="mine")
    assert start_of(chosen, previous=one) == chosen
    both = [derive(config, from_pretrained_params="mine") for config in (one, two)]
    assert start_of(both[0], previous=both[0]) == both[0]
    second = start_of(both[1], previous=both[0]).initialization
    assert (second.from_pretrained_params, second.from_phase1_final_params) == (None, one.checkpoint_dir())
    (two.checkpoint_dir() / "40").mkdir(parents=True)
    continued = start_of(two, previous=one).initialization
    assert (continued.from_checkpoint, continued.last_step_of_checkpoint) == (two.checkpoint_dir(), "auto")
    assert continued.from_phase1_final_params is None
    assert start_of(chosen, previous=one).initialization == continued  # the same command continues
    other = derive(two, from_checkpoint="elsewhere", last_step_of_checkpoint="auto")
    assert start_of(other, previous=one).initialization == continued
    back = derive(two, from_checkpoint="elsewhere", last_step_of_checkpoint=20)
    assert start_of(back, previous=one) == back


@pytest.mark.long
def test_phase_2_waits_for_the_whole_of_phase_1(workplace):
    code, output = finish("--seed", "4", "--steps-this-run", "4")
    assert code == 0 and "phase1 has steps left" in output, output
    assert "training 2" not in output


@pytest.mark.long
def test_both_phases_summary_picture_and_done(workplace):
    code, output = finish("--create-logfile")
    assert code == 0, output
    assert "training 1" in output and "training 2" in output and "Next, try:" in output
    longer = f"{COMMAND} --create-logfile --phase1-max-steps 14076 --output-dir results/longer"
    joined = " ".join(output.replace("\\\n", " ").split())
    assert f"bash scripts/run_pretraining.sh {longer}" in joined, "what ran, not the quickstart"
    phase1 = parse_launch_arguments(longer.split()).phases[0].run
    assert (phase1.max_steps, phase1.bert_model) == (14076, "bert-large-uncased")
    assert "--download --from-pretrained-params out/bert-large-uncased/phase2" in joined
    assert "5.500" in output and "6.000" in output
    summary = json.loads((workplace / "out/summary.json").read_text())
    assert summary["phase1"]["steps"] == 7038 and summary["phase2"]["steps"] == 1563
    assert (workplace / "out/loss.png").stat().st_size > 1000
    launched = json.loads((workplace / "out/phase2/run.json").read_text())["initialization"]
    assert launched["from_phase1_final_params"] == "out/bert-large-uncased/phase1"
    assert "from_phase1_final_params: null" in (workplace / "out/phase2.yaml").read_text()
    name = "bert_lamb_pretraining.paddle_bert_pretraining_phase1_amp_gbs65536.*.log"  # as NVIDIA's script has it
    assert [path.read_text() for path in (workplace / "out").glob(name)] == ["training 1\n"]

    code, output = finish("--phase2", command=COMMAND.replace("--phase1-input-dir shards1 ", ""))
    assert code == 0 and "Already done" in output and "training 2" not in output
    assert "\nTrained before" in output and "0 seconds" not in output
    assert json.loads((workplace / "out/summary.json").read_text()) == summary


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_signal_is_passed_on_once_and_the_exit_code_says_try_again(workplace, number):
    process = start("--seed", "75")
    assert [process.stdout.readline()[:16] for _ in range(2)] == ["phase1: starting", "training 1\n"]
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75, output
    assert "saved 1" in output and "saved step 1; the same command resumes" in output
    assert not (workplace / "out/phase2.yaml").exists()


@pytest.mark.long
def test_nobody_reading_the_output_is_no_failure(workplace):
    process = start()
    assert [process.stdout.readline() for _ in range(4)][1::2] == ["training 1\n", "training 2\n"]
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert (workplace / "out/summary.json").exists()


@pytest.mark.long
def test_a_failure_ends_the_run_with_its_code(workplace):
    code, output = finish("--seed", "666")
    assert code == 3 and "error: phase1 ended with exit code 3" in output
