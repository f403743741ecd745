"""data.train_vocabulary --base: frequent words of a text that a vocabulary cuts into pieces."""

import pytest

from bert.tokenization.vocabulary_files import read_vocabulary
from data import train_vocabulary
from tests.support.commands import refused
from tests.support.corpora import vocabulary, write_vocabulary


@pytest.fixture
def source(tmp_path):
    """Write a text: `naphtha`, `zebra` are in many documents, `riverboat` is longest, `quark` is in one, `b12` no
    word."""
    folder = tmp_path / "source/en"
    folder.mkdir(parents=True)
    often = [f"doc-{number} The Naphtha runs. zebra naphtha b12 b12 the river riverboat" for number in range(6)]
    (folder / "0.txt").write_text("\n".join([*often, f"doc-9 {'quark ' * 30}"]) + "\n")
    write_vocabulary(tmp_path / "base.txt")
    return tmp_path


def add(folder, *words):
    line = ["--input", str(folder / "source"), "--base", str(folder / "base.txt"), "--output", str(folder / "new.txt")]
    train_vocabulary.main([*line, *words])
    return read_vocabulary(folder / "new.txt").tokens[len(vocabulary()) :]


def test_those_that_spare_most_tokens_come_first_and_ids_stay(source, capsys):
    assert add(source, "--add-words", "2") == ("naphtha", "riverboat")
    assert read_vocabulary(source / "new.txt").tokens[: len(vocabulary())] == vocabulary().tokens
    assert "2 words are added, such as naphtha, riverboat; they spare" in capsys.readouterr().out


def test_rare_words_names_of_one_document_and_words_that_are_whole_are_not_added(source, capsys):
    assert set(add(source, "--add-words", "50")) == {"naphtha", "riverboat", "zebra"}
    assert "no other of the 50 occurs 5 times, in 3 documents, in pieces" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "rule"), [([], "need each other"), (["--add-words", "0"], "add_words=0 must be gr")])
def test_what_contradicts_itself_is_refused(source, words, rule):
    with refused(rule):
        add(source, *words)
