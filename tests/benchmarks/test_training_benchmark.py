"""The benchmark's tasks, figures and checks; the competitors themselves are run by the slow test."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert import REPOSITORY
from bert.config.training_settings import BertConfig
from bert.planning.estimates import training_flops_per_sequence
from tests.benchmarks.compare_training import OURS, check_same_model, figures, flops_of, table
from tests.benchmarks.measuring import decays, read_task
from tests.benchmarks.training_tasks import CASES, Case, finetuning_batches, pretraining_batches, write_task
from tests.support.corpora import random_table, write_shards, write_vocabulary
from tests.support.foreign import paddlenlp_name

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 37}
MODEL = BertConfig(vocab_size=106, max_position_embeddings=32, **SIZES)
FLOAT32, BFLOAT16 = (OURS[precision].name for precision in ("float32", "bfloat16"))


def result(**changes) -> dict:
    times = {"seconds": 0.2, "cpu_seconds": 0.4, "system_seconds": 0.1}
    sizes = {"tokens": 60, "padded_tokens": 80, "sequences": 4, "peak_memory": 10**9, "peak_tflops": 0.1}
    return {**times, **sizes, "loss_before": 5.0, "loss_after": 4.0, "precision": "float32", **changes}


@pytest.mark.parametrize("padded", [True, False])
def test_everybody_reads_the_batches_of_our_loader(tmp_path, padded):
    write_vocabulary(tmp_path / "vocab.txt")
    write_shards(tmp_path / "shards", [random_table(100, 3, masked=True)])
    case = Case(MODEL, 8, 32, padded=padded)
    found = pretraining_batches(case, tmp_path / "shards")
    batches = write_task(tmp_path / "task", case, found, warmup_steps=2, threads=1)
    task = read_task(tmp_path / "task")
    assert len(task.batches) == len(batches) > 2
    for ours, theirs in zip(batches, task.batches, strict=True):
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    masks = np.concatenate([batch["attention_mask"].reshape(-1) for batch in batches])
    assert (masks.mean() < 1) == padded and (padded or batches[0]["input_ids"].shape == (8, 32))
    assert task.model["vocab_size"] == MODEL.padded_vocab_size() and (task.warmup_steps, task.threads) == (2, 1)


def test_batches_without_padding_predict_the_same_tokens(tmp_path):
    write_vocabulary(tmp_path / "vocab.txt")
    write_shards(tmp_path / "shards", [random_table(100, 3, masked=True)])
    padded, full = (
        next(pretraining_batches(Case(MODEL, 8, 32, padded=padded), tmp_path / "shards")) for padded in (True, False)
    )
    real = padded["masked_lm_weights"] > 0
    read = [feed["input_ids"].reshape(-1)[feed["masked_lm_positions"][real]] for feed in (padded, full)]
    assert real.any() and np.array_equal(*read)


@pytest.mark.parametrize("name", ["squad", "sst-2"])
def test_finetuning_has_lengths_as_in_real_data(name):
    case = CASES[name]
    lengths = np.concatenate([feed["attention_mask"].sum(axis=1) for feed in finetuning_batches(case)])
    mean, deviation = case.lengths
    assert abs(lengths.mean() - mean) < 0.1 * mean and abs(lengths.std() - deviation) < 0.2 * deviation
    assert lengths.max() <= case.length
    for feed in finetuning_batches(case):
        if name == "squad":
            assert (feed["end_positions"] < feed["attention_mask"].sum(axis=1)).all()


def test_figures_follow_from_what_was_measured():
    results = {
        FLOAT32: result(),
        BFLOAT16: result(precision="bfloat16", cpu_seconds=0.2),
        "float32": result(seconds=0.5, cpu_seconds=0.6, peak_tflops=0.2),
        "bfloat16": result(precision="bfloat16", cpu_seconds=0.3),
    }
    rows = figures(results, 5e9, wall_time=False)
    assert [row["over_ours"] for row in rows] == pytest.approx([1.0, 1.0, 1.5, 1.5])
    assert figures(results, 5e9, wall_time=True)[2]["over_ours"] == pytest.approx(2.5)
    assert rows[0]["tokens_per_second"] == pytest.approx(300)
    assert rows[0]["mfu"] == pytest.approx(5e9 / 0.2 / 0.2e12)  # the fastest product that any of them showed
    shown = table(rows, wall_time=False)
    assert "| float32 | 1.50 | 0.600 | 17% | 0.500 | 120 |" in shown and "1.00 GB" in shown


def test_arithmetic_counts_padding_and_masked_positions():
    batch = {"input_ids": np.zeros((4, 7), "int64"), "masked_lm_weights": np.ones(6, "float32")}
    assert flops_of(Case(MODEL, 4, 7), [batch]) == 4 * training_flops_per_sequence(MODEL, 7, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"loss_before": 5.1}, "do not train the same model"), ({"loss_after": 5.5}, "other does not learn")],
)
def test_another_model_or_no_learning_is_no_comparison(changes, message):
    check_same_model({FLOAT32: result(), "other": result(), "half": result(precision="bfloat16", loss_before=5.04)})
    with pytest.raises(RuntimeError, match=message):
        check_same_model({FLOAT32: result(), "other": result(**changes)})


def test_weights_decay_alike_under_all_names():
    for name in ("bert.encoder.layer.0.attention.self.query.weight", "cls.predictions.transform.dense.weight"):
        assert decays(name) and decays(paddlenlp_name(name))
    for name in ("bert.encoder.layer.0.output.LayerNorm.weight", "cls.predictions.bias", "bert.pooler.dense.bias"):
        assert not decays(name) and not decays(paddlenlp_name(name))


@pytest.mark.long
def test_ours_and_paddlenlp_run_and_agree(tmp_path):
    pytest.importorskip("paddlenlp")
    words = [sys.executable, "-m", "tests.benchmarks.compare_training", "--cases", "bert-tiny", "--folder", tmp_path]
    words += ["--rounds", "2", "--updates", "2", "--warmup-steps", "1", "--all"]
    done = subprocess.run([str(word) for word in words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (case,) = json.loads(Path(tmp_path, "results.json").read_text())["cases"]
    names = [row["name"] for row in case["rows"]]
    assert names == [FLOAT32, "this project, padded", "PaddleNLP, dygraph", BFLOAT16]
    assert "left out, no --torch-python" in done.stderr and "| PaddleNLP, dygraph |" in done.stdout
    done = subprocess.run([*map(str, words), "--profile"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert "| matmul_v2 |" in done.stdout, done.stderr[-3000:]
