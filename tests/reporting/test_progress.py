"""Numbers, durations and sizes in words."""

import math

import pytest

from bert.reporting.progress import duration, megabytes, metric_form, metrics_line, progress


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
