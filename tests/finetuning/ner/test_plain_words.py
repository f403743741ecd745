"""Plain text is split into words as in training, and the score on such text is measured."""

import re

import numpy as np
import pytest

from bert.finetuning.ner.conll import TaggedText
from bert.finetuning.ner.plain_words import (
    as_plain_text,
    cut_at_spaces,
    in_characters,
    learn_rules,
    rejoined,
    split_words,
)
from bert.finetuning.ner.tags import Span

WORDS = {
    "Anna Lindqvist visited Malmo.": "Anna Lindqvist visited Malmo .",
    "The U.N.'s envoy, John O'Brien, left.": "The U.N. 's envoy , John O'Brien , left .",
    "Well-known (AT&T) paid $1,000.50 on 3/4.": "Well-known ( AT&T ) paid $ 1,000.50 on 3/4 .",
    "Malmö\u2019s Café\u2026": "Malmö \u2019s Café \u2026",
    "東京 Tower": "東 京 Tower",
    "e-mail a_b@c.de!": "e-mail a_b@c.de !",
    "में किताबें\u200bहैं।": "में किताबें हैं ।",  # vowel signs belong to their letters, U+200B ends a word
    "  ": "",
}


def words_of(text, rules=None):
    return [text[start:end] for start, end in split_words(text, rules)]


def test_plain_text_is_split_as_conll_files_are():
    assert {text: " ".join(words_of(text)) for text in WORDS} == WORDS


TEXTS = [
    "The accton program writes to /var/log/account, see accton(8) and --help.",
    "Is --no-pager (or -P) set? Then /etc/hosts.allow is read by tcpd(8)!",
    "John's well-known U.S. firm, Foo Inc., paid $1,000.50 on 3/4.",
    "Ask Mr. Smith of Bar Inc. (the U.S. owner) or anna@bar-inc.com today.",
    *("It rained.", "They left.", "Nobody came."),
]
CONVENTIONS = {
    "white space": r"\S+",
    "every mark": r"\w+|[^\w\s]",
    "paths and options": r"/[\w.]+(?:/[\w.]+)*(?<!\.)|\w+\(\d\)|--?[\w-]+|'s|U\.S\.|\w+(?:[-.,/@]\w+)*|\S",
}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_text_is_cut_as_the_words_of_the_training(name):
    sentences = [re.findall(CONVENTIONS[name], text) for text in TEXTS] * 2
    rules = learn_rules(sentences)
    for text in TEXTS:
        assert words_of(text, rules) == re.findall(CONVENTIONS[name], text)
    usual = learn_rules([["See", "/etc/x.conf", "or", "/etc/x", "."]] * 2)  # a name goes on, or the sentence ends
    assert words_of("It is /var/y.", usual) == ["It", "is", "/var/y", "."]
    new = "Then lpd(5) reads /var/spool/lpd, unless --foreground is given."
    assert words_of(new, rules) == re.findall(CONVENTIONS[name], new)


def test_elisions_are_those_of_the_training():
    sentences = [["L'", "hôtel", "de", "l'", "État", "."], ["Le", "voisin", "voit", "l'", "abbé", "."]] * 2
    assert words_of("Roux voit l'île.", learn_rules(sentences)) == ["Roux", "voit", "l'", "île", "."]


def test_words_are_put_together_as_a_writer_does():
    words = ["``", "She", "said", "(", "twice", ")", '"', "Yes", '"', ",", "did", "n't", "she", "?", "''"]
    text, spans = rejoined(words)
    assert text == "``She said (twice) \"Yes\", didn't she?''"
    assert [text[start:end] for start, end in spans] == words


def test_scripts_without_spaces_are_cut_by_their_segmenter():
    words = ["Anna", "ไป", "โรงเรียน", "ที่", "Oslo", "."]
    text, spans = rejoined(words)
    assert text == "Anna ไปโรงเรียนที่ Oslo." and [text[start:end] for start, end in spans] == words
    assert split_words(text, learn_rules([words]), "icu") == spans
    assert rejoined(["東", "京", "Tower"])[0] == "東京 Tower"


def tagged(*sentences):
    words = [word for sentence in sentences for word in sentence]
    offsets = np.cumsum([0, *map(len, sentences)])
    return TaggedText(
        [], np.zeros(0), words, offsets, np.arange(len(sentences)), [Span("PATH", 1, 2), Span("X", 3, 4)], "iob2"
    )


def test_entities_are_compared_in_characters_of_the_plain_text():
    text = tagged(["in", "/etc/x", "."], ["New York", "is"])
    cut, places, entities = as_plain_text(text, learn_rules(text.sentences()))
    assert cut.words == ["in", "/etc/x", ".", "New", "York", "is"] and cut.sentence_offsets.tolist() == [0, 3, 6]
    assert entities == [Span("PATH", 3, 9), Span("X", 11, 19)]
    assert in_characters([Span("PATH", 1, 2), Span("X", 3, 5)], places) == entities
    trained = cut_at_spaces(text)
    assert trained.sentences() == [["in", "/etc/x", "."], ["New", "York", "is"]]
    assert trained.tags(trained.spans, "iob2") == ["O", "B-PATH", "O", "B-X", "I-X", "O"]
    usual, places, _ = as_plain_text(text, None)
    assert usual.words == ["in", "/", "etc/x", ".", "New", "York", "is"]
