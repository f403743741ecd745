"""Estimates against numbers worked out by hand or published."""

import json

import pytest

from bert import REPOSITORY
from bert.config.training_settings import BertConfig, derive
from bert.planning.estimates import forward_flops_per_sequence, memory_per_rank, training_flops_per_sequence
from bert.pretraining.entry import dry_run_report
from bert.pretraining.recipes import RECIPES

GOLDEN = REPOSITORY / "tests" / "gpu" / "golden"


def test_parameters_of_a_tiny_model_counted_by_hand():
    model = BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=37,
        max_position_embeddings=7,
    )
    embeddings = 104 * 32 + 7 * 32 + 2 * 32 + 64
    layer = 4 * (32 * 32 + 32) + 64 + (32 * 37 + 37) + (37 * 32 + 32) + 64
    heads = (32 * 32 + 32) + (32 * 32 + 32 + 64 + 104) + (32 * 2 + 2)
    assert model.num_parameters() == embeddings + 2 * layer + heads


def test_flops_of_a_tiny_model_counted_by_hand():
    model = BertConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37)
    products = [(7, 32, 32)] * 4 + [(7, 32, 37), (7, 37, 32)] + 4 * [(7, 8, 7), (7, 7, 8)]  # rows, inner, columns
    encoder = 2 * sum(2 * a * b * c for a, b, c in products)
    heads = 2 * 32 * 32 + 2 * 32 * 2 + 3 * (2 * 32 * 32 + 2 * 32 * 96)
    assert forward_flops_per_sequence(model, sequence_length=7, num_predictions=3) == encoder + heads
    assert training_flops_per_sequence(model, 7, 3) == 3 * (encoder + heads)
    modern = model.model_copy(update={"model_type": "modernbert"})  # a gate, no pooler, no next-sentence head
    difference = 2 * 2 * 7 * 32 * 37 - (2 * 32 * 32 + 2 * 32 * 2)
    assert forward_flops_per_sequence(modern, 7, 3) == encoder + heads + difference


RECORDED = ("phase1_large", "phase1_large_tf32", "phase2_large", "phase2_large_tf32", "phase1_base", "phase2_base")
RECORDED += ("phase1_modernbert_base", "phase2_modernbert_base")


@pytest.mark.parametrize("name", RECORDED)
def test_memory_is_near_what_the_program_of_eight_gpus_needs(name):
    """The records are of built programs: what the operators keep for the backward pass, and all at the worst moment."""
    recorded = json.loads((GOLDEN / f"{name}.json").read_text())["memory in MB"]
    estimated = memory_per_rank(RECIPES[name](), world_size=8)
    kept, total = recorded["activations kept for the backward pass"], recorded["total at the worst moment"]
    assert estimated.activations / 1e6 == pytest.approx(kept, rel=0.08)
    assert estimated.total() / 1e6 == pytest.approx(total, rel=0.08)


def test_the_plan_tells_the_arithmetic():
    report = dry_run_report(RECIPES["phase1_large"](), world_size=8)
    for text in (
        "256 x 32 micro-steps x 8 ranks = 65,536 sequences",
        "336,232,258 parameters",
        "7,038 updates",
        "461,242,368 sequences",
        "2,000 steps of warm-up",
        "mixed float16 (O1), dynamic loss scale",
        "4.0 GB a checkpoint",
        "results/bert-large-uncased/phase1",
    ):
        assert text in report


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (dict(amp=False), "precision  float32 (TF32 matrix products on Ampere and newer GPUs)\n"),
        (dict(amp=False, tf32="off"), "precision  float32\n"),
        (dict(amp=False, tf32=True), "precision  float32 with TF32 matrix products\n"),
        (dict(amp_dtype="bfloat16"), "mixed bfloat16 (O1)\n"),
        (dict(use_pure_fp16=True), "(O2)"),
        (dict(use_dynamic_loss_scaling=False, scale_loss=128), "constant loss scale from 128"),
        (dict(peak_tflops=312), "h at the peak of 312 TFLOP/s"),
        ({}, "strategy   amp: ours; gradient_merge: ours; losses are equal either way (--fleet-strategies)\n"),
        (dict(fleet_strategies="amp"), "strategy   amp: Fleet's; gradient_merge: ours; losses are equal either way"),
        (dict(amp_dtype="bfloat16", fleet_strategies="gradient_merge"), "strategy   gradient_merge: Fleet's; losses"),
    ],
)
def test_the_plan_tells_the_precision_and_the_ideal_time(changes, text):
    assert text in dry_run_report(derive(RECIPES["phase1_large"](), **changes), 8)
