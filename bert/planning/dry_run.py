"""`--dry-run` of every entry point: describes a run from its settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from bert.config.entry_point import Inquiry
from bert.config.optimizer_settings import PrecisionSettings
from bert.config.training_settings import TrainingConfig
from bert.help_parser import wrapped
from bert.planning.estimates import Memory, checkpoint_bytes, memory_per_rank, most_checkpoint_bytes
from bert.planning.run_device import RunDevice
from bert.reporting.progress import megabytes

Config = TypeVar("Config", bound=TrainingConfig)


def dry_run_inquiry(report: Callable[[Config, int], str]) -> Inquiry:
    """The flag --dry-run; `report` receives each configuration and the number of ranks."""

    def add_flag(group: Any) -> None:
        group.add_argument(
            "--dry-run", action="store_true", help="print the plan (data, updates, memory, disk) and stop"
        )

    def answer(_: bool, configs: Sequence[Config], num_ranks: int) -> str:
        return "\n\n".join(report(config, num_ranks) for config in configs)

    return Inquiry(add_flag, lambda flags: flags.pop("dry_run", None), answer)


def update_rows(config: TrainingConfig, world_size: int) -> dict[str, str]:
    """Rows about an update: batch, optimizer and precision. `config` has no `auto` left."""
    optimizer, micro_steps = config.optimizer, config.batch.gradient_accumulation_steps(world_size)
    known = config.run.max_steps > 0
    warmup = f"{config.warmup_steps():,} steps" if known else f"{optimizer.warmup_proportion:.1%} of the steps"
    schedule = config.batch.schedule(world_size)
    growing = ""
    if number := schedule.warmup_steps():
        growing = (
            f"; the first {number:,} grow by {schedule.smallest:,} from {schedule.smallest:,}, with "
            f"{schedule.updates_at_each:,} of each size, {schedule.sequences(number):,} sequences in all"
        )
    return {
        "batch": f"{config.batch.batch_size} x {micro_steps} micro-steps x {world_size} ranks = "
        f"{config.batch.resolved_global_batch_size(world_size):,} {config.sample_name} an update{growing}",
        "optimizer": f"{optimizer.optimizer}, rate {optimizer.learning_rate:g} after {warmup} of warm-up, "
        f"then {optimizer.decay_text()}",
        "precision": _precision(config.precision, config.hardware.device),
        "strategy": _strategy(config, micro_steps),
    }


def size_rows(config: TrainingConfig, world_size: int, device: RunDevice) -> dict[str, str]:
    """Rows about a rank's device and memory, and the disk space of the checkpoints.

    Args:
        config: the settings as resolved for the device.
    """
    memory, checkpoint = memory_per_rank(config, world_size), checkpoint_bytes(config.model)
    best, most = " and the best" if config.keeps_best() else "", most_checkpoint_bytes(config)
    return {
        "hardware": device.describe(world_size),
        "memory": f"about {megabytes(memory.total())} a rank: parameters {megabytes(memory.parameters)}, gradients "
        f"{megabytes(memory.gradients)}, optimizer {megabytes(memory.optimizer)}, activations "
        f"{megabytes(memory.activations)}{_attention(config, device)}{_fit(config, world_size, device, memory)}",
        "disk": f"{megabytes(checkpoint)} a checkpoint every {config.run.num_steps_per_checkpoint} updates, "
        f"{config.run.keep_checkpoints} kept{best}: {megabytes(most)} at most",
    }


def _attention(config: TrainingConfig, device: RunDevice) -> str:
    """A note if the card is assumed: older cards store the attention matrices."""
    if not (device.is_assumed and config.kernels().attention):
        return ""
    return "; with FlashAttention, which needs Ampere or newer (more memory on older cards)"


def _fit(config: TrainingConfig, world_size: int, device: RunDevice, memory: Memory) -> str:
    """Whether the batch fits in memory, otherwise the largest micro-batch; empty for a CPU or unknown card."""
    if device.part is None or device.features.kind == "cpu":
        return ""
    usable = device.part.usable_bytes()
    if memory.total() <= usable:
        return f"; {megabytes(usable)} are usable"
    share = config.batch.resolved_global_batch_size(world_size) // world_size
    fitting = memory.largest_batch_size(config.batch.batch_size, share, config.batch.batch_size, usable)
    remedy = f"--batch-size {fitting} or --recompute" if fitting else "--recompute or a smaller model"
    return f"; this does not fit in the {megabytes(usable)} that are usable: pass {remedy}"


def report_text(rows: Mapping[str, str | None]) -> str:
    """The rows as text; rows without a value are left out."""
    return wrapped("\n".join(f"{name:<11}{text}" for name, text in rows.items() if text), indent=" " * 11)


def _strategy(config: TrainingConfig, micro_steps: int) -> str:
    """Whether float16 and accumulation come from `program.py` or from Fleet's strategies, if they are used."""
    precision, chosen = config.precision, config.optimizer.fleet_strategies.split(",")
    used = {"amp": precision.amp and precision.amp_dtype == "float16", "gradient_merge": micro_steps > 1}
    names = [name + (": Fleet's" if name in chosen else ": ours") for name, is_used in used.items() if is_used]
    return "; ".join([*names, "losses are equal either way (--fleet-strategies)"]) if names else ""


def _precision(precision: PrecisionSettings, device: str) -> str:
    if not precision.amp:
        return f"float32{' with TF32 matrix products' if precision.tf32 == 'on' else ''}"
    level = "O2" if precision.use_pure_fp16 else "O1"
    if precision.amp_dtype == "bfloat16":
        return f"mixed bfloat16 ({level})"
    kind = "dynamic" if precision.use_dynamic_loss_scaling else "constant"
    in_float32 = ", which a CPU computes in float32" if device == "cpu" else ""
    return f"mixed float16 ({level}){in_float32}, {kind} loss scale from {precision.initial_loss_scale():,.0f}"
