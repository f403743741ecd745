"""Tests of the index on the disk: searches, changes, and a kill at any point of a change."""

import dataclasses
import json
import shutil
import threading

import numpy as np
import pytest

from bert.files import only_writer
from bert.search.fusion import USUAL_WEIGHT
from bert.search.index import _MANY, Change, SearchIndex
from bert.search.manifest import MANIFEST, IndexModel, Source
from bert.search.ranks import Query, ranks
from tests.faults.boundaries import count_boundaries, kill_at
from tests.search.indexes import MODEL, WIDTH, change, contents, make, passages, units, vectors


def test_what_was_added_is_there_after_it_is_opened_again(tmp_path):
    made = make(tmp_path / "index", change(20), change(7, seed=1, first=20))
    opened = SearchIndex(tmp_path / "index")
    expected = {passage.id: passage for passage in [*passages(20), *passages(7, 1, 20)]}
    assert contents(opened) == contents(made) == expected
    assert (opened.generation, opened.model) == (2, MODEL)
    stored = np.concatenate([segment.vectors for segment in opened.snapshot.segments])
    np.testing.assert_allclose(stored, units(np.concatenate([vectors(20), vectors(7, 1)])), rtol=1e-6)
    assert opened.num_bytes() == sum(path.stat().st_size for path in (tmp_path / "index").glob("segment-*"))


def test_deleted_and_replaced_passages_never_come_back(tmp_path):
    index = make(tmp_path / "index", change(20))
    assert index.apply(Change(ids=["id3", "id4", "id99"])) == 2
    assert index.apply(Change(ids=["id3"])) == 0
    assert index.unknown_ids(["id3", "id5", "id99"]) == ["id3", "id99"]
    newer = dataclasses.replace(passages(1)[0], id="id5", text="word0 new", source="", columns={"year": "later"})
    assert index.apply(Change([newer], vectors(1))) == 1
    assert index.apply(Change(sources=["file0.csv"])) == len({0, 3, 6, 9, 12, 15, 18} - {3})
    for opened in (index, SearchIndex(tmp_path / "index")):
        left = {f"id{row}" for row in range(20) if row % 3} - {"id4"}
        assert contents(opened).keys() == left
        found = ranks(opened.snapshot, [Query("", 50, ranking="vectors")], units(vectors(1)), USUAL_WEIGHT)[0]
        assert {opened.snapshot.passages([rank.row])[0].id for rank in found} == left


def test_many_small_segments_are_joined_and_nothing_is_lost(tmp_path):
    index, expected = make(tmp_path / "index"), {}
    for number in range(70):
        index.apply(change(2, seed=number, first=2 * number))
        expected |= {passage.id: passage for passage in passages(2, number, 2 * number)}
        if number % 10 == 5:
            index.apply(Change(ids=[f"id{2 * number}"]))
            del expected[f"id{2 * number}"]
    assert contents(index) == contents(SearchIndex(tmp_path / "index")) == expected
    assert len(index.snapshot.segments) < 2 * _MANY
    stored = np.concatenate([segment.vectors[segment.live] for segment in index.snapshot.segments])
    rows = np.flatnonzero(index.snapshot.live).tolist()
    numbers = [int(passage.id.removeprefix("id")) for passage in index.snapshot.passages(rows)]
    wanted = np.stack([units(vectors(2, number // 2))[number % 2] for number in numbers])
    np.testing.assert_allclose(stored, wanted, rtol=1e-5, err_msg="vectors stay beside their passages")


def test_columns_of_several_types_are_joined_as_text(tmp_path):
    index = make(tmp_path / "index")
    for number in range(_MANY):
        values = {"year": number if number % 2 else f"in {number}", "only": 1.5} if number else {}
        index.apply(Change([dataclasses.replace(passages(1)[0], id=str(number), columns=values)], vectors(1)))
    assert len(index.snapshot.segments) == 1
    assert contents(index)["3"].columns == {"year": "3", "only": 1.5} and contents(index)["0"].columns == {}
    assert index.snapshot.matching({"year": 3}).sum() == 1


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.long)])
def test_a_kill_at_any_point_of_a_change_leaves_the_old_or_the_new_index(tmp_path, step):
    """The kill comes before and after each system call of an addition that replaces passages and joins segments."""
    folder = tmp_path / "index"

    def prepare() -> SearchIndex:
        for path in folder.glob("*"):
            path.unlink()
        index = make(folder, *(change(2, seed=number, first=2 * number) for number in range(_MANY - 1)))
        return index

    rows = [dataclasses.replace(one, source="") for one in passages(2, 9, 13)]
    added = Change(rows, vectors(2, 9), ids=["id0"], read={"file": Source("/file", 1, 2)})
    old = prepare()
    before = contents(old), {}
    total = count_boundaries(lambda: old.apply(added))
    after = contents(old), old.sources()
    assert total > 60 and before[0] != after[0] and after[0]["id13"].text == added.passages[0].text
    states = []
    for boundary in range(0, total, step):
        index = prepare()
        kill_at(boundary, lambda index=index: index.apply(added))
        opened = SearchIndex(folder)
        state = contents(opened), opened.sources()
        assert state in (before, after), boundary
        named = {name for segment in opened.snapshot.segments for name in segment.files()}
        others = {path.name for path in folder.iterdir()} - named - {MANIFEST}
        assert all(name.startswith("sources-") for name in others) and len(others) <= 1, "no file is left over"
        states.append(state == after)
        opened.apply(added)
        assert (contents(opened), opened.sources()) == after, "the same change again"
    assert states == sorted(states) and {*states} == {False, True}


def test_queries_run_while_another_thread_changes_the_index(tmp_path):
    index, problems, is_done = make(tmp_path / "index", change(50)), [], threading.Event()

    def search() -> None:
        try:
            while not is_done.is_set():
                snapshot = index.refresh()
                for query in (Query("word1 word2"), Query("word3", ranking="words")):
                    (found,) = ranks(snapshot, [query], units(vectors(1)), USUAL_WEIGHT)
                    for passage in snapshot.passages([rank.row for rank in found]):
                        assert passage.id != "id0"
        except Exception as error:
            problems.append(error)

    index.apply(Change(ids=["id0"]))
    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(30):
        index.apply(change(3, seed=number, first=50 + 3 * number))
        index.apply(Change(ids=[f"id{number + 1}"]))
    is_done.set()
    for thread in threads:
        thread.join()
    assert not problems and len(contents(index)) == 50 - 31 + 90


def test_an_index_that_is_made_anew_in_its_folder_is_read_anew(tmp_path):
    folder = tmp_path / "index"
    index = make(folder, change(3))
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match="is no whole index"):
        index.refresh()
    other = make(folder, change(4, seed=1))
    assert [segment.name for segment in index.snapshot.segments] == [one.name for one in other.snapshot.segments]
    index.refresh()
    assert contents(index) == contents(other) != {}


def test_another_process_sees_a_change_and_keeps_what_it_reads(tmp_path):
    """Two indexes of one folder stand for two processes: each opens the files itself."""
    first = make(tmp_path / "index", change(20))
    second = SearchIndex(tmp_path / "index")
    before = second.snapshot
    for number in range(_MANY + 1):
        first.apply(change(20, seed=number, first=20 + 20 * number))  # they are joined, and the first files removed
    assert len(before.passages(range(20))) == 20 and before.cosines(units(vectors(1))).shape == (1, 20)
    assert second.refresh().num_live == 20 * (_MANY + 2) and contents(second) == contents(first)
    assert second.apply(Change(ids=["id1"])) == 1 and "id1" not in contents(SearchIndex(tmp_path / "index"))
    with only_writer(tmp_path / "index"), pytest.raises(ValueError, match="another run is writing"):
        first.apply(Change(ids=["id2"]))


def test_an_index_of_another_model_is_refused_with_the_remedy(tmp_path):
    index = make(tmp_path / "index", change(3))
    index.require_model(dataclasses.replace(MODEL, name="/moved/elsewhere"))
    with pytest.raises(ValueError, match="made by a model .*not by other; name that model, or make an index in"):
        index.require_model(dataclasses.replace(MODEL, name="other", fingerprint="other"))
    with pytest.raises(ValueError, match="max_seq_length=128, not 64; name that model, or"):
        index.require_model(dataclasses.replace(MODEL, max_seq_length=64))


def test_damaged_or_other_folders_are_refused(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"has files that are no index \(notes.txt\); name a new folder"):
        SearchIndex.create(tmp_path / "other", MODEL)
    with pytest.raises(ValueError, match="is no whole index"):
        SearchIndex(tmp_path / "other")
    folder = tmp_path / "index"
    index = make(folder, change(3))
    with pytest.raises(ValueError, match="is an index already"):
        SearchIndex.create(folder, MODEL)
    manifest = json.loads((folder / MANIFEST).read_text())
    for wrong in ("{", "[]", json.dumps({**manifest, "format": 9}), json.dumps({**manifest, "segments": 3})):
        (folder / MANIFEST).write_text(wrong)
        with pytest.raises(ValueError, match=r"manifest.json cannot be read \(.*\); remove the folder, and make"):
            SearchIndex(folder)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    vectors_file = folder / f"segment-{index.snapshot.segments[0].name}.vectors.npy"
    np.save(vectors_file, np.zeros((2, WIDTH), "float32"))
    with pytest.raises(ValueError, match=r"has \(2, 5\) numbers, not \(3, 5\)"):
        SearchIndex(folder)
    vectors_file.write_bytes(b"\x93NUMPY")
    with pytest.raises(ValueError, match="vectors.npy is damaged"):
        SearchIndex(folder)
    rows_file = folder / f"segment-{index.snapshot.segments[0].name}.rows.parquet"
    rows_file.write_bytes(rows_file.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"rows.parquet is damaged \(.*\); remove the folder, and make"):
        SearchIndex(folder)
    rows_file.unlink()
    with pytest.raises(ValueError, match=r"is no whole index \(.*rows.parquet.*\); remove the folder"):
        SearchIndex(folder)


def test_a_row_of_a_file_replaces_what_was_added_with_its_id_but_no_row_of_another_file(tmp_path):
    one, other, added = (dataclasses.replace(passages(1)[0], source=source) for source in ("a.csv", "b.csv", ""))
    index = make(tmp_path / "index", Change([added], vectors(1)))
    assert index.apply(Change([one], vectors(1))) == 1
    assert index.apply(Change([other], vectors(1))) == 0
    assert index.apply(Change([one], vectors(1), sources=["a.csv"])) == 1
    assert index.snapshot.num_live == 2
    assert index.apply(Change([added], vectors(1))) == 2


def test_of_a_model_that_was_not_trained_for_search_the_first_mean_is_taken_from_all(tmp_path):
    index = SearchIndex.create(tmp_path / "index", dataclasses.replace(MODEL, is_centred=True))
    first, later = vectors(20) + 5, vectors(3, 1) + 5
    index.apply(Change(passages(20), first))
    index.apply(Change(passages(3, 1, 20), later))
    opened = SearchIndex(tmp_path / "index")
    stored = np.concatenate([segment.vectors for segment in opened.snapshot.segments])
    np.testing.assert_allclose(stored, units(np.concatenate([first, later]) - first.mean(0)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(opened.units(later), stored[20:], rtol=1e-6)
    assert isinstance(opened.model, IndexModel) and opened.model.is_centred
    (tmp_path / "index/mean.npy").unlink()
    with pytest.raises(ValueError, match=r"mean.npy is missing; remove the folder, and make the index again"):
        opened.units(later)
