"""Tests of a reranker in a search of an index: which hits it sorts, and in which order."""

import dataclasses

import numpy as np
import pytest

from bert.conversion.usage import RerankingForm, Usage, VectorForm
from bert.indexing.building import open_index
from bert.indexing.searcher import NewText, Searcher
from bert.inference.heads import load_model
from bert.inference.reranked import find_reranker
from bert.search.ranks import Query
from tests.inference import test_reranker
from tests.inference.models import model as make_model
from tests.support import foreign

reranker_folder = test_reranker.reranker  # fixture
TEXTS = [f"word1 {' '.join(['word2'] * number)} word{number + 3}" for number in range(1, 7)]


class Longest:
    """Stands in for a reranker: it puts the longest of the first three texts first, and notes its requests."""

    def __init__(self) -> None:
        self.form, self.asked = RerankingForm(0.5, 3), []

    def order(self, query, texts, scores):
        self.asked.append((query, texts, scores.tolist()))
        return np.argsort([-len(text) for text in texts], kind="stable")


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    root = tmp_path_factory.mktemp("search")
    folder = make_model(root / "m", "encoder", Usage("search", foreign.POSITIONS, vectors=VectorForm()))
    model = load_model(folder, device="cpu", cpu_threads=1)
    made = Searcher(model, open_index(root / "index", model))
    made.add([NewText(text, str(number)) for number, text in enumerate(TEXTS)])
    return made


def ids(hits):
    return [hit.passage.id for hit in hits]


def test_the_first_hits_are_sorted_anew_and_the_others_follow(searcher):
    query = Query("word1 word5", 5, ranking="words")
    (plain,) = searcher.search([query])
    reranked = Searcher(searcher.model, searcher.index, Longest())
    (found,) = reranked.search([query])
    assert ids(found) == sorted(ids(plain)[:3], key=lambda one: -len(TEXTS[int(one)])) + ids(plain)[3:]
    ((asked, texts, scores),) = reranked.reranker.asked
    assert asked == query.text and texts == [hit.passage.text for hit in plain[:3]]
    assert scores == pytest.approx([hit.score for hit in plain[:3]])
    (best,) = reranked.search([dataclasses.replace(query, top_k=1)])
    assert ids(best) == ids(found)[:1], "the best of the first three, not of the first"


def test_a_query_can_turn_it_off_or_name_its_depth(searcher):
    reranked = Searcher(searcher.model, searcher.index, Longest())
    query = Query("word1 word5", 5, ranking="words")
    (plain,) = searcher.search([query])
    assert ids(reranked.search([dataclasses.replace(query, rerank=False)])[0]) == ids(plain)
    for rerank, depth in ((2, 2), (9, 3), (True, 3), (None, 3)):
        reranked.search([dataclasses.replace(query, rerank=rerank)])
        assert len(reranked.reranker.asked[-1][1]) == depth
    assert len(reranked.reranker.asked) == 4
    with pytest.raises(
        ValueError, match="rerank=True needs a reranker whose weight is above 0, and the model has none"
    ):
        searcher.search([dataclasses.replace(query, rerank=True)])
    assert reranked.search([Query("nothing", ranking="words")]) == [[]]


def test_a_trained_reranker_sorts_by_its_weighted_scores(searcher, reranker_folder, tmp_path):
    found = find_reranker("anywhere", reranker_folder, device="cpu")
    assert found is not None
    query = Query("word1 word5", 6, ranking="vectors")
    (plain,) = searcher.search([query])
    texts = [hit.passage.text for hit in plain]
    own = load_model(reranker_folder, device="cpu").rank_scores(query.text, texts)
    first = np.array([hit.score for hit in plain])
    both = sum(share * (each - each.mean()) / each.std() for share, each in ((0.65, own), (0.35, first)))
    (sorted_hits,) = Searcher(searcher.model, searcher.index, found).search([query])
    assert ids(sorted_hits) == [ids(plain)[place] for place in np.argsort(-both, kind="stable")]
