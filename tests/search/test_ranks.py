"""Tests of ranks and filters against a plain computation over all passages."""

import numpy as np
import pytest

from bert.search.fusion import USUAL_WEIGHT
from bert.search.index import Change
from bert.search.ranks import Query, hits, ranks
from bert.search.segments import Passage, text_of
from bert.search.words import WordIndex
from tests.search.indexes import change, make, passages, units, vectors

ROWS = 60
QUERY = "word1 word2 word30"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Make an index of three segments with some deleted passages."""
    folder = tmp_path_factory.mktemp("ranks") / "index"
    made = make(folder, change(25), change(20, 1, 25), change(15, 2, 45))
    made.apply(Change(ids=["id2", "id30", "id59"]))
    return made


@pytest.fixture(scope="module")
def rows():
    return [*passages(25), *passages(20, 1, 25), *passages(15, 2, 45)]


@pytest.fixture(scope="module")
def live():
    mask = np.ones(ROWS, bool)
    mask[[2, 30, 59]] = False
    return mask


def standardised(scores):
    return (scores - scores.mean()) / scores.std()


def reference(rows, live, query, allowed, ranking, weight):
    """Map each row that may be found to its score."""
    all_vectors = units(np.concatenate([vectors(25), vectors(20, 1), vectors(15, 2)]).astype(np.float64))
    words = np.zeros(ROWS)
    words[live] = WordIndex([row.text for row, is_live in zip(rows, live, strict=True) if is_live]).scores(QUERY)
    cosines = all_vectors @ query
    places = np.flatnonzero(live & allowed)
    if not len(places):
        return {}
    if ranking == "words":
        return {place: words[place] for place in places if words[place] > 0}
    scores = cosines[places]
    if ranking == "hybrid":
        scores = weight * standardised(scores) + (1 - weight) * standardised(words[places])
    return dict(zip(places.tolist(), scores, strict=True))


@pytest.mark.parametrize("ranking", ["hybrid", "vectors", "words"])
@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({}, lambda row: True),
        ({"lang": "de"}, lambda row: row.columns["lang"] == "de"),
        ({"year": {"from": 1991, "to": 1993}}, lambda row: 1991 <= row.columns["year"] <= 1993),
        ({"year": {"from": 1995}}, lambda row: row.columns["year"] >= 1995),
        (
            {"year": [1990, "1996"], "open": False},
            lambda row: row.columns["year"] in (1990, 1996) and not row.columns["open"],
        ),
        ({"open": True}, lambda row: row.columns["open"]),
        ({"source": "file1.csv"}, lambda row: row.source == "file1.csv"),
        ({"lang": ["fr"]}, lambda row: False),
    ],
    ids=["no filter", "text", "range", "lower bound", "values and boolean", "boolean", "source", "no row"],
)
def test_ranks_are_those_of_a_plain_computation(index, rows, live, ranking, filters, wanted):
    allowed = np.array([wanted(row) for row in rows])
    query = units(vectors(1, seed=7))
    for top_k in (1, 4, 100):
        (found,) = ranks(index.snapshot, [Query(QUERY, top_k, filters, ranking)], query, 0.3)
        expected = reference(rows, live, query[0], allowed, ranking, 0.3)
        best = sorted(expected, key=lambda row: -expected[row])[:top_k]
        np.testing.assert_allclose(
            [rank.score for rank in found], [expected[row] for row in best], rtol=1e-4, atol=1e-5
        )
        assert {rank.row for rank in found} <= expected.keys() and len(found) == len(best)
        if len(best) < len(expected) or top_k == 100:
            assert [rank.row for rank in found][:3] == best[:3]


def test_queries_together_are_answered_as_each_alone(index, monkeypatch):
    queries = [Query(f"word{number}", 5, {}, kind) for number, kind in enumerate(("hybrid", "words", "vectors") * 3)]
    asked = units(vectors(9, seed=3))
    together = ranks(index.snapshot, queries, asked, USUAL_WEIGHT)
    monkeypatch.setattr("bert.search.ranks._MOST_SCORES", 130)  # two queries at a time
    parts = ranks(index.snapshot, queries, asked, USUAL_WEIGHT)
    alone = [
        ranks(index.snapshot, [query], asked[place : place + 1], USUAL_WEIGHT)[0] for place, query in enumerate(queries)
    ]
    for one, part, whole in zip(alone, parts, together, strict=True):
        assert [rank.row for rank in one] == [rank.row for rank in part] == [rank.row for rank in whole]


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ({"colour": "red"}, "the index has no column 'colour', only lang, open, source, year"),
        ({"year": {}}, "the filter of 'year' must have 'from' or 'to', or both, which are numbers"),
        ({"year": {"from": "1990"}}, "must have 'from' or 'to'"),
        ({"year": {"from": 1990, "least": 2}}, "must have 'from' or 'to'"),
        ({"year": None}, "must be a value, a list of values, or"),
        ({"year": [[1]]}, "must be a value, a list of values, or"),
    ],
    ids=str,
)
def test_a_wrong_filter_is_refused(index, filters, reason):
    with pytest.raises(ValueError, match=reason):
        ranks(index.snapshot, [Query("word1", filters=filters)], units(vectors(1)), USUAL_WEIGHT)


def test_a_range_reads_numbers_in_text_and_finds_no_other_text(tmp_path):
    values = ["7", "8.5", "-", "", "9", None]
    rows = [Passage(str(place), "a", columns={"size": value}) for place, value in enumerate(values)]
    index = make(tmp_path / "index", Change(rows, vectors(len(rows))))
    assert index.snapshot.matching({"size": {"from": 8}}).tolist() == [False, True, False, False, True, False]
    assert index.snapshot.matching({"size": {"to": 8}}).tolist() == [True, False, False, False, False, False]
    assert index.snapshot.matching({"size": 9}).tolist() == [False] * 4 + [True, False]


def test_the_sentence_with_the_rarest_words_of_the_query_is_shown(tmp_path):
    text = "The cat is here. The key of the door is lost.  The door is the door."
    others = ["The door is open.", "The door is the one.", "The cat."]
    rows = [Passage(str(place), one) for place, one in enumerate([text, *others])]
    index = make(tmp_path / "index", Change(rows, vectors(4)))
    query = "where is the KEY of the door"
    (found,) = ranks(index.snapshot, [Query(query, ranking="words")], None, USUAL_WEIGHT)
    hit = hits(index.snapshot, query, found, "en")[0]
    result = hit.to_result()
    assert result["id"] == "0" and result["sentence"]["text"] == "The key of the door is lost."
    assert text[result["sentence"]["start"] : result["sentence"]["end"]] == result["sentence"]["text"]
    assert result["text"] == text and result["score"] == round(found[0].score, 4)


def test_a_row_of_a_table_or_list_is_shown_alone(tmp_path):
    table = "| to do | how |\n|---|---|\n| ask for a key | set it |\n| send the key | a header |"
    text = f"{table}\n\nA line\nthat is wrapped."
    index = make(tmp_path / "index", Change([Passage("0", text)], vectors(1)))

    def sentence_for(query):
        (found,) = ranks(index.snapshot, [Query(query, ranking="words")], None, USUAL_WEIGHT)
        return hits(index.snapshot, query, found, "en")[0].to_result()["sentence"]["text"]

    assert sentence_for("send key") == "| send the key | a header |"
    assert sentence_for("wrapped") == "A line\nthat is wrapped."


def test_an_index_without_passages_answers_with_nothing(tmp_path):
    empty = make(tmp_path / "index")
    assert ranks(empty.snapshot, [Query("word1"), Query("a", ranking="words")], units(vectors(2)), USUAL_WEIGHT) == [
        [],
        [],
    ]


@pytest.mark.parametrize(
    "values",
    [[3, 0, None, -7], [1.5, -0.0, None, 1e22, 2.0], [True, None, False], ["3", "03", None, "true", "1.5", "0"]],
    ids=["whole numbers", "numbers", "booleans", "texts"],
)
def test_a_value_is_found_by_its_text_whatever_its_type(tmp_path, values):
    rows = [Passage(str(place), "a", columns={"size": value}) for place, value in enumerate(values)]
    index = make(tmp_path / "index", Change(rows, vectors(len(rows))))
    for wanted in (
        3,
        "3",
        "03",
        3.0,
        0,
        -0.0,
        "0",
        1.5,
        "1.5",
        "1.50",
        1e22,
        True,
        "true",
        False,
        2**70,
        "nan",
        "inf",
        "",
    ):
        expected = [value is not None and text_of(value) == text_of(wanted) for value in values]
        assert index.snapshot.matching({"size": wanted}).tolist() == expected, wanted
        assert index.snapshot.matching({"size": ["other", wanted]}).tolist() == expected, wanted
    is_number = [value is not None and type(value) is not bool and value != "true" for value in values]
    assert index.snapshot.matching({"size": {"from": -1e300}}).tolist() == is_number
