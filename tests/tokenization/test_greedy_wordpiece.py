"""WordPiece against the published greedy longest-match-first rule in plain Python, with small blocks and caches."""

import string
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.tokenization.normalization import CASED, UNCASED
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.wordpiece import MemoryLimits, WordPieceTokenizer, utf8

SMALL = MemoryLimits(cached_words=3, words_at_once=2, texts_at_once=2)
UNKNOWN = SPECIAL_TOKENS.index("[UNK]")
_LETTERS = "abe\u00e9"
_PIECES = st.one_of(
    st.text(st.sampled_from(_LETTERS), min_size=1, max_size=9),
    st.text(st.sampled_from(_LETTERS), min_size=1, max_size=9).map(lambda piece: "##" + piece),
    st.sampled_from(["a", "##a", "##b", "##\u00e9", ",", "#", "\u4e2d", "\u2014", "##"]),
)
_OTHERS = st.text(st.sampled_from("aBe\u00e9\u00c9,#\u4e2d\u2014 \t\n\u200b"), min_size=1, max_size=6)


def words_of(text: str, lowercase: bool) -> list[tuple[str, int]]:
    """Return (word, place): white space ends a word; a mark or Chinese character is a word by itself."""
    words: list[tuple[str, int]] = []
    inside = False
    for place, letter in enumerate(text):
        is_alone = (
            unicodedata.category(letter)[0] == "P" or letter in string.punctuation or "\u4e00" <= letter < "\ua000"
        )
        if letter.isspace() or letter == "\u200b":
            inside = False
            continue
        if lowercase:
            letter = unicodedata.normalize("NFD", letter.lower())[0]
        if is_alone or not inside:
            words.append(("", place))
        words[-1] = (words[-1][0] + letter, words[-1][1])
        inside = not is_alone
    return words


def longest_matches(word: str, ids: dict[str, int]) -> list[tuple[int, int, int]]:
    """Return (id, first character, one past the last) of a word's tokens; [UNK] if a part of it is no token."""
    tokens, start = [], 0
    while start < len(word) <= 100:
        ends = [end for end in range(start + 1, len(word) + 1) if "##" * (start > 0) + word[start:end] in ids]
        if not ends:
            break
        tokens.append((ids["##" * (start > 0) + word[start : ends[-1]]], start, ends[-1]))
        start = ends[-1]
    return tokens if start == len(word) else [(UNKNOWN, 0, len(word))]


def expected_tokens(text: str, ids: dict[str, int], lowercase: bool) -> list[tuple[int, int, int]]:
    return [
        (token, place + start, place + end)
        for word, place in words_of(text, lowercase)
        for token, start, end in longest_matches(word, ids)
    ]


def tokens_of(tokenizer: WordPieceTokenizer, texts: list[str]) -> list[list[tuple[int, int, int]]]:
    """Return (id, first character, one past the last) of each text's tokens; all ways to encode give equal ids."""
    found = tokenizer.encode_with_offsets(texts)
    rows = [*zip(found.ids.tolist(), found.starts.tolist(), found.ends.tolist(), strict=True)]
    for ids, offsets in (tokenizer.encode_texts(texts), tokenizer.encode_bytes(*utf8(texts))):
        assert ids.tolist() == found.ids.tolist() and offsets.tolist() == found.offsets.tolist()
    assert found.lengths().tolist() == np.diff(found.offsets).tolist() and len(found.offsets) == len(texts) + 1
    return [rows[low:high] for low, high in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(_PIECES, max_size=12, unique=True), st.booleans(), st.data())
def test_tokens_are_the_longest_matches_whatever_the_blocks_and_the_cache(pieces, lowercase, data):
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *pieces))
    ids = {token: place for place, token in enumerate(vocabulary.tokens)}
    words = st.lists(st.one_of(st.sampled_from([piece.removeprefix("##") for piece in pieces] or ["a"]), _OTHERS))
    texts = data.draw(st.lists(words.map("".join), max_size=8))
    expected = [expected_tokens(text, ids, lowercase) for text in texts]
    for limits in (SMALL, MemoryLimits(cached_bytes=1, words_at_once=1, texts_at_once=3), MemoryLimits()):
        tokenizer = WordPieceTokenizer(vocabulary, UNCASED if lowercase else CASED, limits)
        assert tokens_of(tokenizer, texts) == expected
        assert [tokens_of(tokenizer, [text])[0] for text in texts] == expected, "words that are known already"


def test_no_text_gives_no_token():
    tokenizer = WordPieceTokenizer(Vocabulary((*SPECIAL_TOKENS, "a")), UNCASED, SMALL)
    assert tokens_of(tokenizer, []) == [] and tokens_of(tokenizer, ["", " \n"]) == [[], []]


def test_all_of_several_blocks_of_words_outside_of_ascii_get_tokens():
    """The text has as many words as two blocks of the usual size, and one more."""
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *"abcdefghij", *(f"##{letter}" for letter in "abcdefghij\u00e9")))
    words = ["".join("abcdefghij"[int(digit)] for digit in f"{number:04}") + "\u00e9" for number in range(1025)]
    ids, offsets = WordPieceTokenizer(vocabulary, CASED).encode_texts(words)
    assert (np.diff(offsets) == 5).all() and (ids != UNKNOWN).all()
    places = [
        vocabulary.id_of(letter if place == 0 else f"##{letter}") for word in words for place, letter in enumerate(word)
    ]
    assert ids.tolist() == places


@pytest.mark.parametrize("letter", ["a", "\u00e9"])
def test_words_of_up_to_100_characters_have_tokens(letter):
    vocabulary = Vocabulary((*SPECIAL_TOKENS, letter, f"##{letter}"))
    tokenizer = WordPieceTokenizer(vocabulary, CASED)
    assert tokenizer.encode(letter * 100) == [5, *[6] * 99]
    assert tokens_of(tokenizer, [f"{letter * 101} {letter}"]) == [[(UNKNOWN, 0, 101), (5, 102, 103)]]


@pytest.mark.parametrize("longest", ["extraordinarily", "##extraordinarily"])
def test_the_longest_token_of_a_vocabulary_is_found(longest):
    tokenizer = WordPieceTokenizer(
        Vocabulary((*SPECIAL_TOKENS, "x", "extraordinar", "##extraordinar", "##ily", longest))
    )
    text, ids = ("xextraordinarily", [5, 9]) if longest.startswith("##") else ("extraordinarily", [9])
    assert tokenizer.encode(text) == ids


def test_no_more_words_are_cached_than_the_limit_when_a_text_begins():
    tokenizer = WordPieceTokenizer(Vocabulary((*SPECIAL_TOKENS, *"abcdefgh")), UNCASED, SMALL)
    tokenizer.encode("a b c")
    tokenizer.encode("a b c")
    assert tokenizer.num_cached_words() == 3
    tokenizer.encode("d")
    assert tokenizer.num_cached_words() == 4, "three were not too many"
    tokenizer.encode("e f")
    assert tokenizer.num_cached_words() == 2, "the others are forgotten"
    by_bytes = WordPieceTokenizer(tokenizer.vocabulary, UNCASED, MemoryLimits(cached_bytes=1))
    by_bytes.encode("a b c")
    by_bytes.encode("d")
    assert by_bytes.num_cached_words() == 1
