"""Tests that a reranker in every format gives the scores of sentence-transformers."""

import json
import shutil

import numpy as np
import pytest
from huggingface_hub.repocard import metadata_load

from bert.api import rerank
from bert.conversion.task_file import read_usage
from bert.conversion.usage import RerankingForm, Usage
from bert.inference.heads import load_model
from bert.inference.reranked import find_reranker
from tests.conversion.recorded_outputs import GOLDEN
from tests.conversion.test_parity import our_outputs
from tests.inference import models
from tests.inference.models import export, feed_of, model
from tests.support import foreign
from tests.support.oracle_cross_encoder import PASSAGES, QUERY, checksums

folders = models.folders  # fixture
FORM = RerankingForm(0.65, 20)
CLS, SEP = 2, 3


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    head = np.random.RandomState(63).randn(foreign.HIDDEN, 1).astype("float32")
    changes = {"classifier.weight": head, "classifier.bias": np.full(1, 0.5, "float32")}
    usage = Usage("reranker", 9, ("query", "passage"), regression=True, reranking=FORM)
    folder = model(tmp_path_factory.mktemp("reranker") / "m", "sequence-classification", usage, **changes)
    (folder / "labels.json").unlink()
    (folder / "manifest.json").unlink()
    return folder


def test_the_score_is_the_output_for_query_and_passage_cut_to_the_length_of_the_training(reranker):
    scores = load_model(reranker).rank_scores(QUERY, PASSAGES)
    assert scores.shape == (4,) and scores.dtype == np.float32
    for row, passage in ((0, [8, 7]), (2, [10, 11, 12, 13])):  # the longer one loses its end: 9 tokens in all
        feed = feed_of([CLS, 6, 9, SEP, *passage, SEP], first=4)
        wanted = our_outputs(reranker, "sequence-classification", feed)["logits"][0, 0]
        assert scores[row] == pytest.approx(float(wanted), abs=2e-6)
    assert len(load_model(reranker).rank_scores(QUERY, [])) == 0


def test_the_python_function_lists_the_passages_best_first(reranker):
    scores = load_model(reranker).rank_scores(QUERY, PASSAGES)
    with pytest.warns(UserWarning, match="1 of 4 texts were longer than 9 tokens"):
        found = rerank(reranker, QUERY, PASSAGES)
    assert [each["row"] for each in found] == np.argsort(-scores).tolist()
    assert [each["text"] for each in found] == [PASSAGES[each["row"]] for each in found]
    assert [each["score"] for each in found] == pytest.approx(np.sort(scores)[::-1].tolist(), abs=1e-6)


def test_the_first_hits_are_sorted_by_the_weighted_scores(reranker, tmp_path, caplog):
    scores = np.array([3.0, 2.0, 1.0, 0.5], "float32")
    own = load_model(reranker).rank_scores(QUERY, PASSAGES)
    both = sum(share * (each - each.mean()) / each.std() for share, each in ((0.65, own), (0.35, scores)))
    (run := tmp_path / "run").mkdir()
    assert find_reranker(run) is None, "an output folder without one"
    shutil.copytree(reranker, run / "reranker")
    assert find_reranker(run).order(QUERY, PASSAGES, scores).tolist() == np.argsort(-both).tolist()
    assert find_reranker(run / "bert/vectors/7") is None and find_reranker(run / "bert/vectors") is None
    (run / "reranker/reranker.yaml").touch()  # as a training leaves it
    assert find_reranker(run / "bert/vectors/7").form == find_reranker(run / "bert/vectors").form == FORM
    assert find_reranker(tmp_path, reranker).form == FORM and find_reranker(run, "none") is None
    task = json.loads((run / "reranker/task.json").read_text())
    for form, places in (
        ({"weight": 1.0, "depth": 2}, [*np.argsort(-own[:2]), 2, 3]),
        ({"weight": 0.0, "depth": 2}, None),
    ):
        (run / "reranker/task.json").write_text(json.dumps({**task, "reranking": form}))
        found = find_reranker(run)
        assert places is None if found is None else found.order(QUERY, PASSAGES, scores).tolist() == places
    assert find_reranker("anywhere", run / "reranker") is None
    assert caplog.messages == [f"{run}/reranker is not used: it did not help in its training, so its weight is 0"]


@pytest.mark.parametrize("task", ["sequence-classification", "encoder"])
def test_another_model_is_no_reranker(folders, task):
    with pytest.raises(ValueError, match="is no reranker, which gives one number for a query and a passage; train one"):
        load_model(folders[task]).rank_scores(QUERY, PASSAGES)
    with pytest.raises(ValueError, match="is no reranker"):
        find_reranker("a", folders[task])
    with pytest.raises(ValueError, match="text 1, counted from 0: the text is empty"):
        rerank(folders[task], QUERY, ["word1", " "])


@pytest.mark.parametrize("to_format", ["hf", "onnx", "paddle-inference", "paddlenlp"])
def test_every_format_gives_the_scores_and_keeps_weight_and_depth(reranker, tmp_path, to_format):
    theirs = load_model(export(reranker, tmp_path / "x", "--format", to_format))
    np.testing.assert_allclose(
        theirs.rank_scores(QUERY, PASSAGES), load_model(reranker).rank_scores(QUERY, PASSAGES), rtol=0, atol=1e-5
    )
    assert read_usage(tmp_path / "x").reranking == FORM


def test_the_cross_encoder_of_sentence_transformers_gave_these_scores(reranker, tmp_path):
    """`tests.support.oracle_cross_encoder` recorded them, from files with the bytes that are written now."""
    folder = export(reranker, tmp_path / "x", "--format", "hf")
    record = json.loads((GOLDEN / "cross_encoder.json").read_text())
    assert checksums(folder) == record["files"], "other files than the library loaded: record again"
    np.testing.assert_allclose(load_model(reranker).rank_scores(QUERY, PASSAGES), record["scores"], rtol=0, atol=1e-5)
    card = metadata_load(folder / "README.md")
    assert (card["pipeline_tag"], card["library_name"]) == ("text-ranking", "sentence-transformers")
    text = (folder / "README.md").read_text()
    assert "from sentence_transformers import CrossEncoder" in text and "Classes:" not in text
