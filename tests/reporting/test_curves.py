"""The curves of a run in VisualDL's files, read by VisualDL's own reader."""

import io
import json
import math
import types
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from bert.reporting.curves import (
    REPLAYED_ROWS,
    Tracker,
    VisualDL,
    curves_command,
    finite,
    list_name,
    scalars_of,
    table_row,
    tag_of,
)
from bert.reporting.logs import Log

SETTINGS = {
    "model": {"hidden_size": 128},
    "optimizer": {"optimizer": "Lamb", "learning_rate": 6e-3},
    "data": {"input_dir": "/shards", "masking": "static"},
    "precision": {"amp": True},
    "run": {"seed": 42, "steps_this_run": None, "output_dir": "/results"},
    "hardware": {"device": "cpu"},
    "world_size": 2,
    "training_data": {"num_shards": 8},
}


def run_log(directory, first_step=0, trackers=("visualdl",)) -> Log:
    log = Log(directory, None, total_steps=20, trackers=trackers, stream=io.StringIO())
    log.first_step = first_step
    log.parameters(SETTINGS)
    return log


def train(log: Log, steps, loss=lambda step: 8.0 - step / 10) -> None:
    for step in steps:
        log.train(step, 0, {"loss": loss(step), "learning_rate": 1e-3, "loss_scale": 2.0**20}, 1.0)
        if step % 5 == 0:
            log.evaluation(step, 0, {"eval_masked_lm_loss": loss(step) - 1})


def reader(directory):
    pytest.importorskip("visualdl")
    from visualdl.reader import reader as module
    from visualdl.server.data_manager import DataManager

    module.default_data_manager = DataManager()  # all readers of a process would share one
    return module.LogReader(logdir=[str(directory)])


def scalars(directory, tag) -> list[tuple[int, float]]:
    from visualdl.server import lib

    shown = reader(directory)
    (run,) = lib.get_logs(shown, "scalar")["runs"]
    return [(step, value) for _, step, value in lib.get_scalar(shown, run, tag)]


def table(directory) -> list[dict]:
    from visualdl.server import lib

    return lib.get_hparam_list(reader(directory))


def test_curves_and_the_table_of_hyper_parameters_are_what_visualdl_reads(tmp_path):
    log = run_log(tmp_path)
    train(log, range(1, 11))
    log.train(11, 0, {"loss": math.nan}, 1.0)  # is no point of a curve
    log.summary({"training_sequences_per_second": 321.0, "mfu": 0.25, "final_loss": 7.0})
    log.close()
    assert scalars(tmp_path, "train/loss") == [(step, pytest.approx(8.0 - step / 10)) for step in range(1, 11)]
    assert [step for step, _ in scalars(tmp_path, "eval/masked_lm_loss")] == [5, 10]
    (row,) = table(tmp_path)
    assert row["hparams"] == {
        "hidden_size": 128,
        "optimizer": "Lamb",
        "learning_rate": 6e-3,
        "masking": "static",
        "amp": "True",
        "seed": 42,
        "world_size": 2,
    }
    assert row["metrics"]["train/loss"] == pytest.approx(7.0)
    assert row["metrics"]["eval/masked_lm_loss"] == pytest.approx(6.0)
    assert row["metrics"]["final/training_sequences_per_second"] == 321.0 and row["metrics"]["final/mfu"] == 0.25


def test_a_continued_run_shows_the_curve_from_its_beginning_and_no_step_twice(tmp_path):
    """VisualDL reads one file of a folder. Steps 6 and 7 were done, lost in a crash, and done again."""
    first = run_log(tmp_path)
    train(first, range(1, 8), loss=lambda step: 8.0)  # killed: not closed
    first.trackers[0][1].writer.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 8, "lo')
    for path in (tmp_path / "visualdl").iterdir():  # the second file is named by the second it begins in
        path.rename(path.with_name("vdlrecords.0000000001.log"))
    second = run_log(tmp_path, first_step=5)
    train(second, range(6, 11), loss=lambda step: 5.0)
    second.close()
    assert scalars(tmp_path, "train/loss") == [(step, 8.0 if step <= 5 else 5.0) for step in range(1, 11)]
    assert [step for step, _ in scalars(tmp_path, "eval/masked_lm_loss")] == [5, 10]


def test_a_writer_whose_thread_has_ended_is_an_error_and_not_a_wait(tmp_path, capsys):
    log = run_log(tmp_path)
    ended = types.SimpleNamespace(is_alive=lambda: False)
    inside = types.SimpleNamespace(_async_writer=types.SimpleNamespace(_worker=ended))
    log.trackers[0][1].writer = types.SimpleNamespace(_file_writer=inside)
    train(log, range(1, 3))
    log.close()
    assert capsys.readouterr().err.count("VisualDL failed and is switched off: its writing thread has ended") == 1
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_only_finite_numbers_are_drawn_and_are_plain():
    given = {
        "a": np.float32(0.5),
        "b": math.nan,
        "c": math.inf,
        "d": True,
        "e": "1",
        "f": 3,
        "g": None,
        "h": np.int64(2),
    }
    found = finite(given)
    assert found == {"a": 0.5, "f": 3, "h": 2} and {type(value) for value in found.values()} == {int, float}


def test_held_out_metrics_have_a_tag_of_their_own():
    assert (tag_of("loss"), tag_of("eval_loss"), tag_of("my_eval_loss")) == (
        "train/loss",
        "eval/loss",
        "train/my_eval_loss",
    )


def test_the_table_has_changed_settings_first_and_neither_paths_nor_machines():
    row = table_row(
        {
            "model": {"hidden_size": 8},
            "hardware": {"device": "cpu"},
            "initialization": {"from_checkpoint": "a"},
            "training_data": {"num_shards": 8},
            "run": {"seed": 42, "output_dir": "a", "log_freq": 3, "report_file": "b", "keep_checkpoints": 2, "x": None},
            "world_size": np.int64(2),
            "optimizer": {"always_adapt": False, "learning_rate": 0.5},
            "data": {"masking": "static", "num_workers": 4, "sizes": (1, 2)},
        }
    )
    assert list(row.items()) == [
        ("always_adapt", "False"),
        ("learning_rate", 0.5),
        ("seed", 42),
        ("masking", "static"),
        ("sizes", "(1, 2)"),
        ("world_size", 2),
        ("hidden_size", 8),
    ]


def runs_in_list(folder) -> list[str]:
    from visualdl.server import lib

    return lib.get_logs(reader(folder), "scalar")["runs"]


def test_the_list_of_runs_begins_with_the_folders_that_differ(tmp_path):
    """VisualDL's list shows about 25 characters of a name."""
    for name in ("experiment_rate_1e-4/phase1", "experiment_rate_1e-4/phase2", "experiment_rate_2e-4/phase1", "b/ner"):
        log = run_log(tmp_path / "results" / name)
        train(log, [1, 2])
        log.close()
    names = sorted(runs_in_list(tmp_path))
    assert [name.split(", ")[0] for name in names] == [
        "b/ner (results/b/ner",
        "exp..te_1e-4/phase1 (results/experiment_rate_1e-4/phase1",
        "exp..te_1e-4/phase2 (results/experiment_rate_1e-4/phase2",
        "exp..te_2e-4/phase1 (results/experiment_rate_2e-4/phase1",
    ]
    assert len({name[:25] for name in names}) == 4


def test_runs_of_equal_folders_are_kept_apart_by_their_starts():
    first = datetime(2026, 11, 29, 7, 5, 9)
    name = list_name(Path("/results/quickstart/phase1"), first)
    assert name == "quickstart/phase1 (results/quickstart/phase1, 2026-11-29 07:05:09)"
    assert list_name(Path("/results/quickstart/phase1"), first.replace(second=10)) != name
    name = list_name(Path("/results/tickets/glue-custom"), first)
    assert name == "tickets/labels (results/tickets/glue-custom, 2026-11-29 07:05:09)"


def test_counts_and_zero_skipped_updates_have_no_chart():
    metrics = {"loss": 2.0, "skipped_steps": 0.0, "eval_sequences": 9, "eval_total": 9}
    assert scalars_of(metrics) == {"train/loss": 2.0}
    assert scalars_of({"skipped_steps": 1.0}) == {"train/skipped_steps": 1.0}


class Written(Tracker):
    def open(self, first_step):
        self.writer, self.rows = True, [("open", first_step)]

    def write(self, step, scalars):
        self.rows.append((step, scalars))

    def end(self):
        self.rows.append("end")


def test_a_tracker_opens_with_the_first_scalars_and_ends_with_the_figures_of_the_run(tmp_path):
    tracker = Written(tmp_path / "run/phase1")
    tracker.close(9, {"mfu": 0.5})
    assert tracker.writer is None and tracker.name == "run/phase1"
    tracker.add(4, {"loss": 2.0, "eval_f1": math.nan}, 3)
    tracker.add(5, {"eval_f1": 0.5}, 3)
    tracker.close(6, {"mfu": 0.5, "skipped_steps": 2, "training_sequences_per_second": math.inf, "steps": 6})
    assert tracker.rows == [
        ("open", 3),
        (4, {"train/loss": 2.0}),
        (5, {"eval/f1": 0.5}),
        (6, {"final/mfu": 0.5, "final/skipped_steps": 2}),
        "end",
    ]


@pytest.mark.parametrize(("rows", "every"), [(REPLAYED_ROWS, 1), (REPLAYED_ROWS + 1, 2), (2 * REPLAYED_ROWS + 1, 3)])
def test_a_continued_curve_begins_with_the_earlier_rows_evenly_thinned(tmp_path, monkeypatch, rows, every):
    pytest.importorskip("visualdl")
    training = [{"step": step, "epoch": 0, "loss": step / 2} for step in range(1, rows + 1)]
    later = [{"step": rows + 1, "loss": 0.0}, {"step": rows + 1, "eval_loss": 0.0}]
    lines = [*training, {"step": 2, "eval_loss": 7.0}, *later]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    written = []
    monkeypatch.setattr("visualdl.LogWriter", lambda logdir, display_name: logdir)
    monkeypatch.setattr(VisualDL, "write", lambda self, step, scalars: written.append((step, scalars)))
    VisualDL(tmp_path).open(rows)
    assert [row for row in written if "eval/loss" in row[1]] == [(2, {"eval/loss": 7.0})]
    curve = [row for row in written if "train/loss" in row[1]]
    assert curve == [(step, {"train/loss": step / 2}) for step in range(1, rows + 1, every)]
    assert [step for step, _ in written] == sorted(step for step, _ in written)
    written.clear()
    VisualDL(tmp_path).open(0)  # a new run
    assert written == []


def test_curves_are_shown_without_reports_to_the_maker():
    purpose, command = curves_command(Path("a b"))
    assert "http://localhost:8040/app/scalar" in purpose and command.endswith(
        "--disable-telemetry --language en --port 8040"
    )
    assert "'a b'" in command


def test_the_row_of_the_table_names_each_curve_once(tmp_path):
    calls = []
    tracker = VisualDL(tmp_path)
    tracker.writer, tracker._tags, tracker.hyper_parameters = (
        types.SimpleNamespace(
            add_scalar=lambda *scalar: calls.append(scalar),
            add_hparams=lambda *row: calls.append(row),
            close=lambda: calls.append("closed"),
        ),
        [],
        {"run": {"seed": 3}},
    )
    for step in (1, 2):
        tracker.write(step, {"train/loss": 1.0 / step, "train/mfu": 0.5})
    tracker.end()
    assert calls[:4] == [("train/loss", 1.0, 1), ("train/mfu", 0.5, 1), ("train/loss", 0.5, 2), ("train/mfu", 0.5, 2)]
    assert calls[4:] == [({"seed": 3}, ["train/loss", "train/mfu"]), "closed"]
