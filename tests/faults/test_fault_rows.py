"""The rows of the fault matrix with small counts, and each of them without what protects it: then it must lose.

Whole trainings are slow; of the rows that need them, three make one trial here. `bash scripts/run_fault_tests.sh` runs
all, `--full` as often as the project promises.
"""

import json

import pytest

from bert.training.interruption import STOP_FILE
from tests.faults import harness, rows_suites, sabotage
from tests.faults.__main__ import chosen_rows, main
from tests.faults.harness import Outcome, Row, Trials, run_row, write_report
from tests.faults.reference import reference
from tests.faults.table import ROWS
from tests.faults.trainings import digest, must_end, newest_step

TRAININGS = {1: 2, 2: 1, 3: 1}  # row -> trials in a quick run
SUITES = {row.number for row in rows_suites.ROWS}  # made of tests that run anyway


def rows(slow: bool) -> list:
    return [
        pytest.param(row, id=str(row.number), marks=pytest.mark.slow if slow else ())
        for row in ROWS
        if row.number not in SUITES and row.slow == slow
    ]


@pytest.mark.parametrize("row", [*rows(slow=False), *rows(slow=True)])
def test_nothing_is_lost(row):
    outcome = run_row(row)
    assert outcome.lost == 0 and outcome.tried >= min(row.quick, row.full), outcome.losses


@pytest.mark.parametrize("number", TRAININGS)
def test_a_training_that_is_killed_or_told_to_stop_goes_on_exactly(number):
    outcome = run_row(chosen_rows(str(number))[0], count=TRAININGS[number])
    assert outcome.lost == 0 and outcome.tried == TRAININGS[number], outcome.losses


def test_a_stop_file_saves_and_the_same_command_goes_on(tmp_path):
    """What `touch OUTPUT_DIR/STOP` does to a real run; one that was left from before it does not stop it."""
    server, data, whole = reference()
    output = tmp_path / "run"
    output.mkdir()
    (output / STOP_FILE).touch()
    training = server.start(data.argv(output), output, stall=[9, "a while"])
    while "step 9/" not in training.said():
        assert training.wait(0.05) is None, training.said()
    (output / STOP_FILE).touch()
    assert training.wait(60) == 75, training.said()
    said = training.said()
    assert "STOP was left from an earlier run; removed" in said and f"stopped by {output / STOP_FILE}" in said
    assert not (output / STOP_FILE).exists() and newest_step(output) >= 10
    must_end(server.run(data.argv(output), output))
    assert digest(data, output) == whole.digest


def broken(slow: bool) -> list:
    return [
        pytest.param(row, name, id=f"{row.number}-{name.replace(' ', '_')}", marks=pytest.mark.slow if slow else ())
        for row in ROWS
        if row.slow == slow
        for name in row.breaks
    ]


@pytest.mark.parametrize(("row", "name"), [*broken(slow=False), *broken(slow=True)])
def test_without_its_protection_a_row_loses(row, name):
    assert run_row(row, broken=name).lost > 0, f"row {row.number} proves nothing about: {name}"


# ---- the harness ----------------------------------------------------------------------------------------------------


def test_every_row_names_what_protects_it_and_numbers_are_unique():
    assert len({row.number for row in ROWS}) == len(ROWS)
    assert set(range(1, 31)) - {row.number for row in ROWS} == set()
    for row in ROWS:
        assert row.breaks and set(row.breaks) <= sabotage.BROKEN.keys(), row.number


def half(trials: Trials) -> None:
    for number in range(trials.count):
        with trials.trial(number):
            assert number % 2, "even"


def test_trials_are_counted_and_losses_named():
    outcome = run_row(Row(99, "even numbers", "odd", half, 5, 10, ()))
    assert (outcome.tried, outcome.survived, outcome.lost) == (5, 2, 3)
    assert outcome.losses[0].startswith("0: AssertionError: even")
    assert run_row(Row(99, "even numbers", "odd", half, 5, 10, ()), full=True).tried == 10


def test_an_error_outside_of_a_trial_and_a_row_without_trials_are_losses():
    def fails(trials: Trials) -> None:
        raise OSError("no disk")

    assert run_row(Row(99, "", "", fails, 1, 1, ())).lost == 1
    assert run_row(Row(99, "", "", lambda trials: None, 1, 1, ())).lost == 1


def test_a_protection_comes_back(tmp_path):
    from bert.checkpoints import files as checkpoint_files

    real = checkpoint_files.verify
    with sabotage.applied("checkpoints are not verified"):
        assert checkpoint_files.verify is not real
    assert checkpoint_files.verify is real


@pytest.mark.parametrize("name", sabotage.BROKEN)
def test_every_protection_is_still_where_it_is_taken_away(name):
    with sabotage.applied(name):
        pass


def test_a_report_keeps_the_rows_that_were_not_run(tmp_path):
    path = tmp_path / "new" / "report"
    write_report(path, [Outcome(5, "flips", 2000, 2000, 0, 1.5), Outcome(1, "kills", 4, 4, 0, 9.0)])
    write_report(path, [Outcome(1, "kills", 200, 199, 1, 400.0, ["note"], ["lost"])])
    found = json.loads(path.with_suffix(".json").read_text())["rows"]
    assert [(row["number"], row["tried"]) for row in found] == [(1, 200), (5, 2000)]
    lines = path.with_suffix(".md").read_text().splitlines()
    assert lines[2:] == ["| 1 | kills | 200 | 199 | 1 | 400 | note |", "| 5 | flips | 2,000 | 2,000 | 0 | 2 |  |"]


@pytest.mark.parametrize("text", ["99", "one", "", "1,,x"])
def test_unknown_rows_are_refused_with_the_known_ones(text):
    with pytest.raises(SystemExit, match="must list rows of"):
        chosen_rows(text)


def test_the_command_says_what_was_tried_and_fails_when_something_is_lost(tmp_path, capsys, monkeypatch):
    report = str(tmp_path / "report")
    assert main(["--rows", "4", "--report", report]) == 0
    assert "row  4: tried    50  survived    50  lost   0" in capsys.readouterr().out
    monkeypatch.setitem(harness.__dict__, "SHOWN_LOSSES", 1)
    with sabotage.applied("checkpoints are not verified"):
        assert main(["--rows", "4", "--report", report]) == 1
    assert "bert.safetensors cut to" in capsys.readouterr().out
    assert main(["--rows", "4", "--broken"]) == 0
    assert "it loses, as it must" in capsys.readouterr().out
