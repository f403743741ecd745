"""Pairs of text and of tables, what is left out and why, their batches on ranks, and the figures of a search."""

import json

import numpy as np
import pytest

from bert.vectors.pairs import cleaned, divided, document_pairs, table_pairs, text_pairs, without
from bert.vectors.retrieval import bm25, cosines, found
from bert.vectors.task import PairLoader, PairTable, figures_of
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


def test_the_field_of_nested_texts_is_named(tmp_path):
    (tmp_path / "tickets.jsonl").write_text(json.dumps({"fields": {"text": f"{BODY} {MORE}"}}) + "\n")
    (pair,) = text_pairs(tmp_path, DETECTED, [], "fields.text")
    assert (pair["query"], pair["passage"]) == (BODY, MORE)
    with pytest.raises(ValueError, match=r"no pair of texts; .*tickets.jsonl: .*'fields.text'.*with --text-field\)"):
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
    assert len(train) > 100 and len(held_out) > 50 and not texts[0] & texts[1]


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
    file.write_text("\n".join(["id,question,answer,negative", *rows]) + "\n")
    notes = []
    pairs = cleaned(table_pairs(file, None, None, DETECTED, []), file, notes)
    assert pairs["query"].tolist() == ["open a file", "start"]
    assert notes == [
        "2 pairs of pairs.csv: rows of the table 2",
        "left out: an empty side, or a row that cannot be read: 2 (first: row 4)",
        "left out: equal sides: 1 (first: row 5)",
        "left out: a pair a second time: 1 (first: row 3)",
        "left out: an id that another query has: 2 (first: row 6)",
    ]
    with pytest.raises(ValueError, match=r"of passages \('text' was named\), among id, question"):
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
    assert cleaned(table_pairs(file, None, None, DETECTED, []), file, []).group.tolist() == [0, 0, 0, 3]


def test_the_batches_of_two_ranks_are_that_of_one():
    """Each text of the global batch is in one micro-batch; all know the groups of the whole."""
    negatives = np.array([0, 2, 2, 3, 3, 3, 4])
    texts = 2 * 6 + 4
    groups = {"groups": np.arange(texts) % 6, "numbers": np.arange(texts)}
    table = PairTable(np.arange(3 * texts), np.arange(0, 3 * texts + 1, 3), **groups, negatives=negatives)

    def batches(world_size, micro_batch_size):
        loaders = [
            PairLoader(table, global_batch_size=4, micro_batch_size=micro_batch_size, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        steps = 4 // (world_size * micro_batch_size)
        return [loader.micro_batch(1, step).feed for loader in loaders for step in range(steps)]

    (whole,) = batches(1, 4)
    assert whole["text_places"].tolist() == list(range(len(whole["text_groups"])))
    parts = batches(2, 1)
    order = np.argsort(np.concatenate([part["text_places"] for part in parts]))
    np.testing.assert_array_equal(np.concatenate([part["input_ids"] for part in parts])[order], whole["input_ids"])
    assert all((part["text_groups"] == whole["text_groups"]).all() for part in parts)
    assert [part["num_micro_batches"].tolist() for part in parts] == [[4.0]] * 4


def test_figures_of_a_search_are_those_by_hand():
    scores = np.array([[0.9, 0.5, 0.1], [0.9, 0.5, 0.1], [0.2, -np.inf, 0.1]])
    values = found(scores, np.array([7, 8, 8]), np.array([7, 8, 8]))
    assert values["recall_at_1"].tolist() == [1, 0, 0]
    assert values["recall_at_10"].tolist() == [1, 1, 0.5]
    assert values["mrr_at_10"].tolist() == [1, 0.5, 0.5]
    gains = 1 / np.log2([2, 3, 4])
    assert values["ndcg_at_10"] == pytest.approx(
        [1, (gains[1] + gains[2]) / gains[:2].sum(), gains[1] / gains[:2].sum()]
    )
    assert cosines(np.array([[3.0, 4.0], [3.0, 0.0], [0.0, 2.0]]), 1) == pytest.approx(np.array([[0.6, 0.8]]))
    words = bm25(["Open the LOCK", "nothing", "!?"], ["a lock", "the open door", "tree", "..."])
    assert words.argmax(axis=1)[0] == 1 and np.isneginf(words[1:]).all() and np.isneginf(words[0, 2:]).all()
    assert np.isneginf(bm25(["a", "?"], ["!", ""])).all(), "no text has a word"
