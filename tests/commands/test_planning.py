"""Planning a pre-training writes nothing, from any command; a dry run refuses the mistakes that a start refuses."""

import contextlib
import io
import json
import os
import re
from pathlib import Path

import pytest

from bert.checkpoints.directories import write_checkpoint
from bert.commands.__main__ import main
from bert.commands.pretrain import parse_launch_arguments
from bert.config.run_file import dump_yaml
from bert.exit_codes import BAD_INPUT, OK
from bert.files import only_writer
from bert.jobs import job as execution
from tests.support.commands import refused
from tests.support.jobs import StandInRunner

ONE_PHASE = "--phase1 --input-dir nowhere --vocab-file vocab.txt --eval-dir none --max-steps 9 --device cpu"
BASE = "--config base --device cpu --num-gpus 1"
DOORS = {
    "quickstart": "",
    "quickstart with hours": "--hours 0.1",
    "preset": "--config large --num-gpus 1 --device cpu",
    "one phase": ONE_PHASE,
    "positional": "256 6e-3 fp32 1 --device cpu",
    "text": "--text text --hours 0.1",
    "evening": "--config evening",
}
# What the start of a door refuses: kinds of mistakes that are found in different places.
REFUSED = {
    "a tracker that is not installed": (f"{ONE_PHASE} --report-to wandb", "report_to=wandb needs the package wandb"),
    "no checkout": (f"{BASE} --code-dir text", "code_dir=text has no run_pretraining.py; name a checkout"),
    "no checkout for text": ("--text text --code-dir text", "code_dir=text has no run_pretraining.py; name a checkout"),
    "no tracker for text": ("--text text --report-to wandb", "report_to=wandb needs the package wandb"),
    "another run": (f"{ONE_PHASE} --output-dir before --seed 8", "seed=8 differs from 7 of the run in before; pass"),
    "fewer updates": (f"{ONE_PHASE} --output-dir before --seed 7 --max-steps 2", "max_steps=2 must be at least the 4"),
    "no text": ("--text nowhere", "text=nowhere: no such file or folder"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Make the current folder: text, a vocabulary, and a run of four updates in `before`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    for number in range(40):
        (tmp_path / f"text/{number}.txt").write_text("The committee read the report twice before it met. " * 60)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    words = [*ONE_PHASE.split(), "--output-dir", "before", "--seed", "7"]
    (config,) = parse_launch_arguments(words).phases
    write_checkpoint(config.checkpoint_dir(), 4, lambda folder: None)
    (tmp_path / "before/phase1.yaml").write_text(dump_yaml(config))
    return tmp_path


def files_of(folder: Path) -> dict[str, int | None]:
    """Return everything in a folder; files with the time of their change."""
    return {str(path): path.stat().st_mtime_ns if path.is_file() else None for path in folder.rglob("*")}


@contextlib.contextmanager
def nothing_written(folder: Path):
    before = files_of(folder)
    yield
    assert files_of(folder) == before


def start(line: str) -> tuple[int, str, str]:
    """Return (exit code, standard output, standard error)."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            code = main(["pretraining", *line.split()])
        except SystemExit as ended:
            code = ended.code
    return code, out.getvalue(), errors.getvalue()


@pytest.mark.parametrize("question", ["--dry-run", "--show-config"])
@pytest.mark.parametrize("door", DOORS)
def test_a_question_writes_nothing(folder, door, question):
    with nothing_written(folder):
        code, shown, errors = start(f"{DOORS[door]} {question}")
    assert code == OK and shown, errors


@pytest.mark.parametrize("door", DOORS)
def test_a_dry_run_lists_the_steps(folder, door):
    _, shown, _ = start(f"{DOORS[door]} --dry-run")
    steps = shown.rpartition("\nsteps")[2].splitlines()
    assert steps[0] == (", 0.1 hours in all:" if "--hours" in DOORS[door] else ":")
    assert any(". training phase1: " in line for line in steps[1:]), steps


def test_a_dry_run_of_the_evening_begins_with_its_text(folder):
    _, shown, _ = start("--config evening --dry-run")
    steps = shown.rpartition("\nsteps")[2]
    assert "1. collecting the documentation of this machine: " in steps and "2. importing the text" in steps


def test_a_dry_run_of_several_seeds_of_text_names_the_hours_of_all(folder):
    _, shown, _ = start("--text text --hours 0.3 --seeds 3 --output-dir out --dry-run")
    assert "steps, 0.3 hours in all:" in shown and "steps, 0.1 hours in all:" in shown


def test_a_dry_run_says_what_this_machine_lacks(folder, monkeypatch):
    """What this machine lacks is no error: the training may be meant for another machine."""
    monkeypatch.delenv("BERT_PREP_WORKING_DIR", raising=False)
    code, shown, _ = start("--config large --report-to wandb --dry-run")
    lacking = " ".join(shown.split()).split("not on this machine: ")[1:]
    names = ("input_dir=", "num_gpus=8 must be at most", "report_to=wandb", "input_dir=")
    assert code == OK and [line.startswith(name) for line, name in zip(lacking, names, strict=True)] == [True] * 4


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_refused_start_leaves_no_file(folder, mistake):
    line, message = REFUSED[mistake]
    with nothing_written(folder):
        code, _, errors = start(line)
    assert code == BAD_INPUT and message in errors and errors.startswith("error: "), errors


@pytest.mark.parametrize("mistake", [name for name in REFUSED if name != "a tracker that is not installed"])
def test_a_dry_run_refuses_what_a_start_refuses(folder, mistake):
    """A dry run of one phase accepts a missing tracker: the other machine may have it."""
    line, message = REFUSED[mistake]
    with nothing_written(folder):
        code, _, errors = start(f"{line} --dry-run")
    assert code == BAD_INPUT and message in errors, errors


def test_fewer_epochs_than_were_made_are_refused_before_anything(folder, monkeypatch):
    """The updates of an epoch are known if the shards are there."""
    monkeypatch.setattr(
        "bert.pretraining.config.PretrainingConfig.with_known_steps",
        lambda config, world_size: config.model_copy(update={"run": config.run.model_copy(update={"max_steps": 3})}),
    )
    line = f"{ONE_PHASE.replace('--max-steps 9', '--epochs 1')} --output-dir before --seed 7"
    for question in ("", " --dry-run"):
        code, _, errors = start(line + question)
        assert code == BAD_INPUT and "max_steps=3 must be at least the 4 updates that the run in before" in errors


@pytest.mark.parametrize("door", ["--config base", "--text text"])
def test_mistakes_of_different_kinds_are_shown_together(folder, door):
    words = f"{door} --lerning-rate 1 --learning-rate fast --hours 0"
    for question in ("", " --dry-run"):
        code, _, errors = start(words + question)
        lines = errors.splitlines()
        assert code == BAD_INPUT and all(line.startswith("error: ") for line in lines), errors
        for mistake in ("--lerning-rate is not a flag", "learning_rate=fast must be", "hours=0 must be greater than 0"):
            assert [mistake in line for line in lines].count(True) == 1, errors


def test_what_a_start_lacks_is_shown_with_its_mistakes(folder, monkeypatch):
    monkeypatch.delenv("BERT_PREP_WORKING_DIR", raising=False)
    code, _, errors = start("--config base --num-gpus 8 --code-dir text --report-to wandb")
    assert code == BAD_INPUT
    lines = errors.splitlines()
    names = ("input_dir=", "code_dir=text", "num_gpus=8 must be at most", "report_to=wandb", "input_dir=")
    assert [line.startswith(f"error: {name}") for line, name in zip(lines, names, strict=True)] == [True] * 5, errors


def test_a_start_while_another_runs_is_refused(folder, monkeypatch):
    monkeypatch.setattr("bert.files._SECONDS_FOR_WORKERS", 0.1)
    (folder / "out").mkdir()
    (folder / "shards").mkdir()
    (folder / "shards/shard-0.parquet").write_text("")
    with only_writer(folder / "out"), nothing_written(folder):
        one_phase = ONE_PHASE.replace("nowhere", "shards")
        for line in (f"{one_phase} --output-dir out", "--text text --output-dir out"):
            code, shown, errors = start(line)
            assert code == BAD_INPUT and "another run is writing to it" in errors and "measuring" not in shown


def test_a_folder_that_is_read_only_is_refused(folder, monkeypatch):
    """The tests may run as root, whom the system denies nothing: its answer is replaced."""
    (folder / "out").mkdir(mode=0o555)
    allows = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "out" and allows(path, mode))
    for line in (f"{ONE_PHASE} --output-dir out/x", "--text text --output-dir out/x --dry-run"):
        code, _, errors = start(line)
        assert code == BAD_INPUT and "out/x: Permission denied; change the permissions" in errors


def test_one_record_is_left_by_a_start(folder, monkeypatch):
    """Only steps write files; here the step of the data writes, and its command fails."""
    runner = StandInRunner(lambda words: 3)
    monkeypatch.setattr(execution, "Runner", lambda: runner)
    code, _, errors = start("--hours 0.1 --output-dir out")
    assert code == 3 and "data.examples.documentation" in errors and len(runner.ran) == 1
    assert 0 < json.loads((folder / "out/job.json").read_text())["seconds_used"] < 300
    with refused("job.json is damaged"):
        (folder / "out/job.json").write_text("{cut")
        main(["pretraining", "--output-dir", "out"])


def test_a_dry_run_with_hours_says_how_many_updates_of_a_phase_fit(folder):
    code, shown, _ = start("--config large --hours 1 --dry-run --device gpu --num-gpus 8")
    fits = re.findall(r"of which about ([0-9,]+) fit in ([0-9.]+) minutes", " ".join(shown.split()))
    assert code == OK and len(fits) == 2 and sum(float(minutes) for _, minutes in fits) == pytest.approx(60, abs=0.2)
