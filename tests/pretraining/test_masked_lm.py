"""`--objective mlm`: masked LM alone, on single sequences or on the text of pairs."""

import json
from unittest import mock

import numpy as np
import pytest

from bert.checkpoints.directories import CheckpointError
from bert.config.training_settings import derive
from bert.model.objectives import MaskedLMObjective
from bert.pretraining.task import Pretraining, held_out_sets
from bert.samples.loader import evaluation_batches
from bert.samples.manifest import read_manifest, write_manifest
from bert.samples.sample_table import SampleTable
from bert.training.training_run import run
from tests.support import runs, tiny
from tests.support.corpora import random_table, vocabulary, write_shards, write_vocabulary

SEP = vocabulary().id_of("[SEP]")


def singles(num_samples: int, seed: int) -> SampleTable:
    """Return random pairs whose two parts are joined into one sequence."""
    table = random_table(num_samples, seed, longest=12)
    return SampleTable(
        table.token_ids, table.offsets, table.lengths().astype(np.int32), np.zeros(num_samples, bool), None
    )


def settings(folder, table, **changes):
    shards = write_shards(folder / "shards", [table], kind="arrow")
    model = tiny.MODEL.model_copy(update={"vocab_size": len(vocabulary())})
    return tiny.pretraining_config(
        folder,
        input_dir=shards,
        eval_dir=shards,
        vocab_file=write_vocabulary(folder / "vocab.txt"),
        model=model,
        masking="dynamic",
        report_file=folder / "report.json",
        **{"max_steps": 4, "num_workers": 0, **changes},
    )


def test_batches_and_metrics_have_no_next_sentence(tmp_path):
    task = Pretraining(settings(tmp_path, singles(30, 1), objective="mlm"), tiny.ONE_RANK)
    assert isinstance(task.objective, MaskedLMObjective)
    batches = task.batches(0)
    feed = next(iter(next(batches).micro_batches)).feed
    batches.close()
    assert feed.keys() == {*task.objective.encoder_inputs(), *task.objective.labels}
    assert not feed["token_type_ids"].any(), "one sequence, of type 0"
    assert not any("next" in name for name in task.objective.metric_names)


def test_a_phase_trains_evaluates_and_saves_without_pooler_and_next_sentence_head(tmp_path):
    config = settings(tmp_path, singles(30, 1), objective="mlm")
    assert run(config, Pretraining) == 0
    summary = json.loads((config.stage_dir() / "summary.json").read_text())
    assert summary["eval_masked_lm_loss"] > 0 and not any("next" in name for name in summary)
    rows = [json.loads(line) for line in (config.stage_dir() / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["masked_lm_loss"] == rows[0]["loss"] and not any("next" in name for row in rows for name in row)
    from bert.checkpoints.state import load_parameters

    saved = load_parameters(config.checkpoint_dir() / "4")
    assert "cls.predictions.bias" in saved and not any("pooler" in name or "relationship" in name for name in saved)


@pytest.mark.parametrize("unpad", ["on", "off"])
def test_documents_that_the_shards_hold_apart_are_trained_and_evaluated_apart(tmp_path, unpad):
    table = singles(30, 1)
    table.token_ids[table.offsets[:-1] + 3] = vocabulary().id_of("[CLS]")
    config = settings(tmp_path, table, objective="mlm", unpad=unpad, max_steps=1)
    shards = config.data.input_dir
    manifest = read_manifest(shards)
    records = {"objective": "mlm", "separate_documents": True}
    write_manifest(shards, type(manifest)(manifest.shards, manifest.vocabulary_sha256, records))
    task = Pretraining(config, tiny.ONE_RANK)
    assert task.objective.separate_documents
    batches = task.batches(0)
    feed = next(iter(next(batches).micro_batches)).feed
    batches.close()
    assert feed["position_ids"][:, :5].tolist() == [[0, 1, 2, 0, 1]] * len(feed["input_ids"])
    assert not feed["masked_lm_weights"][feed["masked_lm_positions"] % feed["input_ids"].shape[1] == 3].any()
    assert run(config, Pretraining) == 0
    assert json.loads((config.stage_dir() / "summary.json").read_text())["eval_masked_lm_loss"] > 0


def test_trainings_that_mask_more_are_evaluated_alike(tmp_path):
    table = random_table(30, 1, longest=12)
    counts = {}
    for share, evaluated in ((0.15, 0.15), (0.5, 0.15), (0.5, 0.5)):
        changes = {"masked_lm_ratio": share, "max_predictions_per_seq": 8, "eval_masked_lm_ratio": evaluated}
        config = settings(tmp_path / f"{share}-{evaluated}", table, objective="mlm", **changes)
        (held_out,) = held_out_sets(config, vocabulary())
        feeds = [
            batch.feed
            for batch in evaluation_batches(held_out.data, micro_batch_size=8, rank=0, world_size=1, max_samples=30)
        ]
        counts[share, evaluated] = [feed["masked_lm_labels"][feed["masked_lm_weights"] > 0].tolist() for feed in feeds]
    assert counts[0.15, 0.15] == counts[0.5, 0.15] != counts[0.5, 0.5]


def test_single_sequences_are_refused_for_next_sentence_prediction(tmp_path):
    config = settings(tmp_path, singles(30, 1))
    shards = config.data.input_dir
    manifest = read_manifest(shards)
    write_manifest(shards, type(manifest)(manifest.shards, manifest.vocabulary_sha256, {"objective": "mlm"}))
    with pytest.raises(
        ValueError, match="made with --objective mlm, .* but objective=mlm_nsp needs sentence pairs; pass"
    ):
        Pretraining(config, tiny.ONE_RANK)
    write_manifest(shards, type(manifest)(manifest.shards, manifest.vocabulary_sha256, {}))
    task = Pretraining(config, tiny.ONE_RANK)
    with pytest.raises(ValueError, match="objective=mlm_nsp needs sentence pairs"):  # also without the record
        task._train.load_shard(0)


def test_the_text_of_pairs_may_be_used_for_masked_lm_alone(tmp_path):
    task = Pretraining(settings(tmp_path, random_table(30, 1, longest=12), objective="mlm"), tiny.ONE_RANK)
    batches = task.batches(0)
    feed = next(iter(next(batches).micro_batches)).feed
    batches.close()
    assert feed["token_type_ids"].any() and "next_sentence_labels" not in feed


def test_phases_of_different_objectives_do_not_follow_each_other_unnoticed(tmp_path):
    runs.run(tiny.pretraining_config(tmp_path), 1)  # with pooler and next-sentence head
    second = tiny.pretraining_config(
        tmp_path, phase=2, from_phase1_final_params=tmp_path / "results", output_dir=tmp_path / "second"
    )
    model = tiny.MODEL.model_copy(update={"hidden_act": "relu", "local_attention": 8})
    third = derive(second, model=model, output_dir=tmp_path / "third")
    said = runs.run(third, 1, train=False, start=runs.fresh_progress(third)).said
    assert [line.split(": ")[1] for line in said if " there, is " in line] == [
        "hidden_act was gelu there, is relu here"
    ]
    with mock.patch.object(runs, "PretrainingObjective", MaskedLMObjective):
        with pytest.raises(CheckpointError, match="(?s)unknown: bert.pooler.*both phases.*the same --objective"):
            runs.run(second, 1, train=False, start=runs.fresh_progress(second))
