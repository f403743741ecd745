"""The load test of the server: its texts, its table, and a run of two seconds."""

import json
import random

import pytest

from tests.benchmarks import serving


def test_texts_are_of_many_lengths_and_the_same_each_time():
    texts = serving.make_texts(400, random.Random(1))
    assert texts == serving.make_texts(400, random.Random(1))
    lengths = sorted(len(text.split()) for text in texts)
    assert lengths[0] == 3 and lengths[-1] == 120 and 15 < lengths[200] < 25


def test_the_table_has_a_row_for_each_mode_and_number_of_clients():
    cell = serving.Cell([0.010] * 98 + [0.020, 0.100], seconds=2.0, cpu_seconds=1.0)
    row = cell.row()
    assert row["requests_per_second"] == 50 and row["p50_ms"] == pytest.approx(10) and row["cpu_ms_per_request"] == 10
    assert row["p99_ms"] == pytest.approx(20.8)
    text = serving.table({("batches", 64): row, ("one at a time", 1): row})
    assert [line.split(" | ")[:2] for line in text.splitlines()[2:]] == [["| 1", "one at a time"], ["| 64", "batches"]]


@pytest.mark.thorough
def test_two_modes_are_measured(tmp_path, capsys):
    modes = ["--modes", "one at a time", "batches", "--clients", "1", "8", "--seconds", "1", "--rounds", "2"]
    assert serving.main(["--size", "mini", "--threads", "1", *modes, "--output", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert {(row["mode"], row["clients"]) for row in rows} == {
        (mode, count) for mode in ("one at a time", "batches") for count in (1, 8)
    }
    assert all(row["requests"] > 0 and row["errors"] == 0 and row["p50_ms"] <= row["p99_ms"] for row in rows)
    assert "| 8 | batches |" in capsys.readouterr().out
