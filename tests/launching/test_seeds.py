"""`run_seeds.sh`: several seeds of a recipe, their report, and what a second start does."""

import json
import shutil
from pathlib import Path

import pytest

from bert.commands import seeds
from bert.exit_codes import BAD_INPUT, DIVERGED, INTERRUPTED, OK
from bert.files import only_writer
from tests.support.commands import refused


class Launches:
    """In place of the runner: a run writes a summary whose loss is a function of its seed."""

    def __init__(self, codes=None):
        self.codes, self.commands, self.stop_requested = codes or {}, [], False

    def run(self, command):
        self.commands.append(command)
        seed, output = int(command[command.index("--seed") + 1]), Path(command[command.index("--output-dir") + 1])
        code = self.codes.get(seed, OK)
        if code == OK:
            (output / "phase1").mkdir(parents=True)
            summary = {
                "steps": 9,
                "final_loss": 2.0 + seed,
                "eval_masked_lm_accuracy": seed / 10,
                "eval_sequences": 7.0,
            }
            (output / "phase1/summary.json").write_text(json.dumps(summary))
        return code


@pytest.fixture
def start(tmp_path, monkeypatch):
    def run(*words, codes=None):
        launches = Launches(codes)
        monkeypatch.setattr(seeds, "Runner", lambda: launches)
        code = seeds.main(["quickstart", "--output-dir", str(tmp_path / "out"), *words])
        return code, [int(command[command.index("--seed") + 1]) for command in launches.commands]

    return run


def test_reports_mean_spread_and_extremes(start, tmp_path, capsys):
    assert start("--seeds", "3") == (OK, [1, 2, 3])
    lines = (tmp_path / "out/seeds.md").read_text()
    assert "| phase1 final_loss | 4.0000 | 1.0000 | 4.0000 | 3.0000 (seed 1) | 5.0000 (seed 3) | 3 |" in lines
    assert "| phase1 masked_lm_accuracy | 20.0% | 10.0% | 20.0% | 10.0% (seed 1) | 30.0% (seed 3) | 3 |" in lines
    assert "failed: 0" in lines and "sequences" not in lines and "steps" not in lines
    assert lines in capsys.readouterr().out


def test_finished_seeds_are_not_run_again_and_more_can_be_added(start, tmp_path):
    assert start("--seeds", "2") == (OK, [1, 2])
    assert start("--seeds", "2") == (OK, [])
    assert start("--seeds", "4", "--download") == (OK, [3, 4])
    shutil.rmtree(tmp_path / "out/seed-2")
    assert start("--seeds", "4") == (OK, [2])


def test_a_folder_below_home_is_that_of_the_runs(start, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert start("--seeds", "1", "--output-dir=~/mine") == (OK, [1]) and (tmp_path / "mine/seed-1").is_dir()


def test_one_start_writes_to_a_folder(start, tmp_path, monkeypatch):
    monkeypatch.setattr("bert.files._SECONDS_FOR_WORKERS", 0.0)
    with only_writer(tmp_path / "out"), refused("another run is writing to it"):
        start("--seeds", "1")


def test_a_seed_that_fails_is_reported_and_tried_again(start, tmp_path):
    assert start("--seeds", "3", codes={2: DIVERGED}) == (DIVERGED, [1, 2, 3])
    text = (tmp_path / "out/seeds.md").read_text()
    assert f"failed: 1 (seed 2 with exit code {DIVERGED}; the same command tries them again)" in text
    assert "| 2 |" in text.splitlines()[4]  # of the seeds that did not fail
    assert start("--seeds", "3") == (OK, [2])


def test_a_stop_ends_all_and_the_same_command_continues(start):
    assert start("--seeds", "3", codes={2: INTERRUPTED}) == (INTERRUPTED, [1, 2])
    assert start("--seeds", "3") == (OK, [2, 3])


def test_bad_settings_are_refused_once(start):
    assert start("--seeds", "3", "--learning-rate", "no", codes={1: BAD_INPUT}) == (BAD_INPUT, [1])


def test_flags_go_to_every_run_and_may_not_change(start, tmp_path):
    start("--seeds", "1", "--phase1", "--max-steps", "7")
    record = json.loads((tmp_path / "out/seeds.json").read_text())
    assert record["flags"] == ["--phase1", "--max-steps", "7"] and record["task"] == "pretraining"
    with refused("holds seeds of another command"):
        start("--seeds", "1", "--max-steps", "8")


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["unknown"], "CONFIG=unknown must be a recipe"),
        (["quickstart", "--seed", "4"], "--seed is set for each seed"),
        (["quickstart", "--steps-this-run", "4"], "--steps-this-run leaves runs unfinished"),
        (["quickstart", "--seeds", "0"], "seeds=0 must be at least 1"),
        (["quickstart", "--task", "squad"], "CONFIG=quickstart must be a recipe"),
        (["missing.yaml", "--task", "squad"], "CONFIG=missing.yaml does not exist"),
    ],
)
def test_refusals(tmp_path, monkeypatch, words, rule):
    monkeypatch.chdir(tmp_path)
    with refused(rule):
        seeds.main(words)


@pytest.mark.parametrize(
    ("recipe", "task"), [("large", "pretraining"), ("squad_small", "squad"), ("mrpc", "glue"), ("conll2003", "ner")]
)
def test_the_task_is_that_of_the_recipe(recipe, task):
    assert seeds._task_of(recipe, None) == task
