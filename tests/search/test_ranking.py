"""Tests of the metrics of a ranking against plain Python that is written from their definitions."""

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bert.search.ranking import DEPTH, cosines, found
from tests.references.search import search_figures

FEW = settings(max_examples=50, deadline=None, derandomize=True, phases=[Phase.generate])  # all are small already


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
    """Two of 14 relevant passages are beyond the tenth place, and three are not found at all."""
    relevant, scores = np.array([[True] * 14 + [False] * 3]), np.arange(17.0, 0.0, -1)[None]
    assert DEPTH == 10
    assert found(scores, relevant)["recall_at_10"].tolist() == [1.0]
    scores[0, :9] = -np.inf
    values = found(scores, relevant)
    assert values["recall_at_10"].tolist() == [0.5] and values["mrr_at_10"].tolist() == [1.0]


def test_cosines_are_those_of_the_first_numbers():
    vectors = np.array([[3.0, 4.0, 12.0], [0.0, 2.0, 7.0], [4.0, 3.0, 0.0], [0.0, 0.0, 5.0]])
    assert cosines(vectors, 2, 2) == pytest.approx(np.array([[24 / 25, 0.0], [3 / 5, 0.0]]))
    assert cosines(vectors, 1)[0] == pytest.approx([(8 + 84) / 13 / 53**0.5, 24 / 65, 12 / 13])
