"""Pre-training put together: what the settings say is what the loader and the objective do."""

from bert.pretraining.task import Pretraining
from tests.support import tiny
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
