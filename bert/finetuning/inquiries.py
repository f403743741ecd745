"""What the fine-tuning commands answer instead of running: `--plan`, and `--dry-run` with the data and this machine."""

import importlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert.config.entry_point import Inquiry
from bert.config.training_settings import derive
from bert.finetuning.config import FineTuningConfig, with_global_batch, with_steps
from bert.finetuning.loader import FeatureTable
from bert.planning.dry_run import dry_run_inquiry, report_text, size_rows, update_rows
from bert.planning.estimates import checkpoint_bytes
from bert.planning.flags import PlanRequest, add_plan_flags, planned, take_plan_request
from bert.planning.hardware import Hardware, load_parts
from bert.planning.planner import UpdateTime, update_time
from bert.reporting.logs import duration
from bert.runtime.topology import nvidia_smi


def answer_plan(configs: Sequence[FineTuningConfig], request: PlanRequest) -> str:
    """The planner's answer; the global batch is divided over the devices as the launcher does it."""
    return planned([with_global_batch(config, request.hardware.world_size()) for config in configs], request)


def dry_run_report(config: FineTuningConfig, world_size: int) -> str:
    """The plan of a run as text. Files that cannot be used are named, and what depends on them is left out."""
    try:
        config.check_files()
        # A task's package has its settings in `config` and its data in `task`, which loads Paddle. Nothing is written.
        task = importlib.import_module(type(config).__module__.replace(".config", ".task"))
        found, problem = task.read_data(derive(config, cache_dir=None)), ""
    except (ValueError, OSError) as error:
        found, problem = None, f"not read: {error}"
    rows = {
        "task": f"{config.stage()}, sequences of up to {config.data.max_seq_length} tokens",
        "model": f"{config.run.bert_model}, {config.model.num_parameters():,} parameters",
        "data": problem,
    }
    if found is not None:
        sets = [("training", found.train)] if found.train is not None else []
        sets += [(part.name, part.table) for part in found.evaluation]
        listed = [f"{name} {len(table):,} sequences" for name, table in sets]
        listed += [f"{part.name} {part.num_examples:,} {part.unit}" for part in found.prediction]
        rows["data"] = ", ".join(listed)
    if config.run.do_train:
        rows |= _training_rows(config, world_size, found.train if found else None, found.evaluation if found else ())
    rows["output"] = f"{config.checkpoint_dir()} (checkpoints), {config.stage_dir()} (logs, predictions)"
    return report_text(rows)


DRY_RUN = dry_run_inquiry(dry_run_report)
INQUIRIES = (Inquiry(add_plan_flags, take_plan_request, answer_plan), DRY_RUN)


def _training_rows(
    config: FineTuningConfig, world_size: int, train: FeatureTable | None, evaluation: Sequence[Any]
) -> dict[str, str]:
    steps: dict[str, str] = {}
    if train is not None:
        config = with_steps(config, len(train), world_size)
        epochs = config.run.max_steps * config.batch.resolved_global_batch_size(world_size) / len(train)
        steps["steps"] = f"{config.run.max_steps:,} updates, {epochs:.3g} epochs"
        steps["time"] = _time(config, world_size, train, sum(len(part.table) for part in evaluation))
    else:
        known = config.run.max_steps > 0
        steps["steps"] = f"{config.run.max_steps:,} updates" if known else f"{config.run.epochs:g} epochs"
    best = "the best weights" if config.run.keep_best else ""
    return {
        **update_rows(config, world_size),
        **steps,
        **size_rows(config, world_size, best, checkpoint_bytes(config.model) // 3),
    }


def _time(config: FineTuningConfig, world_size: int, train: FeatureTable, num_evaluated: int) -> str:
    """The planner's estimate for the devices of this machine, training and evaluations."""
    name = "CPU-core" if config.hardware.device == "cpu" else this_machines_part()
    if name is None:
        return "not known for this GPU; --plan --hardware PART estimates it for another"
    length = mean_padded_length(train.lengths(), config)
    batch, micro_steps = config.batch.batch_size, config.batch.gradient_accumulation_steps(world_size)
    update: UpdateTime = update_time(
        config, Hardware(name, load_parts()[name], 1, world_size), batch, micro_steps, length
    )
    forward = update.total() / (
        3 * config.batch.resolved_global_batch_size(world_size)
    )  # a sequence; backward costs two
    evaluations = -(-config.run.max_steps // config.run.eval_freq) if config.run.do_eval else 0
    training, evaluating = config.run.max_steps * update.total(), evaluations * num_evaluated * forward
    shown = f"about {duration(training + evaluating)}"
    if evaluations:
        shown += f", of it {evaluations} evaluation{'s' if evaluations > 1 else ''} {duration(evaluating)}"
    return f"{shown} (estimate for {world_size} x {name}, mean padded length {length:.0f})"


def mean_padded_length(lengths: np.ndarray, config: FineTuningConfig) -> float:
    """Mean width of micro-batches, each padded to its longest sequence, of sequences in random order."""
    size, multiple = config.batch.batch_size, config.data.sequence_length_multiple
    mixed = np.random.default_rng(0).permutation(lengths)
    longest = [batch.max() for batch in np.split(mixed, range(size, len(mixed), size))]
    return float(np.mean([min(-(-int(width) // multiple) * multiple, config.data.max_seq_length) for width in longest]))


def this_machines_part() -> str | None:
    """The planner's name of this machine's GPU, None for one that it does not know; CPU-core without a GPU."""
    listed = nvidia_smi("--list-gpus")
    if not listed:
        return "CPU-core"
    return next((name for name in load_parts() if re.search(rf"\b{name.split('-')[0]}\b", listed[0])), None)
