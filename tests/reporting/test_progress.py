"""Formatting of numbers, durations and sizes."""

import io
import json
import math

import pytest

from bert.reporting.progress import (
    PROGRESS_FILE,
    RunProgress,
    announce,
    duration,
    megabytes,
    metric_form,
    metrics_line,
    progress,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 seconds"),
        (0.6, "1 second"),
        (1.4, "1 second"),
        (1.6, "2 seconds"),
        (59.4, "59 seconds"),
        (60, "1.0 minutes"),
        (400, "6.7 minutes"),
        (5_399, "90.0 minutes"),
        (5_400, "1.5 hours"),
        (12_600, "3.5 hours"),
        (172_799, "48.0 hours"),
        (172_800, "2.0 days"),
        (362_880, "4.2 days"),
        (math.inf, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_durations_in_words(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (99_999, "100.0 kB"),
        (100_000, "0.1 MB"),
        (999_900_000, "999.9 MB"),
        (1_000_000_000, "1.0 GB"),
    ],
)
def test_sizes_change_their_unit_where_it_is_said(size, text):
    assert megabytes(size) == text


@pytest.mark.parametrize(
    ("name", "others", "form"),
    [
        ("eval_sequences", (), ",.0f"),
        ("total", (), ",.0f"),
        ("eval_accuracy", (), ".1%"),
        ("PER_f1", (), ".1%"),
        *((name, (), ".1%") for name in ("precision", "recall", "mfu")),
        ("f1", ("exact",), ".2f"),
        ("exact_match", (), ".2f"),
        ("eval_loss", ("exact",), ".4f"),
        ("eval_loss", (), ".4f"),
        ("matthews", (), ".4f"),
    ],
)
def test_forms_of_metrics(name, others, form):
    assert metric_form(name, dict.fromkeys((name, *others), 0)) == form
    assert metric_form(name) == form or others


def test_a_line_of_metrics_has_shares_in_percent():
    line = metrics_line({"eval_loss": 5.625, "eval_accuracy": 0.1741, "eval_sequences": 1234})
    assert line == "loss 5.6250  accuracy 17.4%  sequences 1,234"


def test_a_meter_continues_behind_what_was_done_and_counts_bytes_in_units():
    with progress("reading", 3_000_000, done=1_000_000) as meter:
        meter.update(500_000)
        assert (meter.n, meter.total, meter.unit, meter.unit_scale) == (1_500_000, 3_000_000, "B", True)
    with progress("steps", None, "steps") as meter:
        assert (meter.n, meter.total, meter.unit, meter.unit_scale) == (0, None, " steps", False)
    assert list(progress("rows", 2, "rows", items="ab")) == ["a", "b"]


def write_progress(folder, **values):
    content = {"step": 5, "first_step": 3, "total_steps": 20, "eta_seconds": 90.0, "loss": 7.25, **values}
    (folder / PROGRESS_FILE).write_text(json.dumps(content))


def test_a_run_elsewhere_is_drawn_from_its_first_step_and_an_earlier_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(RunProgress, "run", lambda self: None)  # it draws when it is told to
    write_progress(tmp_path, step=2)
    bar = RunProgress(tmp_path, "phase 1")
    bar._draw()
    assert (bar._bar.n, bar._bar.total, bar._bar.desc) == (0, None, "phase 1, preparing")
    write_progress(tmp_path)
    bar._draw()
    drawn = bar._bar
    assert (drawn.n, drawn.initial, drawn.total, drawn.desc, drawn.postfix) == (5, 3, 20, "phase 1: ", "loss 7.250")
    write_progress(tmp_path, step=7, loss=None, total_steps=None)
    bar._draw()
    assert (drawn.n, drawn.initial, drawn.total, drawn.postfix) == (7, 3, None, "1.5 minutes left")
    write_progress(tmp_path, step=8, loss=1.0, total_steps=None, eta_seconds=None)
    bar._draw()
    assert (drawn.n, drawn.postfix) == (8, "loss 1.000")
    write_progress(tmp_path, step=20)
    bar.close()
    assert (drawn.n, drawn.total, drawn.disable) == (20, 20, True)


def test_a_log_gets_a_line_of_long_work_alone(capsys):
    with progress("quick", 3, "steps") as meter:
        meter.update(3)
    assert (meter.mininterval, meter.delay, meter.miniters) == (10.0, 10.0, 1)
    assert capsys.readouterr().err == ""
    terminal = io.StringIO()
    with progress("drawn", 3, "steps", terminal=terminal) as meter:
        meter.update(3)
    assert "3/3" in terminal.getvalue() and meter.delay == 0


def test_what_is_read_is_named_before_it_is(tmp_path, capsys):
    (tmp_path / "a.csv").write_bytes(b"x" * 4_400)
    announce("reading", [tmp_path / "a.csv", tmp_path, "bert\x1bbase"])
    announce("reading", [])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"reading {tmp_path}/a.csv, 4.4 kB; {tmp_path}; bert\\x1bbase ...\n"
