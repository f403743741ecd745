"""The questions about texts of this project: well-formed, split by paragraph, the same each time."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from bert.finetuning.squad.examples import read_squad
from data import import_text
from data.examples import documentation
from data.examples.documentation import (
    Document,
    build,
    documentation_files,
    documents_of,
    source_of,
    without_duplicates,
)
from data.examples.prose import docstrings_of, prose_of
from data.examples.sample_questions import main, read_source

FIRST = "The door that leads to the garden is open, and the key of it should be returned to the owner of it."
SECOND = "All of the other doors have two locks, and both of them must be opened before they can be used again."
THIRD = "When it rains in the garden, the door should be closed by the visitor who has been there as the last one."


@pytest.fixture
def roots(tmp_path):
    package, share = tmp_path / "site-packages", tmp_path / "share"
    (package / "house" / "tests").mkdir(parents=True)
    (package / "house" / "door.py").write_text(f'"""{FIRST}\n\n{SECOND}\n"""\n\n\ndef f():\n    """{THIRD}"""\n')
    (package / "house" / "tests" / "test_door.py").write_text(f'"""{FIRST} {THIRD}"""\n')
    (package / "README.md").write_text(f"# House\n\n{SECOND}\n\n- {THIRD} This one is new, and it is long.\n- \n")
    for folder in ("man/man1", "man/de/man1"):
        (share / folder).mkdir(parents=True)
        page = f".TH HOUSE 1\n.SH NAME\nhouse\n.PP\n{FIRST}\nIt has\n.B many\n\\fIother\\fR rooms that are in use.\n"
        page += f".PP\n{THIRD} And this is all that there is to say about it, as far as it is known.\n"
        (share / folder / "house.1.gz").write_bytes(gzip.compress(page.encode()))
    (share / "broken.txt.gz").write_bytes(b"\x1f\x8bnonsense")
    return [package, share]


def test_files_are_found_by_source_without_tests_and_translations(roots):
    found = list(documentation_files(roots))
    assert {file.path.name: file.source for file in found} == {
        "door.py": "docstrings",
        "README.md": "documents",
        "house.1.gz": "man",
        "broken.txt.gz": "documents",
    }
    assert [file.path.parent.name for file in found if file.source == "man"] == ["man1"]
    assert next(file.id for file in found if file.source == "docstrings") == "house.door"
    assert len(list(documentation_files([*roots, *roots]))) == 4
    assert [file.source for file in documentation_files(roots, ["docstrings"])] == ["docstrings"]
    assert source_of(Path("/usr/share/man/de/man1/house.1.gz")) is None
    assert source_of(Path("/usr/share/doc/house/picture.png")) is None


def test_man_pages_lose_their_requests(roots):
    (page,) = [file for file in documentation_files(roots) if file.source == "man"]
    (document,) = documents_of(page)
    assert document.paragraphs[0] == FIRST + " It has many other rooms that are in use."


def test_chapters_of_the_language_reference_are_documents(tmp_path):
    (tmp_path / "pydoc_data").mkdir()
    (tmp_path / "pydoc_data/topics.py").write_text(f"topics = {{'b': '{SECOND}', 'a': '{FIRST}'}}\n")
    (file,) = documentation_files([tmp_path])
    found = {document.id: document.paragraphs for document in documents_of(file)}
    assert found == {"pydoc_data.topics.a": (FIRST,), "pydoc_data.topics.b": (SECOND,)}


def test_no_paragraph_occurs_twice_and_what_is_dropped_is_counted(roots, tmp_path):
    report = build(tmp_path / "out", roots, num_workers=2)
    lines = (tmp_path / "out" / documentation.FILE_NAME).read_text().splitlines()
    texts = {Path(line["id"]).name: line["text"].split("\n\n") for line in map(json.loads, lines)}
    assert texts["README.md"] == [SECOND, THIRD + " This one is new, and it is long."]
    assert texts["house.door"] == [FIRST, THIRD]
    assert len(texts["house.1.gz"]) == 2
    assert report["counts"] == {
        "files read": 4,
        "repeated paragraphs dropped": 1,
        "documents with too little prose dropped": 1,
    }
    assert report["parts"]["all"]["documents"] == 3
    assert report == json.loads((tmp_path / "out" / "report.json").read_text())
    assert documentation.summary(report).startswith("all: 3 documents, ")


def test_no_prose_is_refused(roots, tmp_path):
    with pytest.raises(ValueError, match="found 0 documents below"):
        build(tmp_path / "none", [tmp_path / "share" / "man" / "de"])


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


def test_with_a_held_out_part_no_sentence_occurs_twice():
    shared = "This sentence stands in every document that was written for this test of the corpus."
    documents = [
        Document(
            f"module{number}",
            "docstrings",
            tuple(f"{paragraph(10 * number + place)} {shared * (place == 1)}".strip() for place in range(4)),
        )
        for number in range(9)
    ]
    for by_sentence, times in ((False, 9), (True, 1)):
        counts: Counter = Counter()
        kept = list(without_duplicates(documents, counts, by_sentence))
        assert sum(shared in text for document in kept for text in document.paragraphs) == times
        assert counts == Counter({"paragraphs with a repeated sentence dropped": 8} if by_sentence else {})
        assert [len(document.paragraphs) for document in kept] == [4] + [3 if by_sentence else 4] * 8


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    root = tmp_path_factory.mktemp("packages")
    for number in range(40):
        text = "\n\n".join(paragraph(10 * number + place) for place in range(5))
        (root / f"module{number}.py").write_text(f'"""{text}"""\n')
    (root / "tests").mkdir()
    (root / "tests" / "hidden.py").write_text(f'"""{paragraph(1)}"""')
    return [root]


def test_corpus_is_deterministic_and_in_the_source_layout(modules, tmp_path):
    reports = [
        build(tmp_path / name, modules, held_out_fraction=0.2, num_workers=workers)
        for name, workers in (("one", 1), ("two", 2))
    ]
    assert reports[0] == reports[1]
    files = {path.relative_to(tmp_path / "one"): path.read_bytes() for path in (tmp_path / "one").rglob("*.txt")}
    others = {path.relative_to(tmp_path / "two"): path.read_bytes() for path in (tmp_path / "two").rglob("*.txt")}
    assert files == others
    assert Path("train/source/en/0.txt") in files and Path("held_out/source/en/0.txt") in files
    ids = [line.split()[0] for data in files.values() for line in data.decode().splitlines()]
    assert sorted(ids) == sorted(f"module{number}" for number in range(40))
    assert 0.15 < reports[0]["parts"]["held_out"]["share"] < 0.25
    assert build(tmp_path / "one", modules, held_out_fraction=0.2) == reports[0], "made again in the same folder"


def test_the_held_out_part_is_that_of_an_import_of_the_documents(modules, tmp_path):
    build(tmp_path / "corpus", modules, held_out_fraction=0.2)
    words = ["--input", str(tmp_path / "corpus" / documentation.FILE_NAME), "--output-dir", str(tmp_path / "imported")]
    import_text.main([*words, "--id-field", "id", "--held-out-fraction", "0.2"])
    for part in ("train", "held_out"):
        ours, imported = (
            (tmp_path / folder / part / "source/en/0.txt").read_bytes() for folder in ("corpus", "imported")
        )
        assert ours == imported and len(ours) > 1_000


def test_corpus_can_be_limited_and_impossible_limits_are_refused(modules, tmp_path, monkeypatch):
    small = build(tmp_path / "small", modules, max_megabytes=0.006, held_out_fraction=0.3)
    assert sum(part["bytes"] for part in small["parts"].values()) <= 6000
    assert small["counts"]["files read"] < 40  # not what is beyond the limit
    monkeypatch.setattr(documentation, "_LIMIT", 0.006)
    monkeypatch.setattr(documentation, "default_roots", lambda sources: modules)
    for words, read in ((["--held-out-fraction", "0.3"], small["counts"]["files read"]), ([], 40)):
        documentation.main(["--output-dir", str(tmp_path / "main"), *words])
        assert json.loads((tmp_path / "main/report.json").read_text())["counts"]["files read"] == read
    with pytest.raises(ValueError, match="too few"):
        build(tmp_path / "none", modules, max_megabytes=0.0001, held_out_fraction=0.3)
    with pytest.raises(SystemExit):
        documentation.main(["--output-dir", str(tmp_path / "refused"), "--held-out-fraction", "1.5"])
    assert not (tmp_path / "refused").exists()


def test_both_files_are_squad_2_with_a_fifth_unanswerable_and_no_shared_paragraph(tmp_path, capsys):
    main(["--output-dir", str(tmp_path)])
    parts = {name: read_squad(tmp_path / f"{name}.json", version_2=True) for name in ("train", "held_out")}
    assert "train.json: 391 questions" in capsys.readouterr().out and len(parts["held_out"]) == 131
    first = (tmp_path / "train.json").read_bytes()
    main(["--output-dir", str(tmp_path)])
    assert (tmp_path / "train.json").read_bytes() == first and json.loads(first)["version"] == "v2.0"
    assert not set(parts["train"].contexts) & set(parts["held_out"].contexts)
    for name, part in parts.items():
        answerable = read_squad(tmp_path / f"{name}-answerable.json").questions  # SQuAD 1's form
        assert [question.id for question in answerable] == [entry.id for entry in part.questions if entry.answers]
        unanswerable = sum(not question.answers for question in part.questions)
        assert 0.15 < unanswerable / len(part) < 0.25
        for question in part.questions:
            for text, start in question.answers:
                assert part.contexts[question.context][start : start + len(text)] == text
        assert len({question.text for question in part.questions}) > 0.95 * len(part)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("= A sea.\n? What? | lake\n", "s.txt:2: 'lake' is not in the paragraph"),
        ("= A sea.\nWhat?\n", "s.txt:2: 'What.' must begin with"),
        ("? What? | sea\n", "s.txt:1: .* must begin with"),
    ],
)
def test_a_mistake_in_the_source_is_named_with_its_line(text, message, tmp_path):
    (tmp_path / "s.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_source(tmp_path / "s.txt")
