import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bert import REPOSITORY
from data.examples.english_prose import prose_of
from data.examples.sample_corpus import Document, _sentences, build, docstrings_of, split_parts, without_duplicates

DOCSTRING = """Open the door that leads to the garden, and return the key to its owner.

    The door has two locks, and both of them must be opened before it can be used by :class:`~house.Visitor`.
    See ``Key`` for the *other* kinds of `locks <http://nowhere>`_ that are in use in old houses.

    Parameters
    ----------
    key : Key
        The key.

    >>> open_door(key)
    True

    ====  =====
    door  locks
    ====  =====
    1     2
    ====  =====

    This is how it is called, and the code that comes next is not a part of the text::

        x = open_door(key)

    :param key: the key of the door that is to be opened.

    * One more thing is that the door should be closed again when it rains in the garden.
    """


def test_prose_is_kept_and_code_and_tables_are_not():
    assert prose_of(DOCSTRING) == [
        "Open the door that leads to the garden, and return the key to its owner.",
        "The door has two locks, and both of them must be opened before it can be used by house.Visitor. See Key for "
        "the other kinds of locks that are in use in old houses.",
        "One more thing is that the door should be closed again when it rains in the garden.",
    ]


def test_docstrings_come_in_the_order_of_the_source_without_running_it():
    source = b'"""Module."""\nraise SystemExit\nclass A:\n    """Class."""\n    def f(self):\n        """Method."""\n'
    assert docstrings_of(source) == ["Module.", "Class.", "Method."]
    assert docstrings_of(b'"""unfinished') == []


def paragraph(number: int) -> str:
    return f"The river number {number} runs to the sea over the old stones, and it is not the one that was used before."


def test_duplicates_go_and_short_documents_with_them():
    counts: Counter = Counter()
    documents = [
        Document("a", tuple(map(paragraph, range(4)))),
        Document("b", tuple(map(paragraph, range(1, 5)))),
        Document("c", tuple(map(paragraph, range(3, 9)))),
    ]
    kept = without_duplicates(documents, counts)
    assert [document.id for document in kept] == ["a", "c"]
    assert counts == {"duplicate paragraphs dropped": 3 + 2, "short documents dropped": 1}


def test_no_sentence_is_in_both_parts():
    shared = "This sentence stands in every document that was written for this test of the corpus."
    documents = [
        Document(
            f"module{number}",
            tuple(f"{paragraph(10 * number + place)} {shared * (place == 1)}".strip() for place in range(4)),
        )
        for number in range(60)
    ]
    counts: Counter = Counter()
    parts = split_parts(documents, 0.2, counts)
    known = {sentence for document in parts["train"] for text in document.paragraphs for sentence in _sentences(text)}
    held_out = [
        sentence for document in parts["held_out"] for text in document.paragraphs for sentence in _sentences(text)
    ]
    assert held_out and known.isdisjoint(held_out)
    assert counts["held-out paragraphs dropped as known"] == len(parts["held_out"])
    assert 2 <= len(parts["held_out"]) <= 25


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    root = tmp_path_factory.mktemp("packages")
    for number in range(40):
        text = "\n\n".join(paragraph(10 * number + place) for place in range(5))
        (root / f"module{number}.py").write_text(f'"""{text}"""\n')
    (root / "tests").mkdir()
    (root / "tests" / "hidden.py").write_text(f'"""{paragraph(1)}"""')
    return [root]


def test_corpus_is_deterministic_and_in_the_source_layout(roots, tmp_path):
    reports = [
        build(tmp_path / name, roots, held_out_fraction=0.2, num_workers=workers)
        for name, workers in (("one", 1), ("two", 2))
    ]
    assert reports[0] == reports[1]
    files = {path.relative_to(tmp_path / "one"): path.read_bytes() for path in (tmp_path / "one").rglob("*.txt")}
    others = {path.relative_to(tmp_path / "two"): path.read_bytes() for path in (tmp_path / "two").rglob("*.txt")}
    assert files == others
    assert Path("train/source/en/0.txt") in files and Path("held_out/source/en/0.txt") in files
    ids = [line.split()[0] for data in files.values() for line in data.decode().splitlines()]
    assert sorted(ids) == sorted(f"module{number}" for number in range(40))


def test_corpus_can_be_limited_and_impossible_limits_are_refused(roots, tmp_path):
    small = build(tmp_path / "small", roots, max_megabytes=0.006, held_out_fraction=0.3)
    assert sum(part["bytes"] for part in small["parts"].values()) <= 6000
    with pytest.raises(ValueError, match="at least one"):
        build(tmp_path / "none", roots, max_megabytes=0.0001)
    with pytest.raises(ValueError, match="held_out_fraction=1.5"):
        build(tmp_path / "none", roots, held_out_fraction=1.5)


def test_data_and_readers_run_without_paddle():
    modules = (
        "data.examples.sample_corpus, data.train_vocabulary, data.preprocess_bert_pretrain, data.balance_shards, "
        "bert.samples.loader"
    )
    code = f"import sys, {modules}; sys.exit('paddle' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)
