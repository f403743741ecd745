"""The plan of a training on the user's text for a machine that is known by name only."""

import re

import pytest

from bert.commands import pretrain
from bert.own_text import hardware_plan as plans
from bert.own_text.hardware_plan import machine_of
from bert.own_text.request import read_text_request
from bert.planning.hardware import parse_hardware
from tests.support.launching import line_of


def planned(words: str) -> str:
    """Return the plan without line breaks."""
    return " ".join(plans.hardware_plan(read_text_request(line_of(*words.split()))).split())


def hours_of(text: str) -> float:
    number, unit = re.search(r"On [^:]+: ([0-9.]+) (hours|minutes)", text).groups()
    return float(number) / {"hours": 1, "minutes": 60}[unit]


def test_words_on_gpus_have_a_size_epochs_hours_and_a_price():
    shown = planned("--words 120M --plan --hardware 8xA100-80GB --price-per-hour 20")
    assert "large: 24 layers of 1024" in shown and "about 40 over the text" in shown
    assert "ranks 8 one rank per GPU" in shown and "device 8 x A100-80GB as --hardware says; mixed" in shown
    cost = float(re.search(r"Cost: ([0-9.]+) at 20 an hour", shown)[1])
    assert cost == pytest.approx(20 * hours_of(shown), abs=1.1)  # the hours are rounded to a tenth
    assert "here" not in shown and " free" not in shown


def test_fewer_cards_take_longer_or_train_a_smaller_model():
    few, many = (planned(f"--words 40M --config base --plan --hardware {n}xA100-80GB --epochs 10") for n in (1, 8))
    speeds = [float(re.search(r"speed ([0-9,]+) sequences/s", one)[1].replace(",", "")) for one in (few, many)]
    assert 6 < speeds[1] / speeds[0] < 8  # of eight cards, which exchange gradients
    assert 5 < hours_of(few) / hours_of(many) < 8  # the data take as long on both
    small = planned("--words 120M --plan --hardware T4")
    assert "large" not in small.partition("vocabulary")[2].partition("lengths")[0]


def test_given_hours_cost_what_they_take():
    shown = planned("--words 3M --plan --hardware 2xL4 --hours 2 --price-per-hour 3")
    updates = int(re.search(r"updates about ([0-9,]+) ", shown)[1].replace(",", ""))
    least, most = re.search(r"arithmetic; ([0-9,]+) to ([0-9,]+) updates in them", shown).groups()
    assert int(least.replace(",", "")) < updates < int(most.replace(",", ""))
    assert "On 2xL4: 2.0 hours" in shown and shown.partition("Cost: ")[2].startswith("6.00 at 3 an hour.")


def test_it_does_not_depend_on_this_machine(monkeypatch):
    line = "--words 3M --plan --hardware 2xL4"
    before = planned(line)
    monkeypatch.setattr("bert.own_text.facts.machine_facts", lambda _: pytest.fail("looked at this machine"))
    monkeypatch.setattr("bert.own_text.start.machine_facts", lambda _: pytest.fail("looked at this machine"))
    assert planned(line) == before


def test_a_named_machine_has_the_memory_of_its_cards():
    machine = machine_of(parse_hardware("4xV100-32GB"))
    assert (machine.gpus, machine.gpu_bytes, machine.device("auto")) == (4, 32_000_000_000, "gpu")
    assert machine_of(parse_hardware("16xCPU-core")).cores == 16


def test_several_nodes_are_refused_with_one_that_is_not():
    with pytest.raises(ValueError, match="has 4 nodes, and --text trains on one machine; pass --hardware 8xA100-80GB$"):
        planned("--words 1M --plan --hardware 4x8xA100-80GB")


def test_text_is_read_and_nothing_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("\n".join(f"the {n} birds of the river." for n in range(900)))
    assert pretrain.main(["--text", "notes.txt", "--plan", "--hardware", "RTX-4090", "--hours", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "4,500 words" in shown or "5,400 words" in shown
    assert "1 x RTX-4090" in shown and "a model this small is slower" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
