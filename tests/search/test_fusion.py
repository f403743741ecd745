"""Tests of the hybrid ranking against plain Python that is written from its formula."""

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bert.search.fusion import cross_fitted, fitted_weight, hybrid, standardised
from tests.references.search import hybrid_scores, mean_reciprocal_ranks
from tests.references.search import standardised as standardised_row

FEW = settings(max_examples=50, deadline=None, derandomize=True, phases=[Phase.generate])  # all are small already
WORDS = st.sampled_from([0.0, 0.0, 1.0, 2.5, 7.0])
COSINES = st.sampled_from([-0.5, 0.0, 0.25, 0.5, 1.0])


@st.composite
def searches(draw):
    """Return scores of words, cosines, answers and the passages that are the query itself, each [q, p]."""
    num_queries, num_passages = draw(st.integers(1, 5)), draw(st.integers(1, 17))

    def table(of):
        row = st.lists(of, min_size=num_passages, max_size=num_passages)
        return draw(st.lists(row, min_size=num_queries, max_size=num_queries))

    itself = table(st.sampled_from([True, False, False, False]))
    return table(WORDS), table(COSINES), table(st.sampled_from([True, False, False])), itself


def arrays(search):
    words, cosines, relevant, itself = map(np.array, search)
    return words.astype(np.float32), cosines.astype(np.float32), relevant, itself


def test_a_row_has_mean_0_and_deviation_1_by_hand():
    scores = standardised(np.array([[1.0, 3.0, 1.0, 3.0], [2.0, 2.0, 2.0, 2.0]]))
    np.testing.assert_allclose(scores, [[-1, 1, -1, 1], [0, 0, 0, 0]])
    own = np.array([[False, False, True], [True, True, True]])
    np.testing.assert_allclose(standardised(np.array([[1.0, 3.0, 9.0], [1.0, 2.0, 3.0]]), own), [[-1, 1, 7], [0, 0, 0]])
    assert not standardised(np.full((1, 7), 0.1, np.float32)).any(), "rounding is no difference"
    assert standardised(np.zeros(3)).dtype == np.float32


@FEW
@given(searches())
def test_standardised_scores_follow_their_definition(search):
    words, _, _, itself = search
    wanted = [standardised_row(row, own) for row, own in zip(words, itself, strict=True)]
    np.testing.assert_allclose(standardised(np.array(words), np.array(itself)), wanted, rtol=1e-5, atol=1e-6)


@FEW
@given(searches(), st.sampled_from([0.0, 0.3, 1.0]))
def test_hybrid_scores_are_the_weighted_sum(search, weight):
    words, cosines, _, itself = search
    wanted = hybrid_scores(words, cosines, [weight] * len(words), itself)
    found = hybrid(np.array(words), np.array(cosines), weight, np.array(itself))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def best_of(means: dict[float, float]) -> float:
    most = max(means.values())
    return min((weight for weight, mean in means.items() if mean > most - 1e-9), key=lambda weight: abs(weight - 0.5))


def distinct(search):
    """Return the same search with scores that do not tie by chance, so that rounding decides nothing."""
    words, cosines, relevant, itself = search
    drawn = np.random.RandomState(5)
    words = [[value + drawn.rand() / 3 for value in row] for row in words]
    cosines = [[value + drawn.rand() / 3 for value in row] for row in cosines]
    return words, cosines, relevant, itself


@FEW
@given(searches())
def test_the_fitted_weight_gives_the_highest_mrr_and_is_near_a_half(search):
    search = distinct(search)
    assert fitted_weight(*arrays(search)) == best_of(mean_reciprocal_ranks(*search))


@FEW
@given(searches())
def test_each_half_is_ranked_by_the_weight_of_the_other(search):
    search = distinct(search)
    words, cosines, relevant, itself = arrays(search)
    halves = [[table[first::2] for table in search] for first in (0, 1)]
    weights = [best_of(mean_reciprocal_ranks(*half)) if half[0] else 0.5 for half in halves]
    of_queries = [weights[1 - query % 2] for query in range(len(words))]
    wanted = hybrid_scores(*search[:2], of_queries, search[3])
    np.testing.assert_allclose(cross_fitted(words, cosines, relevant, itself), wanted, rtol=1e-4, atol=1e-4)


def test_a_part_that_knows_nothing_gets_no_weight():
    drawn = np.random.RandomState(1)
    relevant = np.eye(40, dtype=bool)
    good, noise = relevant / 2 + drawn.rand(40, 40), drawn.rand(40, 40)
    assert fitted_weight(noise, good, relevant) > 0.5 and fitted_weight(good, noise, relevant) < 0.5
    assert fitted_weight(relevant * 1.0, relevant * 2.0, relevant) == 0.5, "both know all"


def test_the_first_ten_alone_count():
    """A passage is the eleventh by words and the sixteenth by vectors: no weight finds it. Its predecessor is tenth."""
    words, cosines = -np.arange(20.0)[None], -np.roll(np.arange(20.0), -5)[None]
    assert fitted_weight(words, cosines, np.arange(20)[None] == 10) == 0.5
    assert fitted_weight(words, cosines, np.arange(20)[None] == 9) == 0.25
