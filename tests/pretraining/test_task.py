"""Pre-training put together: what the settings say is what the loader and the objective do."""

from unittest import mock

import numpy as np
import pytest

from bert.config.training_settings import derive
from bert.pretraining.task import Pretraining
from bert.samples.loader import PretrainingDataset, PretrainingLoader
from bert.samples.settings import LoaderSettings
from tests.support import runs, tiny
from tests.support.corpora import random_table, vocabulary, write_shards, write_vocabulary


def test_the_loader_gets_the_settings_and_the_seed_of_the_run(tmp_path):
    shards = write_shards(tmp_path / "shards", [random_table(20, 1, longest=12)])
    config = tiny.pretraining_config(
        tmp_path,
        input_dir=shards,
        eval_dir=shards,
        vocab_file=write_vocabulary(tmp_path / "vocab.txt"),
        model=tiny.MODEL.model_copy(update={"vocab_size": len(vocabulary())}),
        masking="dynamic",
        fuse_mha=False,
        seed=43,
    )
    task = Pretraining(config, tiny.ONE_RANK)
    for dataset in (task._train, task._held_out):
        assert (dataset.settings, dataset.seed) == (config.data, 43)
    assert (task.objective.model, task.objective.fuse_mha) == (config.model, config.hardware.fuse_mha)
    assert task.evaluates and task.trains and task.fingerprint == task._train.fingerprint


def test_dealing_by_length_changes_no_update(tmp_path):
    """At dropout 0 ten updates on dealt batches equal those on batches in the order that they were drawn in."""
    settings = LoaderSettings(max_seq_length=16, max_predictions_per_seq=3, masking="dynamic", num_workers=0)
    shards = write_shards(
        tmp_path / "shards", [random_table(60, 1, longest=8), random_table(60, 2, longest=16, shortest=9)], bins=[0, 1]
    )
    model = tiny.MODEL.model_copy(
        update={
            "vocab_size": len(vocabulary()),
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "max_position_embeddings": 16,
        }
    )
    config = tiny.pretraining_config(tmp_path, model=model, batch_size=4, global_batch_size=24)
    shapes, results = {}, {}
    for name, deal in (("dealt", None), ("drawn", lambda lengths, steps, world_size: np.arange(len(lengths)))):
        loader = PretrainingLoader(
            PretrainingDataset(shards, vocabulary(), settings, seed=1), global_batch_size=24, micro_batch_size=4
        )
        with mock.patch.object(tiny, "updates", lambda step, micro_steps, change, loader=loader: loader.batches(step)):
            with mock.patch("bert.samples.loader.deal", deal) if deal else mock.MagicMock():
                shapes[name] = sum(loader.micro_batch(0, step).num_padded_tokens for step in range(6))
                results[name] = runs.run(derive(config, output_dir=tmp_path / name), 10)
    assert shapes["dealt"] < shapes["drawn"]
    for name, value in results["drawn"].parameters.items():
        assert results["dealt"].parameters[name] == pytest.approx(value, abs=1e-5, rel=1e-5), name
