"""Tests of reading files into an index: new, changed, missing and unusable files, and resuming."""

import json
import shutil
import threading
import time

import numpy as np
import pytest

from bert import exit_codes
from bert.conversion.usage import Usage, VectorForm
from bert.indexing import __main__ as command
from bert.indexing import building
from bert.indexing.building import IndexBuilder, open_index
from bert.indexing.searcher import NewText, Searcher
from bert.inference.heads import load_model
from bert.search.documents import TableColumns
from bert.search.index import SearchIndex
from bert.search.ranks import Query
from data.text.encodings import DETECTED
from tests.inference.models import model as make_model
from tests.search.indexes import contents
from tests.support import foreign


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make a tiny model that was trained for search, with prefixes."""
    form = VectorForm(query_prefix="word8 ", passage_prefix="word9 ")
    return make_model(
        tmp_path_factory.mktemp("model") / "m", "encoder", Usage("search", foreign.POSITIONS, vectors=form)
    )


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder, device="cpu", cpu_threads=1)


@pytest.fixture
def documents(tmp_path):
    """Write a folder with a text of paragraphs, a list of lines, and a table."""
    root = tmp_path / "docs"
    (root / "deep").mkdir(parents=True)
    long = " ".join(f"word{number * (1 + number // 30) % 31}" for number in range(60))
    (root / "guide.md").write_text(f"# word1 word2\n\nword3 word4.\n\n{long}\n")
    (root / "deep/list.txt").write_text("word5 word6\nword7\nword5 word6\n")
    rows = [
        {"id": "a", "text": "word10 word11", "year": 1990, "tags": ["x"]},
        {"id": "b", "text": "word10 word11", "year": 1991},
        {"id": "a", "text": "word12", "year": 1992},
        {"id": None, "text": "word13", "year": 1993},
        {"id": "e", "text": None, "year": 1994},
        {"id": "f", "text": "  ", "year": 1995},
    ]
    (root / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "picture.png").write_bytes(b"\x89PNG")
    return root


def read(folder, model, *paths, **columns):
    index = open_index(folder, model)
    summary = IndexBuilder(index, model, DETECTED, TableColumns(**columns)).read(paths)
    return index, summary


def test_each_file_gives_passages_with_their_places(tmp_path, model, documents):
    index, summary = read(tmp_path / "index", model, documents)
    found = list(index.snapshot.passages(range(len(index.snapshot))))
    places = [(one.source, one.id, one.part, one.line, one.text[:11]) for one in found]
    assert places[0] == ("docs/deep/list.txt", "docs/deep/list.txt", 0, 1, "word5 word6")
    assert places[1] == ("docs/deep/list.txt", "docs/deep/list.txt", 1, 2, "word7")
    guide = [one for one in found if one.source == "docs/guide.md"]
    assert [one.part for one in guide] == [*range(len(guide))] and len(guide) > 2
    lines = (documents / "guide.md").read_text().splitlines()
    assert all(lines[one.line - 1].find(one.text.split("\n")[0]) >= 0 for one in guide)
    assert " ".join(" ".join(one.text for one in guide).split()) == " ".join(" ".join(lines).split()), "nothing is lost"
    table = [(one.id, one.text, one.line, one.columns) for one in found if one.source == "docs/table.jsonl"]
    assert table == [
        ("a", "word10 word11", 1, {"year": 1990}),
        ("b", "word10 word11", 2, {"year": 1991}),
        ("docs/table.jsonl:4", "word13", 4, {"year": 1993}),
    ]
    notes = "\n".join(summary.notes)
    for expected in (
        "picture.png: is of no format that is read",
        "docs/table.jsonl:5: field 'text' holds no text",
        "rows with the id of an earlier row: 1 (docs/table.jsonl: a)",
        "texts that their file has before: 1 (docs/deep/list.txt: word5 word6)",
        "documents without text: 1 (f)",
        "lists or objects: 1 (docs/table.jsonl:1, 'tags')",
    ):
        assert expected in notes.replace(str(documents), "docs"), notes
    assert not model.cut_texts(), "no passage is longer than the model reads"


def test_vectors_are_those_that_the_model_makes(tmp_path, model, documents):
    index, _ = read(tmp_path / "index", model, documents)
    texts = [one.text for one in index.snapshot.passages(range(len(index.snapshot)))]
    stored = np.concatenate([segment.vectors for segment in index.snapshot.segments])
    np.testing.assert_allclose(stored, model.encode(texts), rtol=1e-4, atol=1e-5)
    (found,) = Searcher(model, index).search([Query("word12 word3", ranking="vectors")])
    cosines = model.encode(texts) @ model.encode(["word12 word3"], "query")[0]
    assert found[0].passage.text == texts[int(cosines.argmax())] and found[0].score == pytest.approx(
        cosines.max(), abs=1e-5
    )


def test_only_new_and_changed_files_are_read_and_those_that_are_gone_are_deleted(tmp_path, model, documents):
    folder = tmp_path / "index"
    index, _ = read(folder, model, documents)
    Searcher(model, index).add([NewText("word20", "mine")])
    (documents / "table.jsonl").unlink()
    (documents / "guide.md").write_text("word21\n")
    (documents / "new.txt").write_text("word22\n")
    index, summary = read(folder, model, documents)
    assert (summary.read, summary.unchanged, summary.gone, summary.added) == (2, 1, 1, 2)
    texts = {one.id: one.text for one in contents_of(index)}
    assert texts.pop("docs/deep/list.txt") and texts == {
        "mine": "word20",
        "docs/guide.md": "word21",
        "docs/new.txt": "word22",
    }
    _, summary = read(folder, model, documents)
    assert (summary.read, summary.added, summary.deleted) == (0, 0, 0)
    _, summary = read(folder, model, documents / "new.txt")
    assert (summary.read, summary.gone) == (0, 0), "a file that is named itself keeps the name that it has"


def contents_of(index):
    rows = np.flatnonzero(index.snapshot.live).tolist()
    return index.snapshot.passages(rows)


def test_other_settings_make_a_table_be_read_again(tmp_path, model, documents):
    index, _ = read(tmp_path / "index", model, documents)
    before = len(contents_of(index))
    index, summary = read(tmp_path / "index", model, documents, kept=("year",), id="year")
    assert (summary.read, summary.unchanged, len(contents_of(index))) == (1, 2, before + 1), "the table alone"
    rows = [(one.id, one.columns) for one in contents_of(index) if one.source == "docs/table.jsonl"]
    assert rows == [(str(year), {}) for year in (1990, 1991, 1992, 1993)]


def test_files_of_one_name_are_refused_and_moved_ones_keep_theirs(tmp_path, model):
    for name in "ab":
        (tmp_path / name / "docs").mkdir(parents=True)
        (tmp_path / name / "docs/x.txt").write_text(f"word1 {name}\n")
    read(tmp_path / "index", model, tmp_path / "a/docs")
    with pytest.raises(ValueError, match=r"a/docs/x.txt and .*b/docs/x.txt have one name, docs/x.txt; name the folder"):
        read(tmp_path / "index", model, tmp_path / "b/docs")
    (tmp_path / "a").rename(tmp_path / "c")
    index, summary = read(tmp_path / "index", model, tmp_path / "c/docs")
    assert (summary.read, summary.added, summary.deleted) == (0, 0, 0)
    assert index.sources()["docs/x.txt"].path == str(tmp_path / "c/docs/x.txt")


def test_rows_of_two_files_can_have_one_id_and_half_a_surrogate_pair_is_left_out(tmp_path, model):
    docs = tmp_path / "docs"
    docs.mkdir()
    rows = '{"id": 1.0, "text": "word1"}\n{"id": 2, "text": "word2 \\ud800"}\n{"id": "\\ud800", "text": "word3"}\n'
    for name in "ab":
        (docs / f"{name}.jsonl").write_text(rows)
    _, summary = read(tmp_path / "index", model, docs)
    notes = "\n".join(summary.notes)
    assert "a.jsonl:2: field 'text' has half of a surrogate pair" in notes
    assert "a.jsonl:3: field 'id' has half of a surrogate pair" in notes
    (docs / "a.jsonl").write_text(rows.replace("word1", "word4"))
    index, _ = read(tmp_path / "index", model, docs)
    assert sorted((one.id, one.text) for one in contents_of(index)) == [("1", "word1"), ("1", "word4")]


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_reading_that_was_stopped_continues_where_it_was(tmp_path, model, documents, monkeypatch, calls):
    (documents / "long.csv").write_text("text\n" + "".join(f"word1 word{row}\n" for row in range(20)))
    whole, _ = read(tmp_path / "whole", model, documents)
    monkeypatch.setattr(building, "_PART_PASSAGES", 6)
    encode, encoded = model.encode, []

    def stops(texts, *rest):
        if len(encoded) == calls:
            raise KeyboardInterrupt
        encoded.append(texts)
        return encode(texts, *rest)

    index = open_index(tmp_path / "index", model)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(model, "encode", stops)
        IndexBuilder(index, model, DETECTED).read([documents])
    kept = SearchIndex(tmp_path / "index").snapshot.num_live
    assert kept == sum(map(len, encoded)) >= 6 * calls
    with monkeypatch.context() as patch:
        encoded.clear()
        patch.setattr(model, "encode", lambda texts, *rest: encoded.append(texts) or encode(texts, *rest))
        index, _ = read(tmp_path / "index", model, documents)
    again = sum(map(len, encoded)) - 1  # one to know the width
    assert again + kept == whole.snapshot.num_live, "nothing is encoded twice"
    key = lambda one: (one.source, one.id, one.part)  # noqa: E731
    assert sorted(contents_of(index), key=key) == sorted(contents_of(whole), key=key)


def test_the_command_makes_an_index_deletes_and_prints_what_answers(tmp_path, folder, documents, capsys):
    words = [str(folder), "--index", str(tmp_path / "index"), "--cpu-threads", "1", "--device", "cpu"]
    assert command.main([*words[:1], str(documents), *words[1:]]) == exit_codes.OK
    assert "3 files read, 0 unchanged: " in capsys.readouterr().err
    (tmp_path / "ids").write_text("a\n\nnothing\n")
    query = ["--query", "word10 word11", "--ranking", "words"]
    assert command.main([*words, *query]) == exit_codes.OK
    first, sentence = capsys.readouterr().out.splitlines()[:2]
    assert first.endswith("docs/table.jsonl:1") and sentence.strip() == "word10 word11"
    assert command.main([*words, "--delete", str(tmp_path / "ids"), *query]) == exit_codes.OK
    printed = capsys.readouterr()
    assert "2 ids, 1 passages deleted; 1 are not in the index, such as nothing" in printed.err
    assert printed.out.splitlines()[0].endswith("docs/table.jsonl:2")
    assert command.main([*words, "--query", "zebra", "--ranking", "words"]) == exit_codes.OK
    assert capsys.readouterr().err.endswith("nothing found\n")


def test_mistakes_are_refused_before_the_model_is_loaded(tmp_path, capsys):
    for words, reason in (
        (["--query", "a"], f"--index {tmp_path} is no index; name the files to make it of"),
        ([str(tmp_path / "no")], f"FILE {tmp_path / 'no'} must be an existing file or folder"),
        ([], "nothing to do; name files to read, or pass --query TEXT or --delete FILE"),
        (["--query", " "], "--query ' ' must be a text"),
        (["--delete", str(tmp_path)], "must be an existing file of ids"),
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(["nowhere", *words, "--index", str(tmp_path)])
        assert ended.value.code == exit_codes.BAD_INPUT and reason in capsys.readouterr().err


def test_an_index_of_another_model_is_refused(tmp_path, folder, model, documents):
    read(tmp_path / "index", model, documents)
    usage = Usage("search", foreign.POSITIONS, vectors=VectorForm(pooling="cls"))
    make_model(tmp_path / "other", "encoder", usage)
    with pytest.raises(ValueError, match="name that model, or make an index in another folder"):
        open_index(tmp_path / "index", load_model(tmp_path / "other", device="cpu", cpu_threads=1))
    with pytest.raises(ValueError, match="max_seq_length="):
        open_index(tmp_path / "index", load_model(folder, max_seq_length=9, device="cpu", cpu_threads=1))


def test_an_index_that_another_model_has_made_anew_is_not_searched(tmp_path, model, documents):
    index, _ = read(tmp_path / "index", model, documents)
    searcher = Searcher(model, index)
    shutil.rmtree(tmp_path / "index")
    usage = Usage("search", foreign.POSITIONS, vectors=VectorForm(pooling="cls"))
    make_model(tmp_path / "other", "encoder", usage)
    read(tmp_path / "index", load_model(tmp_path / "other", device="cpu", cpu_threads=1), documents)
    for use in (lambda: searcher.search([Query("word1")]), lambda: searcher.add([NewText("word1")])):
        with pytest.raises(ValueError, match="its vectors were made by .*other.* name that model"):
            use()


def test_the_ids_to_delete_can_have_a_byte_order_mark_and_must_be_text(tmp_path, folder, documents, capsys):
    words = [str(folder), "--index", str(tmp_path / "index"), "--cpu-threads", "1", "--device", "cpu"]
    ids = tmp_path / "ids"
    ids.write_bytes(b"\xef\xbb\xbfa\r\n")
    assert command.main([words[0], str(documents), *words[1:], "--delete", str(ids)]) == exit_codes.OK
    assert "1 ids, 1 passages deleted\n" in capsys.readouterr().err
    ids.write_bytes(b"\xa6\xff")
    with pytest.raises(SystemExit):
        command.main([*words, "--delete", str(ids)])
    assert f"--delete {ids} is no text in UTF-8" in capsys.readouterr().err


def test_two_readings_of_a_file_at_a_time_put_it_into_the_index_once(tmp_path, model, documents, monkeypatch):
    """The second reading opens the index and begins while the first encodes."""
    second, encode, began = open_index(tmp_path / "index", model), model.encode, threading.Event()

    def slow(texts, *rest):
        if len(texts) > 1:  # one asks for the width
            began.set()
            time.sleep(0.5)
        return encode(texts, *rest)

    monkeypatch.setattr(model, "encode", slow)
    first = threading.Thread(target=read, args=(tmp_path / "index", model, documents))
    first.start()
    began.wait()
    summary = IndexBuilder(second, model, DETECTED).read([documents])
    first.join()
    assert (summary.read, summary.unchanged, summary.added) == (0, 3, 0)
    places = [(one.source, one.id, one.part) for one in contents_of(SearchIndex(tmp_path / "index"))]
    assert len(places) == len({*places}) > 5


def test_columns_are_those_that_are_named(tmp_path, model):
    (tmp_path / "t.csv").write_text("nr,subject,body,team\n7,word1,word2,red\n8,word3,,blue\n")
    index, _ = read(tmp_path / "index", model, tmp_path / "t.csv", text="subject+body", id="nr", kept=("team",))
    found = {one.id: (one.text, one.columns) for one in contents_of(index)}
    assert found == {"7": ("word1\nword2", {"team": "red"}), "8": ("word3", {"team": "blue"})}
    for columns, reason in (
        ({"text": "none"}, "has no column 'none'"),
        ({"text": "body", "id": "none"}, "has no column 'none'.*--id-column$"),
        ({"text": "body", "kept": ("none",)}, "has no column 'none'.*--columns$"),
    ):
        with pytest.raises(ValueError, match=reason):
            read(tmp_path / "other", model, tmp_path / "t.csv", **columns)


def test_texts_are_added_without_a_file(tmp_path, model):
    index = open_index(tmp_path / "index", model)
    searcher = Searcher(model, index)
    long = ". ".join(f"word1 word{number % 30}" for number in range(60))
    ids, replaced = searcher.add([NewText("word1", "a", {"team": "red"}), NewText("word2"), NewText(long, "c")])
    assert (ids[0], ids[2], replaced) == ("a", "c", 0) and ids[1].startswith("added-")
    parts = [one for one in contents_of(index) if one.id == "c"]
    assert len(parts) > 2 and [one.part for one in parts] == [*range(len(parts))]
    assert searcher.add([NewText("word3", "c")])[1] == len(parts)
    assert {one.id: one.text for one in contents_of(index)} == {"a": "word1", ids[1]: "word2", "c": "word3"}
    assert contents(index)["a"].columns == {"team": "red"}
    with pytest.raises(ValueError, match="two texts have the id 'a'"):
        searcher.add([NewText("word1", "a"), NewText("word2", "a")])
    assert searcher.delete(["a", "nothing"]) == 1
