"""The benchmark's task, figures and checks; the competitors themselves are run by the slow test."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert import REPOSITORY
from bert.config.training_settings import BertConfig
from bert.planning.estimates import training_flops_per_sequence
from tests.benchmarks.compare_training import OURS, check_same_model, figures, table, write_task
from tests.benchmarks.measuring import decays, read_task
from tests.benchmarks.train_paddlenlp import name_there
from tests.support.corpora import random_table, write_shards, write_vocabulary

MODEL = BertConfig(
    vocab_size=106,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=37,
    max_position_embeddings=32,
)


def result(**changes) -> dict:
    return {
        "updates": 10,
        "seconds": 2.0,
        "cpu_seconds": 4.0,
        "tokens": 600,
        "padded_tokens": 800,
        "sequences": 40,
        "loss_before": 5.0,
        "loss_after": 4.0,
        "peak_memory": 10**9,
        "peak_tflops": 0.1,
        **changes,
    }


def batch(size=4, length=7, masked=6) -> dict:
    return {"input_ids": np.zeros((size, length), "int64"), "masked_lm_weights": np.ones(masked, "float32")}


def test_everybody_reads_the_batches_of_our_loader(tmp_path):
    write_vocabulary(tmp_path / "vocab.txt")
    write_shards(tmp_path / "shards", [random_table(100, 3, masked=True)])
    batches = write_task(
        tmp_path / "task",
        tmp_path / "shards",
        MODEL,
        batch_size=8,
        sequence_length=32,
        steps=3,
        warmup_steps=2,
        threads=1,
    )
    task = read_task(tmp_path / "task")
    assert len(task.batches) == len(batches) == 5
    for ours, theirs in zip(batches, task.batches, strict=True):
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert task.batches[0]["attention_mask"].mean() < 1, "real batches have padding"
    assert task.model["vocab_size"] == MODEL.padded_vocab_size() and (task.steps, task.threads) == (3, 1)


def test_figures_follow_from_what_was_measured():
    results = {OURS.name: result(), "other": result(seconds=5.0, cpu_seconds=6.0, peak_tflops=0.2)}
    ours, other = figures(results, [batch()], MODEL)
    assert (ours["tokens_per_second"], ours["padded_tokens_per_second"], ours["sequences_per_second"]) == (300, 400, 20)
    assert (ours["time_over_ours"], other["time_over_ours"], other["cpu_over_ours"]) == (1.0, 2.5, 1.5)
    flops = training_flops_per_sequence(MODEL, 7, 2)
    assert ours["mfu"] == pytest.approx(flops * 20 / 0.2e12)  # the fastest product that any of them showed
    shown = table([ours, other])
    assert "| other | 1.50 | 0.60 | 2.50 | 120 (160) |" in shown and "1.00 GB" in shown


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"loss_before": 5.1}, "do not train the same model"), ({"loss_after": 5.5}, "other does not learn")],
)
def test_another_model_or_no_learning_is_no_comparison(changes, message):
    check_same_model({OURS.name: result(), "other": result()})
    with pytest.raises(RuntimeError, match=message):
        check_same_model({OURS.name: result(), "other": result(**changes)})


@pytest.mark.parametrize(
    "name",
    [
        "bert.encoder.layer.0.attention.self.query.weight",
        "cls.predictions.transform.dense.weight",
        "bert.embeddings.word_embeddings.weight",
    ],
)
def test_weights_decay_alike_under_all_names(name):
    assert decays(name) and decays(name_there(name))
    for other in (
        "bert.encoder.layer.0.output.LayerNorm.weight",
        "cls.predictions.bias",
        "bert.pooler.dense.bias",
        "bert.embeddings.LayerNorm.bias",
    ):
        assert not decays(other) and not decays(name_there(other))


@pytest.mark.slow
def test_ours_and_paddlenlp_run_and_agree(tmp_path):
    pytest.importorskip("paddlenlp")
    words = "--model bert-tiny --batch-size 4 --steps 2 --warmup-steps 1 --sequence-length 32 --threads 1 --folder"
    command = [sys.executable, "-m", "tests.benchmarks.compare_training", *words.split(), str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(Path(tmp_path, "results.json").read_text())["rows"]
    assert [row["name"] for row in rows] == [OURS.name, "PaddleNLP, dygraph"]
    assert "left out, no --torch-python" in done.stderr and "| PaddleNLP, dygraph |" in done.stdout
