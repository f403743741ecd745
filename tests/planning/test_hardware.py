"""Parts, links and operators beside figures worked out by hand."""

import pytest

from bert.config.architecture import BertConfig
from bert.config.optimizer_settings import PrecisionSettings
from bert.planning.hardware import (
    Hardware,
    MicroBatchShape,
    ProgramKind,
    all_reduce_bytes,
    operators,
    parse_hardware,
    update_bytes,
)
from bert.planning.hardware_parts import HardwarePart, part_of

VALUES = {
    "tflops": {"short": 300.0, "tf32": 150.0, "float32": 20.0},
    "memory_gb": 40.0,
    "reserved_gb": 2.5,
    "bandwidth": 1500.0,
    "link": 200.0,
    "network": 25.0,
    "bfloat16": True,
    "efficiency": {"gemm": 0.5, "bandwidth": 0.8, "link": 0.5, "network": 0.8},
    "update_overhead_ms": 1.0,
    "checked": "nothing",
}


def part(**changes) -> HardwarePart:
    return HardwarePart.model_validate({**VALUES, **changes})


def test_the_peak_is_that_of_the_precision():
    for settings, changes, expected in (
        ({"amp": True}, {}, (300.0, 2)),
        ({"amp": True, "amp_dtype": "bfloat16"}, {}, (300.0, 2)),
        ({}, {}, (150.0, 4)),
        ({"tf32": "off"}, {}, (20.0, 4)),
        ({}, {"tflops": {"float32": 20.0}}, (20.0, 4)),
        ({"amp": True}, {"tflops": {"float32": 20.0}}, (20.0, 4)),
    ):
        assert part(**changes).arithmetic(PrecisionSettings(**settings)) == expected
    with pytest.raises(ValueError, match="amp_dtype=bfloat16 must be float16 on this part, which has no bfloat16"):
        part(bfloat16=False).arithmetic(PrecisionSettings(amp=True, amp_dtype="bfloat16"))
    assert part(bfloat16=False).arithmetic(PrecisionSettings(amp=True)) == (300.0, 2)
    assert part().usable_bytes() == 37.5e9


@pytest.mark.parametrize(
    ("nodes", "devices", "seconds"),
    [
        (1, 1, 0.0),
        (1, 8, 2 * 7 / 8 * 4e9 / 100e9),  # by the links: half of 200 GB/s
        (4, 8, 2 * 31 / 32 * 4e9 / 20e9),  # by the network: 80% of 25 GB/s
        (4, 1, 2 * 3 / 4 * 4e9 / 20e9),
    ],
)
def test_a_ring_takes_the_time_of_its_slowest_connection(nodes, devices, seconds):
    assert Hardware("x", part(), nodes, devices).all_reduce_seconds(4e9) == pytest.approx(seconds)
    slow_link = Hardware("x", part(link=10.0), nodes, devices)  # 5 GB/s
    slowest = seconds if devices == 1 else 2 * (nodes * devices - 1) / (nodes * devices) * 4e9 / 5e9
    assert slow_link.all_reduce_seconds(4e9) == pytest.approx(slowest)


@pytest.mark.parametrize(
    ("place", "allowed", "refused"),
    [
        *(((name,), 0.1, 0) for name in ("memory_gb", "bandwidth", "link", "network")),
        *(((name,), 0, -0.1) for name in ("reserved_gb", "update_overhead_ms", "node_exponent")),
        (("node_exponent",), 0.99, 1),
        *((("tflops", name), 0.1, 0) for name in ("short", "tf32", "float32")),
        *((("efficiency", name), 0.1, 0) for name in ("gemm", "gemm_float32", "attention", "bandwidth", "link")),
        *((("efficiency", name), 1, 1.1) for name in ("gemm", "gemm_float32", "attention", "bandwidth", "network")),
        (("efficiency", "network"), 0.1, 0),
        (("efficiency", "link"), 1, 1.1),
    ],
)
def test_a_figure_of_a_part_out_of_its_range_is_refused(place, allowed, refused):
    first, *second = place
    for value, is_allowed in ((allowed, True), (refused, False)):
        changes = {first: {**VALUES[first], second[0]: value} if second else value}
        if is_allowed:
            part(**changes)
        else:
            with pytest.raises(ValueError, match=r"\.".join(place)):
                part(**changes)


def test_parts_are_found_by_the_name_of_the_driver_and_by_their_own():
    assert part_of("NVIDIA H100 80GB HBM3").startswith("H100")
    assert part_of("Tesla T4") == "T4" and part_of("Tesla T40") is None
    for memory in ("40", "80"):
        assert part_of(f"NVIDIA A100-SXM4-{memory}GB") == f"A100-{memory}GB"
    assert part_of("Tesla V100-SXM2-32GB") == "V100-32GB" and part_of("NVIDIA H100 PCIe") == "H100-80GB"
    assert part_of("NVIDIA GeForce RTX 4090") == "RTX-4090" and part_of("NVIDIA GeForce RTX 2080") is None
    assert parse_hardware("  2x8xt4 ").world_size() == 16


MODEL = BertConfig(vocab_size=96, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=37)
TOKENS = 5 * 7


def moved(
    width: int = 4, num_predictions: float = 2, model: BertConfig = MODEL, **kind
) -> dict[str, tuple[float, float]]:
    """Return (operations, bytes) of each operator of 5 sequences of 7 tokens."""
    work = MicroBatchShape(model, 5, 7, num_predictions, width, ProgramKind(**kind))
    return {op.name: (op.flops, op.bytes) for op in operators(work)}


def test_products_and_their_bytes_are_counted_by_hand():
    """Forward and backward have three products of each, and three times the matrices."""
    ops = moved()
    for name, rows, inner, columns, count in (
        ("queries, keys, values", TOKENS, 32, 32, 3 * 3),  # three layers
        ("attention scores", 7, 8, 7, 3 * 5 * 4),
        ("attention context", 7, 8, 7, 3 * 5 * 4),
        ("attention output", TOKENS, 32, 32, 3),
        ("feed-forward in", TOKENS, 32, 37, 3),
        ("feed-forward out", TOKENS, 37, 32, 3),
        ("pooler", 5, 32, 32, 1),
        ("masked-LM transform", 10, 32, 32, 1),
        ("masked-LM decoder", 10, 32, 96, 1),
    ):
        numbers = rows * inner + inner * columns + rows * columns
        assert ops[name] == pytest.approx((6 * rows * inner * columns * count, 3 * 4 * numbers * count)), name
    together = moved(fused=frozenset({"qkv"}))["queries, keys, values"][1]
    assert together == 3 * 3 * 4 * (TOKENS * 32 + 32 * 96 + TOKENS * 96)
    on_chip = moved(fused=frozenset({"attention"}))["attention scores"][1]
    assert on_chip == 3 * 3 * 4 * 5 * 4 * 2 * 7 * 8


@pytest.mark.parametrize("width", [2, 4])
def test_bytes_of_pointwise_operators_are_counted_by_hand(width):
    ops, mask = moved(width), 4 + 2 / width
    scores = 4 * 7
    for name, numbers in (
        ("splitting and merging heads", 4 * 32 * 4),
        ("scaling of queries", 32 * 4),
        ("attention mask", scores * 2),
        ("softmax", scores * 5),
        ("dropout of attention", scores * mask),
        ("biases", 5 * 32 * 3),
        ("bias of feed-forward", 37 * 3),
        ("gelu", 37 * 5),
        ("dropout", 2 * 32 * mask),
        ("residual sums", 2 * 32 * 6),
        ("LayerNorm", 2 * 32 * 5),
    ):
        assert ops[name] == pytest.approx((0, 3 * TOKENS * width * numbers)), name
    assert ops["embeddings"][1] == 20 * TOKENS * 32 * width + 8 * 96 * 32
    assert ops["masked-LM loss"][1] == 10 * 96 * (20 + 2 * width)
    assert "masked-LM loss" not in moved(num_predictions=0) and "pooler" in moved(num_predictions=0)
    dry = moved(width, model=MODEL.model_copy(update={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}))
    assert dry["dropout"][1] == dry["dropout of attention"][1] == 0
    modern = moved(width, model=MODEL.model_copy(update={"model_type": "modernbert"}))
    assert modern["rotary positions"][1] == 3 * TOKENS * width * 2 * 32 * 22
    assert modern["gate"][1] == 3 * TOKENS * width * 37 * 9
    assert not {"biases", "bias of feed-forward", "pooler"} & modern.keys()


def test_recomputation_repeats_the_forward_third_of_all_layers_but_the_last():
    fused = frozenset({"attention"})
    once, again = moved(fused=fused), moved(fused=fused, recompute=True)
    for name in once:
        is_of_layer = name not in ("pooler", "embeddings") and not name.startswith("masked-LM")
        times = (3 + 2 / 3) / 3 if is_of_layer and name not in ("attention scores", "attention context") else 1
        assert again[name] == pytest.approx((once[name][0] * times, once[name][1] * times)), name


@pytest.mark.parametrize(
    ("micro_steps", "lamb", "casts", "by_hand"),
    [
        (1, False, False, 4 * 12),
        (1, True, False, 4 * 15),
        (3, False, False, 4 * (12 + 9 + 1)),
        (1, False, True, 4 * 12 + 12),
        (3, True, True, 4 * (15 + 10) + 36),
    ],
)
def test_bytes_of_an_update_are_counted_by_hand(micro_steps, lamb, casts, by_hand):
    assert update_bytes(11, micro_steps=micro_steps, lamb=lamb, casts=casts) == 11 * by_hand


def test_gradients_are_summed_in_half_precision_but_for_the_embeddings():
    numbers, words = MODEL.num_parameters(), 96 * 32
    assert all_reduce_bytes(MODEL, half=False) == 4 * numbers
    assert all_reduce_bytes(MODEL, half=True) == 2 * (numbers - words) + 4 * words
