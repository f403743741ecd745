"""Tests that a model of vectors encodes, exports and searches with its own pooling, length and prefixes."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from huggingface_hub.repocard import metadata_load

import run_predict
from bert.api import search
from bert.arrays.vectors import unit
from bert.conversion.task_file import read_usage
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.usage import TASK_FILE, Usage, VectorForm, usage_texts
from bert.inference.heads import load_model
from bert.tokenization.normalization import UNCASED
from tests.conversion import test_networks
from tests.conversion.test_parity import our_outputs
from tests.inference.models import export, feed_of, model
from tests.support.commands import refused

MEAN = VectorForm("mean", True, "word9 ", "word8 ", (4,))
CLS = VectorForm("cls", False)
TEXTS = ["word1 word4", "word3 word2 word1 word0", "word7"]
IDS = {"query": [2, 14, 6, 9, 3], "passage": [2, 13, 6, 9, 3], "": [2, 6, 9, 3]}  # of the first text


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Make a checkpoint for each form, and a ModernBERT."""
    root = tmp_path_factory.mktemp("vectors")
    for name, form in (("mean", MEAN), ("cls", CLS)):
        model(root / name, "encoder", Usage("vectors", 9, vectors=form))
    folder = test_networks.native(root / "modernbert", "encoder")
    for file, text in usage_texts(Usage("vectors", 9, vectors=MEAN), UNCASED).items():
        (folder / file).write_text(text)
    (folder / "manifest.json").unlink()
    return root


def test_a_text_is_encoded_as_its_model_was_trained(models):
    for kind, ids in IDS.items():
        states = our_outputs(models / "mean", "encoder", feed_of(ids))["last_hidden_state"][0]
        found = load_model(models / "mean").encode(TEXTS, kind)
        np.testing.assert_allclose(found[0], unit(states.mean(0)), atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    states = our_outputs(models / "cls", "encoder", feed_of(IDS[""]))["last_hidden_state"][0]
    np.testing.assert_allclose(load_model(models / "cls").encode(TEXTS)[0], states[0], atol=1e-6)
    states = our_outputs(models / "mean", "encoder", feed_of(IDS["passage"]))["last_hidden_state"][0]
    np.testing.assert_allclose(load_model(models / "mean", pooling="max").encode(TEXTS)[0], states.max(0), atol=1e-6)


FORMATS = ("onnx", "openvino", "paddle-inference", "hf")


@pytest.mark.parametrize(
    ("name", "to_format"),
    [(name, kind) for name in ("mean", "cls") for kind in FORMATS]
    + [pytest.param("modernbert", kind, marks=pytest.mark.long) for kind in FORMATS],
)
def test_an_export_gives_the_same_vectors(models, tmp_path, name, to_format):
    ours, theirs = load_model(models / name), load_model(export(models / name, tmp_path / "x", "--format", to_format))
    for kind in IDS:
        np.testing.assert_allclose(theirs.encode(TEXTS, kind), ours.encode(TEXTS, kind), rtol=0, atol=1e-5)
    if to_format != "hf":
        serving = json.loads((tmp_path / "x/serving.json").read_text())
        assert list(serving["outputs"]) == ["sentence_embedding"]
        assert serving["vectors"]["query_prefix"] == ours.opened.usage.vectors.query_prefix
        with pytest.raises(ValueError, match="pooling=max: .* is an export with a pooling inside; omit --pooling"):
            load_model(tmp_path / "x", pooling="max")


@pytest.mark.parametrize(("name", "form"), [("mean", MEAN), ("cls", CLS)])
def test_a_folder_of_sentence_transformers_is_written_and_read(models, tmp_path, name, form):
    """sentence-transformers 6.2 opened such folders, of BERT and ModernBERT, and gave the same vectors to 1e-6."""
    folder = export(models / name, tmp_path / "x", "--format", "hf")
    kinds = [module["type"].rpartition(".")[2] for module in json.loads((folder / "modules.json").read_text())]
    assert kinds == ["Transformer", "Pooling", *["Normalize"] * form.normalize]
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    assert settings["default_prompt_name"] == ("document" if form.passage_prefix else None)
    card = metadata_load(folder / "README.md")
    assert (card["pipeline_tag"], card["library_name"]) == ("sentence-similarity", "sentence-transformers")
    assert "feature-extraction" in card["tags"] and card["widget"][0]["source_sentence"]
    wanted = load_model(folder).encode(TEXTS)
    (folder / TASK_FILE).unlink()  # now it could be of any origin
    read = read_usage(folder)
    assert (read.max_seq_length, read.vectors) == (9, VectorForm(*list(vars(form).values())[:4]))
    np.testing.assert_array_equal(load_model(folder).encode(TEXTS), wanted)


def with_modules(folder, tmp_path, kinds, pooling):
    """Copy a folder of sentence-transformers and replace the modules that make its vectors."""
    copy = shutil.copytree(folder, tmp_path / "changed", dirs_exist_ok=True)
    (copy / TASK_FILE).unlink(missing_ok=True)
    (copy / "modules.json").write_text(json.dumps([{"path": "", "type": f"sentence_transformers.{k}"} for k in kinds]))
    (copy / "1_Pooling").mkdir(exist_ok=True)
    (copy / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return copy


@pytest.mark.parametrize(
    ("kinds", "pooling", "unread"),
    [
        (["Transformer", "Pooling", "Dense", "Normalize"], {"pooling_mode_cls_token": True}, "Dense"),  # as LaBSE
        (["Transformer", "Pooling"], {"pooling_mode_max_tokens": True}, "pooling max"),
        (["Transformer", "Pooling"], {"pooling_mode": "weightedmean"}, "pooling weightedmean"),
        (["Transformer", "Pooling"], {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "cls, mean"),
        (["Transformer", "Normalize"], {}, "no pooling"),
        (["Transformer", "Normalize", "Pooling"], {"pooling_mode": "cls"}, "Transformer, Normalize, Pooling"),
    ],
)
def test_vectors_that_are_made_in_another_way_are_refused(models, tmp_path, kinds, pooling, unread):
    folder = with_modules(export(models / "mean", tmp_path / "x", "--format", "hf"), tmp_path, kinds, pooling)
    assert read_usage(folder).vectors is None
    with pytest.raises(ConversionError, match=f"{unread}.* not computed here.* pass --pooling mean"):
        load_model(folder)
    states = our_outputs(models / "mean", "encoder", feed_of(IDS[""]))["last_hidden_state"][0]
    np.testing.assert_allclose(load_model(folder, pooling="mean").encode(TEXTS)[0], states.mean(0), atol=1e-6)


def test_what_our_own_training_wrote_comes_before_the_modules_beside_it(models, tmp_path):
    folder = Path(export(models / "mean", tmp_path / "x", "--format", "hf"))
    wanted = load_model(folder).encode(TEXTS)
    (folder / "modules.json").write_text(json.dumps([{"type": "Transformer"}, {"type": "Pooling"}, {"type": "Dense"}]))
    np.testing.assert_array_equal(load_model(folder).encode(TEXTS), wanted)


def test_modules_that_are_no_list_are_refused(models, tmp_path):
    folder = Path(export(models / "mean", tmp_path / "x", "--format", "hf"))
    (folder / TASK_FILE).unlink()
    (folder / "modules.json").write_text('{"0": "Transformer"}')
    with pytest.raises(ConversionError, match="modules.json must list the modules .*; correct it, or remove it"):
        read_usage(folder)


def predict(*words) -> None:
    assert run_predict.main([str(word) for word in words]) == 0


def test_vectors_on_the_disk_are_searched(models, tmp_path, capsys):
    texts = [f"word{number % 20} word{number // 20} word{number % 7}" for number in range(60)]
    lines = [*texts[:30], "", texts[3], *texts[30:]]  # one that cannot be used, one twice
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    for output in ("out.npy", "out.parquet"):
        predict(models / "mean", tmp_path / "in.txt", "--encode", "--output", tmp_path / output)
    vectors, table = np.load(tmp_path / "out.npy"), pq.read_table(tmp_path / "out.parquet")
    encoder = load_model(models / "mean")
    np.testing.assert_allclose(np.delete(vectors, 30, 0), encoder.encode([t for t in lines if t]), atol=1e-6)
    assert table.column_names == ["text", "vector", "error"] and table["text"].to_pylist()[:30] == texts[:30]
    np.testing.assert_allclose(table["vector"].to_pylist()[31], vectors[31], atol=1e-6)
    capsys.readouterr()
    cosines = encoder.encode(texts) @ encoder.encode([texts[3]], "query")[0]
    best = sorted(zip(cosines.tolist(), texts, strict=True), reverse=True)[:4]
    for file in ("out.npy", "in.txt"):
        predict(models / "mean", "--nearest", texts[3], "--in", tmp_path / file, "--top-k", 4, "--ranking", "vectors")
        found = json.loads(capsys.readouterr().out)["nearest"]
        assert [near["similarity"] for near in found] == pytest.approx([cosine for cosine, _ in best], abs=1e-3)
        assert len({near["text"] for near in found}) == 4 and {near["text"] for near in found} <= set(texts)


def test_the_ranking_of_a_model_that_was_trained_for_search_is_hybrid(models, tmp_path, capsys):
    """A model without a weight of its own has the usual weight; words alone need no vectors."""
    texts = [f"word{number % 20} word{number // 20} word{number % 7}" for number in range(40)]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    search = (models / "mean", "--nearest", "word4 word18", "--in", tmp_path / "in.txt")
    predict(*search)
    output = capsys.readouterr()
    assert "ranked by 75% vectors and 25% BM25 (the usual shares; a training fits its own)" in output.err
    found = json.loads(output.out)["nearest"]
    assert [sorted(near) for near in found] == [["score", "similarity", "text"]] * 5
    predict(*search, "--ranking", "words")
    output = capsys.readouterr()
    by_words = json.loads(output.out)["nearest"]
    assert "ranked by BM25" in output.err and [near["text"] for near in by_words][0] == "word18 word0 word4"
    assert all("word4" in near["text"].split() or "word18" in near["text"].split() for near in by_words)


def test_texts_are_searched_from_python(models):
    texts = [f"word{number % 20} word{number // 20} word{number % 7}" for number in range(40)]
    encoder = load_model(models / "mean")
    (by_vectors,) = search(encoder, texts[3], texts, top_k=3, ranking="vectors")
    cosines = encoder.encode(texts) @ encoder.encode([texts[3]], "query")[0]
    found = [cosines[texts.index(near["text"])] for near in by_vectors]  # texts may be equally near
    np.testing.assert_allclose(found, np.sort(cosines)[::-1][:3], atol=1e-6)
    assert len({near["text"] for near in by_vectors}) == 3
    (every,) = search(encoder, texts[3], texts, top_k=10**12, ranking="vectors")
    assert len(every) == len({*texts})
    found = search(models / "mean", ["word4 word18", "zebra"], texts)
    assert [len(each) for each in found] == [5, 5] and sorted(found[0][0]) == ["score", "similarity", "text"]
    assert search(encoder, ["zebra"], texts, ranking="words") == [[]]
    with pytest.raises(ValueError, match="ranking='best' must be one of hybrid, vectors, words"):
        search(encoder, "word4", texts, ranking="best")
    with pytest.raises(ValueError, match="has nothing to search among; give at least one text"):
        search(encoder, "word4", [])


def test_vectors_of_other_models_and_texts_are_not_searched(models, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    predict(models / "mean", tmp_path / "in.txt", "--encode", "--output", tmp_path / "out.npy")
    search = ("--nearest", "word1", "--in", str(tmp_path / "out.npy"))
    with refused("has vectors of another model, --layers or --pooling; make it again by --encode"):
        run_predict.main([str(models / "cls"), *search])
    whole = np.load(tmp_path / "out.npy")
    for changed in (whole[:2], whole[:, :3], whole[0]):
        np.save(tmp_path / "out.npy", changed)
        with refused(rf"out.npy has {re.escape(str(changed.shape))} float32, not \(3, 8\); make it again by"):
            run_predict.main([str(models / "mean"), *search])
    for number in (np.nan, -np.inf):
        np.save(tmp_path / "out.npy", np.where(np.arange(8) == [[9], [5], [9]], number, whole))
        with refused("out.npy: vector 2 has NaN or infinity; make it again by --encode"):
            run_predict.main([str(models / "mean"), *search])
    np.save(tmp_path / "out.npy", whole)
    with refused("--nearest ' ' needs a text and --in FILE"):
        run_predict.main([str(models / "mean"), "--nearest", " ", *search[2:]])
    (tmp_path / "in.txt").write_text("word5\nword6\n")
    with refused("in.txt changed after .*out.npy; make it again by --encode"):
        run_predict.main([str(models / "mean"), *search])
    (tmp_path / "out.npy").write_bytes((tmp_path / "out.npy").read_bytes()[:130])
    with refused("out.npy, out.npy.json: .*; make both again by --encode"):
        run_predict.main([str(models / "mean"), *search])
    shutil.move(tmp_path / "out.npy.json", tmp_path / "elsewhere")
    with refused("out.npy needs out.npy.json beside it"):
        run_predict.main([str(models / "mean"), *search])
