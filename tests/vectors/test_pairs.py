"""Tests of pairs from text and tables: reasons for leaving pairs out, groups, batches on ranks, and metrics."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bert.arrays.ragged import offsets_of
from bert.conversion.usage import VectorForm
from bert.search.ranking import cosines, found
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.wordpiece import WordPieceTokenizer
from bert.vectors.measures import figures_of
from bert.vectors.pairs import (
    asked_for,
    cleaned,
    divided,
    document_pairs,
    relevant_keys,
    table_pairs,
    text_pairs,
    without,
)
from bert.vectors.task import PairLoader, PairTable, VectorTask
from data.text.encodings import DETECTED

KANJI = "木を読む前に錠を取るので木は長い文になりそして終わる"
BODY = "A lock is taken before the tree is read."
MORE = "The tree is kept in memory until it is closed."


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (
            f"# Locks\n{BODY}\n\n{MORE}",
            [("title and body", "Locks", BODY), ("title and a later paragraph", "Locks", MORE)],
        ),
        (
            f"{BODY}\n\n{MORE}\n\nLocks\n\n{BODY}",
            [("neighbouring paragraphs", BODY, MORE), ("title and body", "Locks", BODY)],
        ),
        (f"Guide\n=====\n\nReading\n-------\n{BODY}", [("title and body", "Guide Reading", BODY)]),
        (f"Q: When is a lock taken?\nA: {BODY}", [("question and answer", "When is a lock taken?", BODY)]),
        (BODY, [("a text under two dropouts", BODY, BODY)]),
        (f"{BODY} {MORE}", [("first sentence and the rest", BODY, MORE)]),
        (f"{KANJI}。{KANJI}!", [("first sentence and the rest", f"{KANJI}。", f"{KANJI}!")]),
        ("Locks", []),
    ],
)
def test_headings_questions_and_paragraphs_make_pairs(text, pairs):
    assert document_pairs(text) == pairs


def test_a_second_column_of_a_name_is_named(tmp_path):
    table = tmp_path / "pairs.csv"
    table.write_text("query,passage,query\n" + "".join(f"how {n},read page {n},other {n}\n" for n in range(5)))
    notes = []
    pairs = list(table_pairs(table, None, None, DETECTED, notes))
    assert [pair["query"] for pair in pairs] == [f"how {n}" for n in range(5)]
    assert f"{table}: column 3 is a second 'query' and is left out; rename it to use it" in notes


def test_the_field_of_nested_texts_is_named(tmp_path):
    (tmp_path / "tickets.jsonl").write_text(json.dumps({"fields": {"text": f"{BODY} {MORE}"}}) + "\n")
    (pair,) = text_pairs(tmp_path, DETECTED, [], "fields.text")
    assert (pair["query"], pair["passage"]) == (BODY, MORE)
    with pytest.raises(ValueError, match=r"no pair of texts; .*tickets.jsonl: .*'fields.text'.*with --text-column\)"):
        cleaned(text_pairs(tmp_path, DETECTED, notes := []), tmp_path, notes)


def test_whole_documents_are_held_out_and_what_is_like_them_is_not_trained_on(tmp_path):
    for number in range(30):
        words = " ".join(f"word{number // 2}x{place}" for place in range(20))
        (tmp_path / f"{number}.md").write_text(f"# Title {number}\n{words}.\n")
    (tmp_path / "empty.md").write_text("")
    notes = []
    pairs = cleaned(text_pairs(tmp_path, DETECTED, notes), tmp_path, notes)
    train, held_out = divided(pairs, 0.2, 42, notes)
    assert len(pairs) == 30 and len(held_out) >= 6
    assert not set(train["unit"]) & set(held_out["unit"]) and not set(train.group) & set(held_out.group)
    assert len(train) + len(held_out) < 30, "texts are in two documents each, of which one may be held out"
    with pytest.raises(ValueError, match="1 pairs are too few to hold some out; add some, or pass --eval FILE"):
        divided(pairs[:1], 0.2, 42, [])


def test_no_text_of_a_held_out_pair_is_trained_on_at_the_other_side(tmp_path):
    """A passage is the query of a neighbouring paragraph: in the next unit of a long document, and in its copies."""
    paragraphs = [
        f"Paragraph {number} " + " ".join(f"w{number}x{place}" for place in range(9)) for number in range(320)
    ]
    (tmp_path / "long.md").write_text(".\n\n".join(["# Title", *paragraphs, ""]))
    (tmp_path / "copy.md").write_text(".\n\n".join(["# Copy", *paragraphs[:120], ""]))
    pairs = cleaned(text_pairs(tmp_path, DETECTED, []), tmp_path, [])
    train, held_out = divided(pairs, 0.2, 42, [])
    texts = [{*frame["query"], *frame.passage} for frame in (train, held_out)]
    assert len(train) > 100 and len(held_out) >= 50 and not texts[0] & texts[1]


def table_of(folder, rows: list[tuple[str, str]]):
    (file := folder / "pairs.jsonl").write_text(
        "".join(json.dumps({"query": query, "passage": passage}) + "\n" for query, passage in rows)
    )
    return cleaned(table_pairs(file, None, None, DETECTED, []), file, [])


def test_wrong_answers_are_those_of_every_column_that_is_named_so(tmp_path):
    rows = [
        {
            "query_id": 7,
            "Question": "q",
            "answer": "a",
            "negative": "n1",
            "hard_neg_2": ["n2", "n3"],
            "Negatives": None,
            "negation": "x",
        },
        {"query_id": 8, "Question": 5, "answer": ["a"], "negative": ""},
    ]
    (file := tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = table_pairs(file, None, None, DETECTED, [])
    assert (first["query"], first["passage"], first["negatives"]) == ("q", "a", ["n1", "n2", "n3"])
    assert (first["id"], first["unit"], first["value"]) == (7, "q", None)
    assert (second["query"], second["passage"], second["negatives"]) == ("5", "", []), "an empty one is none"
    (file := tmp_path / "others.csv").write_text("body,title,neg_1,x\nb,t,n,1\n")
    (pair,) = table_pairs(file, None, None, DETECTED, [])
    assert (pair["query"], pair["passage"], pair["negatives"], pair["where"]) == ("t", "b", ["n"], "row 2")
    (pair,) = table_pairs(file, "x", "title", DETECTED, [])
    assert (pair["query"], pair["passage"]) == ("1", "t")


def test_an_empty_cell_is_no_identifier_and_the_id_of_an_article_is_not_the_querys(tmp_path):
    rows = [f"{'' if number % 3 else number},q{number},passage number {number}" for number in range(90)]
    (file := tmp_path / "a.csv").write_text("\n".join(["query_id,query,passage", *rows]))
    assert len(cleaned(table_pairs(file, None, None, DETECTED, []), file, [])) == 90
    rows = [f"article {number % 5},q{number},passage number {number}" for number in range(90)]
    file.write_text("\n".join(["id,query,passage", *rows]))
    assert len(cleaned(table_pairs(file, None, None, DETECTED, []), file, [])) == 90
    frame = pd.DataFrame({"qid": [1.0, np.nan, np.nan], "query": list("abc"), "passage": ["x", "y", "z"]})
    frame.to_parquet(file := tmp_path / "a.parquet")
    assert len(cleaned(table_pairs(file, None, None, DETECTED, []), file, [])) == 3


def test_passages_are_the_same_as_texts_are_everywhere(tmp_path):
    """Case, white space and punctuation do not count; numbers do."""
    rows = [("a", "The lock is open."), ("b", "the lock  is OPEN"), ("c", "The lock is shut"), ("d", f"{BODY} {MORE}")]
    rows += [("e", f"{BODY} {MORE} Yes."), ("f", "Lock 1 is open today"), ("g", "Lock 2 is open today")]
    assert table_of(tmp_path, rows).alike.tolist() == [0, 0, 2, 3, 3, 5, 6]


def test_pairs_that_share_a_query_or_a_passage_with_a_third_are_one_group(tmp_path):
    """Sharing links pair to pair; two other pairs share nothing with these."""
    frame = table_of(tmp_path, [("a", "0"), ("a", "1"), ("b", "1"), ("B ", "2"), ("c", "3"), ("d", "4")])
    assert frame.group.tolist() == [0, 0, 0, 0, 4, 5]


@pytest.mark.parametrize("seed", range(12))
def test_no_text_of_a_held_out_pair_is_trained_on(seed, tmp_path):
    """Queries and passages come from one set of texts, so they are shared, also across sides and in chains."""
    rng = np.random.RandomState(seed)
    rows = [(f"T {query}", f"t  {passage}") for query, passage in rng.randint(40, size=(30, 2))]
    frame = table_of(tmp_path, rows)
    train, held_out = divided(frame, 0.05, seed, notes := [])
    inside, outside = ({*part.plain_query, *part.plain_passage} for part in (held_out, train))
    assert not inside & outside
    left_out = frame.drop([*train.index, *held_out.index])
    assert not set(left_out.unit) & set(held_out.unit)
    assert notes[0] == (
        f"held out: {len(held_out)} pairs; left out of the others as they are like these: {len(left_out)}"
    )
    warns = [
        note.startswith(f"warning: {len(left_out) / len(frame):.0%} of the pairs are left out") for note in notes[1:]
    ]
    assert warns == [True] * (len(left_out) > 0.3 * len(frame))


def test_pairs_at_the_ends_of_a_chain_of_shared_texts_are_not_divided(tmp_path):
    """Seven pairs each share a query or passage with the next pair; ten others share nothing."""
    chain = [("q0", "p0"), ("q0", "p1"), ("q1", "p1"), ("q1", "p2"), ("q2", "p2"), ("q2", "p3"), ("q3", "p3")]
    frame = table_of(tmp_path, [*chain, *((f"other {number}", f"passage {number}") for number in range(10))])
    held_at_a_link = 0
    for seed in range(40):
        train, held_out = divided(frame, 0.05, seed, [])
        texts = [{*part.plain_query, *part.plain_passage} for part in (train, held_out)]
        assert not texts[0] & texts[1]
        held_at_a_link += "q1" in texts[1]
    assert held_at_a_link


def test_the_whole_units_that_are_held_out_are_nearest_to_the_fraction(tmp_path):
    """The units are eight queries with one to eight passages each."""
    frame = table_of(
        tmp_path, [(f"q{number}", f"p{number} {place}") for number in range(8) for place in range(number + 1)]
    )
    seen = set()
    for seed in range(12):
        for fraction in (0.1, 0.25, 0.5):
            train, held_out = divided(frame, fraction, seed, [])
            sizes = held_out.groupby("unit").size().tolist()
            assert abs(sum(sizes) - fraction * 36) <= 4 or len(sizes) == 1, "half of the largest unit"
            assert len(train) + len(held_out) == 36 and set(sizes) <= {*range(1, 9)}
            assert all(sizes[place] == int(unit[1:]) + 1 for place, unit in enumerate(sorted(held_out.unit.unique())))
            seen.add(tuple(sorted(held_out.unit.unique())))
    assert len(seen) > 6, "seeds hold out other queries"


def test_fifty_pairs_of_a_document_are_a_unit(tmp_path):
    paragraphs = [f"Paragraph {number} has quite enough words." for number in range(121)]
    (tmp_path / "a.md").write_text("\n\n".join(["# Title", *paragraphs]))
    (tmp_path / "b.md").write_text("\n\n".join(["# Another", *paragraphs[:3]]))
    units = [pair["unit"] for pair in text_pairs(tmp_path, DETECTED, [])]
    assert [units.count(unit) for unit in dict.fromkeys(units)] == [50, 50, 21, 3]


SIX = "one two three four five six"


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (f"{SIX}.", "paragraph"),
        ("one two three four five.", ""),
        ("x" * 47 + ".", "paragraph"),
        ("x" * 46 + ".", ""),
        (SIX, "heading"),
        (f"{SIX} {SIX} 3 4 5", "heading"),
        (f"{SIX} {SIX} 3 4 5 6", "paragraph"),
        ("x" * 150, "heading"),
        ("x" * 151, "paragraph"),
        (f"{SIX},", "paragraph"),
        ("- one two three four five", "paragraph"),
        ("- one", ""),
        ("one\ntwo", ""),
    ],
)
def test_a_block_is_a_heading_by_its_length_and_end_and_a_paragraph_from_six_words_on(block, kind):
    """Before another paragraph, a heading makes a title, a paragraph a neighbour, and other blocks nothing."""
    found = document_pairs(f"{block}\n\n{BODY}\n\n{MORE}")
    rest = " ".join(block.split())
    assert (
        found[0]
        == {
            "heading": ("title and body", rest, BODY),
            "paragraph": ("neighbouring paragraphs", rest, BODY),
            "": ("neighbouring paragraphs", BODY, MORE),
        }[kind]
    )


def test_a_paragraph_does_not_find_itself(tmp_path):
    (tmp_path / "a.md").write_text(f"{BODY}\n\n{MORE}\n\nThe third paragraph is about another matter.\n")
    pairs = cleaned(text_pairs(tmp_path, DETECTED, []), tmp_path, [])
    assert len(pairs) == 2 and pairs["query"][1] == pairs.passage[0]
    assert figures_of(np.array([[0.9, 0.1], [1.0, 0.5]]), pairs, pairs)(np.arange(2))["recall_at_1"] == 1


@pytest.mark.parametrize(
    ("table", "left", "scores", "figures"),
    [
        (
            "text,label\na,x\nb,x\nc,y\nd,y\ne,\nf,z\n",
            4,
            [[9, 1, 2, 0], [1, 9, 0, 0], [1, 0, 9, 2], [0, 0, 2, 9]],
            [0.75],
        ),
        ('sentence1,sentence2,score\na,a,5\na,b,"1,5"\nc,d,3\ne,f,?\n', 3, np.diag([0.9, -0.5, 0.1]), [1]),
    ],
)
def test_classes_and_scored_pairs_are_measured_but_not_trained_on(tmp_path, table, left, scores, figures):
    (file := tmp_path / "set.csv").write_text(table)
    pairs = cleaned(table_pairs(file, None, None, DETECTED, [], to_measure=True), file, [])
    assert len(pairs) == left
    values = figures_of(np.array(scores, float), pairs, pairs)(np.arange(left))
    assert [*values.values()][:1] == pytest.approx(figures)
    file.write_text("sentence1,sentence2,label\na,b,entailment\n")
    assert next(table_pairs(file, None, None, DETECTED, [], to_measure=True))["kind"] == "rows of the table"
    file.write_text(table)
    if "label" in table:
        with pytest.raises(ValueError, match="must have a column of queries and one of passages, among text, label"):
            next(table_pairs(file, None, None, DETECTED, []))
        with pytest.raises(ValueError, match="or of texts and one of labels, among sentence"):
            file.write_text("sentence\na\n")
            next(table_pairs(file, None, None, DETECTED, [], to_measure=True))


def test_pairs_of_the_evaluation_are_not_trained_on(tmp_path):
    file, notes = tmp_path / "pairs.csv", []
    file.write_text("query,passage\none,first\ntwo,second\nthree,second\n")
    pairs = cleaned(table_pairs(file, None, None, DETECTED, []), file, [])
    assert without(pairs, pairs[1:2], notes)["query"].tolist() == ["one", "three"]
    assert notes == ["left out: pairs that are in --eval too: 1"]
    with pytest.raises(ValueError, match="all pairs to train on are in --eval too"):
        without(pairs, pairs, [])


def test_bad_rows_are_counted_and_named(tmp_path):
    file = tmp_path / "pairs.csv"
    rows = ["1,open a file,It is opened.,", "1,open a file,It is opened.,", "2,close it,,", "3,same,Same,"]
    rows += ["4,lock,A lock is taken.,It is free.", "4,unlock,A lock is freed.,", "5,start,A lock is taken.,", "6"]
    file.write_text("\n".join(["query_id,question,answer,negative", *rows]) + "\n")
    notes = []
    pairs = cleaned(table_pairs(file, None, None, DETECTED, []), file, notes)
    assert pairs["query"].tolist() == ["open a file", "start"]
    assert notes == [
        "2 pairs of pairs.csv: rows of the table 2",
        "left out: an empty side, or a row that cannot be read: 2 (first: row 4)",
        "left out: equal sides: 1 (first: row 5)",
        "left out: a pair a second time: 1 (first: row 3)",
        "left out: an id that another query has: 2 (first: row 6)",
        "warning: 75% of the pairs are left out, for these reasons; correct the rows",
    ]
    with pytest.raises(ValueError, match=r"of passages \('text' was named\), among query_id, question"):
        list(table_pairs(file, "text", None, DETECTED, []))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "query,passage\none,first\none,second\n", "nothing to tell apart: .*2 pairs of a.csv"),
        ("a.csv", "text,label\na,x\nb,x\n", "nothing to tell apart: .*texts with a class 2"),
        ("a.csv", "sentence1,sentence2,score\na,b,3\nc,d,3\n", "nothing to tell apart: .*pairs with a score 2"),
        ("a.csv", f"{BODY},{MORE * 2}\n{BODY},{MORE}\n", r"add a line of names$"),
        ("a.jsonl", '{"query": {"of": "a"}, "passage": ["b"]}\n', "an empty side, or a row that cannot be read: 1"),
    ],
)
def test_a_table_that_teaches_nothing_is_refused(tmp_path, name, text, message):
    (file := tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        cleaned(table_pairs(file, None, None, DETECTED, [], to_measure=True), file, [])


def test_equal_queries_and_nearly_equal_passages_are_no_negatives_of_each_other(tmp_path):
    file, long = tmp_path / "pairs.tsv", " ".join(map(str, range(60)))
    rows = [f"one\t{long}", f"two\t{long} 61", "two\tanother answer", "three\tsomething else"]
    file.write_text("\n".join(["query\tpassage", *rows]) + "\n")
    frame = cleaned(table_pairs(file, None, None, DETECTED, notes := []), file, notes)
    assert frame.alike.tolist() == [0, 0, 2, 3] and frame.group.tolist() == [0, 0, 0, 3]
    assert notes[-1] == "3 pairs share a query, or nearly a passage, with another: these are no negatives of each other"


@pytest.mark.parametrize(
    ("shared", "others", "is_named"), [(50, 9, False), (51, 9, True), (60, 540, False), (60, 539, True)]
)
def test_a_group_is_named_from_more_than_fifty_pairs_on_which_are_over_a_tenth(tmp_path, shared, others, is_named):
    rows = [(f"query {number}", "to all") for number in range(shared)]
    rows += [(f"other {number}", f"answer {number}") for number in range(others)]
    text = "".join(f"{query}\t{passage}\n" for query, passage in rows)
    (file := tmp_path / "pairs.tsv").write_text(f"query\tpassage\n{text}")
    cleaned(table_pairs(file, None, None, DETECTED, []), file, notes := [])
    assert any(note.startswith(f"{shared} pairs ({shared / (shared + others):.0%})") for note in notes) == is_named


def test_one_group_of_many_pairs_is_named(tmp_path):
    """Sixty queries get one canned answer, and an answer of their own each; forty others only theirs."""
    rows = [f"query {n}\tthe answer to all" for n in range(60)] + [f"query {n}\tanswer {n}" for n in range(100)]
    (file := tmp_path / "pairs.tsv").write_text("\n".join(["query\tpassage", *rows]) + "\n")
    cleaned(table_pairs(file, None, None, DETECTED, notes := []), file, notes)
    assert notes[-1].startswith(
        "120 pairs (75%) share queries or passages, from pair to pair: if one of them is held out"
    )


@pytest.mark.parametrize("seed", range(5))
def test_negatives_of_a_batch_are_texts_that_answer_no_pair_of_the_query(seed):
    """Loops over the pairs give the same: answers of the query outside the batch and equal texts are no negatives."""
    draw = np.random.RandomState(seed)
    queries, passages = draw.randint(0, 5, 12), draw.randint(0, 6, 12)
    counts = draw.randint(0, 3, 12)
    negatives = draw.randint(-1, 6, counts.sum())  # -1: a text that is no query's passage
    texts_of = [*(f"q{n}" for n in queries), *(f"p{n}" for n in passages), *(f"n{n}" for n in negatives)]
    texts_of[12 + 3] = texts_of[7]  # a passage that is the query of another pair
    codes = {text: number for number, text in enumerate(dict.fromkeys(texts_of))}
    table = PairTable(
        np.zeros(len(texts_of)),
        np.arange(len(texts_of) + 1),
        queries=queries,
        passages=np.concatenate([passages, negatives]),
        num_passages=6,
        relevant=relevant_keys(queries, passages, 6),
        numbers=np.array([codes[text] for text in texts_of]),
        negatives=offsets_of(counts),
    )
    ids = draw.permutation(12)[:5]
    own = [24 + n for pair in ids for n in range(table.negatives[pair], table.negatives[pair + 1])]
    texts = np.array([*ids, *(12 + ids), *own])
    found = table.not_negatives(ids, texts)
    for row, pair in enumerate(ids):
        answers = {passages[other] for other in range(12) if queries[other] == queries[pair]}
        for column, text in enumerate(texts[5:]):
            number = (*passages, *negatives)[text - 12]
            is_answer = number in answers or texts_of[text] == texts_of[pair]
            assert found[row, column] == (is_answer and column != row)


def test_passages_of_an_equal_class_are_no_negatives(tmp_path):
    """The column `query_class` has the class; a query without one is its own class, even if spelled as a class."""
    rows = ["a b,c d,x", "e f,g h,x", "i j,k l,y", "x,m n,", "o p,q r,"]
    (file := tmp_path / "pairs.csv").write_text("\n".join(["query,passage,query_class", *rows]) + "\n")
    frame = cleaned(table_pairs(file, None, None, DETECTED, []), file, [])
    asked = asked_for(frame)
    equal = asked.to_numpy()[:, None] == asked.to_numpy()
    assert (equal == np.array([[1, 1, 0, 0, 0]] * 2 + np.eye(5, dtype=int)[2:].tolist(), bool)).all()


def test_the_batches_of_two_ranks_are_that_of_one():
    """Each text of the global batch is in one micro-batch; all ranks know the pairs that are no negatives."""
    negatives = np.array([0, 2, 2, 3, 3, 3, 4])
    texts = 2 * 6 + 4
    passages = np.array([*range(6), -1, 2, -1, -1])
    relation = {"queries": np.arange(6), "passages": passages, "num_passages": 6, "numbers": np.arange(texts)}
    relation["relevant"] = relevant_keys(np.array([0, 1, 2, 3, 4, 5, 5]), np.array([0, 1, 2, 3, 4, 5, 0]), 6)
    table = PairTable(np.arange(3 * texts), np.arange(0, 3 * texts + 1, 3), **relation, negatives=negatives)

    def batches(world_size, micro_batch_size):
        loaders = [
            PairLoader(table, global_batch_size=4, micro_batch_size=micro_batch_size, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        steps = 4 // (world_size * micro_batch_size)
        return [loader.micro_batch(1, step).feed for loader in loaders for step in range(steps)]

    (whole,) = batches(1, 4)
    assert whole["text_places"].tolist() == list(range(sum(whole["not_negatives"].shape)))
    parts = batches(2, 1)
    order = np.argsort(np.concatenate([part["text_places"] for part in parts]))
    np.testing.assert_array_equal(np.concatenate([part["input_ids"] for part in parts])[order], whole["input_ids"])
    assert all((part["not_negatives"] == whole["not_negatives"]).all() for part in parts)
    assert [part["num_micro_batches"].tolist() for part in parts] == [[4.0]] * 4


def test_figures_of_a_search_are_those_by_hand():
    scores = np.array([[0.9, 0.5, 0.1], [0.9, 0.5, 0.1], [0.2, -np.inf, 0.1]])
    values = found(scores, np.array([[True, False, False], [False, True, True], [False, True, True]]))
    assert values["recall_at_1"].tolist() == [1, 0, 0]
    assert values["recall_at_10"].tolist() == [1, 1, 0.5]
    assert values["mrr_at_10"].tolist() == [1, 0.5, 0.5]
    gains = 1 / np.log2([2, 3, 4])
    assert values["ndcg_at_10"] == pytest.approx(
        [1, (gains[1] + gains[2]) / gains[:2].sum(), gains[1] / gains[:2].sum()]
    )
    assert cosines(np.array([[3.0, 4.0], [3.0, 0.0], [0.0, 2.0]]), 1) == pytest.approx(np.array([[0.6, 0.8]]))


VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *"abcdefgh", "q", "p"))
FORM = VectorForm(query_prefix="q ", passage_prefix="p ", dimensions=(2,))


def task_of(**attributes) -> SimpleNamespace:
    """Return the values that the methods of a task read, without a configuration and a network."""
    data = SimpleNamespace(max_seq_length=5, compare=None)
    config = SimpleNamespace(data=data, run=SimpleNamespace(seed=7, do_train=True))
    form = {"_form": FORM, "_tokenizer": WordPieceTokenizer(VOCABULARY), "_config": config, "_compared": None}
    of_hybrid = {"_search": None, "_hybrid_weight": None}
    task = SimpleNamespace(**form, **of_hybrid, best_metric="eval_ndcg_at_10", notes=[], **attributes)
    for name in ("_held_out_search", "_cosines_of_compared"):
        setattr(task, name, partial(getattr(VectorTask, name), task))
    return task


def frame_of(*rows: tuple, kind="rows of the table") -> pd.DataFrame:
    frame = pd.DataFrame([row[:3] for row in rows], columns=["query", "passage", "alike"])
    frame["negatives"] = [list(row[3]) if len(row) > 3 else [] for row in rows]
    return frame.assign(kind=kind, plain_query=frame["query"], plain_passage=frame.passage, value=None)


def test_the_texts_of_a_training_are_queries_passages_and_negatives_with_their_numbers():
    """A negative that is another query's passage has its number; equal texts have one number, before the prefix."""
    frame = frame_of(("a", "b", 0), ("c", "a", 1, ["b", "d"]), ("e f g h", "d d", 2, ["h"]))
    table, counts = VectorTask.features(task_of(), frame, training=True)
    assert isinstance(table, PairTable) and len(table) == 3
    tokens = [
        " ".join(
            VOCABULARY.tokens[index] for index in table.input_ids[table.offsets[row] : table.offsets[row + 1]][1:-1]
        )
        for row in range(9)
    ]
    assert tokens == ["q a", "q c", "q e f", "p b", "p a", "p d d", "p b", "p d", "p h"]
    assert table.queries.tolist() == [0, 1, 2] and table.passages.tolist() == [0, 1, 2, 0, -1, -1]
    assert table.num_passages == 3 and table.negatives.tolist() == [0, 0, 2, 3]
    assert table.relevant.tolist() == [0 * 3 + 0, 1 * 3 + 1, 2 * 3 + 2]
    texts = ["a", "c", "e f g h", "b", "a", "d d", "b", "d", "h"]
    assert [table.numbers.tolist().index(number) for number in table.numbers] == [*map(texts.index, texts)]
    assert counts == {"truncated": 1, "tokens": len(table.input_ids), "pairs": 3, "texts": 9}
    table, counts = VectorTask.features(task_of(), frame)
    assert table.lengths().tolist() == [4, 4, 5, 4, 4, 5] and counts["texts"] == 6


def test_a_search_is_measured_with_whole_vectors_and_with_the_shorter_ones_that_were_trained():
    frame = frame_of(("a", "b", 0), ("c", "d", 1))
    features = SimpleNamespace(examples=frame)
    vectors = np.array([[1.0, 0, 0, 9], [0, 1, 9, 0], [0.1, 1, 0, 9], [1, 0.1, 9, 0]])
    found = VectorTask.score(task_of(), None, features, vectors)
    assert found["eval_recall_at_1"] == 1 and found["eval_recall_at_1_of_2"] == 0
    assert found["eval_mrr_at_10_of_2"] == 0.5 and len(found) == 8


def test_the_verdict_is_on_the_same_queries_beside_bm25_and_another_model():
    letters = "abcdefgh"
    frame = frame_of(*((letter, f"{letter} d", number) for number, letter in enumerate(letters)))
    vectors = np.concatenate([np.eye(8), np.roll(np.eye(8), 1, axis=0)])  # each query is nearest to a wrong passage
    encoded = []

    def encode(texts, kind):
        encoded.append((len(texts), kind))
        return np.eye(8)

    task, features = task_of(), SimpleNamespace(examples=frame)
    task._compared = SimpleNamespace(encode=encode)
    task._config.data.compare = "other"
    found = VectorTask.baseline(task, features, vectors)
    assert encoded == [(8, "query"), (8, "passage")]
    assert found["eval_bm25_recall_at_1"] == found["eval_compared_recall_at_1"] == 1
    first, second = found["verdict"].partition(" The hybrid ranking")[0].split("This model")[1:]
    assert first.startswith(" is worse than BM25 on 8 queries: recall at 1 0.000 against 1.000")
    assert second.startswith(" is worse than other on 8 queries: recall at 1 0.000 against 1.000")
    assert "More --hours, more pairs or a better --model may help" in first


def test_of_neighbouring_paragraphs_at_most_as_many_as_others_stay_beyond_5000():
    """All other pairs stay, in their order; the seed decides the choice."""
    for others, neighbours, left in (
        (2, 5_003, 5_000),
        (5_002, 5_003, 5_002),
        (5_002, 5_001, 5_001),
        (2, 5_000, 5_000),
    ):
        kinds = ["title and body"] * others + ["neighbouring paragraphs"] * neighbours
        frame, task = pd.DataFrame({"kind": kinds}), task_of()
        kept = VectorTask._with_fewer_neighbours(task, frame)
        assert kept.kind.value_counts().to_dict() == {"title and body": others, "neighbouring paragraphs": left}
        assert kept.index.is_monotonic_increasing and len(task.notes) == (left < neighbours)
        assert not task.notes or task.notes[0].endswith(f"beyond as many as other pairs: {neighbours - left:,}")
