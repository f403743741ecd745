"""Runs of the tiny model as the entry point makes them, with batches computed from the step."""

import json
import logging
from dataclasses import dataclass, replace
from unittest import mock

import bert  # noqa: F401 - before Paddle, whichever module loads it
from bert.checkpoints.progress import Progress
from bert.checkpoints.writer import CheckpointWriter
from bert.model.objectives import PretrainingObjective
from bert.pretraining.config import PretrainingConfig
from bert.reporting.logs import Log
from bert.runtime.paddle_api import read_variable, static
from bert.training import training_run
from bert.training.interruption import StopRequest
from bert.training.loss_guards import NO_METRIC, BestMetric
from bert.training.resumed_schedule import resume_schedule
from bert.training.saving import Checkpoints
from bert.training.starts import load_start
from bert.training.trainer import LegOutcome, Trainer
from tests.support import tiny
from tests.support.messages import messages

logger = logging.getLogger("bert.tests")


def fresh_progress(config: PretrainingConfig, **changes) -> Progress:
    """Return the progress of a run of `config` before its first step, with a fixed fingerprint of the data."""
    values = {"stage": config.stage(), "step": 0, "epoch": 0, "seed": config.run.seed, "counters": {}}
    values |= {"global_batch_size": config.batch.resolved_global_batch_size(1), "data_fingerprint": "made of steps"}
    values |= {"loss_scale": None, "loss_scale_counters": {}, "settings": json.loads(config.model_dump_json())}
    return Progress(**{**values, **changes})


@dataclass
class Run:
    """Holds the results of a run."""

    outcome: LegOutcome | None
    parameters: dict
    optimizer_state: dict
    said: list[str]


def packed(batches, program):
    """Return the same batches as the program reads them."""
    packing = program.objective.packing()
    try:
        for batch in batches:
            micro_batches = (micro_batch.packed(packing) for micro_batch in batch.micro_batches)
            yield replace(batch, micro_batches=micro_batches)
    finally:
        batches.close()


def run(
    config: PretrainingConfig,
    last_step: int,
    *,
    change=lambda step, feeds: feeds,
    start: Progress | None = None,
    stop: StopRequest | None = None,
    log=None,
    evaluate=None,
    early_stopping: int | None = None,
    train: bool = True,
) -> Run:
    """Continue as `config` says, up to `last_step`, in a scope of its own.

    With `early_stopping` (0: never) the held-out loss is followed, and the best checkpoint kept.
    """
    tiny.join(tiny.ONE_RANK)
    start = start or fresh_progress(config)
    with static.scope_guard(static.Scope()), messages() as said:
        with mock.patch.object(training_run, "build_training_program", tiny.build):
            objective = PretrainingObjective(config.model, fuse_mha=config.hardware.fuse_mha)
            program, device = training_run.build(config, objective, tiny.ONE_RANK)
        progress = load_start(config, program, device, start)
        outcome = None
        if train:

            def open_batches(step: int):
                return packed(tiny.updates(step, program.gradient_accumulation_steps, change=change), program)

            with CheckpointWriter(config.run.async_checkpoint) as writer:  # ends its save however the run ends
                metric = NO_METRIC
                if early_stopping is not None:
                    metric = BestMetric("eval_masked_lm_loss", early_stopping=early_stopping)
                resume_schedule(config, device, progress)
                checkpoints = Checkpoints(config, program, device, start, writer, metric=metric.name, resumed=progress)
                task = tiny.task_of(config, best_metric=metric, evaluates_first=early_stopping is not None)
                stop = StopRequest() if stop is None else stop
                loop = (program, device, task, log or Log(), stop, progress, last_step, checkpoints, evaluate)
                outcome = Trainer(*loop).run(open_batches)
        return Run(
            outcome,
            {name: read_variable(device.scope, name) for name in program.parameters},
            {key: read_variable(device.scope, name) for key, name in program.optimizer_state.items()},
            said,
        )
