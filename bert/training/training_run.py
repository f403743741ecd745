"""Runs any task: builds its program, loads weights, trains, evaluates, saves, and writes the summary.

Pre-training and every fine-tuning task supply a `bert.training.task.Task`.
"""

import contextlib
import dataclasses
import json
import logging
import os
import time
from collections.abc import Callable
from typing import Any

import psutil

from bert import exit_codes
from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints.writer import CheckpointWriter
from bert.config.run_file import dump_yaml
from bert.config.training_settings import TrainingConfig
from bert.files import write_atomically
from bert.model.objectives import Objective
from bert.model.optimization import load_schedule
from bert.reporting.logs import QUIET_STEPS, Log, Messages
from bert.reporting.run_record import METRICS_FILE, read_metrics
from bert.reporting.trackers import check_trackers
from bert.runtime.distributed import Group, finalize, group_from_environment
from bert.runtime.topology import device_name
from bert.training.devices import Device, choose_device, join_ranks, open_device
from bert.training.fused_kernels import choose_kernels
from bert.training.interruption import STOPPED_BY, StopRequest, Watchdog
from bert.training.loss_guards import is_trained
from bert.training.memory import memory_errors
from bert.training.metrics import plausible_mfu
from bert.training.resumed_schedule import resume_schedule, schedule_of
from bert.training.saving import Checkpoints, progress_at_start
from bert.training.starts import load_start
from bert.training.task import Evaluation, Session, Task
from bert.training.trainer import LegOutcome, Trainer
from program import TrainingProgram, build_training_program

logger = logging.getLogger(__name__)


def run(config: Any, open_task: Callable[[Any, Group], Task]) -> int:
    """Train, evaluate or predict by the settings; returns 0, or INTERRUPTED if the run was stopped and saved.

    Args:
        open_task: (settings, ranks) -> the task, its data opened and checked.
    """
    age = max(0.0, time.time() - psutil.Process().create_time())  # a clock can go back
    stop = StopRequest(age_seconds=age)  # first, because a STOP file made from now on is meant for this run
    group = group_from_environment(choose_device(config))
    with contextlib.ExitStack() as stack:
        messages = stack.enter_context(Messages()) if group.is_main else None
        task = open_task(config, group)
        stop.install()
        log = Log() if messages is None else _open_log(task, messages, stack)
        threads = join_ranks(task.config, group)
        facts = {
            **json.loads(task.config.model_dump_json()),
            "world_size": group.world_size,
            "cpu_threads_per_rank": threads,
            "device": group.device,
            "processor": device_name(group.device) if group.is_main else None,
        }
        if task.trains:
            code = _train(task, group, log, facts, stop, stack)
        else:
            code = _use(task, group, log, facts, stop)
        finalize(group)
    return code


def _train(
    task: Task, group: Group, log: Log, facts: dict[str, Any], stop: StopRequest, stack: contextlib.ExitStack
) -> int:
    config = task.config
    program, device = build(config, task.objective, group)
    start = progress_at_start(config, task.fingerprint, group, task.num_examples)
    progress = load_start(config, program, device, start, task.texts)
    state, metric = progress.carried, task.best_metric
    log.first_step = progress.step
    resume_schedule(config, device, progress)
    evaluation = task.evaluation(Session(device, program, progress))
    facts |= evaluation.facts()
    log.parameters({**facts, "peak_tflops_per_rank": device.peak_tflops})
    if group.is_main:
        stop.watch(config.run.output_dir)
    last_step = state.decay.last if state.decay else config.run.max_steps
    if is_trained(config.run, progress.step, state.evaluations.since_best, last_step) and not config.run.benchmark:
        logger.info(f"{config.display_name()} is trained: step {progress.step} of {last_step}")
        is_incomplete = task.finishes or not (config.stage_dir() / "summary.json").exists()
        if not device.collective.any(group.is_main and is_incomplete):
            return exit_codes.OK
    writer = stack.enter_context(CheckpointWriter(config.run.async_checkpoint))
    best_metric, resumed = metric.name if metric.keeps else "", None if config.run.benchmark else progress
    checkpoints = Checkpoints(config, program, device, start, writer, task, best_metric, resumed)
    evaluate = evaluation.evaluate if task.evaluates and not config.run.benchmark else None
    with Watchdog(config.run.watchdog_seconds, config.stage_dir(), group.rank):
        last = last_step_of_leg(config, progress.step)
        trainer = Trainer(program, device, task, log, stop, progress, last, checkpoints, evaluate)
        packing = program.objective.packing()
        with memory_errors(config, group):
            outcome = trainer.run(lambda step: task.batches(step, packing))
        figures = evaluation.figures() | summary(config, outcome, device, program)
        return _end(task, evaluation, outcome, figures, log, stop)


def _end(
    task: Task, evaluation: Evaluation, outcome: LegOutcome, figures: dict[str, Any], log: Log, stop: StopRequest
) -> int:
    """End a start: write the summary and do the task's last work; returns the exit code."""
    is_last_leg = not outcome.interrupted_by and (outcome.finished or task.config.run.benchmark)
    if task.finishes:
        log.write_summary(figures)  # in case that the rest fails
        if is_last_leg:
            stop.leave_at_once()  # all is saved
            log.summary(figures | evaluation.finish(outcome.step))
    else:
        log.summary(figures)
    if outcome.interrupted_by:
        if STOPPED_BY not in os.environ:  # otherwise the launcher reports it
            logger.info(f"stopped by {outcome.interrupted_by} at step {outcome.step}, saved; start again to continue")
        return exit_codes.INTERRUPTED
    return exit_codes.OK


def _use(task: Task, group: Group, log: Log, facts: dict[str, Any], stop: StopRequest) -> int:
    stop.leave_at_once()  # nothing will be saved
    device = open_device(task.config, group)
    config, evaluation = task.config, task.evaluation(Session(device))
    log.parameters(facts | evaluation.facts())
    with Watchdog(config.run.watchdog_seconds, config.stage_dir(), group.rank):
        log.summary(evaluation.figures() | evaluation.finish(None))
    return exit_codes.OK


def build(config: TrainingConfig, objective: Objective, group: Group) -> tuple[TrainingProgram, Device]:
    """Build the training program and initialise its variables, the same on every rank."""
    objective = dataclasses.replace(objective, kernels=choose_kernels(config, group))
    program = build_training_program(
        objective,
        config.optimizer,
        config.precision,
        group,
        gradient_accumulation_steps=config.batch.gradient_accumulation_steps(group.world_size),
        num_scheduled_steps=config.run.max_steps,
        seed=config.run.seed + 1,  # Paddle takes 0 for "a new seed each time"
        recompute=config.hardware.recompute,
        accumulation_varies=config.batch.warms_up(),
    )
    device = open_device(config, group)
    device.executor.run(program.startup)
    load_schedule(device.scope, schedule_of(config), device.place)
    return program, device


def summary(config: TrainingConfig, outcome: LegOutcome, device: Device, program: TrainingProgram) -> dict[str, Any]:
    """Figures of a training under the names that users see. Throughputs count all ranks, without saves."""
    totals, metrics = outcome.totals, outcome.metrics
    if "loss" not in metrics:  # a leg without updates, of a run that was stopped before its summary or is repeated
        logged = read_metrics(config.log_dir() / METRICS_FILE, [])[0]
        metrics = next((row for row in reversed(logged) if row["step"] == outcome.step), {}) | metrics
    seconds = max(totals.seconds, 1e-9)
    return {
        "steps": outcome.step,
        "max_steps": config.run.max_steps,
        "warmup_steps": config.warmup_steps() if outcome.warmup_steps is None else outcome.warmup_steps,
        **({"decay_from": outcome.decay.first, "last_step": outcome.decay.last} if outcome.decay else {}),
        "finished": outcome.finished and not config.run.benchmark,
        "interrupted_by": outcome.interrupted_by,
        "e2e_train_time": totals.total_seconds,
        "raw_train_time": totals.seconds,
        "training_sequences_per_second": totals.sequences / seconds if totals.sequences else None,
        "tokens_per_second": totals.tokens / seconds if totals.sequences else None,
        "final_loss": metrics.get("loss"),
        "skipped_steps": metrics.get("skipped_steps"),
        "mfu": plausible_mfu(totals.flops, totals.rank_seconds, device.peak_tflops),
        "peak_tflops_per_rank": device.peak_tflops,
        "parameters": config.model.num_parameters(),
        "parameter_tensors": len(program.parameters),
        "world_size": device.group.world_size,
        **({"epochs": metrics["epochs"]} if "epochs" in metrics else {}),
        **{name: value for name, value in metrics.items() if name.startswith("eval_")},
        **outcome.evaluations,
    }


def _open_log(task: Task, messages: Messages, stack: contextlib.ExitStack) -> Log:
    """Context manager: rank 0's log. While a run trains, the folder of its checkpoints is locked."""
    config = task.config
    if task.trains:
        stack.enter_context(checkpoint_files.run_lock(config.checkpoint_dir()))
        checkpoint_files.remove_temporaries(config.stage_dir())
        check_trackers(config.hardware.trackers())
    folder = config.log_dir()
    log = Log(
        folder,
        config.run.report_file,
        total_steps=max(config.run.max_steps, 1),
        trackers=config.hardware.trackers() if task.trains else (),
        show_steps=QUIET_STEPS not in os.environ,
        messages=messages,
    )
    stack.callback(log.close)
    write_atomically(folder / "config.yaml", dump_yaml(config).encode())
    return log


def last_step_of_leg(config: TrainingConfig, step: int) -> int:
    """Last step of a start that begins after `step`. Refuses a benchmark without measured updates."""
    run = config.run
    if run.benchmark:
        config.check_benchmark(step)
        last = step + run.benchmark_warmup_steps + run.benchmark_steps
        if last > run.max_steps:
            measured = run.max_steps - step - run.benchmark_warmup_steps
            logger.warning(
                f"the benchmark measures {measured} of {run.benchmark_steps} updates: max_steps={run.max_steps}"
            )
        return last
    return min(run.max_steps, step + run.steps_this_run) if run.steps_this_run else run.max_steps
