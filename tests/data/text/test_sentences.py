"""Sentences: where they end, and what long ones are cut into."""

import gc
import inspect
import math
import random
import re
import shlex
import string
import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sentencex
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.tokenization.wordpiece import WordPieceTokenizer
from data import import_text, preprocess_bert_pretrain, train_vocabulary
from data.text.lddl_reader import list_sources
from data.text.lddl_writer import QUIET_COUNTS, print_counts
from data.text.sentence_ends import sentence_ends
from data.text.sentences import last_start, tokenize_documents
from data.text.sentences import split_sentences as split_and_count
from tests.support.commands import refused
from tests.support.corpora import vocabulary, write_vocabulary

WORDS = vocabulary()
_CHARACTERS = "aB1. !?\"'(]\u00ab\u00bb\u2019\u201c\u2026\u3002\uff01\u300d\u00e9\u00c9\u6d77\U0001f41f\n"
_TEXTS = st.text(st.sampled_from(_CHARACTERS), max_size=60)


def split_sentences(text: str, language: str = "en") -> list[str]:
    counts = Counter()
    sentences = split_and_count(text, language, counts)
    assert not counts
    return sentences


def english(*texts: str) -> list[list[str]]:
    """Return the sentences of each text."""
    encoded = [text.encode() for text in texts]
    documents = np.concatenate([[0], np.cumsum([len(part) for part in encoded])]).astype(np.int64)
    data = b"".join(encoded)
    ends = sentence_ends(np.frombuffer(data, np.uint8), documents)
    assert (np.diff(ends) > 0).all()
    result = []
    for start, stop in zip(documents[:-1], documents[1:], strict=True):
        inside = ends[(ends > start) & (ends < stop)].tolist()
        result.append([data[low:high].decode() for low, high in zip([start, *inside], [*inside, stop], strict=True)])
    assert sum(map(len, result)) == len(ends) + len(texts), "a sentence ends outside of the documents"
    return result


@pytest.mark.parametrize(
    "text",
    [
        "The boat is gone. |The sea is calm.",
        "Mr. Lee saw Dr. Kim.  |They left at 5 p.m. yesterday.",
        "J. Lee wrote it, e.g. here, i.e. now.",
        "See vol. |Two of them, or Fig. 3 of it.",
        "It was 1999. |Then it ended!  |Did it? |Yes.",
        "\u201cGo.\u201d |He went (it was late.) |She stayed.",
        'He said "No." |Then "Yes!" |(Or so. |It seems.)',
        "no capitals here. |still it ends? |yes.",
        "Wait... |There it is\u2026 Now.",
        "\u6d77\u3002|\u6cb3\uff01|\u9b5a\u3002\u300d|\u821f",
        "The \u00e9t\u00e9. |\u00c9t\u00e9 again. |\u00e9t\u00e9.",
        "Version 3.11.2 of a.b.c and www.example.org is at 3.5 m.",
        'The end is Mr. " ',
        '"Where are you going?" she asked. |He cried "Stop!" and left.',
        "He teaches (He worked as an engineer.) at the University.",
        "No, I can't. |She left him. |It is Tom's. |The other is mine. |The boys'. |Then.",
        "I was waiting... then he came. |I was ... well, tired. |He said . . . and left.",
        "The end.\u00a0|The next.\u2009 |A martyr.[1] |The emperor.[12][3] |End.",
        "Vitamin K\u00a0. |Then it ended.",
        'A lone " mark. |It swallows nothing. |Nor does ( this.',
    ],
)
def test_english_sentences_end_where_a_reader_ends_them(text):
    assert english(text.replace("|", "")) == [text.split("|")]


SCRIPTS = {  # a language and its sentences, counted by hand
    "Hindi": ("hi", "यह घर है। |यह नदी है॥ |अब चलो।"),
    "Urdu": ("ur", "یہ گھر ہے۔ |کیا یہ گھر ہے؟ |ہاں۔"),
    "Armenian": ("hy", "Սա տուն է։ |Այո։"),
    "Ethiopic": ("am", "ይህ ቤት ነው። |ይህ ምንድነው፧ |አዎ።"),
    "Khmer": ("km", "នេះជាផ្ទះ។ |សួស្តី។|សួស្តី៕"),
    "Burmese": ("my", "အိမ်ဖြစ်သည်။ |မြစ်။"),
    "Tibetan": ("bo", "ཁང་པ་རེད། |ཆུ་རེད།"),
    "Mongolian": ("mn", "ᠡᠨᠡ᠃ |ᠬᠣᠶᠠᠷ᠃"),
    "Javanese": ("jv", "ꦲꦤ꧉ |ꦤꦤ꧉"),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_marks_of_every_script_end_sentences_in_every_language(script):
    """The text of a folder is split as `en` if nobody names its language."""
    language, marked = SCRIPTS[script]
    text, sentences = marked.replace("|", ""), marked.split("|")
    assert english(text) == [sentences]
    assert split_sentences(text, language) == split_sentences(text, "de") == sentences
    quoted = f"\u00ab{sentences[0].strip()}\u00bb "
    assert english(quoted + sentences[1]) == [[quoted, sentences[1]]]


@settings(deadline=None)
@given(st.lists(_TEXTS, max_size=5))
def test_sentences_are_whole_characters_of_their_document(texts):
    assert ["".join(sentences) for sentences in english(*texts)] == texts


def test_where_there_are_no_quotes_sentences_end_where_the_library_ends_them():
    modules = (inspect, re, string, Counter, np, pytest, st)
    texts = [
        part
        for module in modules
        for _, value in sorted(vars(module).items(), key=lambda item: item[0])
        if isinstance(text := getattr(value, "__doc__", None), str)
        for part in re.findall(r"[^\"'()\[\]{}`<>]{100,}", " ".join(text.split()))
    ]
    both = mine = library = 0
    for text, sentences in zip(texts, english(*texts), strict=True):
        found, expected = (
            set(np.cumsum([len(part) for part in parts]).tolist())
            for parts in (sentences, sentencex.segment("en", text))
        )
        both, mine, library = both + len(found & expected), mine + len(found), library + len(expected)
    assert library > 500 and both / mine > 0.95 and both / library > 0.95


def test_other_languages_are_the_librarys():
    text = "Am 3. Oktober kam er. Dann ging er."
    assert split_sentences(text, "de") == ["Am 3. Oktober kam er. ", "Dann ging er."]
    counts = Counter()
    documents = tokenize_documents([(0, text)], WordPieceTokenizer(WORDS), "de", counts)
    assert counts["sentences"] == 2 and len(documents.sentence_offsets) == 3


def test_a_page_that_the_library_fails_on_is_one_sentence_and_counted():
    counts = Counter()
    assert split_and_count("Vitamin K\u00a0. Then it ended.", "de", counts) == ["Vitamin K\u00a0. Then it ended."]
    assert list(counts.values()) == [1]


def test_endless_marks_are_not_remembered_whole():
    words = [f"x{number}y" + "." * 10_000 + " Lee" for number in range(200)]
    tracemalloc.start()
    assert len(english(" ".join(words))[0]) == 201
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 500_000


def test_sentences_join_to_the_text_and_a_lone_quotation_mark_does_not_swallow_pages():
    text = 'He said: "The sea. ' + "The old boats wait under the bridges of the river. " * 2000 + 'Fish wait." Sea!'
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    assert max(map(len, sentences)) <= 2000 and len(sentences) > 1900
    assert len(english(text)[0]) == 2003
    assert split_sentences("") == [] and "".join(split_sentences("\u6d77" * 12_000, "zh")) == "\u6d77" * 12_000


@pytest.mark.parametrize("abbreviation", ["Dr. Lee", "Prof. Lee", "J. Lee"])
def test_a_page_ends_at_a_sentence_not_at_an_abbreviation(abbreviation):
    sentence = "Most boats wait near the bridge. "
    named = f"Here {'fish and ' * 10}{abbreviation}{' and fish' * 20}. "
    sentences = split_sentences(sentence * 56 + named + sentence * 100)
    assert named in sentences and sentences.count(sentence) >= 155


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(_TEXTS, st.booleans()), max_size=5), st.sampled_from([1, 30, 1 << 20]))
def test_sentences_are_tokenised_as_if_each_were_alone(texts, batch_characters):
    """The amount of text in memory does not matter; texts of one number are pieces of one document."""
    tokenizer, counts = WordPieceTokenizer(WORDS), Counter()
    numbers = np.cumsum([not is_piece for _, is_piece in texts]).tolist()
    pairs = [(number, text) for number, (text, _) in zip(numbers, texts, strict=True)]
    documents = tokenize_documents(pairs, tokenizer, "en", counts, batch_characters=batch_characters)
    alone: dict[int, list[list[int]]] = {}
    for number, text in pairs:
        of_text = [ids for sentences in english(text) for sentence in sentences if (ids := tokenizer.encode(sentence))]
        alone[number] = alone.get(number, []) + of_text
    found = np.split(documents.token_ids, documents.sentence_offsets[1:-1])
    sentences = [ids for of_document in alone.values() for ids in of_document]
    assert [part.tolist() for part in found] == (sentences or [[]])
    sizes = [len(of_document) for of_document in alone.values() if of_document]
    assert np.diff(documents.document_offsets).tolist() == sizes
    tokens = [token for ids in sentences for token in ids]
    assert counts == {
        "sentences": len(sentences),
        "documents without tokens": len(alone) - len(sizes),
        "documents used": len(sizes),
        "tokens": len(tokens),
        "unknown tokens": tokens.count(WORDS.id_of("[UNK]")),
    }


def part_starts(start: int, stop: int, continues: list[bool], limit: int) -> list[int]:
    """Return where the equal parts of a sentence start: before a word, at most half of a part earlier."""
    starts = [start]
    while stop - start > limit:
        number = math.ceil((stop - start) / limit)
        size = math.ceil((stop - start) / number)
        words = [place for place in range(start + size // 2 + 1, start + size + 1) if not continues[place]]
        start = words[-1] if words else start + size
        starts.append(start)
    return starts


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("The long boats wait. The river runs on", "The river runs on"),
        (
            "One long sentence. Two now. Dr. Lee waits here",
            "Two now. Dr. Lee waits here",
        ),  # no abbreviation, no initial
        ("The end! So it is, as Mr. J. Lee has said", "So it is, as Mr. J. Lee has said"),
        ("Is it? Yes! It is not so.", "It is not so."),
        ("\u6d77\u3002\u6cb3\u9b5a", "\u6cb3\u9b5a"),
        ("As Mr. J. Lee has said", "Lee has said"),
        ("one two three", "three"),
        ("unbroken", ""),
        ("The wait. the river", "the river"),  # the next word has no capital: the last resort before words
    ],
)
def test_a_text_is_cut_where_a_sentence_starts_or_else_a_word(text, rest):
    assert text[last_start(text, 0, len(text)) :] == rest
    padded = f"Old sea. {text} end. Then"
    assert last_start(padded, 9, 9 + len(text)) == 9 + len(text) - len(rest), "no place outside of the range is taken"


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["the ", "boats ", "Sea. ", "zzqxj ", "3141592653589 "]), max_size=40), max_size=4
    ),
    st.integers(2, 20),
)
def test_long_sentences_become_parts_of_whole_words_and_nothing_is_lost(texts, limit):
    tokenizer, counts = WordPieceTokenizer(WORDS), Counter()
    whole = tokenize_documents(enumerate(map("".join, texts)), tokenizer, "en", Counter())
    cut = tokenize_documents(enumerate(map("".join, texts)), tokenizer, "en", counts, max_sentence_tokens=limit)
    assert cut.token_ids.tolist() == whole.token_ids.tolist()
    assert set(whole.sentence_offsets) <= set(cut.sentence_offsets)
    lengths = np.diff(whole.sentence_offsets)
    assert counts["sentences cut in parts, too long for half a sample"] == (lengths > limit).sum()
    assert np.diff(cut.sentence_offsets).max(initial=0) <= limit
    starts = cut.token_ids[cut.sentence_offsets[:-1]]
    inside = WORDS.continuations()[starts].sum()
    longest = max((len(tokenizer.encode(word)) for text in texts for word in text), default=0)
    assert inside == 0 or longest > limit // 4
    documents = [found.sentence_offsets[found.document_offsets].tolist() for found in (cut, whole)]
    assert documents[0] == documents[1]
    continues = WORDS.continuations()[whole.token_ids].tolist()
    bounds = whole.sentence_offsets.tolist()
    starts = [start for low, high in pairwise(bounds) for start in part_starts(low, high, continues, limit)]
    assert cut.sentence_offsets.tolist() == [*starts, bounds[-1]]


def test_equal_parts():
    text = "the " * 100 + ". The sea."
    documents = tokenize_documents([(0, text)], WordPieceTokenizer(WORDS), "en", Counter(), max_sentence_tokens=30)
    assert np.diff(documents.sentence_offsets).tolist() == [26, 25, 25, 25, 3]


PROSE = (
    "The river runs to the sea.\nIt is old and slow.\nThe boats wait there.\nAnd the people come\nto see the boats "
    "in the\nharbour. The river is\nnot deep.\nA fish swims.\nThe end of the day\nis near. The sun\nsets.\n"
) * 3


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.txt", PROSE),
        ("notes.txt", "One line of text."),
        ("deep/in/1.txt", "Chapter one. It begins."),
        ("source/project/notes.txt", PROSE),
        ("source/en/0.txt", PROSE),
        ("poem.txt", "alone\nbefore\ncome down\n"),
        ("list.txt", "1. One thing.\n2. Another thing.\n"),
        ("today.txt", "2020-01-01 It began.\n2020-01-02 It went on.\n"),
        ("marks.txt", "# A title\n- a point\n"),
        ("gutenberg.txt", "\ufeffThe Project Gutenberg eBook\n\nof Alice\n"),
    ],
)
def test_raw_text_is_refused_with_the_command_that_imports_it(tmp_path, name, text):
    with pytest.raises(ValueError, match=r"is raw text; .*data.import_text --input .*-imported"):
        list_sources([put(tmp_path, name, text)])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("source/en/0.txt", "".join(f"wiki-{number} The river. It runs.\n" for number in range(30))),
        ("source/0.txt", "Alice_in_Wonderland Alice was tired.\n"),  # LDDL's books
        ("source/en/12.txt", "".join(f"{word} The text of it.\n" for word in "one two three four five six".split())),
        ("0.txt", "0123-abc The river.\n0124-abc It runs.\n"),
        ("texts/en.txt", "".join(f"https://example.org/{number} The text.\n" for number in range(5))),
        ("texts/a.txt", "".join(f"sub/notes:{number} The text.\n" for number in range(20_000))),  # cut inside an id
        ("source/en/0.txt", "id One.\n" * 20),
        ("a.txt", "id-1 One.\n\n\nid-2\n"),
    ],
)
def test_source_text_is_accepted(tmp_path, name, text):
    assert len(list_sources([put(tmp_path, name, text)])) == 1


def test_the_printed_command_gives_what_both_commands_read(tmp_path, capsys, monkeypatch):
    """The printed command loses no text."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(1)
    put(tmp_path, "my texts/a.txt", PROSE + " ".join(f"w{rng.randrange(99)}" for _ in range(50)))
    write_vocabulary(tmp_path / "vocab.txt")
    shards = ["--sink", "out", "--vocab-file", "vocab.txt", "--target-seq-length", "64", "--local-n-workers", "1"]
    with refused("a.txt: is raw text"):
        preprocess_bert_pretrain.main(["--text", "my texts", *shards])
    with refused("a.txt: is raw text"):
        train_vocabulary.main(["--input", "my texts", "--output", "new.txt"])
    assert not Path("out").exists() and not Path("new.txt").exists()
    with pytest.raises(ValueError) as error:
        list_sources(["my texts"])
    words = shlex.split(str(error.value).partition("data.import_text ")[2].partition(" (if")[0])
    import_text.main(words)
    source = words[words.index("--output-dir") + 1] + "/source"
    train_vocabulary.main(["--input", source, "--vocab-size", "200", "--output", "new.txt"])
    preprocess_bert_pretrain.main(["--text", source, *shards])
    text = " ".join(Path("my texts/a.txt").read_text().split())
    assert Path(source, "en/0.txt").read_text() == f"a {text}\n"
    assert f"{source} instead of my texts" in str(error.value)


def test_a_launcher_switches_the_counts_off(monkeypatch, capsys):
    print_counts({"documents": 3})
    assert capsys.readouterr().out == "  documents: 3\n"
    monkeypatch.setenv(QUIET_COUNTS, "1")
    print_counts({"documents": 3})
    assert capsys.readouterr().out == ""
