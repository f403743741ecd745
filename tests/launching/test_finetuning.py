"""What the launchers of all fine-tuning tasks share."""

import json

import pytest

from bert.config.training_settings import derive
from bert.launching import finetuning
from bert.launching import ranks as launch_ranks
from bert.launching.finetuning import result_lines, trained_model
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
    assert plan(words).ranks == Ranks(1)
    assert plan([*words, "--device", "auto"]).ranks == Ranks(4)


def test_the_results_are_a_table_and_the_best_weights_come_first(words):
    found = plan(words)
    folder = found.config.stage_dir()
    (folder / "benchmark").mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"eval_f1": 0.5}))
    (folder / "benchmark/summary.json").write_text(json.dumps({"training_sequences_per_second": 7.25}))

    def lines(plan):
        rows = [("F1", "eval_f1", ".2f"), ("recall", "eval_recall", ".2f")]
        return [line.split() for line in result_lines(plan, lambda summary: rows, "--do-predict")]

    said = ["Predictions", "and", "summary.json:", str(folder)]
    assert lines(found) == [[], ["F1", "0.50"], [], said]
    config = derive(found.config, benchmark=True)
    throughput = ["training,", "sequences/s", "7.2"]
    assert lines(found._replace(config=config)) == [
        [],
        throughput,
        [],
        ["Summary:", f"{folder}/benchmark/summary.json"],
    ]
    config.checkpoint_dir().mkdir(parents=True)
    assert trained_model(config) == config.checkpoint_dir()
    config.best_dir().mkdir()
    assert trained_model(config) == config.best_dir()
    assert lines(found)[-1][-2:] == [str(config.best_dir()), "--do-predict"]
