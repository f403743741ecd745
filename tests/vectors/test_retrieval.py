"""BM25 and the figures of a search, beside plain Python written from their definitions."""

import json
import math
from collections import Counter

import bm25s
import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from bert import REPOSITORY
from bert.labels.metrics import METRICS
from bert.vectors.pairs import cleaned, table_pairs
from bert.vectors.retrieval import DEPTH, bm25, cosines, found
from bert.vectors.task import figures_of, scored, searched
from data.text.encodings import DETECTED
from tests.support import oracle_retrieval

WORDS = ["Lock", "lock", "tree", "TREE", "Ärger", "ärger", "x7", "!?", "木", "東京", "カナ"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
FEW = settings(max_examples=50, deadline=None, derandomize=True, phases=[Phase.generate])  # all are small already


def words_of(text: str) -> list[str]:
    """Lower-case words of letters and digits; each character of Chinese and Japanese is one."""
    words, word = list[str](), ""
    for letter in f"{text.lower()} ":
        is_cjk = any(first <= letter <= last for first, last in ("\u3040\u30ff", "\u3400\u9fff", "\uf900\ufaff"))
        if word and (is_cjk or not letter.isalnum()):
            words.append(word)
            word = ""
        if is_cjk:
            words.append(letter)
        elif letter.isalnum():
            word += letter
    return words


def lucene_scores(queries: list[list[str]], passages: list[list[str]]) -> list[list[float]]:
    """BM25 as Lucene has it, k1 = 1.5 and b = 0.75; a passage without a word counts as one word long."""
    lengths = [max(1, len(words)) for words in passages]
    mean = sum(lengths) / len(lengths)
    having = Counter(word for words in passages for word in set(words))
    scores = []
    for query in queries:
        row = []
        for words, length in zip(passages, lengths, strict=True):
            counts, score = Counter(words), 0.0
            for word in query:
                rarity = math.log(1 + (len(passages) - having[word] + 0.5) / (having[word] + 0.5))
                score += rarity * counts[word] / (counts[word] + 1.5 * (1 - 0.75 + 0.75 * length / mean))
            row.append(score if score > 0 else -math.inf)
        scores.append(row)
    return scores


@FEW
@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, min_size=1, max_size=6))
def test_bm25_is_that_of_lucene_over_words_in_any_case_and_cjk_characters(queries, passages):
    wanted = lucene_scores([*map(words_of, queries)], [*map(words_of, passages)])
    np.testing.assert_allclose(bm25(queries, passages), wanted, rtol=1e-5)


def test_bm25_is_that_of_bm25s_on_words_that_were_split_by_hand():
    passages = ["The Lock is taken.", "東京 Tower, 東", "An open door", "the lock; the door", "किताब, schöne"]
    by_hand = [
        ["the", "lock", "is", "taken"],
        ["東", "京", "tower", "東"],
        ["an", "open", "door"],
        ["the", "lock", "the", "door"],
        ["किताब", "schöne"],
    ]
    index = bm25s.BM25()
    index.index(by_hand, show_progress=False)
    queries = [("THE Lock?", ["the", "lock"]), ("京 tower", ["京", "tower"]), ("Door", ["door"])]
    # Vowel signs and viramas are no ends of words, and a query in NFD finds what is written in NFC.
    queries += [("किताब", ["किताब"]), ("कत", ["कत"]), ("SCHO\u0308NE", ["schöne"])]
    for query, words in queries:
        wanted = index.get_scores(words)
        np.testing.assert_array_equal(bm25([query], passages)[0], np.where(wanted > 0, wanted, -np.inf))


def search_figures(
    scores: list[list[float]], answers: list[list[bool]], itself: list[list[bool]], depth: int
) -> dict[str, list[float]]:
    """The figures of each query, a passage at a time; of equal scores the first passage is nearer."""
    figures: dict[str, list[float]] = {name: [] for name in ("recall_at_1", "recall_at_10", "mrr_at_10", "ndcg_at_10")}
    for row, answer, own in zip(scores, answers, itself, strict=True):
        others = [place for place in range(len(row)) if not own[place]]
        relevant = [place for place in others if answer[place]]
        ranking = [place for place in sorted(others, key=lambda place: -row[place]) if row[place] > -math.inf][:depth]
        hits = [rank for rank, place in enumerate(ranking, 1) if place in relevant]
        possible = max(1, min(len(relevant), depth))
        best = sum(1 / math.log2(rank + 1) for rank in range(1, possible + 1))
        figures["recall_at_1"].append(float(1 in hits))
        figures["recall_at_10"].append(len(hits) / possible)
        figures["mrr_at_10"].append(1 / hits[0] if hits else 0.0)
        figures["ndcg_at_10"].append(sum(1 / math.log2(rank + 1) for rank in hits) / best)
    return figures


@FEW
@given(st.data())
def test_recall_mrr_and_ndcg_follow_their_definitions_without_the_text_of_the_query(data):
    number, passages = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 26))
    values = st.sampled_from([-math.inf, -0.5, 0.0, 0.25, 0.5, 1.0])

    def table(of, rows, columns):
        return data.draw(st.lists(st.lists(of, min_size=columns, max_size=columns), min_size=rows, max_size=rows))

    scores = table(values, number, passages)
    relevant, itself = table(st.booleans(), number, passages), table(st.booleans(), number, passages)
    wanted = search_figures(scores, relevant, itself, 10)
    values = found(np.array(scores), np.array(relevant), np.array(itself))
    assert {name: each.tolist() for name, each in values.items()} == {
        name: pytest.approx(each) for name, each in wanted.items()
    }


def test_ten_passages_are_looked_at_and_recall_is_of_at_most_ten():
    """Of 14 relevant passages, two are beyond the tenth place, and three are not found at all."""
    relevant, scores = np.array([[True] * 14 + [False] * 3]), np.arange(17.0, 0.0, -1)[None]
    assert DEPTH == 10
    assert found(scores, relevant)["recall_at_10"].tolist() == [1.0]
    scores[0, :9] = -np.inf
    values = found(scores, relevant)
    assert values["recall_at_10"].tolist() == [0.5] and values["mrr_at_10"].tolist() == [1.0]


def pairs(queries: str, passages: str, alike: list[int], kind: str = "rows of the table", value=None) -> pd.DataFrame:
    columns = {"query": queries.split(), "passage": passages.split(), "alike": alike, "kind": kind, "value": value}
    frame = pd.DataFrame(columns)
    return frame.assign(plain_query=frame["query"].str.lower(), plain_passage=frame.passage.str.lower())


def test_figures_are_means_over_some_queries_which_do_not_find_themselves():
    frame = pairs("one two Three", "two three four", [0, 1, 2])
    scores = np.array(
        [[0.9, 0.1, 0.2], [1.0, 0.3, 0.5], [0.0, 1.0, 0.4]]
    )  # "two" and "three" are nearest to themselves
    figures = figures_of(scores, frame, frame)
    assert figures(np.arange(3)) == pytest.approx(
        {
            "recall_at_1": 2 / 3,
            "recall_at_10": 1.0,
            "mrr_at_10": (1 + 0.5 + 1) / 3,
            "ndcg_at_10": (2 + 1 / math.log2(3)) / 3,
        }
    )
    assert figures(np.array([1]))["mrr_at_10"] == 0.5 and figures(np.array([0, 0, 1]))["recall_at_1"] == 2 / 3


def test_scored_pairs_are_measured_by_the_rank_correlation_of_each_pair():
    frame = pairs("a b c d", "e f g h", [0, 1, 2, 3], "pairs with a score", ["1", "2", "5", "3"])
    scores = np.diag([-0.1, 0.2, 0.3, -np.inf]) + 9 * (1 - np.eye(4))  # those of other pairs are not read
    figures = figures_of(scores, frame, frame)
    wanted = METRICS["spearman"](np.array([-0.1, 0.2, 0.3, 0.0]), np.array([1, 2, 5, 3]))
    assert figures(np.arange(4)) == {"spearman": pytest.approx(wanted)} and 0 < wanted < 1
    assert figures(np.array([0, 0])) == {"spearman": 0.0}, "a correlation that does not exist counts as none at all"


def test_cosines_are_those_of_the_first_numbers():
    vectors = np.array([[3.0, 4.0, 12.0], [0.0, 2.0, 7.0], [4.0, 3.0, 0.0], [0.0, 0.0, 5.0]])
    assert cosines(vectors, 2, 2) == pytest.approx(np.array([[24 / 25, 0.0], [3 / 5, 0.0]]))
    assert cosines(vectors, 1)[0] == pytest.approx([(8 + 84) / 13 / 53**0.5, 24 / 65, 12 / 13])


def test_titles_and_questions_are_searched_for_if_there_are_enough():
    """Twenty are; neighbouring paragraphs are asked only beside fewer, and a text under two dropouts never."""
    kinds = ["title and body"] * 20 + ["neighbouring paragraphs"] * 5 + ["title and a later paragraph"] * 4
    frame = pd.DataFrame({"kind": [*kinds, *["a text under two dropouts"] * 3]})
    frame["plain_query"] = frame.index
    assert scored(frame).index.tolist() == [*range(20)]
    assert scored(frame[1:]).index.tolist() == [*range(1, 29)]
    many = pd.DataFrame({"kind": ["question and answer"] * 1_006, "plain_query": [0, 0, 0, *range(1_003)]})
    assert scored(many).index.tolist() == [0, *range(4, 1_003)], "each query once"


TICKETS = [  # password and printer share the canned answer; order has two answers of its own, parcel is asked twice
    ("password", "open the settings"),
    ("password", "write to the support team"),
    ("printer", "write to the support team"),
    ("printer", "open the printer menu"),
    ("order", "look at your orders"),
    ("order", "wait for a mail"),
    ("parcel", "look at the tracking page"),
    ("Parcel", "look at the tracking page again"),
]


def table(tmp_path, rows) -> pd.DataFrame:
    (file := tmp_path / "pairs.tsv").write_text("".join(f"{q}\t{p}\n" for q, p in [("query", "passage"), *rows]))
    return cleaned(table_pairs(file, None, None, DETECTED, []), file, [])


def test_an_answer_of_another_query_is_wrong_though_both_share_a_third(tmp_path):
    """A search that answers each query with the other's own answer finds nothing of value at the first place."""
    frame = table(tmp_path, TICKETS)
    queries, passages = scored(frame)["query"].tolist(), searched(frame).passage.tolist()
    assert queries == ["password", "printer", "order", "parcel"]
    assert frame.group.tolist() == [0, 0, 0, 0, 4, 4, 6, 6], "what may leak is held out together all the same"
    swapped = {"password": "open the printer menu", "printer": "open the settings", "order": "wait for a mail"}
    scores = np.array([[float(swapped.get(query) == passage) for passage in passages] for query in queries])
    figures = figures_of(scores, scored(frame), frame)
    assert [figures(np.array([row]))["recall_at_1"] for row in range(3)] == [0, 0, 1]


@FEW
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("pqrstuvw")), min_size=4, max_size=24), st.data())
def test_what_pairs_share_counts_for_their_own_queries_alone(tmp_path_factory, rows, data):
    """Beside the definition: of each query once, passages once, the relevant ones those of its own rows."""
    queries, passages = list(dict.fromkeys(q for q, _ in rows)), list(dict.fromkeys(p for _, p in rows))
    assume(len(queries) > 1 and len(passages) > 1)
    frame = table(tmp_path_factory.mktemp("pairs"), rows)
    values = st.sampled_from([-0.5, 0.0, 0.25, 0.5, 1.0])
    scores = [[data.draw(values) for _ in passages] for _ in queries]
    answers = [[(query, passage) in rows for passage in passages] for query in queries]
    nothing = [[False] * len(passages)] * len(queries)
    wanted = {name: np.mean(each) for name, each in search_figures(scores, answers, nothing, 10).items()}
    assert figures_of(np.array(scores), scored(frame), frame)(np.arange(len(queries))) == pytest.approx(wanted)


def test_figures_of_shared_repeated_and_several_answers_are_those_of_sentence_transformers(tmp_path):
    """As its InformationRetrievalEvaluator computed them: `tests.support.oracle_retrieval` has the recording."""
    record = json.loads((REPOSITORY / "tests/golden/libraries/retrieval.json").read_text())
    frame = table(tmp_path, oracle_retrieval.rows())
    queries, passages = scored(frame)["query"].tolist(), searched(frame).passage.tolist()
    assert (len(queries), len(passages)) == (record["queries"], record["passages"])
    scores = oracle_retrieval.vectors(queries) @ oracle_retrieval.vectors(passages).T
    found = figures_of(scores, scored(frame), frame)(np.arange(len(queries)))
    assert found == pytest.approx(record["figures"]), "sentence-transformers"
    assert 0.3 < found["recall_at_1"] < 0.95 and found["recall_at_10"] < 1, "a search that is neither perfect nor empty"
