"""Tests of --keep-baseline: the better baseline becomes a model for prediction and the server."""

import csv
import json
import re
import shlex
from types import SimpleNamespace

import numpy as np
import pytest

import run_export
import run_glue
import run_predict
from bert import api
from bert.commands.fine_tuning import result_lines
from bert.config.command_line import parse_arguments
from bert.conversion.usage import LINEAR_MODEL_FILE
from bert.finetuning.task import Features
from bert.glue.config import ENTRY
from bert.labels.task import LabelTask
from bert.reporting.run_record import BASELINE_FILE, BASELINE_MODEL
from tests.glue import test_glue
from tests.serving.servers import serving

weights = test_glue.weights  # fixture
TRAINING = "--task-name custom --text-column words --label-column kind --do-train --do-eval --max-seq-length 16"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Write lines whose kind only characters know, because an ending tells it: a training and an evaluation."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.RandomState(5)
    for name, size in (("train", 150), ("dev", 60)):
        rows = []
        for row in range(size):
            kind = ("calm", "late", "urgent")[row % 3]
            ending = {"calm": "oo", "late": "ing", "urgent": "ck"}[kind if rng.rand() < 0.85 else "calm"]
            word = "".join(rng.choice(list("abdefghk"), 4))
            rows.append([" ".join([*rng.choice(test_glue.WORDS, 3), word + ending]), kind])
        with open(folder / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([["words", "kind"], *rows])
    return folder


def settings(weights, tables, out, words: str):
    flags = f"{TRAINING} --train-file {tables}/train.csv --eval-file {tables}/dev.csv {words}"
    return parse_arguments(ENTRY, shlex.split(f"{flags} --from-pretrained-params {weights} --output-dir {out}"))


def stand(weights, tables, out, words: str, predicted=None):
    """Return settings, evaluation examples and the baseline's figures; without `predicted` the model says one class."""
    config = settings(weights, tables, out, words)
    config.stage_dir().mkdir(parents=True, exist_ok=True)  # as a run does
    task = LabelTask(config)
    examples = task.read(task.evaluated[0])
    features = Features(examples, *task.features(examples))
    logits = np.eye(3, dtype="float32")[np.zeros(len(examples), int) if predicted is None else predicted(examples)]
    return config, examples, task.baseline(features, logits)


@pytest.fixture(scope="module")
def kept(weights, tables, tmp_path_factory):
    """Return the folder of a kept baseline, the lines by which it was chosen, and the figures."""
    out = tmp_path_factory.mktemp("out")
    config, examples, figures = stand(weights, tables, out, "--keep-baseline")
    return config.stage_dir() / BASELINE_MODEL, examples, figures, config


@pytest.mark.long
def test_the_verdict_names_the_flag_where_a_baseline_is_better(weights, tables, tmp_path):
    hint = "--keep-baseline keeps what is better as a model, for run_predict.py and the server."
    config, _, figures = stand(weights, tables, tmp_path / "worse", "")
    assert "This model is worse than the character baseline" in figures["verdict"] and figures["verdict"].endswith(hint)
    assert not (config.stage_dir() / BASELINE_MODEL).exists()
    right = stand(
        weights,
        tables,
        tmp_path / "better",
        "",
        lambda rows: [("calm", "late", "urgent").index(x) for x in rows.labels],
    )
    assert "is better than" in right[2]["verdict"] and "keep-baseline" not in right[2]["verdict"]


def test_a_kept_baseline_predicts_what_the_verdict_counts(kept):
    folder, examples, figures, config = kept
    assert f"is kept as a model: {folder}" in figures["verdict"]
    model = api.load_model(folder)
    results = api.predict(model, list(examples.texts[0]))
    record = json.loads((folder.parent / BASELINE_FILE).read_text())["methods"]["characters alone"]
    assert [result["label"] for result in results] == [("calm", "late", "urgent")[kind] for kind in record]
    right = np.mean([result["label"] == label for result, label in zip(results, examples.labels, strict=True)])
    assert right == pytest.approx(figures["eval_characters_alone_accuracy"])
    for result in results:
        assert set(result) == {"label", "probability", "probabilities"}
        assert list(result["probabilities"]) == ["calm", "late", "urgent"]
        assert sum(result["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert api.predict(folder, [{"words": examples.texts[0][0]}]) == results[:1]  # by the column of the training
    assert model.opened.describe() == f"{folder}: character baseline, a classifier of texts (calm, late, urgent)"
    assert f"run_predict.py {folder}" in "\n".join(result_lines(config, ()))


@pytest.mark.parametrize(
    ("scores", "better"),
    [
        (
            {"eval_score": 0.8, "eval_words_alone_score": 0.9, "eval_characters_alone_score": 0.85},
            "bag-of-words baseline",
        ),
        (
            {"eval_score": 0.8, "eval_words_alone_score": None, "eval_characters_alone_score": 0.85},
            "character baseline",
        ),
        ({"eval_score": 0.8, "eval_words_alone_score": 0.8, "eval_characters_alone_score": 0.7}, ""),
        ({"eval_score": 0.8}, ""),
        ({}, ""),
    ],
)
def test_the_model_that_scores_higher_is_the_first_next_step(tmp_path, scores, better):
    run = SimpleNamespace(do_train=False, benchmark=False)
    folders = {"log_dir": lambda: tmp_path, "checkpoint_dir": lambda: tmp_path / "model"}
    config = SimpleNamespace(**folders, run=run, hardware=SimpleNamespace(visualdl=False), example_words=["a text"])
    (tmp_path / "model/7").mkdir(parents=True)
    (tmp_path / "summary.json").write_text(json.dumps(scores))
    own = f"use the model, although the {better} scores higher" if better else "use the model"
    assert re.findall(r"# (use .*)", "\n".join(result_lines(config, ()))) == [own]
    (tmp_path / BASELINE_MODEL).mkdir()
    (tmp_path / BASELINE_MODEL / LINEAR_MODEL_FILE).write_text("{}")
    titles = ["use the kept baseline, which scores higher", own] if better else [own, "use the kept baseline"]
    assert re.findall(r"# (use .*)", "\n".join(result_lines(config, ()))) == titles


@pytest.mark.long
def test_a_kept_baseline_is_learned_anew_although_the_record_is_there(weights, tables, tmp_path):
    stand(weights, tables, tmp_path, "")
    config = stand(weights, tables, tmp_path, "--keep-baseline")[0]
    assert api.predict(config.stage_dir() / BASELINE_MODEL, ["wa1 hedack"])[0]["label"] == "urgent"


def test_run_predict_writes_a_table_with_the_columns_of_any_classifier(kept, tables, tmp_path):
    folder, examples, *_ = kept
    words = [str(folder), f"{tables}/dev.csv", "--output", f"{tmp_path}/out.csv"]
    assert run_predict.main(words) == 0
    with open(tmp_path / "out.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    names = ["words", "kind", "label", "probability"]
    assert list(rows[0]) == [*names, *(f"probability_{kind}" for kind in ("calm", "late", "urgent")), "error"]
    expected = [result["label"] for result in api.predict(folder, list(examples.texts[0]))]
    assert [row["label"] for row in rows] == expected


def test_a_threshold_gives_the_wanted_recall_in_the_kept_baseline_too(weights, tables, tmp_path):
    words = "--keep-baseline --positive-label urgent --wanted-recall 0.9"
    config = settings(weights, tables, tmp_path, words)
    task = LabelTask(config)
    examples = task.read(task.evaluated[0])
    features = Features(examples, *task.features(examples))
    logits = np.random.RandomState(1).randn(60, 3).astype("float32")
    task.details(task.evaluated[0], features, logits, fits=True)
    task.baseline(features, logits)
    results = api.predict(config.stage_dir() / BASELINE_MODEL, list(examples.texts[0]))
    urgent = [result["label"] for result, label in zip(results, examples.labels, strict=True) if label == "urgent"]
    assert 0.9 <= urgent.count("urgent") / 20 < 1
    assert not all(
        result["label"] == max(result["probabilities"], key=result["probabilities"].get) for result in results
    )


@pytest.mark.long
def test_a_kept_baseline_is_served(kept, tmp_path):
    folder, examples, *_ = kept
    with serving(tmp_path, folder) as server:
        answer = server.post(*examples.texts[0][:7])
        assert answer.json()["results"] == api.predict(folder, list(examples.texts[0][:7]))
        facts = server.get("/model").json()
        assert (facts["task"], facts["can_encode"]) == ("sequence-classification", False)
        assert facts["labels"] == ["calm", "late", "urgent"] and len(facts["fingerprint"]) == 64
        assert server.post("a", path="/encode").status_code == 404


REFUSED = {
    "vectors": (lambda folder: api.encode(api.load_model(folder), ["a"]), "makes no vectors: it is a kept baseline"),
    "another task": (lambda folder: api.load_model(folder, "encoder"), "task=encoder needs a network"),
    "a length": (lambda folder: api.load_model(folder, max_seq_length=64), "reads 20,000 characters of a text"),
    "masks": (lambda folder: api.fill_mask(api.load_model(folder), "a [MASK]"), "fill_mask needs a masked-LM head"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_kept_baseline_cannot_do_is_refused(kept, case):
    use, reason = REFUSED[case]
    with pytest.raises(ValueError, match=reason):
        use(kept[0])


def test_a_kept_baseline_is_neither_exported_nor_trained_on(kept, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run_export.main(["--checkpoint", str(kept[0]), "--to", str(tmp_path / "export"), "--format", "onnx"])
    assert "holds a kept baseline, which has no network to train, convert or export" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run_glue.main(shlex.split(f"{TRAINING} --train-file a.csv --from-pretrained-params {kept[0]}"))
    assert "holds a kept baseline" in capsys.readouterr().err
