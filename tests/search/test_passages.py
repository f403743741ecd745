"""Tests of cutting documents: passages fit the model, and only white space is left out."""

import re

import pytest

from bert import REPOSITORY
from bert.search.passages import passages

GUIDE = """# Keys

The key opens the door. It is under the mat.

## Locks

A lock has a key.
It has two bolts.

The end.
"""


def count(texts):
    return [len(re.findall(r"\w+|[^\w\s]", text)) for text in texts]


def cut(text, room=100, **settings):
    return [text[part.start : part.end] for part in passages(text, count, room, "en", **settings)]


def test_short_paragraphs_are_joined_with_their_heading():
    assert cut("# Keys\n\nThe key is here.\n\nAnd there.\n") == ["# Keys\n\nThe key is here.\n\nAnd there."]
    assert cut(GUIDE, room=18) == [
        "# Keys\n\nThe key opens the door. It is under the mat.",
        "## Locks\n\nA lock has a key.\nIt has two bolts.\n\nThe end.",
    ]


def test_a_list_of_lines_gives_a_passage_for_each():
    text = "Where is it?\n  Who are you?  \nNo."
    assert cut(text, by_line=True) == ["Where is it?", "Who are you?", "No."]
    assert cut(text) == [text]
    assert cut(text + "\n\nAn end.", by_line=True) == [text + "\n\nAn end."], "paragraphs, not lines"


def test_long_paragraphs_are_cut_between_sentences_and_long_sentences_between_words():
    sentences = "One two three four. Five six seven. Eight nine ten."
    assert cut(sentences, room=10) == ["One two three four. Five six seven.", "Eight nine ten."]
    words = " ".join(f"w{number}" for number in range(40))
    parts = cut(words, room=8)
    assert " ".join(parts) == words and max(count(parts)) <= 8


@pytest.mark.parametrize("room", [8, 30, 126])
def test_every_character_of_a_page_is_in_one_passage(room):
    for path in sorted((REPOSITORY / "docs/howto").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        place = 0
        for part in passages(text, count, room, "en"):
            assert not text[place : part.start].strip(), path
            place = part.end
            assert part.tokens <= room and count([text[part.start : part.end]])[0] <= room
        assert not text[place:].strip(), path


@pytest.mark.parametrize("text", ["", " \n\t\n ", "\n" * 9])
def test_a_blank_text_has_no_passage(text):
    assert cut(text) == cut(text, by_line=True) == []


def test_line_ends_of_windows_separate_paragraphs():
    long = "a word. " * 100
    assert cut(f"{long}\r\n\r\n{long}", room=400) == [long.strip()] * 2


def test_a_word_that_no_model_reads_whole_is_cut():
    parts = cut("x" * 1000, room=50)
    assert parts == ["x" * 1000], "one word is one token here"
    letters = [part.end - part.start for part in passages("x" * 1000, lambda texts: [*map(len, texts)], 50, "en")]
    assert sum(letters) == 1000 and max(letters) <= 50
