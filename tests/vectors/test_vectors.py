"""Tests of run_vectors.py with a tiny model: it learns to search, resumes exactly, and is compared with BM25."""

import json
import shlex

import numpy as np
import pytest
from safetensors.numpy import load_file

import run_vectors
from bert.conversion.task_file import read_usage
from bert.conversion.usage import VectorForm
from bert.runtime.paddle_api import static
from tests.glue.test_glue import WORDS, weights  # noqa: F401
from tests.support import tiny
from tests.support.commands import refused


def run(folder, words: str) -> dict:
    common = f"--device cpu --no-visualdl --report-file {folder}/report.json --log-freq 4 --peak-tflops 1"
    with static.scope_guard(static.Scope()):
        assert run_vectors.main(shlex.split(f"--output-dir {folder}/out {words} {common}")) == 0
    return json.loads((folder / "out/vectors/summary.json").read_text())


@pytest.mark.long
def test_a_resumed_training_is_the_same_and_finds_more_than_words(weights, tmp_path, caplog, monkeypatch):  # noqa: F811
    """A passage shares no word with its query: it has the vocabulary's next word for each."""
    rng, rows = np.random.RandomState(1), ["query,passage,negative"]
    for _ in range(240):
        numbers = rng.choice(len(WORDS) // 2 - 1, 4, replace=False) * 2
        rows.append(",".join(" ".join(WORDS[number + shift] for number in numbers) for shift in (0, 1)) + ",")
    (tmp_path / "pairs.csv").write_text("\n".join(rows) + "\n")
    tokens = (weights / "vocab.txt").read_text().split("\n")
    tokens[-3:-1] = "q", ":"  # of the prefix; these two words are in no pair
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    training = (
        f"--pairs {tmp_path}/pairs.csv --model {weights} --vocab-file {tmp_path}/vocab.txt "
        "--batch-size 8 --global-batch-size 24 --max-steps 60 "
        "--learning-rate 0.004 --max-seq-length 16 --num-steps-per-checkpoint 30 --query-prefix q: --shortest-vector 16"
    )
    whole = run(tmp_path / "whole", training)
    run(tmp_path / "parts", f"{training} --steps-this-run 30")
    resumed = f"{training} --from-checkpoint {tmp_path}/parts/out --last-step-of-checkpoint auto"
    assert run(tmp_path / "parts", resumed)["eval_ndcg_at_10"] == whole["eval_ndcg_at_10"]
    folders = [next((tmp_path / name / "out").rglob("vectors/60")) for name in ("whole", "parts")]
    tiny.assert_identical(*(load_file(next(folder.glob("*.safetensors"))) for folder in folders))
    assert read_usage(folders[0]).vectors == VectorForm(query_prefix="q:", dimensions=(16,), hybrid_weight=0.5)
    assert whole["eval_recall_at_10"] > 0.3 + whole["initial_eval_recall_at_10"]
    assert whole["eval_bm25_recall_at_10"] == 0 and "is better than BM25 on" in whole["verdict"]
    assert (whole["eval_hybrid_recall_at_10"], whole["eval_hybrid_weight"]) == (whole["eval_recall_at_10"], 0.5)
    assert "fitted on one half of the queries for the other half" in whole["verdict"]
    (tmp_path / "others.csv").write_text(f"query,passage\n{WORDS[0]},{WORDS[1]}\n{WORDS[2]},{WORDS[3]}\n")
    beside = f"{training} --eval {tmp_path}/others.csv --held-out-fraction 0.2 --steps-this-run 1"
    run(tmp_path / "beside", beside)
    assert "not used: held_out_fraction, as nothing is held out beside --eval" in caplog.text
    lived = list[str]()
    monkeypatch.setattr("bert.vectors.task.beat", lived.append)
    monkeypatch.setattr("bert.vectors.task._TEXTS_AT_ONCE", 100)
    own = f"--model {tmp_path}/whole/out --compare {tmp_path}/whole/out"
    alone = run(tmp_path / "alone", f"--eval {tmp_path}/pairs.csv {own} --max-seq-length 16")
    assert alone["eval_compared_recall_at_10"] == alone["eval_recall_at_10"]
    assert lived.count("evaluating the model of --compare") == 6  # 240 queries and 240 passages
    assert alone["eval_bm25_recall_at_10"] == 0 and "is better than BM25 on" in alone["verdict"]
    assert "(50% vectors, 50% BM25, as the training of this model fitted it)" in alone["verdict"]


def test_what_cannot_be_used_is_refused_before_the_training(weights, tmp_path):  # noqa: F811
    (tmp_path / "pairs.csv").write_text("query,passage\n" + "".join(f"q{row},p{row}\n" for row in range(20)))
    (tmp_path / "empty").mkdir()
    training = f"--pairs {tmp_path}/pairs.csv --model"
    for words, message in (
        (f"{training} {tmp_path}/empty", "empty holds no weights of a known format"),
        (f"{training} {weights} --compare {tmp_path}/empty", "empty holds no weights of a known format"),
        (f"{training} {weights} --text {tmp_path}", r"--text \S+ and --pairs \S+ are two sources of pairs; give one"),
        (
            f"{training} {weights} --text-field body",
            "text_field=body is for --text; pass it too, or drop --text-column",
        ),
        (
            f"--text {tmp_path} --model {weights} --passage-column p",
            "passage_column=p is for --pairs or --eval; pass it too",
        ),
    ):
        with refused(message):
            run(tmp_path, words)
