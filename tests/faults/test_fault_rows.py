"""The rows of the fault matrix with small counts, and each of them without what protects it: then it must lose.

Whole trainings are slow; of the rows that need them, four make one trial here. `bash scripts/run_fault_tests.sh` runs
all, `--full` as often as the project promises.
"""

import re
from functools import lru_cache
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

import pytest

from bert import REPOSITORY
from bert.training.interruption import STOP_FILE
from tests.faults import harness, rows_suites, sabotage
from tests.faults.__main__ import chosen_rows, main
from tests.faults.harness import Row, Trials, run_row
from tests.faults.protections import PROTECTIONS
from tests.faults.rows_suites import Suite
from tests.faults.table import ROWS
from tests.faults.trainings import digest, must_end, newest_step, reference

TRAININGS = (1, 2, 3, 33)
SUITES = {row.number for row in rows_suites.ROWS}  # made of tests that run anyway
QUICK, THOROUGH = {14, 15, 20}, {17, 35}  # the others take more than some seconds


def marks(row: Row) -> list:
    return [] if row.number in QUICK else [pytest.mark.long if row.number in THOROUGH else pytest.mark.long]


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=str(row.number), marks=marks(row)) for row in ROWS if row.number not in SUITES]
)
def test_nothing_is_lost(row):
    outcome = run_row(row)
    assert outcome.lost == 0 and outcome.tried >= min(row.counts), outcome.losses


@pytest.mark.long
@pytest.mark.parametrize("number", TRAININGS)
def test_a_training_that_is_killed_or_told_to_stop_goes_on_exactly(number):
    outcome = run_row(chosen_rows(str(number))[0], count=1)
    assert outcome.lost == 0 and outcome.tried == 1, outcome.losses


@pytest.mark.long
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


@pytest.mark.parametrize(
    ("row", "name"),
    [
        pytest.param(row, name, id=f"{row.number}-{name.replace(' ', '_')}", marks=marks(row))
        for row in ROWS
        for name in row.breaks
    ],
)
def test_without_its_protection_a_row_loses(row, name):
    assert run_row(row, broken=name).lost > 0, f"row {row.number} proves nothing about: {name}"


# ---- the harness ----------------------------------------------------------------------------------------------------


def test_every_row_names_what_protects_it_and_numbers_are_unique():
    assert len({row.number for row in ROWS}) == len(ROWS)
    assert set(range(1, 40)) - {row.number for row in ROWS} == set()
    for row in ROWS:
        assert row.breaks and set(row.breaks) <= PROTECTIONS.keys(), row.number


def test_an_error_outside_of_a_trial_and_a_row_without_trials_are_losses():
    def fails(trials: Trials) -> None:
        raise OSError("no disk")

    assert run_row(Row(99, "", "", fails, (1, 1), ())).lost == 1
    assert run_row(Row(99, "", "", lambda trials: None, (1, 1), ())).lost == 1


@pytest.mark.parametrize("name", PROTECTIONS)
def test_every_protection_exists_is_disabled_everywhere_and_comes_back(name):
    modules = product_modules()
    replacements = sabotage.replacements(name)
    before = [(owner, attribute, value) for one in replacements for owner, attribute, value in one.places()]
    with sabotage.disabled(name):
        for owner, attribute, value in before:
            assert vars(owner)[attribute] is not value, attribute
        defined_here = [one.real for one in replacements if getattr(one.real, "__module__", "") == one.owner.__name__]
        for module in modules:
            assert not any(value is real for value in vars(module).values() for real in defined_here), module.__name__
    for owner, attribute, value in before:
        assert vars(owner)[attribute] is value, attribute


@lru_cache
def product_modules() -> list[ModuleType]:
    found = [import_module(name) for name in ("program", "run_pretraining", "bert", "data")]
    for package in found[-2:]:
        modules = walk_packages(package.__path__, f"{package.__name__}.")
        names = (module.name for module in modules if not module.name.startswith("bert.package."))  # for installed code
        found = [*found, *(import_module(name) for name in names if not name.endswith("__main__"))]
    return found


@pytest.mark.parametrize("row", [row for row in ROWS if isinstance(row.run, Suite)], ids=lambda row: str(row.number))
def test_suites_name_files_and_tests_that_exist(row):
    text = "".join((REPOSITORY / name).read_text() for name in row.run.files)
    for word in row.run.only.split(" or "):
        assert re.search(rf"def test_\w*{word}|id=.*{word}", text), f"no test of {row.run.files} is meant by {word}"


def test_the_command_says_what_was_tried_and_fails_when_something_is_lost(tmp_path, capsys, monkeypatch):
    report = str(tmp_path / "report")
    assert main(["--rows", "20", "--report", report]) == 0
    assert "row 20: tried    20  survived    20  lost   0" in capsys.readouterr().out
    monkeypatch.setitem(harness.__dict__, "SHOWN_LOSSES", 1)
    with sabotage.disabled("checksums are constant"):
        assert main(["--rows", "20", "--report", report]) == 1
    assert "row 20: tried    20  survived     0  lost  20" in capsys.readouterr().out
    assert main(["--rows", "20", "--broken"]) == 0
    assert "it loses, as it must" in capsys.readouterr().out
