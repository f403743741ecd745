"""Tests of the metrics of held-out pairs against plain Python that is written from their definitions."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from bert import REPOSITORY
from bert.labels.metrics import METRICS
from bert.vectors.measures import figures_of, scored, searched
from bert.vectors.pairs import cleaned, table_pairs
from data.text.encodings import DETECTED
from tests.references.search import search_figures
from tests.support import oracle_retrieval

FEW = settings(max_examples=50, deadline=None, derandomize=True, phases=[Phase.generate])  # all are small already


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


def test_titles_and_questions_are_searched_for_if_there_are_enough():
    """Twenty are enough; with fewer, neighbouring paragraphs are queries too, but never a text under two dropouts."""
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
    """The definition takes each query and passage once; the relevant passages are those in the query's own rows."""
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
    """InformationRetrievalEvaluator computed them: `tests.support.oracle_retrieval` has the recording."""
    record = json.loads((REPOSITORY / "tests/golden/libraries/retrieval.json").read_text())
    frame = table(tmp_path, oracle_retrieval.rows())
    queries, passages = scored(frame)["query"].tolist(), searched(frame).passage.tolist()
    assert (len(queries), len(passages)) == (record["queries"], record["passages"])
    scores = oracle_retrieval.vectors(queries) @ oracle_retrieval.vectors(passages).T
    found = figures_of(scores, scored(frame), frame)(np.arange(len(queries)))
    assert found == pytest.approx(record["figures"]), "sentence-transformers"
    assert 0.3 < found["recall_at_1"] < 0.95 and found["recall_at_10"] < 1, "a search that is neither perfect nor empty"
