"""Estimates against numbers worked out by hand or published."""

import json
from types import SimpleNamespace

import pytest

from bert import REPOSITORY
from bert.config.automatic import DeviceFeatures, resolve_auto
from bert.config.optimizer_settings import PrecisionSettings
from bert.config.training_settings import BertConfig, derive
from bert.planning.estimates import (
    Memory,
    activation_bytes_per_sequence,
    attention_bias_bytes,
    checkpoint_bytes,
    forward_flops_per_sequence,
    memory_per_rank,
    rank_bytes,
    training_flops_per_sequence,
)
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


TINY = BertConfig(vocab_size=96, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=37)
LOGITS = 2 * 4 * 2 * 96  # two predictions: logits and softmax in float32
NUMBERS = 8 * 32 + 2 * 37 + 2 * 4 * 7  # that a layer keeps of a token, of seven
MASKS = 2 * 32 + 4 * 7  # bytes of dropout


@pytest.mark.parametrize(
    ("model", "settings", "by_hand"),
    [
        ({}, {}, 7 * 3 * (4 * NUMBERS + MASKS) + LOGITS),
        ({}, {"amp": True}, 7 * 3 * (2 * NUMBERS + MASKS) + LOGITS),
        ({"hidden_dropout_prob": 0.0}, {}, 7 * 3 * (4 * NUMBERS + 28) + LOGITS),
        ({"attention_probs_dropout_prob": 0.0}, {}, 7 * 3 * (4 * NUMBERS + 64) + LOGITS),
        ({}, {"fuse_attention": True}, 7 * 3 * (4 * (8 * 32 + 2 * 37) + 64) + LOGITS),
        ({}, {"recompute": True}, 7 * (4 * NUMBERS + MASKS + 2 * 4 * 32) + LOGITS),
        ({}, {"recompute": True, "fuse_attention": True}, 7 * (4 * (8 * 32 + 2 * 37) + 64 + 2 * 2 * 4 * 32) + LOGITS),
        ({"model_type": "modernbert"}, {}, 7 * 3 * (4 * (11 * 32 + 4 * 37 + 2 * 28) + MASKS) + LOGITS),
        (
            {"model_type": "modernbert", "attention_probs_dropout_prob": 0.0},
            {},
            7 * 3 * (4 * (11 * 32 + 4 * 37 + 28) + 64) + LOGITS,
        ),
    ],
)
def test_activations_of_a_tiny_model_counted_by_hand(model, settings, by_hand):
    precision = PrecisionSettings(amp=settings.pop("amp", False))
    assert activation_bytes_per_sequence(TINY.model_copy(update=model), 7, 2, precision, **settings) == by_hand


def test_the_memory_of_a_rank_is_that_of_states_activations_and_framework():
    states, activations = 5 * 4 * TINY.num_parameters(), 7 * 3 * (4 * NUMBERS + MASKS) + LOGITS
    for device, framework, copies in (("cpu", 0.6e9, 2.1), ("gpu", 2.0e9, 1.1)):
        found = rank_bytes(TINY, 7, 2, PrecisionSettings(), device, num_sequences=13)
        assert found == pytest.approx(framework + states + 13 * activations * copies)
    assert checkpoint_bytes(TINY) == 12 * TINY.num_parameters()


@pytest.mark.parametrize(
    ("changes", "parameter_bytes", "gradient_bytes"),
    [
        (dict(global_batch_size=26), 6, 8),
        (dict(global_batch_size=13), 6, 4),
        (dict(global_batch_size=13, amp=False), 4, 4),
    ],
)
def test_parameters_and_gradients_take_the_bytes_of_their_types(changes, parameter_bytes, gradient_bytes):
    config = derive(RECIPES["phase1_large"](), batch_size=13, **changes)
    config = resolve_auto(config, DeviceFeatures("gpu", (7, 0)))  # without FlashAttention
    numbers, memory = config.model.num_parameters(), memory_per_rank(config, world_size=1)
    per_sequence = activation_bytes_per_sequence(config.model, 128, 20, config.precision)
    expected = (parameter_bytes * numbers, gradient_bytes * numbers, 8 * numbers, 13 * per_sequence)
    assert (memory.parameters, memory.gradients, memory.optimizer, memory.activations) == expected
    assert memory.total() == sum(expected)


@pytest.mark.parametrize(
    ("share", "most", "usable", "largest"),
    [
        (12, 12, 160.0, 6),
        (12, 12, 159.9, 4),
        (12, 12, 220.0, 12),
        (12, 5, 220.0, 4),
        (7, 7, 160.0, 1),
        (7, 7, 109.0, None),
    ],
)
def test_the_largest_batch_fits_and_divides_the_share_of_a_rank(share, most, usable, largest):
    memory = Memory(parameters=40, gradients=40, optimizer=20, activations=80)  # 100, and 10 for each of 8 sequences
    assert memory.largest_batch_size(8, share, most, usable) == largest


def test_only_flash_attention_of_padded_sequences_needs_a_bias():
    for model_type, copies in (("bert", 1), ("modernbert", 4)):
        for attention, unpad in ((True, False), (True, True), (False, False)):
            kernels = SimpleNamespace(attention=attention, unpad=unpad)
            model, data = TINY.model_copy(update={"model_type": model_type}), SimpleNamespace(max_seq_length=7)
            config = SimpleNamespace(kernels=lambda kernels=kernels: kernels, model=model, data=data)
            assert attention_bias_bytes(config) == (copies * 2 * 7 * 7 if attention and not unpad else 0)


RECORDED = ("phase1_large", "phase1_large_tf32", "phase2_large", "phase2_large_tf32", "phase1_base", "phase2_base")
RECORDED += ("phase1_modernbert_base", "phase2_modernbert_base")


@pytest.mark.parametrize("name", RECORDED)
def test_memory_is_near_what_the_program_of_eight_gpus_needs(name):
    """The records come from built programs: states kept for the backward pass, and the worst moment."""
    recorded = json.loads((GOLDEN / f"{name}.json").read_text())["memory in MB"]
    config = RECIPES[name]()
    older = config.hardware.fuse_attention == "auto"  # the recorded program is then the plain one
    estimated = memory_per_rank(resolve_auto(config, DeviceFeatures("gpu", (7, 0) if older else (8, 0))), world_size=8)
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
        (dict(amp=False), "precision  float32 with TF32 matrix products\n"),
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
