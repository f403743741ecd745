"""`--seeds` and `run_glue.sh all CHECKPOINT`: which runs are made, what is left, the table."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from bert import REPOSITORY
from bert.commands import repetitions
from bert.commands.__main__ import _command, main
from bert.exit_codes import BAD_INPUT, DIVERGED, INTERRUPTED, OK
from bert.files import only_writer
from bert.reporting.report import main as report
from tests.support.commands import refused


class Launches:
    """In place of the runner: a run scores more with a larger rate and seed, and leaves a checkpoint."""

    def __init__(self, codes):
        self.codes, self.stop_requested, self.runs = codes, False, []

    def run(self, command):
        flags = dict(zip(command, command[1:], strict=False))
        output, seed = Path(flags["--output-dir"]), int(flags["--seed"])
        task, rate = Path(flags.get("--config", "mine")).stem, float(flags.get("--learning-rate", "2e-5"))
        self.runs.append((task, rate, seed))
        code = self.codes.get((task, seed), OK)
        if code == OK:
            value = {"mrpc": 0.5, "mnli": 0.6}.get(task, 0.7) + 1000 * rate + seed / 100
            parts = ("matched_", "mismatched_") if task == "mnli" else ("",)
            metrics = {f"eval_{part}{name}": value for part in parts for name in ("accuracy", "score")}
            metrics |= {"eval_mismatched_score": value + 0.1} if task == "mnli" else {}
            stage = output / ("glue-custom" if task == "mine" else f"glue-{task}")
            (output / "model" / stage.name / "7").mkdir(parents=True)
            stage.mkdir()
            summary = {"finished": True, "steps": 7, "final_loss": 2.0, "last_eval_score": 0.0, "eval_sequences": 7.0}
            (stage / "summary.json").write_text(json.dumps(summary | metrics))
            settings = {"task_name": "custom" if task == "mine" else task.upper(), "learning_rate": rate, "seed": seed}
            settings |= {"bert_model": "model", "output_dir": str(output), "vocab_file": f"{output}/vocab.txt"}
            (stage / "config.yaml").write_text(yaml.safe_dump(settings))
            (stage / "metrics.jsonl").touch()
        return code


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("text,label\na,b\n")
    for task in ("MRPC", "MNLI"):
        (tmp_path / "glue" / task).mkdir(parents=True)

    def run(task, *words, codes=None):
        launches = Launches(codes or {})
        monkeypatch.setattr(repetitions, "Runner", lambda: launches)
        return repetitions.main(task, [*words, "--output-dir", "out"]), launches.runs

    return run


def test_all_tasks_of_glue_make_one_table(start, tmp_path, capsys):
    code, runs = start("glue", "all", "glue", "weights", "--seeds", "2", "--epochs", "1")
    assert code == OK and len(runs) == 18 and {run[2] for run in runs[:9]} == {1}
    table = Path("out/scores.md").read_text()
    assert "| mrpc glue-mrpc | 53.5 | 0.7 | 53.5 | 53.0 | 54.0 | 2 |" in table and "that flatters" in table
    assert "| mnli glue-mnli | 68.5 | 0.7 |" in table and "| average of 9 tasks of GLUE | 70.7 | 0.7 |" in table
    shown = capsys.readouterr().out
    assert "18 runs in out: 0 ended, 18 left" in shown and "==== cola/seed-1 (1 of 18)" in shown
    assert " ".join(table.split()) in " ".join(shown.split())
    report([str(tmp_path / "out"), "--markdown", "report.md"])
    assert "average of 9 tasks of GLUE" in Path("report.md").read_text()


def test_one_training_has_a_row_for_each_metric(start):
    assert start("glue", "--config", "mrpc", "--seeds", "3") == (OK, [("mrpc", 2e-5, seed) for seed in (1, 2, 3)])
    table = Path("out/scores.md").read_text()
    assert "| accuracy | 54.0% | 1.0% | 54.0% | 53.0% (seed 1) | 55.0% (seed 3) | 3 |" in table
    assert "| final_loss | 2.0000 | 0.0000 |" in table and "sequences" not in table and "steps" not in table
    assert len(list(Path("out").glob("*/model/*/7"))) == 3  # all models of one task are kept


def test_an_ended_run_is_not_repeated_and_more_can_be_added(start):
    assert start("ner", "--seeds", "2", codes={("mine", 2): INTERRUPTED}) == (
        INTERRUPTED,
        [("mine", 2e-5, 1), ("mine", 2e-5, 2)],
    )
    assert start("ner", "--seeds", "2")[1] == [("mine", 2e-5, 2)]
    assert start("ner", "--seeds", "4", "--download")[1] == [("mine", 2e-5, 3), ("mine", 2e-5, 4)]
    shutil.rmtree("out/seed-2")
    assert start("ner", "--seeds", "4", "--max-bad-line-fraction=0.5")[1] == [("mine", 2e-5, 2)]
    with refused("out/seed-1 holds a run of another command .*, now --epochs 7 --seed 1.; give another --output-dir"):
        start("ner", "--seeds", "2", "--epochs", "7")


def test_flags_in_another_order_are_the_same_command(start):
    assert start("ner", "--seeds", "1", "--epochs", "1", "--config=x")[1] == [("mine", 2e-5, 1)]
    assert start("ner", "--seeds", "1", "--config", "x", "--epochs=1")[1] == []


def test_a_task_that_fails_is_named_at_the_end_and_the_others_go_on(start, capsys):
    words = ("all", "glue", "weights", "--seeds", "2")
    code, runs = start("glue", *words, codes={("mrpc", 1): DIVERGED, ("mnli", 1): BAD_INPUT})
    assert code == DIVERGED and len(runs) == 17 and ("mnli", 2e-5, 2) not in runs
    shown = capsys.readouterr().out
    assert f"failed (the same command tries them again):\n  mrpc/seed-1: exit code {DIVERGED}\n" in shown
    code, runs = start("glue", *words)
    assert code == OK and sorted((run[0], run[2]) for run in runs) == [("mnli", 1), ("mnli", 2), ("mrpc", 1)]
    assert start("squad", "--seeds", "2", "--epochs", "none", codes={("mine", 1): BAD_INPUT})[0] == BAD_INPUT


def test_a_question_is_asked_of_one_run_of_each_task(start):
    runs = start("glue", "all", "weights", "--download", "--seeds", "2", "--dry-run")[1]
    assert len(runs) == 9 and {run[2] for run in runs} == {1} and not Path("out/scores.md").exists()


def test_one_start_writes_to_a_folder(start, tmp_path, monkeypatch):
    monkeypatch.setattr("bert.files._SECONDS_FOR_WORKERS", 0.0)
    with only_writer(tmp_path / "out"), refused("another run is writing to it"):
        start("ner", "--seeds", "2")


REFUSED = {
    "glue all": "all must be all CHECKPOINT, or all DATA_DIR CHECKPOINT",
    "glue all x --steps-this-run=5": "--steps-this-run is set for each run",
    "squad --seeds 0": "seeds=0 must be at least 1",
    "squad --seeds 2 --seed 3": "--seed is set for each run; --seeds and --first-seed choose",
}


@pytest.mark.parametrize("line", REFUSED)
def test_mistakes_are_refused_before_the_first_run(start, line):
    with refused(REFUSED[line]):
        start(*line.split())
    assert not Path("out").exists()


def test_what_is_typed_for_several_runs():
    for line in ("glue all x", "squad --config squad_small --seeds=3", "pretraining --seeds 3"):
        task, *words = line.split()
        assert _command(task, words).func is repetitions.main, line
    for line in ("glue mrpc data x --seed 3", "glue", "squad all"):
        task, *words = line.split()
        assert getattr(_command(task, words), "func", None) is not repetitions.main, line


def test_earlier_command_lines_say_what_to_type(start):
    with refused("2 positional .* must be TASK DATA_DIR CHECKPOINT, or all .DATA_DIR. CHECKPOINT"):
        main(["glue", "mrpc,rte", "weights"])
    with refused("--learning-rates is not a flag; give each --learning-rate an --output-dir"):
        main(["glue", "--config", "mrpc", "--learning-rates", "1e-5,2e-5"])
    done = subprocess.run(["bash", REPOSITORY / "scripts/run_seeds.sh", "mrpc"], capture_output=True, text=True)
    assert done.returncode == 2 and "'bash scripts/run_glue.sh --config mrpc --seeds 5'" in done.stderr
