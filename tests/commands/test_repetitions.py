"""`--seeds` and `run_glue.sh all CHECKPOINT`: the planned trainings, the unfinished ones, and the table."""

import json
import shutil
from pathlib import Path

import pytest

from bert.checkpoints.directories import write_checkpoint
from bert.commands import repetitions
from bert.commands.__main__ import _COMMANDS, _command, main
from bert.config.entry_point import load_task
from bert.config.run_file import dump_yaml
from bert.exit_codes import BAD_INPUT, DIVERGED, INTERRUPTED, OK
from bert.files import only_writer
from bert.launching.previous_run import settings_asked_for
from bert.reporting.report import main as report
from tests.support.commands import refused


class Trainings:
    """Stands in for a start of ranks: a training scores more with a larger rate and seed, and leaves a checkpoint."""

    def __init__(self, codes):
        self.codes, self.runs = codes, []

    def launch(self, script, config, ranks, runner, **start):
        task, rate, seed = config.stage().removeprefix("glue-"), config.optimizer.learning_rate, config.run.seed
        self.runs.append((task, rate, seed))
        code = self.codes.get((task, seed), OK)
        if code != OK:
            return code
        value = {"mrpc": 0.5, "mnli": 0.6}.get(task, 0.7) + 1000 * rate + seed / 100
        parts = ("matched_", "mismatched_") if task == "mnli" else ("",)
        metrics = {f"eval_{part}{name}": value for part in parts for name in ("accuracy", "score")}
        metrics |= {"eval_mismatched_score": value + 0.1} if task == "mnli" else {}
        write_checkpoint(config.checkpoint_dir(), 7, lambda folder: (folder / "weights").write_text("weights"))
        stage = config.stage_dir()
        stage.mkdir(parents=True, exist_ok=True)
        summary = {"finished": True, "steps": 7, "final_loss": 2.0, "last_eval_score": 0.0, "eval_sequences": 7.0}
        (stage / "summary.json").write_text(json.dumps(summary | metrics))
        for file in (stage / "config.yaml", settings_asked_for(config)):
            file.write_text(dump_yaml(config))
        (stage / "metrics.jsonl").touch()
        return code


@pytest.fixture
def start(weights, tmp_path, monkeypatch):
    """Start (task, words, codes of trainings) in the folder `out`; return (exit code, the started trainings)."""
    monkeypatch.chdir(tmp_path)

    def run(task, *words, codes=None):
        trainings = Trainings(codes or {})
        monkeypatch.setattr("bert.jobs.training.launch", trainings.launch)
        given = [*words, "--device", "cpu", "--output-dir", "out"]
        return repetitions.main(task, load_task(f"{_COMMANDS[task]}:planned"), given), trainings.runs

    return run


ALL = ("all", "model", "--download", "--learning-rate", "2e-5")
ENTITIES = ("--from-pretrained-params", "model", "--max-seq-length", "64", "--learning-rate", "2e-5")


def test_all_tasks_of_glue_make_one_table(start, tmp_path, capsys):
    code, runs = start("glue", *ALL, "--seeds", "2", "--epochs", "1")
    assert code == OK and len(runs) == 18 and {run[2] for run in runs[:9]} == {1}
    table = Path("out/scores.md").read_text()
    assert "| mrpc glue-mrpc | 53.5 | 0.7 | 53.5 | 53.0 | 54.0 | 2 |" in table and "that flatters" in table
    assert "| mnli glue-mnli | 68.5 | 0.7 |" in table and "| average of 9 tasks of GLUE | 70.7 | 0.7 |" in table
    shown = capsys.readouterr().out
    assert "18 trainings in out: 0 done, 18 left" in shown and "==== cola/seed-1\n" in shown
    assert " ".join(table.split()) in " ".join(shown.split())
    report([str(tmp_path / "out"), "--markdown", "report.md"])
    assert "average of 9 tasks of GLUE" in Path("report.md").read_text()


def test_one_training_has_a_row_for_each_metric(start):
    words = ("--config", "mrpc", "--download", "--from-pretrained-params", "model", "--learning-rate", "2e-5")
    assert start("glue", *words, "--seeds", "3") == (OK, [("mrpc", 2e-5, seed) for seed in (1, 2, 3)])
    table = Path("out/scores.md").read_text()
    assert "| accuracy | 54.0% | 1.0% | 54.0% | 53.0% (seed 1) | 55.0% (seed 3) | 3 |" in table
    assert "| final_loss | 2.0000 | 0.0000 |" in table and "sequences" not in table and "steps" not in table
    assert len(list(Path("out").glob("seed-*/*/glue-mrpc/7"))) == 3  # all models of one task are kept


def test_a_training_that_is_done_is_not_repeated_and_more_can_be_added(start):
    both = [("ner", 2e-5, 1), ("ner", 2e-5, 2)]
    assert start("ner", *ENTITIES, "--seeds", "2", codes={("ner", 2): INTERRUPTED}) == (INTERRUPTED, both)
    assert not Path("out/scores.md").exists()
    assert start("ner", *ENTITIES, "--seeds", "2")[1] == both[1:]
    assert start("ner", *ENTITIES, "--seeds", "4")[1] == [("ner", 2e-5, 3), ("ner", 2e-5, 4)]
    shutil.rmtree("out/seed-2")
    assert start("ner", *ENTITIES, "--seeds", "4", "--keep-checkpoints=2")[1] == [("ner", 2e-5, 2)]
    with refused("learning_rate=0.001 differs from 2e-05 of the run in out/seed-1; pass another --output-dir"):
        start("ner", *ENTITIES, "--seeds", "2", "--learning-rate", "1e-3")


def test_a_longer_training_is_not_done(start):
    assert len(start("ner", *ENTITIES, "--seeds", "1", "--epochs", "1")[1]) == 1
    assert start("ner", *ENTITIES, "--epochs=1", "--seeds", "1")[1] == []
    assert len(start("ner", *ENTITIES, "--seeds", "1", "--epochs", "2")[1]) == 1


def test_a_task_that_fails_is_named_at_the_end_and_the_others_go_on(start, capsys):
    words = (*ALL, "--seeds", "2")
    code, runs = start("glue", *words, codes={("mrpc", 1): DIVERGED, ("mnli", 1): BAD_INPUT})
    assert code == DIVERGED and len(runs) == 17 and ("mnli", 2e-5, 2) not in runs
    shown = capsys.readouterr().err
    assert f"failed (the same command tries them again):\n  mrpc/seed-1: exit code {DIVERGED}\n" in shown
    code, runs = start("glue", *words)
    assert code == OK and sorted((run[0], run[2]) for run in runs) == [("mnli", 1), ("mnli", 2), ("mrpc", 1)]


def test_a_question_is_answered_for_one_training_and_starts_none(start, capsys):
    code, runs = start("glue", *ALL, "--seeds", "2", "--dry-run")
    assert (code, runs) == (OK, []) and not Path("out").exists()
    shown = capsys.readouterr().out
    assert "task       glue-cola" in shown and "\n19. scores of all trainings: out/scores.md\n" in shown


def test_one_start_writes_to_a_folder(start, tmp_path, monkeypatch):
    monkeypatch.setattr("bert.files._SECONDS_FOR_WORKERS", 0.0)
    with only_writer(tmp_path / "out"), refused("another run is writing to it"):
        start("ner", *ENTITIES, "--seeds", "2")


REFUSED = {
    "glue all": "all must be all CHECKPOINT, or all DATA_DIR CHECKPOINT",
    "glue all x --steps-this-run=5": "--steps-this-run is set for each run",
    "squad --seeds 0": "seeds=0 must be at least 1",
    "pretraining --seeds 1 2 3": "--seeds 1 2 3: --seeds is the number of trainings; pass --seeds 3 --first-seed 1",
    "ner --seeds 4 9 --dry-run": "--seeds 4 9: .* pass --seeds 2 --first-seed FIRST",
    "squad --seeds 2 --seed 3": "--seed is set for each run; --seeds and --first-seed choose",
    "squad --seeds 2 --epochs none": "epochs=",
}


@pytest.mark.parametrize("line", REFUSED)
def test_mistakes_are_refused_before_the_first_training(start, line):
    with refused(REFUSED[line]):
        start(*line.split())
    assert not Path("out").exists()


def test_what_is_typed_for_several_trainings():
    for line in ("glue all x", "squad --config squad_small --seeds=3", "pretraining --seeds 3"):
        task, *words = line.split()
        assert _command(task, words).func is repetitions.main, line
    for line in ("glue mrpc data x --seed 3", "glue", "squad all"):
        task, *words = line.split()
        assert _command(task, words).func is not repetitions.main, line


def test_earlier_command_lines_say_what_to_type():
    with refused("2 positional .* must be TASK DATA_DIR CHECKPOINT, or all .DATA_DIR. CHECKPOINT"):
        main(["glue", "mrpc,rte", "weights"])
    with refused("--learning-rates is not a flag; give each --learning-rate an --output-dir"):
        main(["glue", "--config", "mrpc", "--learning-rates", "1e-5,2e-5"])


def test_each_seed_of_own_text_makes_its_own_plan_in_its_part_of_the_hours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text").mkdir()
    Path("text/a.txt").write_text("Some words.")
    lines = []
    monkeypatch.setattr("bert.commands.own_text.main", lambda line: lines.append(line) or OK)
    words = ["--text", "text", "--hours", "2", "--seeds", "2", "--output-dir", "out"]
    assert repetitions.main("pretraining", load_task("bert.commands.pretrain:planned"), words) == OK
    found = [(line.launch["hours"], line.training["seed"], line.training["output_dir"]) for line in lines]
    assert found == [("1", "1", "out/seed-1"), ("1", "2", "out/seed-2")]


def test_a_dry_run_of_presets_divides_the_hours_as_a_start_does(tmp_path, monkeypatch):
    """The arithmetic of the phases divides the hours: the second phase has more arithmetic."""
    monkeypatch.chdir(tmp_path)
    plan = load_task("bert.commands.pretrain:planned")
    words = ["--config", "base", "--hours", "2", "--seeds", "2", "--output-dir", "out", "--dry-run"]
    planned = repetitions.planned("pretraining", plan, words)
    limits = [config.run.finish_in for config in planned.plan.phases]
    work = [step.share for step in planned.job.steps[0].steps[:2]]
    assert sum(limits) == pytest.approx(3600) and limits[0] / limits[1] == pytest.approx(work[0] / work[1])
    assert limits[0] != pytest.approx(limits[1])


def test_hours_of_presets_and_wrong_ones_are_left_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = load_task("bert.commands.pretrain:planned")
    for words in (["--config", "quickstart", "--hours", "2"], ["--phase1", "--config", "evening", "--output-dir", "x"]):
        assert repetitions._with_part_of_the_hours(words, 2) == words
    with refused("hours=soon"):
        repetitions.main("pretraining", plan, ["--text", ".", "--hours", "soon", "--output-dir", "out"])
