"""Pre-training put together: what the settings say is what the loader and the objective do."""

from bert.pretraining import task as pretraining
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
        seed=43,
    )
    data = pretraining.open_data(config, tiny.ONE_RANK)
    for dataset in (data.train, data.held_out):
        assert (dataset.settings, dataset.seed) == (config.data, 43)


def test_the_objective_follows_the_settings(tmp_path):
    config = tiny.pretraining_config(tmp_path, fuse_mha=False)
    objective = pretraining.objective_of(config)
    assert (objective.model, objective.fuse_mha) == (config.model, False)
