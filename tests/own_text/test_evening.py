"""`--config evening` stands for a command line with --text, whose training other tests check."""

import json
import re
from pathlib import Path

import pytest

from bert.commands import own_text as command
from bert.commands import pretrain
from bert.jobs import job as execution
from bert.own_text.given_files import with_given_files
from bert.own_text.length import Length
from bert.own_text.request import read_text_request
from bert.own_text.steps import Documentation
from bert.pretraining.recipes import evening
from data.examples import documentation
from tests.support.jobs import StandInRunner, execution_of
from tests.support.launching import line_of

PROSE = "The door that leads to room {} is open, and the key of it should be returned to the owner of the house."


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Make a machine whose documentation is one file; the current folder is empty."""
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc" / "house.txt").write_text("\n\n".join(PROSE.format(number) for number in range(3000)))
    monkeypatch.setattr(documentation, "default_roots", lambda *_: [tmp_path / "doc"])
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def request_of(*words):
    return read_text_request(line_of("--config", "evening", *words))


def test_the_documentation_is_collected_once_when_the_run_starts(machine, capsys):
    request = request_of()
    file = evening.OUTPUT_DIR / "documentation" / documentation.FILE_NAME
    assert (request.output_dir, request.paths(), request.documentation) == (evening.OUTPUT_DIR, (file,), file.parent)
    for question in ("--dry-run", "--show-config"):
        assert command.main(line_of("--config", "evening", question)) == 0
        shown = capsys.readouterr()
        assert "when the run starts; this plan assumes about 28 MB of text" in shown.out + shown.err
        assert re.search("about 4,600,000 words|hidden_size: 256", shown.out)
    assert not list(Path().iterdir()), "neither parsing nor a question writes"
    started, step = execution_of(request.output_dir, collect), Documentation(file.parent, num_workers=1)
    assert started.run(step) == 0 and step.is_done(started)
    assert len(json.loads(file.read_text())["text"]) > 100_000 and "1 documents" in capsys.readouterr().out
    assert started.run(step) == 0 and len(started.runner.ran) == 1


def collect(words) -> int:
    """Run the command of the step in this process, with the roots of the test."""
    assert words[1:3] == ["-m", "data.examples.documentation"]
    try:
        documentation.main(words[3:])
    except SystemExit as ended:
        return ended.code
    return 0


def test_the_recipe_decides_model_and_updates():
    request = request_of()
    assert (request.model, request.length) == (evening.MODEL, Length(max_steps=int(evening.MAX_STEPS)))
    assert {name: str(request.setting(name)) for name in evening.FLAGS} == evening.FLAGS
    assert request.longer(4).endswith("scripts/run_pretraining.sh --config evening --hours 8"), "as it was typed"


def test_what_is_given_wins(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]) + "\n")
    request = request_of("--max-steps", "7", "--output-dir", "mine", "--vocab-file", str(vocabulary))
    assert request.length.max_steps == 7 and request.paths()[0].is_relative_to("mine")
    assert with_given_files(request).vocab_size() == 7
    assert request_of("--hours", "2").length == Length(hours=2) and request_of("--epochs=3").length == Length(epochs=3)


def test_own_text_gets_the_hours_and_a_plan_of_its_own():
    request = request_of("--text", "mine/text")
    assert (request.length, request.model, request.documentation) == (Length(hours=float(evening.HOURS)), None, None)
    assert request.output_dir.name == "text" and request.paths() == (Path("mine/text"),)
    assert request_of("--text", "mine/text", "--epochs", "2").length == Length(epochs=2)


def test_the_launcher_hands_the_line_over(monkeypatch):
    calls = []
    monkeypatch.setattr(command, "main", lambda *arguments: calls.append(arguments) or 0)
    for words in (["--config", "evening", "--dry-run"], ["--config=evening"], ["--text", "t"]):
        assert pretrain.main(words) == 0 and calls.pop()[0].words == words


def test_a_machine_without_documentation_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(documentation, "default_roots", lambda *_: [tmp_path])
    monkeypatch.setattr(execution, "Runner", lambda: StandInRunner(collect))
    monkeypatch.chdir(tmp_path)
    assert pretrain.main(["--config", "evening"]) == 2
    assert "--text FOLDER" in capsys.readouterr().err
