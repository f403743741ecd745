"""Estimates memory, time and cost of a run on given hardware, from a roofline.

A micro-step takes, for each operator, the longer of its arithmetic at the reachable peak and its bytes at the reachable
bandwidth. An update adds one all-reduce of the gradients, the bytes of casts, accumulation and optimizer, and what the
device waits for the host; on several nodes it takes longer by a power of their number. The error against published
figures: `python -m tests.benchmarks.planner_check`.
"""

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bert.config.automatic import resolve_auto
from bert.planning.dry_run import report_text
from bert.planning.estimates import (
    Memory,
    attention_bias_bytes,
    checkpoint_bytes,
    memory_per_rank,
    most_checkpoint_bytes,
    training_flops_per_sequence,
)
from bert.planning.hardware import (
    Fusion,
    Hardware,
    MicroBatchShape,
    ProgramKind,
    all_reduce_bytes,
    operators,
    update_bytes,
)
from bert.reporting.progress import duration

_LAYERS_OF_LARGE = 24  # update_overhead_ms is of BERT-large; an update has operators in proportion to the layers
_FUSIONS: dict[str, Fusion] = {"linear": "bias", "dropout_add": "dropout_add", "attention": "attention"}


@dataclasses.dataclass(frozen=True)
class UpdateTime:
    """Time of one update on one device, in seconds."""

    micro_steps: float
    products: float  # matrix products of one micro-step
    pointwise: float  # memory-bound operators of one micro-step
    all_reduce: float
    optimizer: float
    overhead: float
    lengthened: float = 1.0  # factor of the time on several nodes, where all wait for the slowest

    def total(self) -> float:
        on_one_node = (
            self.micro_steps * (self.products + self.pointwise) + self.all_reduce + self.optimizer + self.overhead
        )
        return on_one_node * self.lengthened


@dataclasses.dataclass(frozen=True)
class Plan:
    """Planned memory, time and cost. `memory` and `fits` are for the requested batch, times for `batch_size`."""

    hardware: Hardware
    memory: Memory
    fits: bool
    batch_size: int | None  # None: no sequence fits
    largest_batch_size: int | None
    global_batch_size: int
    warmup_share: float  # mean batch of an update, warm-up included, divided by global_batch_size
    sequence_length: float  # mean padded length in tokens
    max_steps: int | None  # None: follows from epochs and data
    update: UpdateTime | None
    mfu: float | None
    price_per_hour: float | None  # price of one node
    notice: str | None
    checkpoint_bytes: int  # size of one checkpoint
    disk_bytes: int  # most space of all checkpoints

    def sequences_per_second(self) -> float:
        assert self.update is not None
        return self.global_batch_size / self.update.total()

    def seconds(self) -> float | None:
        """Time of all updates, without evaluation and checkpoints; None if nothing fits or max_steps is unknown."""
        return self.seconds_of(self.update, self.max_steps) if self.update and self.max_steps else None

    def seconds_of(self, update: UpdateTime, steps: int) -> float:
        """Time of `steps` updates; during a batch warm-up they have fewer micro-steps."""
        return steps * dataclasses.replace(update, micro_steps=update.micro_steps * self.warmup_share).total()

    def cost(self) -> float | None:
        seconds, price = self.seconds(), self.price_per_hour
        return None if price is None or seconds is None else seconds / 3600 * self.hardware.num_nodes * price


def make_plan(
    config: Any, hardware: Hardware, *, price_per_hour: float | None = None, mean_padded_length: float | None = None
) -> Plan:
    """Plan a training (`TrainingConfig`) on `hardware`.

    Args:
        price_per_hour: of one node.
        mean_padded_length: mean tokens of a sequence with its padding, where samples are shorter than max_seq_length.
    """
    longest = config.data.max_seq_length
    length = longest if mean_padded_length is None else mean_padded_length
    if length > longest:
        raise ValueError(
            f"mean_padded_length={length:g} must be from 1 to max_seq_length={longest}; change --mean-padded-length"
        )
    part, notice = hardware.part, None
    if config.precision.amp and part.tflops.short is None:
        notice = f"{hardware.name} has no {config.precision.amp_dtype} arithmetic; planned in float32"
        precision = config.precision.model_copy(update={"amp": False, "use_pure_fp16": False})
        config = config.model_copy(update={"precision": precision})
    config = resolve_auto(config, part.features())
    world_size = hardware.world_size()
    global_batch = config.batch.resolved_global_batch_size(world_size)
    memory = memory_per_rank(config, world_size)
    share = global_batch // world_size
    largest = memory.largest_batch_size(config.batch.batch_size, share, share, part.usable_bytes())
    fits = memory.total() <= part.usable_bytes()
    batch_size = config.batch.batch_size if fits else largest
    bias = (batch_size or 1) * attention_bias_bytes(config)
    if bias > 0.01 * part.usable_bytes():
        notice = f"what hides padding from FlashAttention takes {gigabytes(bias)} of the activations"
        if not config.model.is_modern():  # FlashAttention reads packed tokens without a window
            notice += "; --unpad on needs none"
    update = mfu = None
    steps, schedule = config.run.max_steps, config.batch.schedule(world_size)
    if batch_size is not None:
        micro_steps = global_batch // world_size // batch_size
        update = update_time(config, hardware, batch_size, micro_steps, length)
        flops = training_flops_per_sequence(config.model, round(length), round(_predictions(config, length)))
        peak, _ = part.arithmetic(config.precision)  # TFLOP/s
        mfu = global_batch * flops / update.total() / (peak * 1e12 * world_size)  # Chowdhery et al., 2022
    return Plan(
        hardware=hardware,
        memory=memory,
        fits=fits,
        batch_size=batch_size,
        largest_batch_size=largest,
        global_batch_size=global_batch,
        warmup_share=schedule.sequences(steps) / (steps * global_batch) if steps > 0 else 1.0,
        sequence_length=length,
        max_steps=steps if steps > 0 else None,
        update=update,
        mfu=mfu,
        price_per_hour=price_per_hour,
        notice=notice,
        checkpoint_bytes=checkpoint_bytes(config.model),
        disk_bytes=most_checkpoint_bytes(config),
    )


def update_time(
    config: Any, hardware: Hardware, batch_size: int, micro_steps: int, length: float, kind: ProgramKind | None = None
) -> UpdateTime:
    """Time of an update with `micro_steps` micro-batches of `batch_size` sequences on each device."""
    part, model, precision = hardware.part, config.model, config.precision
    if kind is None:  # the program of these settings on this part
        kernels = resolve_auto(config, part.features()).kernels()
        fused: set[Fusion] = {fusion for name, fusion in _FUSIONS.items() if getattr(kernels, name)}
        fused |= {"qkv"} if config.hardware.fuse_mha else set()
        kind = ProgramKind(frozenset(fused), config.optimizer.optimizer == "AdamW", config.hardware.recompute)
    (peak, width), share = part.arithmetic(precision), part.efficiency  # rates: FLOP/s that operators reach
    gemm = share.gemm if width == 2 else share.gemm_float32 or share.gemm
    rates = {"product": peak * 1e12 * gemm, "fused attention": peak * 1e12 * (share.attention or share.gemm)}
    bytes_rate = part.bandwidth * 1e9 * share.bandwidth
    work = MicroBatchShape(model, batch_size, length, _predictions(config, length), width, kind)
    seconds = [(op.unit, max(op.flops / rates.get(op.unit, math.inf), op.bytes / bytes_rate)) for op in operators(work)]
    gradients = all_reduce_bytes(model, half=micro_steps == 1 and precision.sums_in_half_precision())
    moved = update_bytes(
        model.num_parameters(), micro_steps=micro_steps, lamb=config.optimizer.optimizer == "Lamb", casts=precision.amp
    )
    return UpdateTime(
        micro_steps=micro_steps,
        products=sum(time for unit, time in seconds if unit != "memory"),
        pointwise=sum(time for unit, time in seconds if unit == "memory"),
        all_reduce=hardware.all_reduce_seconds(gradients),
        optimizer=moved / bytes_rate,
        overhead=part.update_overhead_ms / 1e3 * model.num_hidden_layers / _LAYERS_OF_LARGE if kind.host_waits else 0.0,
        lengthened=hardware.num_nodes**part.node_exponent,
    )


def _predictions(config: Any, length: float) -> float:
    """Masked positions of a sequence, in proportion to its length; 0 without a masked-LM head."""
    most = config.num_predictions()
    return min(most, most * length / config.data.max_seq_length)


def plan_report(plan: Plan, title: str, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """The plan as a table for the terminal, with additional rows of the task."""
    hardware, part, memory = plan.hardware, plan.hardware.part, plan.memory
    nodes = f"{hardware.num_nodes} node{'s' if hardware.num_nodes > 1 else ''}"
    parts = ", ".join(f"{name} {gigabytes(size)}" for name, size in dataclasses.asdict(memory).items())
    rows = {
        "run": title,
        "hardware": f"{nodes} of {hardware.devices_per_node} x {hardware.name}, {part.memory_gb:g} GB each",
        "note": plan.notice,
        "memory": f"{gigabytes(memory.total())} a device: {parts}",
        "fits": _fit(plan),
        **(_time_rows(plan, plan.update) if plan.update else {}),
        **more,
    }
    one, most = gigabytes(plan.checkpoint_bytes), gigabytes(plan.disk_bytes)
    rows["disk"] = f"{one} a checkpoint, {most} of checkpoints at most"
    if (cost := plan.cost()) is not None:
        rows["cost"] = f"{cost:,.2f} at {plan.price_per_hour:g} an hour for each of {nodes}"
    rows["sources"] = f"memory and operators: the recorded programs; {part.sources}"
    rows["checked"] = f"against {part.checked}"
    return report_text(rows)


def _fit(plan: Plan) -> str:
    room, largest = f"{plan.hardware.part.usable_bytes() / 1e9:,.1f} GB usable", plan.largest_batch_size
    if largest is None:
        remedy = "choose another part, a smaller model or shorter sequences, or --recompute if it is off"
        return f"no, not even one sequence ({room}); {remedy}"
    text = f"{room}; the largest micro-batch that fits and divides the global batch is --batch-size {largest}"
    return f"yes, {text}" if plan.fits else f"no, {text}, used below"


def _time_rows(plan: Plan, update: UpdateTime) -> dict[str, str]:
    steps = plan.max_steps or 1000
    speed, seconds = plan.sequences_per_second(), plan.seconds_of(update, steps)
    longer = f", {update.lengthened - 1:.1%} longer on several nodes" if update.lengthened > 1 else ""
    rows = {
        "micro-step": f"{plan.batch_size} sequences of {plan.sequence_length:g} tokens: "
        f"{_ms(update.products + update.pointwise)}, of it matrix products {_ms(update.products)}, other "
        f"operators {_ms(update.pointwise)}",
        "update": f"{update.micro_steps} x micro-step + all-reduce {_ms(update.all_reduce)} + optimizer, "
        f"accumulation and casts {_ms(update.optimizer)} + wait for the host {_ms(update.overhead)}{longer} = "
        f"{update.total():,.3g} s",
        "speed": f"{speed:,.0f} sequences/s on all devices, model FLOPs utilisation {plan.mfu:.0%}",
        "time": f"{steps:,} updates: {duration(seconds)} (without start, evaluation and checkpoints)"
        f"{'' if plan.max_steps else '; set the number with --max-steps'}"
        f"{'' if plan.warmup_share == 1 else f'; with the warm-up a mean batch of {plan.warmup_share:.1%}'}",
    }
    slow, fast = plan.hardware.part.speed_range
    rows["range"] = (
        f"{slow * speed:,.0f} to {fast * speed:,.0f} sequences/s, "
        f"{duration(seconds / fast)} to {duration(seconds / slow)} ({slow:.0%} to {fast:.0%} of the speed)"
    )
    return rows


def gigabytes(num_bytes: float) -> str:
    """Format gigabytes with three significant digits."""
    return f"{num_bytes / 1e9:,.3g} GB"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3g} ms"
