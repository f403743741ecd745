"""Tests of the index in the model process: answers, lasting changes, and an index that is built from a file."""

import concurrent.futures
import errno
import json
import os
import signal
import threading
import time

import numpy as np
import pytest
import requests

from bert.conversion.usage import Usage, VectorForm
from bert.indexing.building import open_index
from bert.indexing.searcher import NewText, Searcher
from bert.inference.heads import load_model
from bert.search import segments
from bert.search.index import SearchIndex
from bert.serving.index_routes import AddAnswer, DeleteAnswer, IndexAnswer, SearchAnswer
from bert.serving.messages import (
    ADD,
    DELETE,
    DONE,
    FAILED,
    LATE,
    REFUSED,
    SEARCH,
    STATE,
    Batch,
    RowOptions,
    SearchOptions,
)
from bert.serving.model_process import ModelServer
from bert.serving.served_index import ServedIndex
from tests.inference.models import model as make_model
from tests.serving import servers
from tests.support import foreign

TEXTS = ["word1 word2", "word3 word4", "word5 word6", "word7 word8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    form = VectorForm(query_prefix="word8 ")
    return make_model(
        tmp_path_factory.mktemp("model") / "m", "encoder", Usage("search", foreign.POSITIONS, vectors=form)
    )


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder, device="cpu", cpu_threads=1)


def filled(folder, model):
    """Make an index with four texts, their years and colours."""
    searcher = Searcher(model, open_index(folder, model))
    columns = [{"year": 1990 + number, "colour": ("red", "blue")[number % 2]} for number in range(4)]
    searcher.add([NewText(text, f"id{n}", columns[n]) for n, text in enumerate(TEXTS)])
    return searcher


@pytest.fixture
def served(tmp_path, model):
    forward = model.forward
    yield ModelServer(model, ServedIndex(filled(tmp_path / "index", model)))
    model.forward = forward


def ask(server, kind, *inputs, seconds=600.0):
    _, outcomes = server.answer(Batch(kind, time.monotonic() + seconds, 8, list(inputs)))
    return [(outcome.status, json.loads(outcome.json) if outcome.json else None) for outcome in outcomes]


def options(filters=None, top_k=2, ranking="hybrid"):
    return SearchOptions(top_k, filters or {}, ranking)


def added(*rows):
    texts, ids, columns = zip(*rows, strict=True)
    return texts, RowOptions(ids, columns)


def test_searches_that_run_together_are_answered_as_by_the_index(served, model, tmp_path):
    inputs = [
        (("word3",), options()),
        (("word3",), options({"colour": "red"}, ranking="words")),
        (("word3",), options({"shape": 1})),
        (("word1",), options({"year": {"from": 1991}}, 9, "vectors")),
    ]
    (first, nothing, wrong, last) = ask(served, SEARCH, *inputs)
    assert (first[0], nothing[0], last[0]) == (DONE, DONE, DONE) and first[1]["hits"][0]["id"] == "id1"
    assert nothing[1]["hits"] == [] and wrong == (REFUSED, "the index has no column 'shape', only colour, source, year")
    vectors = model.encode(TEXTS) @ model.encode(["word1"], "query")[0]
    expected = [f"id{row}" for row in np.argsort(-vectors) if row]
    assert [hit["id"] for hit in last[1]["hits"]] == expected
    for answer in (first, nothing, last):
        SearchAnswer.model_validate(answer[1])


def test_additions_and_deletions_are_on_the_disk_when_they_are_answered(served, tmp_path):
    rows = [("word9", "new", {"year": 2026}), ("word10", None, {})], [("word11", "id0", {})]
    (first, second) = ask(served, ADD, *(added(*some) for some in rows))
    assert first[1]["ids"][0] == "new" and (first[1]["replaced"], second[1]["replaced"]) == (0, 1)
    AddAnswer.model_validate(first[1])
    assert SearchIndex(tmp_path / "index").snapshot.num_live == 6
    ((status, answer),) = ask(served, DELETE, (("new", "nothing"), None))
    assert (status, DeleteAnswer.model_validate(answer).deleted) == (DONE, 1)
    ((_, state),) = ask(served, STATE, ((), None))
    assert IndexAnswer.model_validate(state).passages == 5 == SearchIndex(tmp_path / "index").snapshot.num_live
    ((_, twice), (done, _)) = ask(served, ADD, added(("a", "b", {}), ("c", "b", {})), added(("word1", "b", {})))
    assert twice == "two texts have the id 'b'; give each text an id of its own" and done == DONE


def test_an_addition_that_is_late_or_fails_changes_nothing(served, tmp_path, monkeypatch):
    before = SearchIndex(tmp_path / "index").generation
    assert ask(served, ADD, added(("word1", "late", {})), seconds=-1) == [(LATE, None)]

    def full(*parts):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(segments, "_save", full)
        ((status, reason),) = ask(served, ADD, added(("word1", "full", {})))
    assert status == FAILED and "No space left" in reason
    opened = SearchIndex(tmp_path / "index")
    assert opened.generation == before and opened.snapshot.num_live == 4
    ((status, answer),) = ask(served, ADD, added(("word1", "full", {})))
    assert status == DONE and answer["generation"] == before + 1, "once"


def test_a_damaged_index_is_no_mistake_of_the_request(served, tmp_path):
    (tmp_path / "index/manifest.json").write_text("junk")
    ((status, reason),) = ask(served, SEARCH, (("word1",), options()))
    assert status == FAILED and "the index failed: " in reason and "manifest.json cannot be read" in reason
    (tmp_path / "index/manifest.json").unlink()
    ((status, reason),) = ask(served, ADD, added(("word9", "new", {})))
    assert status == FAILED and "is no whole index" in reason


def test_a_file_is_made_an_index_once_and_again_when_it_changes(tmp_path, model, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    texts = tmp_path / "texts.csv"
    texts.write_text("text,team\nword1,red\nword2,blue\n")
    first = ServedIndex.of(texts, model)
    assert first.folder.parts[0] == "results" and first.folder.name.startswith("index-texts-")
    assert "1 files read, 0 unchanged: 2 passages added" in capsys.readouterr().err
    first.results(ADD, [added(("word5", "mine", {}))])
    assert ServedIndex.of(texts, model).folder == first.folder
    assert "0 files read, 1 unchanged" in capsys.readouterr().err
    texts.write_text("text,team\nword3,red\n")
    changed = ServedIndex.of(texts, model).results(SEARCH, [(("word3",), options(top_k=9, ranking="vectors"))])
    assert {hit["text"] for hit in changed[0]["hits"]} == {"word3", "word5"}
    shorter = load_model(model.opened.path, max_seq_length=9, device="cpu", cpu_threads=1)
    assert ServedIndex.of(texts, shorter).folder != first.folder, "the vectors of another length of text"
    assert ServedIndex.of(first.folder, model).folder == first.folder
    (tmp_path / "numbers.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"--text-column; the flags are for .*bert\.indexing, whose index --index"):
        ServedIndex.of(tmp_path / "numbers.csv", model)


@pytest.mark.long
def test_the_server_keeps_additions_through_kills_and_answers_while_it_changes(tmp_path, folder, model):
    filled(tmp_path / "index", model)
    flags = ("--index", tmp_path / "index", "--device", "cpu", "--cpu-threads", 1)

    def post(server, path, **body):
        return requests.post(server.url + path, json=body, timeout=60)

    with servers.serving(tmp_path, folder, *flags) as server:
        found = post(server, "/search", query="word3", top_k=1).json()["hits"]
        assert [hit["id"] for hit in found] == ["id1"] and found[0]["sentence"]["text"] == "word3 word4"
        problems, is_done = [], threading.Event()

        def search():
            while not is_done.is_set():
                answer = post(server, "/search", query="word1 word5", top_k=50)
                ids = [hit["id"] for hit in answer.json()["hits"]]
                if answer.status_code != 200 or "id2" in ids or len(set(ids)) < len(ids):
                    problems.append(answer.text)

        assert post(server, "/index/delete", ids=["id2"]).json()["deleted"] == 1
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            searches = [pool.submit(search) for _ in range(2)]
            for number in range(20):
                rows = [{"id": f"new{number}", "text": f"word{number} word1", "year": number}]
                assert post(server, "/index/add", rows=rows).json()["ids"] == [f"new{number}"]
            is_done.set()
            for one in searches:
                one.result()
        assert not problems
        os.kill(server.model_pid(), signal.SIGKILL)
        server.wait_for("it is started again")
        servers.wait_until(lambda: server.get("/ready").status_code == 200, 120)
        state = server.get("/index").json()
        assert state["passages"] == 3 + 20 and state["columns"] == ["year", "colour"]
        server.process.kill()
        server.process.wait()
    assert SearchIndex(tmp_path / "index").snapshot.num_live == 23
    other = make_model(tmp_path / "other", "encoder", Usage("search", foreign.POSITIONS))
    with servers.serving(tmp_path, other, *flags, ready=False) as refused:
        assert refused.process.wait(120) == 2
        assert "name that model, or make an index in another folder" in refused.log()
