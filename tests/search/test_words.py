"""Tests of BM25 against plain Python from its definition, and against bm25s with words that were split by hand."""

import bm25s
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bert.search.words import WordIndex
from bert.search.words import words_of as words_of_ours
from tests.references.search import lucene_scores, words_of

WORDS = ["Lock", "lock", "tree", "TREE", "Ärger", "ärger", "x7", "map_sg", "_x7", "!?", "木", "東京", "カナ"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
FEW = settings(max_examples=50, deadline=None, derandomize=True, phases=[Phase.generate])  # all are small already


@FEW
@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, min_size=1, max_size=6))
def test_bm25_is_that_of_lucene_over_words_in_any_case_and_cjk_characters(queries, passages):
    wanted = lucene_scores([*map(words_of, queries)], [*map(words_of, passages)])
    scores = WordIndex(passages).score_matrix(queries)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, wanted, rtol=1e-5)


def test_bm25_is_that_of_bm25s_on_words_that_were_split_by_hand():
    passages = ["The Lock is taken.", "東京 Tower, 東", "An open door", "the lock; the door", "किताब, schöne"]
    by_hand = [
        ["the", "lock", "is", "taken"],
        ["東", "京", "tower", "東"],
        ["an", "open", "door"],
        ["the", "lock", "the", "door"],
        ["किताब", "schöne"],
    ]
    index = bm25s.BM25(k1=0.9, b=0.4)
    index.index(by_hand, show_progress=False)
    queries = [("THE Lock?", ["the", "lock"]), ("京 tower", ["京", "tower"]), ("Door", ["door"])]
    # Vowel signs and viramas are no ends of words, and a query in NFD finds what is written in NFC.
    queries += [("किताब", ["किताब"]), ("कत", ["कत"]), ("SCHO\u0308NE", ["schöne"])]
    for query, words in queries:
        np.testing.assert_array_equal(WordIndex(passages).scores(query), index.get_scores(words))


def test_a_text_without_a_word_shares_none():
    scores = WordIndex(["a lock", "the open door", "tree", "...", ""])
    assert scores.scores("Open the LOCK")[:2].all() and not scores.scores("Open the LOCK")[2:].any()
    assert [scores.scores(query).tolist() for query in ("nothing", "!?", "!", "")] == [[0.0] * 5] * 4
    assert not WordIndex(["!", ""]).score_matrix(["a", "?"]).any(), "no text has a word"


def test_nothing_to_search_among_is_refused():
    with pytest.raises(ValueError, match="no passage to search among; name at least one text"):
        WordIndex([])


def test_a_joined_name_is_found_whole_and_by_its_parts():
    assert words_of_ours("The dma_map_sg() of __init__, a_") == [
        "the",
        "dma_map_sg",
        "dma",
        "map",
        "sg",
        "of",
        "init",
        "a",
    ]
