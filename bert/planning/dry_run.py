"""`--dry-run` of every entry point: the plan of a run from its settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from bert.config.entry_point import Inquiry
from bert.config.optimizer_settings import PrecisionSettings
from bert.config.training_settings import TrainingConfig
from bert.help_parser import wrapped
from bert.planning.estimates import checkpoint_bytes, memory_per_rank
from bert.reporting.progress import megabytes

Config = TypeVar("Config", bound=TrainingConfig)


def dry_run_inquiry(report: Callable[[Config, int], str]) -> Inquiry:
    """The flag --dry-run; `report` gets each configuration and the number of ranks."""

    def add_flag(group: Any) -> None:
        group.add_argument(
            "--dry-run", action="store_true", help="print the plan (data, updates, memory, disk) and stop"
        )

    def answer(_: bool, configs: Sequence[Config], num_ranks: int) -> str:
        return "\n\n".join(report(config, num_ranks) for config in configs)

    return Inquiry(add_flag, lambda flags: flags.pop("dry_run", None), answer)


def update_rows(config: TrainingConfig, world_size: int) -> dict[str, str]:
    """What an update does: its batch, optimizer and precision."""
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
        "precision": _precision(config.precision),
        "strategy": _strategy(config, micro_steps),
    }


def size_rows(config: TrainingConfig, world_size: int, keeps_best: bool) -> dict[str, str]:
    """Memory of a rank, and what checkpoints take."""
    memory, checkpoint = memory_per_rank(config, world_size), checkpoint_bytes(config.model)
    before_decay, best = config.optimizer.lr_schedule == "wsd", " and the best" if keeps_best else ""
    most = checkpoint * (config.run.keep_checkpoints + keeps_best + before_decay + 1)  # and one that is written
    return {
        "memory": f"about {megabytes(memory.total())} a rank: parameters {megabytes(memory.parameters)}, gradients "
        f"{megabytes(memory.gradients)}, optimizer {megabytes(memory.optimizer)}, activations "
        f"{megabytes(memory.activations)}",
        "disk": f"{megabytes(checkpoint)} a checkpoint every {config.run.num_steps_per_checkpoint} updates, "
        f"{config.run.keep_checkpoints} kept{best}: {megabytes(most)} at most",
    }


def report_text(rows: Mapping[str, str | None]) -> str:
    """The rows as text; empty ones are left out."""
    return wrapped("\n".join(f"{name:<11}{text}" for name, text in rows.items() if text), indent=" " * 11)


def _strategy(config: TrainingConfig, micro_steps: int) -> str:
    """Who builds float16 and accumulation, where there is one of them: `program.py` or Fleet's strategies."""
    precision, chosen = config.precision, config.optimizer.fleet_strategies.split(",")
    used = {"amp": precision.amp and precision.amp_dtype == "float16", "gradient_merge": micro_steps > 1}
    names = [name + (": Fleet's" if name in chosen else ": ours") for name, is_used in used.items() if is_used]
    return "; ".join([*names, "losses are equal either way (--fleet-strategies)"]) if names else ""


def _precision(precision: PrecisionSettings) -> str:
    if not precision.amp:
        products = {"on": " with TF32 matrix products", "auto": " (TF32 matrix products on Ampere and newer GPUs)"}
        return f"float32{products.get(precision.tf32, '')}"
    level = "O2" if precision.use_pure_fp16 else "O1"
    if precision.amp_dtype == "bfloat16":
        return f"mixed bfloat16 ({level})"
    kind = "dynamic" if precision.use_dynamic_loss_scaling else "constant"
    return f"mixed float16 ({level}), {kind} loss scale from {precision.initial_loss_scale():,.0f}"
