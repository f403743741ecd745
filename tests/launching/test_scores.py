"""`run_glue.sh TASKS CHECKPOINT`: runs of several tasks, rates and seeds, their tables, what a second start does."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert.commands import scores, seeds
from bert.commands.glue import names_several_tasks
from bert.commands.score_tables import Results, TaskScores
from bert.exit_codes import BAD_INPUT, DIVERGED, INTERRUPTED, OK
from bert.files import only_writer
from bert.tokenization.vocabulary import SPECIAL_TOKENS
from tests.support.commands import refused

DRAW = Results._draw
ACCURACY = {"mrpc": 0.5, "mnli": 0.6, "mine": 0.7}


class Launches:
    """In place of the runner: a run scores more with a larger rate and seed, and leaves a checkpoint."""

    def __init__(self, codes):
        self.codes, self.stop_requested, self.runs = codes, False, []

    def run(self, command):
        flags = dict(zip(command, command[1:], strict=False))
        output, rate, seed = Path(flags["--output-dir"]), float(flags["--learning-rate"]), int(flags["--seed"])
        task = output.parents[1].name
        self.runs.append((task, rate, seed))
        code = self.codes.get((task, seed), OK)
        if code == OK:
            value = ACCURACY[task] + 1000 * rate + seed / 100
            parts = ("matched_", "mismatched_") if task == "mnli" else ("",)
            metrics = {f"eval_{part}{name}": value for part in parts for name in ("accuracy", "score")}
            metrics |= {"eval_mismatched_score": value + 0.1} if task == "mnli" else {}
            stage = output / ("glue-custom" if task == "mine" else f"glue-{task}")
            stage.mkdir(parents=True, exist_ok=True)
            (stage / "summary.json").write_text(json.dumps({"finished": True, "last_eval_score": 0.0, **metrics}))
            (output / "model" / stage.name / "7").mkdir(parents=True, exist_ok=True)
        return code


@pytest.fixture
def start(tmp_path, monkeypatch, weights):
    (weights / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *(f"w{number}" for number in range(72))]) + "\n")
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    pairs = "".join(f"{row % 2}\t{row}\t{row}\tw1 w2\tw3\n" for row in range(40))
    matched = "sentence1\tsentence2\tgold_label\n" + "w1 w2\tw3\tneutral\nw4\tw5\tentailment\n" * 20
    files = {"MRPC/train.tsv": head + pairs, "MRPC/dev.tsv": head + pairs}
    files |= {f"MNLI/{name}.tsv": matched for name in ("train", "dev_matched", "dev_mismatched")}
    files["mine.csv"] = "text,label\n" + "".join(
        f"w{row % 70} w{row % 7},{'no yes'.split()[row % 2]}\n" for row in range(50)
    )
    for name, content in files.items():
        (tmp_path / "glue" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "glue" / name).write_text(content)
    monkeypatch.chdir(tmp_path / "glue")
    monkeypatch.setattr(Results, "_draw", lambda results, file: None)

    def run(tasks, *words, codes=None, data=(".",)):
        launches = Launches(codes or {})
        monkeypatch.setattr(seeds, "Runner", lambda: launches)
        flags = ("--output-dir", str(tmp_path / "out"), "--device", "cpu")
        return scores.main([tasks, *data, str(weights), *flags, *words]), launches.runs

    return run


def test_every_task_rate_and_seed_makes_one_table(start, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Results, "_draw", DRAW)
    rates = ("--learning-rates", "1e-5,2e-5")
    code, runs = start("mrpc,MNLI,mine.csv", "--seeds", "2", *rates)
    assert code == OK and len(runs) == 12 and {run[2] for run in runs[:6]} == {1}
    table = (tmp_path / "out/scores.md").read_text()
    assert "| mrpc | 2e-05 | accuracy 53.5% | 53.5 | 0.7 | 53.5 | 53.0 | 54.0 | 2 |" in table
    assert "| mnli | 2e-05 | matched accuracy 63.5%, mismatched accuracy 63.5% | 68.5 | 0.7 |" in table
    assert (
        "| average of 2 tasks of GLUE, without cola, sst-2, sts-b, qqp, qnli, rte, wnli |  |  | 61.0 | 0.7 |" in table
    )
    assert "| mine | 69.7" not in table and "| mine | 72.5 (2) | 73.5 (2) |" in table and "both flatter" in table
    shown = capsys.readouterr().out
    assert "12 runs: rates 1e-05, 2e-05, seeds 1 to 2; 0 done, 12 left, about " in shown and table in shown
    assert "mnli                      40         80" in shown and "mine                      40         10" in shown
    content = json.loads((tmp_path / "out/scores.json").read_text())
    assert content["tasks"]["mrpc"]["median"] == pytest.approx(53.5) and len(content["tasks"]["mnli"]["runs"]) == 4
    assert (tmp_path / "out/scores.png").read_bytes().startswith(b"\x89PNG")
    kept = sorted(str(path.relative_to(tmp_path / "out").parents[2]) for path in tmp_path.glob("out/*/*/*/*/*/7"))
    assert kept == [f"{task}/lr-2e-05/seed-2" for task in ("mine", "mnli", "mrpc")]


def test_a_second_start_runs_what_is_left_and_takes_more(start, tmp_path):
    assert start("mrpc", "--seeds", "2", codes={("mrpc", 2): INTERRUPTED})[0] == INTERRUPTED
    code, runs = start("mrpc", "--seeds", "2")
    assert code == OK and [run[2] for run in runs] == [2]
    record = tmp_path / "out/runs.json"
    now = json.loads(record.read_text())
    record.write_text(json.dumps(now | {"data": {"mrpc": {"folder": "."}}}))  # of an earlier version
    assert start("mrpc", "--seeds", "2")[1] == [] and json.loads(record.read_text()) == now
    assert [run[0] for run in start("mrpc,mnli", "--seeds", "1")[1]] == ["mnli"]
    with refused("holds seeds of another command .flags"):
        start("mrpc", "--seeds", "2", "--epochs", "7")
    Path("MRPC/dev.tsv").write_text(Path("MRPC/train.tsv").read_text() + "1\t1\t1\tw1\tw2\n")
    with refused("holds seeds of another command .data mrpc"):
        start("mrpc", "--seeds", "2")
    start("mine.csv", "--seeds", "1")
    Path("mine.csv").write_text(Path("mine.csv").read_text() + "w1,no\n")
    with refused("holds seeds of another command .data mine"):
        start("mine.csv", "--seeds", "1")


def test_a_task_that_fails_is_named_at_the_end_and_the_others_go_on(start, capsys):
    code, runs = start("mrpc,mnli,cola", "--seeds", "2", codes={("mrpc", 1): DIVERGED, ("mnli", 1): BAD_INPUT})
    assert code == DIVERGED and [(run[0], run[2]) for run in runs] == [("mrpc", 1), ("mnli", 1), ("mrpc", 2)]
    shown = capsys.readouterr().out
    assert "failed (the same command tries them again):" in shown
    assert f"mrpc, rate 2e-05, seed 1: exit code {DIVERGED}" in shown and "mnli: it was refused" in shown
    assert "cola: data_dir=CoLA must be an existing folder" in shown
    code, runs = start("mrpc,mnli", "--seeds", "2")
    assert code == OK and sorted((run[0], run[2]) for run in runs) == [("mnli", 1), ("mnli", 2), ("mrpc", 1)]


def test_a_dry_run_writes_nothing(start, tmp_path, capsys):
    assert start("all", "--dry-run", "--download", data=("elsewhere",)) == (OK, [])
    shown = capsys.readouterr().out
    assert "27 runs: rates 2e-05" in shown and "no data there yet" in shown and "of checkpoints in" in shown
    assert start("MRPC", "--dry-run", data=("MRPC",)) == (OK, [])  # the folder of the one task itself
    assert "mrpc                      40         40        7     3" in capsys.readouterr().out
    assert start("mrpc,cola", "--dry-run") == (OK, [])
    assert "cola              left out: data_dir=CoLA must be an existing folder" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_the_remedies_of_a_task_that_failed_are_taken(start):
    bad = Path("mine.csv").read_text()
    Path("mine.csv").write_text("text,label\nw1,\n" + bad.partition("\n")[2])
    assert start("mrpc,mine.csv", "--seeds", "1")[0] == BAD_INPUT
    assert (
        start("mrpc,mine.csv", "--seeds", "1", "--max-bad-line-fraction", "0.5", codes={("mine", 1): DIVERGED})[0]
        == DIVERGED
    )
    Path("mine.csv").write_text(bad)
    assert [run[0] for run in start("mrpc,mine.csv", "--seeds", "1", "--max-bad-line-fraction=0.1")[1]] == ["mine"]
    Path("mine.csv").write_text(bad + "w1,no\n")
    with refused("holds seeds of another command .data mine"):
        start("mine.csv", "--seeds", "1")


def test_a_run_counts_when_it_has_its_score(start, tmp_path, capsys):
    assert start("mrpc", "--seeds", "2")[0] == OK
    shutil.rmtree(tmp_path / "out/mrpc/lr-2e-05/seed-1")
    assert start("mrpc", "--seeds", "2")[1] == [("mrpc", 2e-5, 1)]
    (tmp_path / "out/mrpc/lr-2e-05/seed-1/glue-mrpc/summary.json").write_text('{"finished": false}')
    shutil.rmtree(tmp_path / "out/mrpc/lr-2e-05/seed-2")
    capsys.readouterr()
    assert start("mrpc", "--seeds", "2", codes={("mrpc", 1): BAD_INPUT, ("mrpc", 2): BAD_INPUT})[0] == BAD_INPUT
    assert "scores.png" not in capsys.readouterr().out.partition("no run has ended")[2]
    (tmp_path / "out/runs.json").write_text("{")
    with refused("runs.json must be a JSON object and is damaged"):
        start("mrpc", "--seeds", "2")


def test_the_disk_is_asked_for_what_is_missing(start, tmp_path, monkeypatch):
    start("mrpc", "--seeds", "1")
    monkeypatch.setattr(scores.shutil, "disk_usage", lambda folder: SimpleNamespace(free=5))
    with refused("has 5 bytes free|has 0.0 MB free"):
        start("mrpc", "--seeds", "2")
    kept = tmp_path / "out/mrpc/lr-2e-05/seed-1/model"
    assert start("mrpc", "--seeds", "1") == (OK, []) and kept.exists()
    assert start("mrpc", "--seeds", "1", "--keep-models", "none") == (OK, []) and not kept.exists()


def test_one_start_writes_to_a_folder(start, tmp_path, monkeypatch):
    monkeypatch.setattr("bert.files._SECONDS_FOR_WORKERS", 0.0)
    with only_writer(tmp_path / "out"), refused("another run is writing to it"):
        start("mrpc")


@pytest.mark.parametrize(
    ("tasks", "words", "rule"),
    [
        ("mrpc,mpc", [], "task=mpc must be a task, a recipe, or a file of labelled lines; did you mean mrpc"),
        ("ax", [], "task=ax has nothing to train on"),
        ("mrpc,MRPC", [], "names mrpc twice"),
        ("all,mrpc", [], "names mrpc twice"),
        ("mrpc", ["--steps_this_run=5"], "--steps-this-run leaves runs unfinished"),
        ("mrpc", ["--seeds", "0"], "seeds=0 must be at least 1"),
        ("mrpc", ["--learning-rates", "2e-5;3e-5"], "learning_rates=2e-5;3e-5 must be positive numbers"),
        ("mrpc", ["--seed", "3"], "--seed is set for each run"),
        ("mrpc", ["--epochs", "none"], "epochs"),
        ("mrpc,mnli", ["--epoch", "3"], "--epoch is not a flag; did you mean --epochs"),
        ("mine.csv:none.csv", [], "eval_file=none.csv must be an existing file"),
    ],
)
def test_mistakes_are_refused_before_the_first_run(start, tmp_path, tasks, words, rule):
    with refused(rule):
        start(tasks, *words)
    assert not (tmp_path / "out/runs.json").exists()


def test_a_name_is_that_of_the_file_without_its_ends(start):
    for file, name in {"a.csv.gz": "a", "v1.2.csv": "v1.2", "set/train.tsv.gz": "set"}.items():
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).touch()
        assert scores.entries_of(file, None, False)[0].name == name


def test_what_is_typed_for_several_tasks():
    assert names_several_tasks(["all", "x"]) and names_several_tasks(["mrpc,rte", "data", "x", "--epochs", "2"])
    assert names_several_tasks(["mrpc", "data", "x", "--seeds=3"]) and names_several_tasks(
        ["--seeds", "3", "mrpc", "x"]
    )
    assert names_several_tasks(["mrpc", "data", "x", "--seeds", "3"]) and names_several_tasks(["all", "--help"])
    assert not names_several_tasks(["mrpc", "data", "x", "--seed", "3"]) and not names_several_tasks([])
    assert not names_several_tasks(["x", "data", "v", "c", "out", "mrpc", "8"])  # NVIDIA's


def test_the_average_is_glues():
    """BERT-large on the leaderboard (Devlin et al., 2019; metrics as there): 80.5."""
    published = {"cola": (60.5,), "sst-2": (94.9,), "mrpc": (89.3, 85.4), "sts-b": (87.6, 86.5), "qqp": (72.1, 89.3)}
    published |= {"qnli": (92.7,), "rte": (70.1,), "wnli": (65.1,)}
    tasks = [TaskScores(n, True, ("dev",), {(1, 1): {"score": sum(v) / len(v) / 100}}) for n, v in published.items()]
    mnli = {"matched_score": 0.867, "mismatched_score": 0.859}
    title, (average,) = Results([*tasks, TaskScores("mnli", True, ("matched", "mismatched"), {(1, 1): mnli})]).average()
    assert title == "average of 9 tasks of GLUE" and round(average, 1) == 80.5
