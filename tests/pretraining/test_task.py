"""Pre-training as a whole: loader and objective follow the settings."""

import json
from unittest import mock

import numpy as np
import pytest

from bert.commands.pretrain import parse_launch_arguments
from bert.config.command_line import parser_of
from bert.config.entry_point import Rule
from bert.config.run_file import dump_yaml
from bert.config.setting_sources import merged, resolve_config
from bert.config.training_settings import derive
from bert.pretraining.entry import ENTRY, dry_run_report
from bert.pretraining.epochs import SampleSet, sample_set
from bert.pretraining.task import Pretraining
from bert.samples.dataset import PretrainingDataset
from bert.samples.loader import PretrainingLoader
from bert.samples.mixture import write_mixture
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
    for dataset in (task._train, task._held_out[0].data):
        assert (dataset.settings, dataset.seed) == (config.data, 43)
    assert (task.objective.model, task.objective.fuse_mha) == (config.model, config.hardware.fuse_mha)
    assert task.evaluates and task.trains and task.fingerprint == task._train.fingerprint


@pytest.mark.long
def test_dealing_by_length_changes_no_update(tmp_path):
    """Without dropout, three updates on dealt batches equal three updates on batches in the drawn order."""
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
                results[name] = runs.run(derive(config, output_dir=tmp_path / name), 3)
    assert shapes["dealt"] < shapes["drawn"]
    for name, value in results["drawn"].parameters.items():
        assert results["dealt"].parameters[name] == pytest.approx(value, abs=1e-5, rel=1e-5), name


def settings(folder, **changes):
    shards = write_shards(folder / "shards", [random_table(60, 1, longest=12), random_table(43, 2, longest=12)])
    model = tiny.MODEL.model_copy(update={"vocab_size": len(vocabulary())})
    vocab_file = write_vocabulary(folder / "vocab.txt")
    config = tiny.pretraining_config(folder, input_dir=shards, vocab_file=vocab_file, model=model, masking="dynamic")
    return derive(config, **changes)


def test_epochs_are_whole_updates_over_the_samples(tmp_path):
    config = settings(tmp_path, epochs=2.5, max_steps=-1, batch_size=4, gradient_merge_steps=2)
    assert sample_set(config.data.input_dir) == SampleSet(103)
    for world_size, steps in ((1, int(2.5 * 103 / 8)), (2, int(2.5 * 103 / 16)), (8, int(2.5 * 103 / 64))):
        resolved = config.with_known_steps(world_size)
        assert (resolved.run.max_steps, resolved.run.epochs) == (steps, None)
    assert derive(config, epochs=0.001).with_steps(103, 1).run.max_steps == 1
    steps = settings(tmp_path / "b", max_steps=7)
    assert steps.with_steps(103, 1) == steps, "max_steps decides where it is given"


def test_the_settings_of_a_run_hold_the_updates_so_that_a_resume_is_the_same(tmp_path):
    config = settings(tmp_path, epochs=3, max_steps=-1)
    task = Pretraining(config, tiny.ONE_RANK)
    assert (task.config.run.max_steps, task.epochs(103)) == (int(3 * 103 / 12), 12)
    written = tmp_path / "config.yaml"
    written.write_text(dump_yaml(task.config))
    assert resolve_config({"config": str(written)}, ENTRY) == task.config


def test_the_later_of_epochs_and_max_steps_wins_and_both_at_once_are_refused():
    def run(*flags):
        return resolve_config(parser_of(ENTRY).read([*flags, "--input-dir", "d"]), ENTRY).run

    quickstart = ("--config", "quickstart_phase1")
    assert (run(*quickstart).max_steps, run(*quickstart).epochs) == (2500, None)
    found = run(*quickstart, "--epochs", "4")
    assert (found.max_steps, found.epochs) == (-1, 4.0)
    with pytest.raises(ValueError, match="epochs=4 and max_steps=9 both give the length of the training; give only"):
        run(*quickstart, "--epochs", "4", "--max-steps", "9")
    with pytest.raises(ValueError, match="--max-steps must be given, at least 1, or --epochs"):
        run("--phase1", "--vocab-file", "v")
    lengths = Rule(given=("a", "b"), drops=("a", "b"))
    assert merged([{"a": 1, "b": None}, {"b": "none"}, {"b": 2}], [lengths]) == {"b": 2}


def test_a_phase_of_the_launcher_may_have_epochs_and_the_other_updates():
    plan = parse_launch_arguments(["--epochs", "4", "--phase2-max-steps", "7"])
    assert [(config.run.epochs, config.run.max_steps) for config in plan.phases] == [(4.0, -1), (None, 7)]


def test_the_dry_run_shows_epochs_and_the_updates_of_epochs(tmp_path):
    config = settings(tmp_path, max_steps=103)
    assert "12.00 epochs over 103 samples" in dry_run_report(config, 1)
    by_epochs = derive(config, epochs=12, max_steps=-1)
    assert "103 updates" in dry_run_report(by_epochs, 1)
    missing = dry_run_report(derive(by_epochs, input_dir=tmp_path / "none"), 1)
    assert f"as many as 12 epochs need, known once {tmp_path / 'none'} has shards" in " ".join(missing.split())


def test_text_that_is_in_the_samples_several_times_is_counted(tmp_path):
    config = settings(tmp_path, max_steps=103)
    manifest = config.data.input_dir / "manifest.json"
    content = json.loads(manifest.read_text())
    content["settings"] = {"pairs": {"duplicate_factor": 5}}
    manifest.write_text(json.dumps(content))
    assert "12.00 epochs over 103 samples, 60.00 over the text" in dry_run_report(config, 1)
    write_mixture(tmp_path, {"shards": 103})
    assert sample_set(tmp_path) == SampleSet(103, 5), "weighted sources"
