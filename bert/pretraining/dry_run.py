"""`--dry-run`: the plan of a phase (batches, tokens, memory) from its settings."""

from collections.abc import MutableMapping, Sequence
from typing import Any

from bert.config.entry_point import Inquiry
from bert.config.training_settings import PrecisionSettings
from bert.planning.estimates import checkpoint_bytes, memory_per_rank, training_flops_per_sequence
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.epochs import sample_set, with_known_steps


def add_flag(group: Any) -> None:
    group.add_argument("--dry-run", action="store_true", help="print the plan (batches, tokens, memory) and stop")


def take_flag(flags: MutableMapping[str, Any]) -> bool | None:
    return flags.pop("dry_run", None)


def answer(configs: Sequence[PretrainingConfig], _: bool) -> str:
    """The plans of phases that follow each other, on the ranks of this process's launcher."""
    from bert.runtime.distributed import group_from_environment  # loads Paddle, which takes a second

    world_size = group_from_environment("cpu").world_size
    return "\n\n".join(dry_run_report(config, world_size) for config in configs)


DRY_RUN = Inquiry(add_flag, take_flag, answer)


def dry_run_report(config: PretrainingConfig, world_size: int) -> str:
    """The plan of a run as text: model, batches, tokens, epochs, memory and disk."""
    config = with_known_steps(config, world_size)
    run, data, optimizer = config.run, config.data, config.optimizer
    micro_steps = config.batch.gradient_accumulation_steps(world_size)
    global_batch = config.batch.resolved_global_batch_size(world_size)
    flops = training_flops_per_sequence(config.model, data.max_seq_length, data.max_predictions_per_seq)
    memory, checkpoint = memory_per_rank(config, world_size), checkpoint_bytes(config.model)
    keeps_best = run.keep_best_checkpoint and data.eval_dir is not None
    most = checkpoint * (run.keep_checkpoints + 1 + keeps_best)
    rows = {
        "phase": f"{run.phase}, sequences of up to {data.max_seq_length} tokens, "
        f"{data.max_predictions_per_seq} of them predicted, {data.masking} masking",
        "model": f"{run.bert_model}, {config.model.num_parameters():,} parameters",
        "batch": f"{config.batch.batch_size} x {micro_steps} micro-steps x {world_size} ranks = "
        f"{global_batch:,} sequences an update",
        "optimizer": f"{optimizer.optimizer}, rate {optimizer.learning_rate:g} after {_warmup(config)} of warm-up, "
        f"then decay of power {optimizer.lr_decay_power:g}",
        "precision": _precision(config.precision),
        **_length(config, global_batch, flops, world_size),
        "memory": f"about {_size(memory.total())} a rank: parameters {_size(memory.parameters)}, gradients "
        f"{_size(memory.gradients)}, optimizer {_size(memory.optimizer)}, activations {_size(memory.activations)}",
        "disk": f"{_size(checkpoint)} a checkpoint every {run.num_steps_per_checkpoint} updates, "
        f"{run.keep_checkpoints} kept{' and the best' if keeps_best else ''}: {_size(most)} at most",
        "output": f"{config.checkpoint_dir()} (checkpoints), {config.stage_dir()} (logs)",
    }
    return "\n".join(f"{name:<11}{text}" for name, text in rows.items())


def _warmup(config: PretrainingConfig) -> str:
    known = config.run.max_steps > 0
    return f"{config.warmup_steps():,} steps" if known else f"{config.optimizer.warmup_proportion:.1%} of the steps"


def _length(config: PretrainingConfig, global_batch: int, flops: int, world_size: int) -> dict[str, str]:
    """The rows of the length of the training; epochs are known once there are shards, updates of --epochs too."""
    steps, epochs, a_sequence = config.run.max_steps, config.run.epochs, f"{flops / 1e9:,.1f} GFLOP a sequence"
    if epochs is not None:
        unknown = f"as many as {epochs:g} epochs need, known once {config.data.input_dir} has shards"
        return {"steps": unknown, "arithmetic": a_sequence}
    samples, sequences = sample_set(config), steps * global_batch
    return {
        "steps": f"{steps:,} updates, {sequences:,} sequences, up to {sequences * config.data.max_seq_length:,} tokens",
        "epochs": samples.describe(steps, global_batch)
        if samples
        else f"known once {config.data.input_dir} has shards",
        "arithmetic": f"{a_sequence}, {flops * sequences:.3g} FLOP in all"
        + _ideal_time(config, flops * sequences, world_size),
    }


def _precision(precision: PrecisionSettings) -> str:
    if not precision.amp:
        return "float32 with TF32 matrix products" if precision.tf32 else "float32"
    level = "O2" if precision.use_pure_fp16 else "O1"
    if precision.amp_dtype == "bfloat16":
        return f"mixed bfloat16 ({level})"
    kind = "dynamic" if precision.use_dynamic_loss_scaling else "constant"
    return f"mixed float16 ({level}), {kind} loss scale from {precision.scale_loss:,.0f}"


def _ideal_time(config: PretrainingConfig, total_flops: int, world_size: int) -> str:
    peak = config.hardware.peak_tflops
    if peak is None:
        return ""
    seconds = total_flops / (peak * 1e12 * world_size)
    return f", {seconds / 3600:,.2f} h at the peak of {peak:g} TFLOP/s a rank"


def _size(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.1f} GB"
