"""Answers of the fine-tuning commands to `--plan`, and to `--dry-run`, which reads the data."""

from typing import TYPE_CHECKING, Any

from bert.config.entry_point import Inquiry, load_task
from bert.finetuning.config import FineTuningConfig, with_global_batch, with_steps
from bert.planning.dry_run import dry_run_inquiry, report_text, size_rows, update_rows
from bert.planning.plan_inquiry import plan_inquiry
from bert.planning.planner import update_time
from bert.planning.run_device import RunDevice, run_device
from bert.reporting.progress import duration
from bert.runtime.topology import allowed_processors, usable_cores, visible_gpus

if TYPE_CHECKING:  # not for --help
    import numpy as np

if TYPE_CHECKING:
    from bert.finetuning.loader import FeatureTable

_LONG_SECONDS = 900.0  # of a training, from which on a plan says what makes it shorter


def inquiries(task: str) -> tuple[Inquiry, ...]:
    """The inquiries --plan and --dry-run of a task, named as in `EntryPoint.task`."""
    dry_run = dry_run_inquiry(lambda config, world_size: dry_run_report(config, world_size, task))
    return plan_inquiry(with_global_batch), dry_run


def dry_run_report(config: Any, world_size: int, task: str) -> str:
    """The plan of a run as text, as far as its files exist; ValueError for a wrong file."""
    task_class, data = load_task(task), None
    try:
        config.check_files()
    except (ValueError, OSError) as error:
        files, notes = f"not read: {str(error).partition(';')[0]}", []
    else:
        opened = task_class(config)
        data, notes = opened.read_data(), list(opened.notes)
        sizes = {} if data.train is None else {"training": f"{len(data.train):,} {config.sample_name}"}
        sizes |= {part.name: f"{len(features.table):,} sequences" for part, features in data.evaluated}
        sizes |= {part.name: f"{number:,} {task_class.unit}" for part, number in data.predicted}
        files = ", ".join(f"{name} {size}" for name, size in sizes.items())
    rows = {
        "task": f"{config.display_name()}, sequences of up to {config.data.max_seq_length} tokens",
        "model": f"{config.run.bert_model}, {config.model.num_parameters():,} parameters",
        "data": "\n           ".join([files, *notes]),
    }
    if config.run.do_train:
        rows |= _training_rows(config, world_size, data)
    rows["output"] = f"{config.checkpoint_dir()} (checkpoints), {config.stage_dir()} (logs, predictions)"
    return report_text(rows)


def _training_rows(config: FineTuningConfig, world_size: int, data: Any) -> dict[str, str]:
    """Rows about a training; `data` is its `FineTuningData`, or None."""
    device = run_device(config, world_size, visible_gpus())
    config = device.resolve(with_global_batch(config, world_size))
    run, steps = config.run, dict[str, str]()
    if data is not None and data.train is not None:
        config = with_steps(config, len(data.train), world_size)
        epochs = config.run.max_steps * config.batch.resolved_global_batch_size(world_size) / len(data.train)
        evaluated = sum(len(features.table) for _, features in data.evaluated)
        steps["steps"] = f"{config.run.max_steps:,} updates, {epochs:.3g} epochs"
        steps["time"] = _time(config, world_size, device, data.train, evaluated, is_by_epochs=run.max_steps < 0)
    else:
        steps["steps"] = f"{run.max_steps:,} updates" if run.max_steps > 0 else f"{run.epochs:g} epochs"
    cores = {"cores": text} if (text := _cores(device, world_size, config.hardware.cpu_threads)) else {}
    return {**update_rows(config, world_size), **steps, **size_rows(config, world_size, device), **cores}


def _cores(device: RunDevice, world_size: int, cpu_threads: int) -> str:
    """The use of this machine's cores in a run on the CPU; "" if the ranks use all of them."""
    cores = len(usable_cores(allowed_processors()))
    if device.features.kind != "cpu" or world_size >= cores:
        return ""
    threads = min(cores, cpu_threads * world_size or cores)
    ranks = 1 << (cores.bit_length() - 1)
    return (
        f"matrix products use {threads} of {cores}, the rest of an update {world_size}; the scripts' --num-processes "
        f"{ranks} uses {ranks} for all of it"
    )


def _time(
    config: FineTuningConfig,
    world_size: int,
    device: RunDevice,
    train: "FeatureTable",
    num_evaluated: int,
    is_by_epochs: bool,
) -> str:
    """Rows with the planner's time for this device, and ways to shorten a long training."""
    hardware = device.hardware(world_size)
    if hardware is None:
        return "not known for this GPU; --plan --hardware PART estimates it for another"
    batch, run = config.batch, config.run
    length = _mean_padded_length(train.lengths(), config)
    micro_steps = batch.gradient_accumulation_steps(world_size)
    update = update_time(config, hardware, batch.batch_size, micro_steps, length).total()
    evaluations = -(-run.max_steps // run.eval_freq) if run.do_eval else 0
    forward = update / (3 * batch.resolved_global_batch_size(world_size))  # a sequence; backward costs two
    training, evaluating = run.max_steps * update, evaluations * num_evaluated * forward
    estimate = f"about {duration(training + evaluating)}"
    if run.finish_in is not None and training + evaluating > run.finish_in:
        fitting = run.max_steps * run.finish_in / (training + evaluating)
        estimate = f"{duration(run.finish_in)}, in which about {fitting:,.0f} of these updates fit"
    elif evaluations:
        estimate += f", of it {evaluations} evaluation{'s' if evaluations > 1 else ''} {duration(evaluating)}"
    if run.finish_in is None and training + evaluating > _LONG_SECONDS:
        flag = "--epochs" if is_by_epochs else "--max-steps"
        estimate += f"; --hours, fewer {flag}, a lower --max-seq-length or a smaller model make it shorter"
    return f"{estimate} (estimate for {world_size} x {hardware.name}, mean padded length {length:.0f})"


def _mean_padded_length(lengths: "np.ndarray", config: FineTuningConfig) -> float:
    """Mean width of micro-batches of sequences in random order, each padded to its longest one."""
    import numpy as np

    size, multiple = config.batch.batch_size, config.data.sequence_length_multiple
    mixed = np.random.default_rng(0).permutation(lengths)
    longest = [batch.max() for batch in np.split(mixed, range(size, len(mixed), size))]
    return float(np.mean([min(-(-int(width) // multiple) * multiple, config.data.max_seq_length) for width in longest]))
