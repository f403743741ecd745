"""`--seeds`, `--learning-rates`, `run_glue.sh TASKS CHECKPOINT`: which runs are made, what is left, the table."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from bert.commands import repetitions
from bert.commands.repeated_commands import commands_of_tasks, is_asked_for, task_of_recipe
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


def test_every_task_rate_and_seed_makes_one_table(start, tmp_path, capsys):
    words = ("mrpc,MNLI,mine.csv", "glue", "weights", "--seeds", "2", "--learning-rates", "1e-5,2e-5")
    code, runs = start("glue", *words)
    assert code == OK and len(runs) == 12 and {run[2] for run in runs[:6]} == {1}
    table = Path("out/scores.md").read_text()
    assert "| mrpc/lr-2e-05 glue-mrpc | 2e-05 | accuracy 53.5% | 53.5 | 0.7 | 53.5 | 53.0 | 54.0 | 2 |" in table
    assert "| 2e-05 | matched accuracy 63.5%, mismatched accuracy 63.5% | 68.5 | 0.7 |" in table
    assert "| mine/lr-1e-05 glue-custom | 1e-05 | accuracy 72.5% | 72.5 |" in table and "both flatter" in table
    assert "| average of 2 tasks of GLUE, each at its best rate |  |  | 61.0 | 0.7 |" in table
    shown = capsys.readouterr().out
    assert "12 runs in out: 0 ended, 12 left" in shown and table in shown and "==== mrpc/lr-1e-05/seed-1 (1" in shown
    kept = sorted(str(path.relative_to("out").parents[2]) for path in Path().glob("out/*/*/*/*/*/7"))
    assert kept == [f"{task}/lr-2e-05/seed-2" for task in ("mine", "mnli", "mrpc")]
    report([str(tmp_path / "out"), "--markdown", "report.md"])
    assert "average of 2 tasks of GLUE, each at its best rate" in Path("report.md").read_text()


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


def test_a_task_that_fails_is_named_at_the_end_and_the_others_go_on(start, capsys):
    words = ("mrpc,mnli", "glue", "weights", "--seeds", "2")
    code, runs = start("glue", *words, codes={("mrpc", 1): DIVERGED, ("mnli", 1): BAD_INPUT})
    assert code == DIVERGED and [(run[0], run[2]) for run in runs] == [("mrpc", 1), ("mnli", 1), ("mrpc", 2)]
    shown = capsys.readouterr().out
    assert f"failed (the same command tries them again):\n  mrpc/seed-1: exit code {DIVERGED}\n" in shown
    code, runs = start("glue", *words)
    assert code == OK and sorted((run[0], run[2]) for run in runs) == [("mnli", 1), ("mnli", 2), ("mrpc", 1)]
    assert start("squad", "--seeds", "2", "--epochs", "none", codes={("mine", 1): BAD_INPUT})[0] == BAD_INPUT


def test_a_question_is_asked_of_one_run_of_each_task(start):
    runs = start("glue", "mrpc,mnli", "glue", "weights", "--seeds", "2", "--dry-run")[1]
    assert [(run[0], run[2]) for run in runs] == [("mrpc", 1), ("mnli", 1)]
    assert not Path("out/scores.md").exists()


def test_one_start_writes_to_a_folder(start, tmp_path, monkeypatch):
    monkeypatch.setattr("bert.files._SECONDS_FOR_WORKERS", 0.0)
    with only_writer(tmp_path / "out"), refused("another run is writing to it"):
        start("ner", "--seeds", "2")


REFUSED = {
    "glue mrpc,mpc x": "task=mpc must be a task, a recipe, or a file of labelled lines; did you mean mrpc",
    "glue ax,mrpc x": "task=ax has nothing to train on",
    "glue mrpc,MRPC x": "names mrpc twice",
    "glue all": "all must be TASKS CHECKPOINT, or TASKS DATA_DIR CHECKPOINT",
    "glue mine.csv:none.csv x": "eval_file=none.csv must be an existing file",
    "glue mrpc x --steps_this_run=5": "--steps-this-run leaves runs unfinished",
    "squad --seeds 0": "seeds=0 must be at least 1",
    "squad --seeds 2 --seed 3": "--seed is set for each run; give --seeds, --first-seed",
    "ner --learning-rates 2e-5;3e-5": "learning_rates=2e-5;3e-5 must be positive numbers",
    "ner --learning-rates 2e-5 --learning-rate 3e-5": "--learning-rate is set for each run",
    "seeds unknown": "CONFIG=unknown must be a recipe",
    "seeds quickstart --task squad": "CONFIG=quickstart must be a recipe",
}


@pytest.mark.parametrize("line", REFUSED)
def test_mistakes_are_refused_before_the_first_run(start, line):
    with refused(REFUSED[line]):
        start(*line.split())
    assert not Path("out").exists()


def test_a_name_is_that_of_the_file_without_its_ends(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file, name in {"a.csv.gz": "a", "v1.2.csv": "v1.2", "set/train.tsv.gz": "set"}.items():
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).touch()
        assert [*commands_of_tasks([file, "x"], None)] == [name]


def test_what_is_typed_for_several_runs():
    for line in ("all x", "mrpc,rte data x --epochs 2", "mrpc data x --seeds=3", "--seeds 3 mrpc x", "all --help"):
        assert is_asked_for("glue", line.split()), line
    for line in ("mrpc data x --seed 3", "", "x data v c out mrpc 8", "--config mrpc"):
        assert not is_asked_for("glue", line.split()), line
    assert is_asked_for("seeds", ["mrpc"]) and is_asked_for("squad", ["--learning-rates", "1e-5"])
    tasks = [task_of_recipe(recipe, None) for recipe in ("large", "squad_small", "mrpc", "conll2003")]
    assert tasks == ["pretraining", "squad", "glue", "ner"]
