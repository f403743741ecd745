"""Scores of tasks over seeds: the average of GLUE."""

import pytest

from bert.reporting.run_record import RunRecord
from bert.reporting.spread import (
    Repetitions,
    average,
    markdown,
    metric_rows,
    metrics_in,
    repetition_lines,
    repetition_tables,
    repetitions,
    spread_cells,
)


def test_the_average_is_glues():
    """BERT-large has 80.5 on the leaderboard (Devlin et al., 2019; metrics as there)."""
    published = {"cola": (60.5,), "sst-2": (94.9,), "mrpc": (89.3, 85.4), "sts-b": (87.6, 86.5), "qqp": (72.1, 89.3)}
    published |= {"qnli": (92.7,), "rte": (70.1,), "wnli": (65.1,)}
    metrics = {name: {"score": sum(values) / len(values) / 100} for name, values in published.items()}
    metrics["mnli"] = {"matched_score": 0.867, "mismatched_score": 0.859}
    runs = [Repetitions(name, name.upper(), {1: found}) for name, found in metrics.items()]
    title, (value,) = average([*runs, Repetitions("mine", "", {1: {"score": 0.1}})])
    assert title == "average of 9 tasks of GLUE" and round(value, 1) == 80.5


def test_mean_spread_median_and_ends():
    assert spread_cells([2.0, 4.0, 9.0], ".2f") == ["5.00", "3.61", "4.00", "2.00", "9.00"]
    assert spread_cells([3.0], ".1f") == ["3.0", "-", "3.0", "3.0", "3.0"]


def test_a_metric_has_its_runs_beside_its_ends():
    metrics = {7: {"accuracy": 0.5, "loss": 2.0}, 3: {"accuracy": 0.25}, 5: {"accuracy": 0.75}}
    titles, rows = metric_rows(metrics, "seed", "runs")
    assert titles == ["runs", "mean", "standard deviation", "median", "lowest", "highest", "seeds"]
    assert rows == [
        ["accuracy", "50.0%", "25.0%", "50.0%", "25.0% (seed 3)", "75.0% (seed 5)", "3"],
        ["loss", "2.0000", "-", "2.0000", "2.0000 (seed 7)", "2.0000 (seed 7)", "1"],
    ]
    assert markdown((["a", "b"], [["1", "2"]])) == ["| a | b |", "|---|---|", "| 1 | 2 |"]


def test_metrics_are_those_of_evaluations_and_what_training_measured():
    summary = {"eval_f1": 1, "eval_sequences": 9, "eval_total": 9, "eval_best_f1_thresh": 0.5, "final_loss": 2.5}
    assert metrics_in({**summary, "skipped_steps": 0, "steps": 9, "eval_name": "x"}) == {
        "f1": 1.0,
        "final_loss": 2.5,
        "skipped_steps": 0.0,
    }


def test_the_average_is_of_the_seeds_that_all_tasks_have_and_of_the_better_runs():
    first = Repetitions("a", "RTE", {1: {"score": 0.6}, 2: {"score": 0.7}, 3: {"score": 0.9}})
    worse = Repetitions("b", "RTE", {1: {"score": 0.1}, 2: {"score": 0.1}})
    pair = {seed: {"matched_score": 0.5 + seed / 10, "mismatched_score": 0.3 + seed / 10} for seed in (2, 1, 4)}
    other = Repetitions("c", "MNLI", pair)
    title, values = average([first, worse, other])
    assert title == "average of 2 tasks of GLUE" and values == pytest.approx([(60 + 50) / 2, (70 + 60) / 2])
    assert average([first, worse])[1] == [] and average([])[1] == []
    assert first.scores() == pytest.approx({1: 60, 2: 70, 3: 90}) and other.scores()[2] == pytest.approx(60)


def record(tmp_path, name, seed, summary, **settings) -> RunRecord:
    folder = tmp_path / name
    values = {"seed": seed, "output_dir": str(folder.parent), **settings}
    return RunRecord(name, folder, [], [], values, {"finished": True, **summary}, [], [], 0, [])


def test_runs_that_differ_only_in_their_seed_are_repetitions(tmp_path):
    scores = {"eval_score": 0.5}
    runs = [
        record(tmp_path, "x/s1/rte", 1, scores, task_name="RTE", vocab_file=f"{tmp_path}/x/s1/v"),
        record(tmp_path, "x/s2/rte", 2, {"eval_score": 0.7}, task_name="RTE", vocab_file=f"{tmp_path}/x/s2/v"),
        record(tmp_path, "x/s3/rte", 3, scores, task_name="RTE", vocab_file="v", epochs=2),
        record(
            tmp_path, "x/s4/rte", 4, {**scores, "finished": False}, task_name="RTE", vocab_file=f"{tmp_path}/x/s4/v"
        ),
        record(tmp_path, "y/s1/own", 1, scores, task_name="custom"),
    ]
    found = repetitions(runs)
    assert [(group.name, group.glue_task, dict(group.metrics)) for group in found] == [
        ("x rte", "RTE", {1: {"score": 0.5}, 2: {"score": 0.7}}),
        ("x/s3 rte", "RTE", {3: {"score": 0.5}}),
        ("y/s1 own", "", {1: {"score": 0.5}}),
    ]
    (table,) = repetition_tables(runs, fewest=2)  # one group: its metrics
    assert table[0][0] == "x rte" and table[1][0][0] == "score"
    (scored,) = repetition_tables(runs)
    assert [row[0] for row in scored[1]] == ["x rte", "x/s3 rte", "y/s1 own"]
    assert scored[1][0] == ["x rte", "60.0", "14.1", "60.0", "50.0", "70.0", "2"]
    assert repetition_lines(runs)[-1].startswith("Scores are on the evaluation sets")


def test_settings_that_were_asked_for_are_beside_the_folder(tmp_path):
    run = record(tmp_path, "x/s1/rte", 1, {"eval_score": 0.5}, task_name="RTE")
    run.directory.parent.mkdir(parents=True)
    (run.directory.parent / "rte.yaml").write_text("seed: 8\ntask_name: RTE\n")
    assert list(repetitions([run])[0].metrics) == [8]
