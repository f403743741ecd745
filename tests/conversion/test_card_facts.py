"""Tests of the facts of a model card: names are recorded, rows are complete or missing, damaged values are named."""

import inspect
import json

import pytest

from bert.config.flags import flat_fields
from bert.conversion.card_facts import ShardCounts, TextFacts, TrainingFacts, training_rows, valid_facts
from bert.glue.config import GlueConfig
from bert.pretraining.config import PretrainingConfig
from bert.reporting import run_record
from bert.reporting.run_record import RunRecord
from bert.samples.manifest import Manifest, write_manifest
from bert.training import training_run

SETTINGS = {
    "objective": "mlm_nsp",
    "masked_lm_ratio": 0.15,
    "masking": "dynamic",
    "max_seq_length": 1024,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.0,
    "optimizer": "Lamb",
    "weight_decay": 0.01,
    "learning_rate": "6e-05",  # as YAML reads a number without a point
    "lr_schedule": "polynomial",
    "seed": 0,
    "batch_size": 8,
    "gradient_merge_steps": 5,
    "amp": True,
    "amp_dtype": "bfloat16",
    "embedding_rate_factor": 10.0,
    "task_name": None,
    "an unknown setting": [1],
}
SUMMARY = {"steps": 4000, "warmup_steps": 1250, "world_size": 3, "processor": "EPYC", "e2e_train_time": 9000.0}


def run(folder, settings=SETTINGS, summary=SUMMARY) -> RunRecord:
    return RunRecord("phase1", folder / "phase1", [], [], dict(settings), dict(summary), [], [], 0, [])


def rows(record: RunRecord, begins_with: str = "random weights") -> tuple[dict[str, str], list[str]]:
    damaged: list[str] = []
    return dict(training_rows(record, begins_with, damaged)), damaged


def test_every_fact_is_a_setting_or_a_figure_that_a_training_records():
    settings = flat_fields(PretrainingConfig).keys() | flat_fields(GlueConfig).keys()
    written = inspect.getsource(training_run.summary)
    figures = {name for name in TrainingFacts.model_fields if f'"{name}"' in written or name in run_record._LASTING}
    assert TrainingFacts.model_fields.keys() - settings - figures == {"updates"}, "which the rows of metrics have"


def test_all_rows_of_a_training(tmp_path):
    assert rows(run(tmp_path)) == (
        {
            "begins with": "random weights",
            "objective": "mlm_nsp",
            "masks": "15%, dynamic",
            "longest sequence": "1,024 tokens",
            "batch": "120 sequences",  # 8 x 5 x 3
            "dropout": "0.1 of the layers, 0 of the attention",
            "optimizer": "Lamb, weight decay 0.01",
            "learning rate": "6e-05 at its peak, polynomial, warm-up of 1,250 updates",
            "updates": "4,000",
            "seed": "0",
            "processor": "3 x EPYC",
            "time": "2.5 hours",
            "rate of embeddings": "10 times the learning rate",
            "arithmetic": "mixed bfloat16",
        },
        [],
    )
    ours = {**SETTINGS, "global_batch_size": 96, "task_name": "custom", "amp": False, "embedding_rate_factor": 1.0}
    changed, _ = rows(run(tmp_path, ours))
    assert (changed["batch"], changed["labels"], changed["arithmetic"]) == ("96 sequences", "own labels", "float32")
    assert "rate of embeddings" not in changed
    assert rows(run(tmp_path, {"task_name": "MRPC"}, {})) == (
        {"labels": "MRPC", "begins with": "random weights", "arithmetic": "float32"},
        [],
    )


@pytest.mark.parametrize(
    ("name", "value", "row"),
    [
        ("masked_lm_ratio", "many", "masks"),
        ("masking", 5, "masks"),
        ("max_seq_length", [128], "longest sequence"),
        ("batch_size", "auto", "batch"),
        ("hidden_dropout_prob", {}, "dropout"),
        ("weight_decay", "x", "optimizer"),
        ("learning_rate", "fast", "learning rate"),
        ("warmup_steps", "x", "learning rate"),
        ("seed", 1.5, "seed"),
        ("processor", 5, "processor"),
        ("e2e_train_time", "x", "time"),
    ],
)
def test_a_damaged_value_is_named_and_leaves_out_its_row_alone(tmp_path, name, value, row):
    whole, _ = rows(run(tmp_path))
    summary = {**SUMMARY, name: value} if name in SUMMARY else SUMMARY
    settings = SETTINGS if name in SUMMARY else {**SETTINGS, name: value}
    assert rows(run(tmp_path, settings, summary)) == ({key: whole[key] for key in whole if key != row}, [name])
    missing = {key: number for key, number in SETTINGS.items() if key != name}, {**SUMMARY, name: None}
    assert rows(run(tmp_path, *missing)) == ({key: whole[key] for key in whole if key != row}, [])


def test_own_text_and_shards_have_their_counts(tmp_path):
    text = {"words": 1200, "characters": 6789, "documents": 11, "is_estimate": True}
    (tmp_path / "job.json").write_text(json.dumps({"facts": {"own_text": {"text": text, "data": {"x": 1}}}}))
    assert rows(run(tmp_path))[0]["text"] == "own text, about 1,200 words, 6,789 characters, 11 documents"
    facts = {"text": {"words": 1200}, "data": {"held_out_fraction": 0.0731}}
    (tmp_path / "job.json").write_text(json.dumps({"facts": {"own_text": facts}}))
    assert rows(run(tmp_path))[0]["text"] == "own text, 1,200 words; 7.3% held out"
    (tmp_path / "job.json").unlink()
    shards = {**SETTINGS, "input_dir": str(tmp_path / "shards")}
    assert "text" not in rows(run(tmp_path, shards))[0], "there are none"
    (tmp_path / "shards").mkdir()
    counts = {"documents used": 1234, "tokens": 56789, "samples": 7, "empty lines": 2}
    write_manifest(tmp_path / "shards", Manifest({}, None, counts=counts))
    assert rows(run(tmp_path, shards)) == (
        {"text": "1,234 documents, 56,789 tokens, 7 samples"} | rows(run(tmp_path))[0],
        [],
    )
    (tmp_path / "shards" / "manifest.json").write_text("{")
    assert rows(run(tmp_path, shards)) == (rows(run(tmp_path))[0], ["manifest.json"])


def test_facts_that_are_no_mapping_are_named_by_their_record():
    damaged: list[str] = []
    assert valid_facts(TextFacts, [1], damaged) == TextFacts()
    counts = valid_facts(ShardCounts, {"documents used": "x", "tokens": 4, None: 1}, damaged)
    assert (counts.documents, counts.tokens) == (None, 4)
    assert damaged == ["text in job.json", "documents used"]
