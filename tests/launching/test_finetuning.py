"""What the launchers of all fine-tuning tasks share."""

import json

import pytest

from bert.config.base import derive
from bert.launching import finetuning
from bert.launching import ranks as launch_ranks
from bert.launching.finetuning import ranks_for, summary_lines, trained_model
from bert.launching.glue import plan
from bert.launching.ranks import Ranks


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    return ["--config", "small_pairs", "--bert-model", "bert-tiny", "--vocab-file", "vocab.txt", "--device", "cpu"]


def test_flags_are_shared_between_the_launcher_and_the_settings(words):
    found = plan([*words, "--num-gpus", "2", "--seed", "5"])
    assert (found.ranks.num_processes, found.config.run.seed, found.config.run.epochs) == (2, 5, 6.0)
    with pytest.raises(ValueError, match="--num-node is not a flag; did you mean --num-nodes?"):
        plan([*words, "--num-node", "2"])


def test_without_a_number_there_is_a_rank_for_each_gpu(words, monkeypatch):
    for module in (finetuning, launch_ranks):
        monkeypatch.setattr(module, "num_gpus", lambda: 4)
    config = plan(words).config
    assert ranks_for({}, config) == Ranks(1)
    assert ranks_for({}, derive(config, device="auto")) == Ranks(4)


def test_the_summary_of_a_benchmark_stands_apart_and_the_best_weights_come_first(words):
    config = plan(words).config
    (config.stage_dir() / "benchmark").mkdir(parents=True)
    (config.stage_dir() / "summary.json").write_text(json.dumps({"eval_f1": 0.5}))
    (config.stage_dir() / "benchmark/summary.json").write_text(json.dumps({"training_sequences_per_second": 7.25}))
    rows = [("F1", "eval_f1", ".2f"), ("recall", "eval_recall", ".2f")]
    assert [line.split() for line in summary_lines(config, lambda summary: rows)] == [[], ["F1", "0.50"], []]
    lines = summary_lines(derive(config, benchmark=True), lambda summary: rows)
    assert [line.split() for line in lines] == [[], ["training,", "sequences/s", "7.2"], []]
    assert trained_model(config) is None
    config.checkpoint_dir().mkdir(parents=True)
    assert trained_model(config) == config.checkpoint_dir()
    config.best_dir().mkdir()
    assert trained_model(config) == config.best_dir()
