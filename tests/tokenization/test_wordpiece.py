import hashlib
import json
import string
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.tokenization.normalization import ACCENTED, CASED, UNCASED
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.vocabulary_files import read_vocabulary, vocabulary_copy
from bert.tokenization.wordpiece import WordPieceTokenizer, reference_tokenizer
from tests.support.corpora import vocabulary

HARD_TEXTS = [
    "",
    " ",
    "The river runs to the sea.",
    "unfathomable fishing, (old-boats)!",
    "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m",
    "\u4e2d\u6587 and water",
    "a\u0301 ,\u0301x",
    "nul\x00byte bell\x07 vt\x0b ff\x0c del\x7f",
    "\ufeffBOM first",
    "line\r\nline\ttab",
    "\u05d0\u05d1\u05d2 \u0645\u0631\u062d\u0628\u0627",
    "emoji \U0001f600\U0001f1e9\U0001f1ea fish",
    "x" * 100 + " " + "y" * 101,
    "\u00e9" * 101,
    "[MASK] [SEP] [unused0] ##ing",
    "\u2014dash\u2014 \u201cquote\u201d\u2026",
    "soft\u00adhyphen zero\u200bwidth no\u00a0break",
    "\u037e\u1fef\u2260",
    "\u0130stanbul \u1e9e \u2126",
    "\ufffd",
    "a\u2028b\u0085c",
    "$1,000.00 50% #tag @me",
]


CASES = (UNCASED, ACCENTED, CASED)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_tokens_and_their_characters_are_those_of_the_library(case):
    words = vocabulary()
    tokenizer, reference = WordPieceTokenizer(words, case), reference_tokenizer(words, case)
    found = tokenizer.encode_with_offsets(HARD_TEXTS)
    spans = list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))
    for number, text in enumerate(HARD_TEXTS):
        expected, own = reference.encode(text, add_special_tokens=False), slice(*found.offsets[number : number + 2])
        assert tokenizer.encode(text) == found.ids[own].tolist() == expected.ids, text
        assert spans[own] == expected.offsets, text


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_mark_separates_words_as_the_librarys(case):
    """The marks, between two letters: all of ASCII, and both sides of the edges of ranges of single-character words."""
    edges = (0x2010, 0x2027, 0x2030, 0x203E, 0x3001, 0x3400, 0x4DBF, 0x4E00, 0x9FFF, 0xF900, 0xFF01, 0xFF0C, 0xFF1F)
    codes = [*range(0x500), *(edge + near for edge in edges for near in range(-3, 4))]
    words = Vocabulary((*SPECIAL_TOKENS, "a", "b", "##b", "##a", "~", "\u3400", "##\u3400", "\uff01"))
    texts = [f"a{chr(code)}b ab{chr(code)}" for code in codes]
    ids, offsets = WordPieceTokenizer(words, case).encode_texts(texts)
    expected = reference_tokenizer(words, case).encode_batch(texts, add_special_tokens=False)
    for text, low, high, encoded in zip(texts, offsets[:-1], offsets[1:], expected, strict=True):
        assert ids[low:high].tolist() == encoded.ids, ascii(text)


def test_words_that_were_being_added_when_it_was_interrupted_are_forgotten():
    words = vocabulary()
    tokenizer = WordPieceTokenizer(words)
    tokenizer.encode("The river")
    with (
        mock.patch.object(WordPieceTokenizer, "_tokenize_rows", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        tokenizer.encode("runs to the sea")
    text = "The river runs to the sea"
    assert tokenizer.encode(text) == WordPieceTokenizer(words).encode(text)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.text(st.one_of(st.sampled_from(string.printable), st.characters(exclude_categories=["Cs"])), max_size=40),
        max_size=8,
    ),
    st.sampled_from(CASES),
)
def test_a_block_of_any_texts_agrees_with_the_reference(texts, case):
    words = vocabulary()
    reference = reference_tokenizer(words, case)
    ids, offsets = WordPieceTokenizer(words, case).encode_texts(texts)
    assert [ids[low:high].tolist() for low, high in zip(offsets[:-1], offsets[1:], strict=True)] == [
        reference.encode(text, add_special_tokens=False).ids for text in texts
    ]


@pytest.mark.parametrize(
    ("content", "line", "rule"),
    [
        (b"[PAD]\n[UNK]\n\n[CLS]\n[SEP]\n[MASK]\n", 3, "blank line"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsea\nriver\nsea\n", 8, "on line 6 already"),
        (b"[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\n", 1, "CR LF"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsea 17\n", 6, "white space"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\xff\xfe\n", 6, "not UTF-8"),
        (b"\xef\xbb\xbf[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", 1, "begins with a byte order mark"),
    ],
)
def test_a_bad_vocabulary_is_refused_with_its_line(tmp_path, content, line, rule):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rule) as error:
        read_vocabulary(path)
    assert f"vocab.txt:{line}:" in str(error.value)


@pytest.mark.parametrize("missing", SPECIAL_TOKENS)
def test_a_vocabulary_without_a_special_token_is_refused(tmp_path, missing):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in SPECIAL_TOKENS if token != missing) + "sea\n")
    with pytest.raises(ValueError, match=r"1 to 5") as error:
        read_vocabulary(path)
    assert missing in str(error.value)


def test_ids_are_line_numbers_and_the_last_line_feed_is_optional(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join((*SPECIAL_TOKENS, "sea", "\u6d77")))
    words = read_vocabulary(path)
    assert (len(words), words.id_of("[MASK]"), words.id_of("\u6d77")) == (7, 4, 6)
    assert "river" not in words and "sea" in words


def test_model_size_must_be_that_of_the_vocabulary_or_rounded_up_to_eight():
    words = vocabulary()
    rounded = -(-len(words) // 8) * 8
    words.check_model_size(len(words))
    words.check_model_size(rounded)
    for wrong in (len(words) - 1, rounded + 8):
        with pytest.raises(ValueError, match=f"vocab_size is {wrong}"):
            words.check_model_size(wrong)


def test_replacements_are_neither_special_nor_unused():
    words = vocabulary()
    tokens = {words.tokens[index] for index in words.replacement_ids()}
    assert tokens == set(words.tokens) - set(SPECIAL_TOKENS) - {"[unused0]", "[unused1]"}
    assert words.id_dtype() == np.uint16


@pytest.mark.parametrize(("size", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.int32)])
def test_ids_take_16_bits_while_they_fit(size, dtype):
    words = Vocabulary((*SPECIAL_TOKENS, *(f"w{number}" for number in range(size - 5))))
    assert words.id_dtype() == dtype and WordPieceTokenizer(words).encode_texts([f"w{size - 6}"])[0].tolist() == [
        size - 1
    ]


def test_tokens_are_shown_and_put_into_texts_as_words_and_their_ends():
    words = vocabulary()
    assert words.insert("the sea ", "river") == "the sea river" and words.insert("fish ", "##ing") == "fishing"
    assert words.shown(words.id_of("##ing")) == "##ing" and words.knows_words() and words.is_wordpiece()
    inside = {words.tokens[index] for index in np.flatnonzero(words.continuations())}
    assert inside == {token for token in words.tokens if token.startswith("##")}
    assert (words.pair_separators(), words.second_type(), words.file_name()) == (1, 1, "vocab.txt")
    assert words.sha256 == hashlib.sha256("".join(f"{token}\n" for token in words.tokens).encode()).hexdigest()


def test_a_vocabulary_of_special_tokens_alone_has_nothing_to_mask_with():
    with pytest.raises(ValueError, match=r"its 6 lines are all special or \[unused\] tokens; words are needed"):
        Vocabulary((*SPECIAL_TOKENS, "[unused7]")).replacement_ids()


def test_text_around_masks_is_tokenised():
    words = vocabulary()
    ids = WordPieceTokenizer(words).encode_masked("The [MASK] runs[MASK].")
    assert [words.tokens[index] for index in ids] == ["the", "[MASK]", "runs", "[MASK]", "."]


IDS = {token: place for place, token in enumerate(vocabulary().tokens)}


def test_the_vocabulary_in_a_tokenizer_json_is_that_of_the_file(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece", "vocab": IDS}}))
    (tmp_path / "vocab.txt").write_bytes(vocabulary().file_content())
    files = tmp_path / "tokenizer.json", tmp_path / "vocab.txt"
    assert read_vocabulary(files[0]).tokens == read_vocabulary(files[1]).tokens
    assert {vocabulary_copy(file) for file in files} == {("vocab.txt", vocabulary().file_content())}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "is not a tokenizer.json that can be read .JSONDecodeError"),
        ("[]", "is not a tokenizer.json"),
        (json.dumps({"model": {"type": "BPE", "vocab": IDS}}), "is not a tokenizer.json"),
        (json.dumps({"model": {"vocab": ["a", "b"]}}), "is not a tokenizer.json"),
        (json.dumps({"model": {"vocab": {**IDS, "extra": 500}}}), "do not run from 0 without gaps"),
        (json.dumps({"model": {"vocab": {"a": 0, "b": "c"}}}), "is not a tokenizer.json"),
        (
            json.dumps({"model": {"vocab": {**IDS, "\ud800": len(IDS)}}}),
            "is not a tokenizer.json that can be read .UnicodeEncodeError",
        ),
        (json.dumps({"model": {"vocab": {"a": 0}}}), r"none of its 1 lines .* is \[PAD\]"),
    ],
)
def test_another_content_is_refused(tmp_path, content, text):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=text):
        read_vocabulary(tmp_path / "tokenizer.json")
