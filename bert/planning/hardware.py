"""Parses hardware names (`4x8xA100-80GB`), and computes the work of a program's operators."""

import dataclasses
import difflib
import re
from typing import Literal

from bert.config.architecture import BertConfig
from bert.planning.hardware_parts import PARTS_FILE, HardwarePart, load_parts

Unit = Literal["product", "fused attention", "memory"]
Fusion = Literal["attention", "bias", "activation", "dropout_add", "qkv"]


@dataclasses.dataclass(frozen=True)
class Hardware:
    """Machines of one kind: `num_nodes` nodes with `devices_per_node` equal devices."""

    name: str  # name of the device
    part: HardwarePart
    num_nodes: int
    devices_per_node: int

    def world_size(self) -> int:
        return self.num_nodes * self.devices_per_node

    def full_name(self) -> str:
        """The name that `parse_hardware` reads."""
        nodes = f"{self.num_nodes}x" if self.num_nodes > 1 else ""
        return f"{nodes}{self.devices_per_node}x{self.name}"

    def all_reduce_seconds(self, num_bytes: float) -> float:
        """Time of a ring all-reduce over all devices: each link carries 2 (n - 1) / n of the bytes."""
        efficiency, world_size = self.part.efficiency, self.world_size()
        if world_size == 1:
            return 0.0
        moved = 2 * (world_size - 1) / world_size * num_bytes
        slowest = self.part.link * efficiency.link if self.devices_per_node > 1 else float("inf")
        if self.num_nodes > 1:
            slowest = min(slowest, self.part.network * efficiency.network)
        return moved / (slowest * 1e9)


def parse_hardware(text: str, parts: dict[str, HardwarePart] | None = None) -> Hardware:
    """Parse `PART`, `GPUSxPART` or `NODESxGPUSxPART`."""
    parts = load_parts() if parts is None else parts
    match = re.fullmatch(r"(?:(?:(\d+)x)?(\d+)x)?([A-Za-z].*)", text.strip())
    nodes, devices = (int(number or 1) for number in match.group(1, 2)) if match else (0, 0)
    if match is None or nodes < 1 or devices < 1:
        raise ValueError(
            f"hardware={text} must be PART, GPUSxPART or NODESxGPUSxPART, such as 8xA100-80GB or "
            "4x8xA100-80GB; change --hardware"
        )
    names, part = {name.lower(): name for name in parts}, match.group(3).lower()
    if part not in names:
        close = [name for name in names if name.startswith(part)] or difflib.get_close_matches(part, names, n=1)
        hint = (
            f"did you mean {' or '.join(names[name] for name in close)}?" if close else f"they are {', '.join(parts)}"
        )
        raise ValueError(f"hardware={text} must name a part of the table {PARTS_FILE.name}; {hint}")
    return Hardware(names[part], parts[names[part]], nodes, devices)


@dataclasses.dataclass(frozen=True)
class ProgramKind:
    """Properties of a program that affect its speed: fusions, and waits for the host.

    fused: decides how often activations cross the memory bus. "attention": scores never leave the chip; "bias" and
        "activation": biases and gelu inside the matrix products; "dropout_add": dropout and residual sum as one
        operator that keeps no mask; "qkv": one matrix product for queries, keys and values.
    host_waits: before an update the host waits for the flag of non-finite gradients.
    recompute: the forward pass of all layers but the last is computed twice, without FlashAttention.
    """

    fused: frozenset[Fusion] = frozenset()
    host_waits: bool = False
    recompute: bool = False


@dataclasses.dataclass(frozen=True)
class MicroBatchShape:
    """Shape of one device's micro-batch: `batch_size` sequences with `num_predictions` masked tokens each."""

    model: BertConfig
    batch_size: int
    sequence_length: float
    num_predictions: float  # 0 without the masked-LM head
    width: int  # bytes of an activation: 2 in mixed precision, otherwise 4
    kind: ProgramKind


@dataclasses.dataclass(frozen=True)
class Operator:
    """Work of one operator in one micro-step, forward and backward; `unit` selects the share of the peak."""

    name: str
    flops: float
    bytes: float
    unit: Unit


def operators(work: MicroBatchShape) -> list[Operator]:
    """The operators that dominate the time, summed over all layers."""
    layers = work.model.num_hidden_layers
    summed = []
    for op in (*_layer_products(work), *_layer_pointwise(work)):
        again = work.kind.recompute and op.unit != "fused attention"
        times = layers + (layers - 1) / 3 * again  # a third of an operator's work is forward
        summed.append(dataclasses.replace(op, flops=op.flops * times, bytes=op.bytes * times))
    return [*summed, *_outside_the_layers(work)]


def _product(
    name: str,
    work: MicroBatchShape,
    rows: float,
    inner: float,
    columns: float,
    count: float = 1,
    resident: bool = False,
) -> Operator:
    """Work of `count` products [rows, inner] x [inner, columns]; backward has two products of the same size.

    resident: the square matrix of scores stays on the chip (fused attention), so that two of [rows, inner] remain.
    """
    numbers = 2 * rows * inner if resident else rows * inner + inner * columns + rows * columns
    unit: Unit = "fused attention" if resident else "product"
    return Operator(name, 3 * 2 * rows * inner * columns * count, 3 * numbers * work.width * count, unit)


def _layer_products(work: MicroBatchShape) -> list[Operator]:
    model, length = work.model, work.sequence_length
    tokens, hidden, inner = work.batch_size * length, model.hidden_size, model.intermediate_size
    heads, fused = work.batch_size * model.num_attention_heads, "attention" in work.kind.fused
    separate = 1 if "qkv" in work.kind.fused else 3
    return [
        _product("queries, keys, values", work, tokens, hidden, 3 * hidden // separate, separate),
        _product("attention scores", work, length, model.head_size(), length, heads, fused),  # queries, keys in
        _product("attention context", work, length, model.head_size(), length, heads, fused),  # values in, context out
        _product("attention output", work, tokens, hidden, hidden),
        _product("feed-forward in", work, tokens, hidden, inner, model.feed_forward_products() - 1),
        _product("feed-forward out", work, tokens, inner, hidden),
    ]


def _layer_pointwise(work: MicroBatchShape) -> list[Operator]:
    """Memory-bound operators of a layer: numbers read and written per element, forward and backward.

    A dropout mask is a byte a number (half a float16).
    """
    model, fused = work.model, work.kind.fused
    tokens, hidden, inner = work.batch_size * work.sequence_length, model.hidden_size, model.intermediate_size
    scores = model.num_attention_heads * work.sequence_length
    dropout = 4 + 2 / work.width
    hidden_dropout = dropout if model.hidden_dropout_prob > 0 else 0.0
    scores_dropout = dropout if model.attention_probs_dropout_prob > 0 else 0.0
    rows: list[tuple[str, float, float, Fusion | None]] = [  # name, width, numbers, what removes it
        ("splitting and merging heads", 4 * hidden, 2 + 2, "attention"),
        ("scaling of queries", hidden, 2 + 2, "attention"),
        ("attention mask", scores, 2 + 0, "attention"),
        ("softmax", scores, 2 + 3, "attention"),
        ("dropout of attention", scores, scores_dropout, "attention"),
        ("biases", 5 * hidden, 2 + 1, "bias"),
        ("bias of feed-forward", inner, 2 + 1, "bias"),
        ("gelu", inner, 2 + 3, "activation"),
        ("dropout", 2 * hidden, hidden_dropout, "dropout_add"),
        ("residual sums", 2 * hidden, 3 + 3, None),
        ("LayerNorm", 2 * hidden, 2 + 3, None),
    ]
    if model.is_modern():  # two products with tables, a roll and a sum; each product has one gradient
        rows = [row for row in rows if not row[0].startswith("bias")]
        rows += [("rotary positions", 2 * hidden, 11 + 11, None), ("gate", inner, 3 + 6, None)]
    return [
        Operator(name, 0.0, tokens * width * numbers * work.width, "memory")
        for name, width, numbers, remover in rows
        if remover not in fused
    ]


def _outside_the_layers(work: MicroBatchShape) -> list[Operator]:
    """Operators of embeddings, pooler and heads."""
    model = work.model
    hidden, vocab = model.hidden_size, model.padded_vocab_size()
    tokens, masked = work.batch_size * work.sequence_length, work.batch_size * work.num_predictions
    outside = [] if model.is_modern() else [_product("pooler", work, work.batch_size, hidden, hidden)]
    outside += [
        # Three look-ups summed, LayerNorm and dropout; backward scatters into a table of float32.
        Operator("embeddings", 0.0, 20.0 * tokens * hidden * work.width + 2 * 4 * vocab * hidden, "memory")
    ]
    if masked:
        outside += [
            _product("masked-LM transform", work, masked, hidden, hidden),
            _product("masked-LM decoder", work, masked, hidden, vocab),
            # Logits in float32: written by a cast, read twice; the gradient written, cast and read.
            Operator("masked-LM loss", 0.0, masked * vocab * (4 * 5 + 2 * work.width), "memory"),
        ]
    return outside


def update_bytes(num_parameters: int, *, micro_steps: int, lamb: bool, casts: bool) -> float:
    """Bytes that an update moves, besides the activations of its micro-steps.

    In float32, the norm reads the gradients, unscaling and clipping read and write them; the update reads parameter,
    gradient and two moments and writes three of them, LAMB once more for its trust ratio. With accumulation each
    micro-step reads two and writes one.

    Args:
        casts: mixed precision casts each parameter in every forward pass and each gradient back to float32, before it
            is accumulated or, without accumulation, after the all-reduce. That is Fleet's program, on which the
            constants were fitted; ours casts each parameter once an update, 0.3% of the time of phase 1 less.
    """
    numbers = 1 + 2 + 2 + 7 + (3 if lamb else 0)
    numbers += 3 * micro_steps + 1 if micro_steps > 1 else 0
    cast = 2 * (4 + 2) * micro_steps if casts else 0
    return float(num_parameters * (4 * numbers + cast))


def all_reduce_bytes(model: BertConfig, *, half: bool) -> int:
    """Bytes of the gradients that ranks sum, in float32 or in the precision of the computation.

    Those of the word embeddings are float32 in any case.
    """
    numbers = model.num_parameters()
    if half:
        return 2 * numbers + 2 * model.padded_vocab_size() * model.hidden_size
    return 4 * numbers
