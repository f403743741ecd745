"""What VisualDL shows of a run, read by VisualDL's own reader."""

import io
import math
import types

import pytest

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
