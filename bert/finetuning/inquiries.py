"""What the fine-tuning commands answer instead of running: `--plan`, and `--dry-run` with the data and this machine."""

from typing import Any

import numpy as np

from bert.config.entry_point import Inquiry, load_task
from bert.finetuning.config import FineTuningConfig, with_global_batch, with_steps
from bert.finetuning.loader import FeatureTable
from bert.planning.dry_run import dry_run_inquiry, report_text, size_rows, update_rows
from bert.planning.hardware import Hardware, load_parts, part_of
from bert.planning.planner import plan_inquiry, update_time
from bert.reporting.progress import duration
from bert.runtime.topology import nvidia_smi


def inquiries(task: str) -> tuple[Inquiry, ...]:
    """--plan and --dry-run of a task; `task` as of `EntryPoint`."""
    dry_run = dry_run_inquiry(lambda config, world_size: dry_run_report(config, world_size, task))
    return plan_inquiry(with_global_batch), dry_run


def dry_run_report(config: Any, world_size: int, task: str) -> str:
    """The plan of a run as text. Without the files, what depends on them is left out; a wrong one is a ValueError."""
    task_class, data = load_task(task), None
    try:
        config.check_files()
    except (ValueError, OSError) as error:
        files, notes = f"not read: {error}", []
    else:
        opened = task_class(config)
        data, notes = opened.read_data(), list(opened.notes)
        sizes = {} if data.train is None else {"training": f"{len(data.train):,} sequences"}
        sizes |= {part.name: f"{len(features.table):,} sequences" for part, features in data.evaluated}
        sizes |= {part.name: f"{number:,} {task_class.unit}" for part, number in data.predicted}
        files = ", ".join(f"{name} {size}" for name, size in sizes.items())
    rows = {
        "task": f"{config.stage()}, sequences of up to {config.data.max_seq_length} tokens",
        "model": f"{config.run.bert_model}, {config.model.num_parameters():,} parameters",
        "data": "\n           ".join([files, *notes]),
    }
    if config.run.do_train:
        rows |= _training_rows(config, world_size, data)
    rows["output"] = f"{config.checkpoint_dir()} (checkpoints), {config.stage_dir()} (logs, predictions)"
    return report_text(rows)


def _training_rows(config: FineTuningConfig, world_size: int, data: Any) -> dict[str, str]:
    """Rows of a training with its `FineTuningData`, or with None."""
    run, steps = config.run, dict[str, str]()
    if data is not None and data.train is not None:
        config = with_steps(config, len(data.train), world_size)
        epochs = config.run.max_steps * config.batch.resolved_global_batch_size(world_size) / len(data.train)
        evaluated = sum(len(features.table) for _, features in data.evaluated)
        steps["steps"] = f"{config.run.max_steps:,} updates, {epochs:.3g} epochs"
        steps["time"] = _time(config, world_size, data.train, evaluated)
    else:
        steps["steps"] = f"{run.max_steps:,} updates" if run.max_steps > 0 else f"{run.epochs:g} epochs"
    return {**update_rows(config, world_size), **steps, **size_rows(config, world_size, run.keep_best)}


def _time(config: FineTuningConfig, world_size: int, train: FeatureTable, num_evaluated: int) -> str:
    """The planner's estimate for the devices of this machine, training and evaluations."""
    seconds = training_seconds(config, world_size, train.lengths(), num_evaluated)
    if seconds is None:
        return "not known for this GPU; --plan --hardware PART estimates it for another"
    training, evaluating = seconds
    shown = f"about {duration(training + evaluating)}"
    if evaluations := _evaluations(config):
        shown += f", of it {evaluations} evaluation{'s' if evaluations > 1 else ''} {duration(evaluating)}"
    length = mean_padded_length(train.lengths(), config)
    return f"{shown} (estimate for {world_size} x {_part(config)}, mean padded length {length:.0f})"


def _part(config: FineTuningConfig) -> str | None:
    """The planner's name of this machine's GPU, None for one that it does not know; CPU-core without a GPU."""
    listed = [] if config.hardware.device == "cpu" else nvidia_smi("--list-gpus")
    return part_of(listed[0]) if listed else "CPU-core"


def _evaluations(config: FineTuningConfig) -> int:
    return -(-config.run.max_steps // config.run.eval_freq) if config.run.do_eval else 0


def training_seconds(
    config: FineTuningConfig, world_size: int, lengths: np.ndarray, num_evaluated: int
) -> tuple[float, float] | None:
    """Seconds of the updates and of the evaluations that the planner expects of this machine; None for an unknown GPU.

    Args:
        config: with its numbers of updates (`with_steps`).
        lengths: of the training sequences, or of a sample of them.
    """
    if (name := _part(config)) is None:
        return None
    batch = config.batch
    hardware = Hardware(name, load_parts()[name], 1, world_size)
    micro_steps, length = batch.gradient_accumulation_steps(world_size), mean_padded_length(lengths, config)
    update = update_time(config, hardware, batch.batch_size, micro_steps, length).total()
    forward = update / (3 * batch.resolved_global_batch_size(world_size))  # a sequence; backward costs two
    return config.run.max_steps * update, _evaluations(config) * num_evaluated * forward


def mean_padded_length(lengths: np.ndarray, config: FineTuningConfig) -> float:
    """Mean width of micro-batches, each padded to its longest sequence, of sequences in random order."""
    size, multiple = config.batch.batch_size, config.data.sequence_length_multiple
    mixed = np.random.default_rng(0).permutation(lengths)
    longest = [batch.max() for batch in np.split(mixed, range(size, len(mixed), size))]
    return float(np.mean([min(-(-int(width) // multiple) * multiple, config.data.max_seq_length) for width in longest]))
