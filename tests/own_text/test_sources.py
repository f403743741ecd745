"""Weighted sources and replayed text. The data are real, the training is a stand-in."""

import re
from pathlib import Path

import pytest

from bert.commands import own_text as command
from bert.jobs import job as execution
from bert.jobs.record import JobRecord
from bert.launching.start_training import Runner
from bert.own_text import corpus, start
from bert.own_text.length import Length
from bert.own_text.request import TextRequest
from bert.own_text.sources import REPLAY, TextSource, held_out_mix, pass_over, quoted_words
from bert.samples.dataset import PretrainingDataset
from bert.samples.mixture import read_mixture
from bert.samples.settings import LoaderSettings
from bert.tokenization.vocabulary_files import read_vocabulary
from tests.own_text.workplace import PREPARE
from tests.support.launching import line_of


@pytest.fixture
def workplace(workplace, monkeypatch):
    """Make a `Workplace` whose data are real, from 60 files."""
    monkeypatch.setattr(corpus, "prepare", PREPARE)
    monkeypatch.setattr(execution, "Runner", Runner)
    monkeypatch.setattr("bert.own_text.report.demonstrate", lambda *arguments: None)
    for number, file in enumerate(sorted(workplace.text.iterdir())):
        file.write_text(f"The committee of case {number} met. It read {number} reports. Nobody asked for more. " * 9)
    return workplace


def test_groups_are_of_one_source_and_general_text_has_none(workplace, capsys):
    text = "The ward was quiet in the night. Nobody asked for more. " * 5
    for name, letter in (("a", "W"), ("b", "W"), ("c", "V")):
        rows = "".join(f"{letter}{number % 9},{text}{number}\n" for number in range(90))
        (workplace.folder / f"{name}.csv").write_text(f"ward,text\n{rows}")
    words = ("--output-dir", "out", "--group-by", "ward", "--max-steps", "9", "--dry-run")
    assert command.main(line_of("--text", "a=0.5:a.csv", "c=0.5:c.csv", *words)) == 0
    with pytest.raises(SystemExit):
        command.main(line_of("--text", "a=0.5:a.csv", "b=0.5:b.csv", *words))
    rule = "group_by=ward: 9 groups are in the sources a and b, each of which is divided by itself"
    assert rule in capsys.readouterr().err
    sources = (TextSource("", (Path("a.csv"),), 0.9), TextSource(REPLAY, (workplace.text,), 0.1))
    request = TextRequest(sources=sources, output_dir=Path("out"), group_by="ward", length=Length(max_steps=9))
    record = start.record_of(request, JobRecord.of(workplace.out))
    commands = corpus.commands(request, record.plan, start.training_config(request, record))
    assert ["--group-by" in command for title, command, _ in commands if "importing" in title] == [True, False]


def test_a_pass_takes_the_samples_by_the_weights():
    sources = (TextSource("a", (), 0.7), TextSource("b", (), 0.3))
    assert pass_over(sources, {"a": 70, "b": 130}) == {"a": 140, "b": 60}
    replaying = (TextSource("", (), 0.9), TextSource("replay", (), 0.1))
    assert pass_over(replaying, {"": 900, "replay": 5000}) == {".": 900, "replay": 100}
    assert held_out_mix(replaying) == {".": 900_000, "replay": 0}


def open_data(workplace) -> PretrainingDataset:
    out = workplace.folder / "out"
    settings = LoaderSettings(masking="dynamic", max_seq_length=128, max_predictions_per_seq=20)
    return PretrainingDataset(out / "data/shards/train", read_vocabulary(out / "data/vocab.txt"), settings, seed=1)


@pytest.mark.long
def test_sources_are_mixed_by_their_weights(workplace, capfd):
    other = workplace.folder / "other"
    other.mkdir()
    for number in range(20):
        (other / f"{number}.txt").write_text(
            f"A ship with {number} sails left. The sea was calm. It came to port. " * 9
        )
    line = ["--text", f"land=0.25:{workplace.text}", f"sea=0.75:{other}", "--output-dir", "out", "--epochs", "2"]
    assert command.main(line_of(*line)) == 0
    shown = capfd.readouterr().out
    assert re.search(r"\nepochs: land +[\d.]+ over it +25.0% of the samples", shown)
    mix = read_mixture(workplace.folder / "out/data/shards/train")
    assert mix["sea"] == pytest.approx(3 * mix["land"], abs=3)
    held_out = read_mixture(workplace.folder / "out/data/shards/held_out")
    assert held_out == {"land": 250_000, "sea": 750_000} and sum(mix.values()) == open_data(workplace).num_samples
    line[1] = line[1].replace("0.25", "0.5")
    line[2] = line[2].replace("0.75", "0.5")
    with pytest.raises(SystemExit):
        command.main(line_of(*line))
    assert "weights=land=0.5 sea=0.5 differs from land=0.25 sea=0.75" in capfd.readouterr().err


def test_files_that_a_pattern_lists_are_shown_by_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a b", "plain"):
        (tmp_path / folder).mkdir()
        for name in ("1.txt", "2.txt", "3.md"):
            (tmp_path / folder / name).touch()
    texts, everything = ["a b/1.txt", "a b/2.txt"], ["plain/1.txt", "plain/2.txt", "plain/3.md"]
    words = ["--text", *texts, "--lang", "x y", *everything, "--output-dir", "plain"]
    assert quoted_words(words) == "--text 'a b/'*.txt --lang 'x y' plain/* --output-dir plain"
    assert quoted_words(["a b/1.txt", "--hours", "1"]) == "'a b/1.txt' --hours 1", "one file is no pattern"
    assert quoted_words(everything[1:]) == "plain/2.txt plain/3.md", "a part of the folder"


def test_a_tracker_that_is_missing_is_refused_before_anything_is_read(workplace, monkeypatch, capsys):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for words in ("--report-to mlflow", "--report-to mlflow --dry-run"):
        assert "report_to=mlflow needs" in workplace.refused(words)
    assert "reading" not in capsys.readouterr().out and not workplace.out.exists()
