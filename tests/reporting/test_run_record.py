"""The record of a run, read from files written by hand."""

import json
from pathlib import Path

import pytest

from bert.reporting.run_record import find_runs, read_log, read_metrics, read_run, read_runs


def lines(path, rows, prefix=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(prefix + (row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))


ROWS = [
    {"step": 2, "loss": 5.0},
    {"step": 4, "loss": 4.0, "mfu": None},
    {"step": 4, "eval_loss": 4.5},
    {"step": 6, "loss": 3.0},
    {"step": 6, "eval_loss": 3.5},
    {"step": 4, "loss": 4.25},  # continued behind step 3
    {"step": 5, "loss": 3.75},
    {"step": 5, "eval_loss": 3.25},
]


def test_repeated_steps_are_replaced_for_each_kind_of_row(tmp_path):
    lines(tmp_path / "metrics.jsonl", [*ROWS[:3], "{", "[1]", "", {"step": "x", "loss": 1}, *ROWS[3:]])
    complaints: list[str] = []
    training, held_out = read_metrics(tmp_path / "metrics.jsonl", complaints)
    assert [(row["step"], row["loss"]) for row in training] == [(2, 5.0), (4, 4.25), (5, 3.75)]
    assert [(row["step"], row["eval_loss"]) for row in held_out] == [(4, 4.5), (5, 3.25)]
    assert complaints == ["2 damaged lines of metrics.jsonl left out"]


def test_the_last_of_a_metric_is_that_of_the_summary_or_of_the_curve(tmp_path):
    lines(tmp_path / "metrics.jsonl", ROWS)
    run = read_run(tmp_path, "a")
    assert run.curve("loss") == [(2, 5.0), (4, 4.25), (5, 3.75)] and run.curve("mfu") == []
    assert (run.last("loss"), run.last("eval_loss"), run.last("none"), run.last_step()) == (3.75, 3.25, None, 5)
    assert run.metric_names() == ["loss", "eval_loss"]
    (tmp_path / "summary.json").write_text(json.dumps({"steps": 5, "loss": 1.0, "eval_loss": None}))
    run = read_run(tmp_path, "a")
    assert (run.last("loss"), run.last("eval_loss"), run.summary["steps"]) == (1.0, 3.25, 5)
    assert not any("summary" in complaint for complaint in run.complaints)


def test_a_summary_of_an_earlier_end_is_left_out(tmp_path):
    lines(tmp_path / "metrics.jsonl", ROWS)
    (tmp_path / "summary.json").write_text(json.dumps({"steps": 4, "loss": 1.0}))
    run = read_run(tmp_path, "a")
    assert run.last("loss") == 3.75
    assert (
        "summary.json is of update 4, and the run went on to 5; its figures are taken from metrics.jsonl"
        in run.complaints
    )


LOG = [
    {"timestamp": "100.5", "step": [0, 3], "data": {}},  # before any start
    {"timestamp": "101", "step": "PARAMETER", "data": {"world_size": 2, "device": None, "seed": 7}},
    {"timestamp": "103", "step": [0, 4], "data": {}},
    {"timestamp": "104", "step": [0, 2], "data": {}},
    {"timestamp": "late", "step": [0, 9], "data": {}},
    {"timestamp": "107.25", "step": [], "data": {}},
    {"timestamp": "200", "step": "PARAMETER", "data": {"device": "cpu"}},
    {"timestamp": "190", "step": [0, "x"], "data": {}},  # the clock was set back
]


def test_each_start_has_its_steps_and_times_and_the_last_one_its_facts(tmp_path):
    lines(tmp_path / "log.jsonl", LOG, "DLLL ")
    (first, second), facts = read_log(tmp_path / "log.jsonl")
    assert (first.begin, first.end, first.first_step, first.last_step, first.seconds()) == (101, 107.25, 2, 4, 6.25)
    assert (second.begin, second.first_step, second.last_step, second.seconds()) == (200, None, None, 0.0)
    assert facts == {"device": "cpu"}
    assert read_log(tmp_path / "none") == ([], {})


def test_checkpoints_are_counted_with_their_files_but_not_unfinished_ones(tmp_path):
    stage = tmp_path / "out/phase1"
    lines(stage / "metrics.jsonl", ROWS)
    (stage / "config.yaml").write_text("bert_model: own\n")
    for name, size in (("40", 11), ("7", 5), ("tmp-9", 100), ("30", None)):
        folder = tmp_path / "out/own/phase1" / name
        folder.mkdir(parents=True)
        if size:
            (folder / "manifest.json").write_text("{}")
            (folder / "weights").write_text("x" * size)
    run = read_run(stage, "a")
    assert run.checkpoints == [7, 40] and run.checkpoint_bytes == 11 + 5 + 2 * 2


def test_runs_are_the_nearest_folders_with_metrics_or_settings(tmp_path):
    for name in ("b/phase2", "a/x/phase1", "a/x/phase1/benchmark"):
        lines(tmp_path / name / "metrics.jsonl", ROWS)
    (tmp_path / "c").mkdir()
    (tmp_path / "c/config.yaml").write_text("seed: 3\n")
    names = ["a/x/phase1", "b/phase2", "c"]
    assert find_runs([tmp_path]) == [tmp_path / name for name in names]
    assert find_runs([tmp_path / "b", tmp_path]) == [tmp_path / name for name in ("b/phase2", "a/x/phase1", "c")]
    assert [run.name for run in read_runs([tmp_path])] == names
    assert [run.name for run in read_runs([tmp_path / "a"])] == ["phase1"]
    with pytest.raises(ValueError, match="must be a folder with metrics.jsonl or config.yaml"):
        find_runs([tmp_path / "b", tmp_path / "none"])


def test_a_run_without_rows_says_so(tmp_path):
    (tmp_path / "config.yaml").write_text("- 1\n")
    (tmp_path / "summary.json").write_text("{")
    run = read_run(tmp_path, "a")
    assert run.complaints == [
        "metrics.jsonl cannot be read: No such file or directory",
        "config.yaml is damaged and was left out",
        "summary.json is damaged and was left out",
        "metrics.jsonl has no rows: the run has not reached its first log line",
    ]
    assert (run.last_step(), run.settings, run.legs, run.scores) == (None, {}, [], {})


def test_runs_may_be_named_by_paths_of_both_kinds(tmp_path, monkeypatch):
    for name in ("a/phase1", "b/phase1"):
        lines(tmp_path / name / "metrics.jsonl", ROWS)
    monkeypatch.chdir(tmp_path)
    assert [run.name for run in read_runs([Path("a"), tmp_path / "b"])] == ["a/phase1", "b/phase1"]


def test_a_training_on_labels_is_named_so_unless_another_run_has_the_name(tmp_path):
    for name in ("a/glue-custom", "b/glue-custom", "b/labels"):
        lines(tmp_path / name / "metrics.jsonl", ROWS)
    runs = read_runs([tmp_path])
    assert [run.name for run in runs] == ["a/labels", "b/glue-custom", "b/labels"]
    assert runs[0].directory == tmp_path / "a/glue-custom"
