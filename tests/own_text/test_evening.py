"""`--config evening`: the command line that it stands for. What that trains is tested with own text."""

import json
import os
import re
from pathlib import Path

import pytest

from bert.commands import own_text as command
from bert.commands import pretrain
from bert.own_text.flags import is_evening
from bert.own_text.given_files import collect_documentation, with_given_files
from bert.own_text.request import read_text_request
from bert.pretraining.recipes import evening
from data.examples import documentation
from tests.support.launching import line_of

PROSE = "The door that leads to room {} is open, and the key of it should be returned to the owner of the house."


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose documentation is one file; the current folder is empty."""
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc" / "house.txt").write_text("\n\n".join(PROSE.format(number) for number in range(3000)))
    monkeypatch.setattr(documentation, "default_roots", lambda *_: [tmp_path / "doc"])
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def request_of(*words):
    return read_text_request(line_of("--config", "evening", *words))


def test_the_recipe_is_recognised_in_both_spellings():
    assert is_evening(line_of("--config", "evening").launch)
    assert is_evening(line_of("--dry-run", "--config=evening").launch)
    assert not is_evening(line_of("--config", "quickstart", "--output-dir", "evening").launch)


def test_the_documentation_is_collected_once_when_the_run_starts(machine, capsys):
    request = request_of()
    file = evening.OUTPUT_DIR / "documentation" / documentation.FILE_NAME
    assert (request.output_dir, request.paths(), request.documentation) == (evening.OUTPUT_DIR, (file,), file.parent)
    assert not file.exists(), "a command line is only parsed"
    collect_documentation(request.documentation)
    assert len(json.loads(file.read_text())["text"]) > 100_000
    assert "1 documents" in capsys.readouterr().out
    before = os.stat(file).st_mtime_ns
    collect_documentation(request.documentation)
    assert os.stat(file).st_mtime_ns == before and capsys.readouterr().out == ""


@pytest.mark.parametrize("question", ["--dry-run", "--show-config"])
def test_a_question_collects_nothing(machine, capsys, question):
    assert command.main(line_of("--config", "evening", question)) == 0
    shown = capsys.readouterr()
    assert "is collected when the run starts" in shown.out + shown.err and not list(Path().iterdir())
    assert re.search("about 4,600,000 words|hidden_size: 256", shown.out)


def test_the_recipe_decides_model_and_updates(machine):
    request = request_of()
    assert (request.model, request.length.hours) == (evening.MODEL, None)
    assert request.length.max_steps == int(evening.MAX_STEPS)
    for name, value in evening.FLAGS.items():
        assert str(request.setting(name)) == value


def test_what_is_given_wins(machine, tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]) + "\n")
    request = request_of("--max-steps", "7", "--output-dir", "mine", "--vocab-file", str(vocabulary))
    assert request.length.max_steps == 7
    assert request.paths()[0].is_relative_to("mine")
    assert with_given_files(request).vocab_size() == 7
    for words in (("--hours", "2"), ("--epochs=3",)):
        assert request_of(*words).length.max_steps is None


def test_own_text_gets_the_hours_and_a_plan_of_its_own(tmp_path):
    (tmp_path / "text").mkdir()
    request = request_of("--text", str(tmp_path / "text"))
    assert (request.length.hours, request.model) == (float(evening.HOURS), None)
    assert request.output_dir.name == "text"
    assert request_of("--text", str(tmp_path / "text"), "--epochs", "2").length.hours is None


def test_the_command_to_train_longer_is_what_was_typed(machine):
    assert request_of().longer(4).endswith("scripts/run_pretraining.sh --config evening --hours 8")


def test_the_launcher_hands_the_line_over(machine, monkeypatch):
    calls = []
    monkeypatch.setattr(command, "main", lambda *arguments: calls.append(arguments) or 0)
    assert pretrain.main(["--config", "evening", "--dry-run"]) == 0
    assert calls[0][0].words == ["--config", "evening", "--dry-run"]


def test_a_machine_without_documentation_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(documentation, "default_roots", lambda *_: [tmp_path])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as error:
        pretrain.main(["--config", "evening"])
    assert error.value.code == 2
    assert "--text FOLDER" in capsys.readouterr().err


def test_documentation_is_only_collected_when_needed(machine):
    assert request_of("--text", "x").paths() == (Path("x"),) and not evening.OUTPUT_DIR.exists()
