"""Runs of the tiny model as the entry point makes them, with batches that are a function of the step.

python tests/support/runs.py CONFIG_JSON LAST_STEP    continue (or start) the run of these settings
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import bert  # noqa: F401, I001 - before Paddle, whichever module loads it
from tests.support import tiny
from bert.training import initialization, run as runs
from bert.pretraining import task as pretraining
from bert.checkpoints.state import Progress
from bert.checkpoints.writer import CheckpointWriter
from bert.pretraining.config import PretrainingConfig
from bert.runtime.paddle_api import read_variable, static
from bert.training.interruption import StopRequest
from bert.training.trainer import Outcome, Trainer


def fresh_progress(config: PretrainingConfig, **changes) -> Progress:
    """Where a run of `config` stands before its first step, with data that says so by a fixed fingerprint."""
    values = {
        "stage": config.stage(),
        "step": 0,
        "epoch": 0,
        "seed": config.run.seed,
        "global_batch_size": config.batch.resolved_global_batch_size(1),
        "data_fingerprint": "made of steps",
        "counters": {},
        "loss_scale": None,
        "loss_scale_counters": {},
        "settings": json.loads(config.model_dump_json()),
    }
    return Progress(**{**values, **changes})


@dataclass
class Run:
    """What is left of a run."""

    outcome: Outcome | None
    parameters: dict
    optimizer_state: dict
    said: list[str]


def run(
    config: PretrainingConfig,
    last_step: int,
    *,
    change=lambda step, feeds: feeds,
    start: Progress | None = None,
    stop: StopRequest | None = None,
    log=None,
    evaluate=None,
    train: bool = True,
) -> Run:
    """Continue what `config` says to continue, up to `last_step`, in a scope of its own."""
    tiny.join(tiny.ONE_RANK)
    said: list[str] = []
    start = start or fresh_progress(config)
    with static.scope_guard(static.Scope()):
        with mock.patch.object(runs, "build_training_program", tiny.build):
            program, device = runs.build(config, pretraining.objective_of(config), tiny.ONE_RANK)
        progress = initialization.initialize_weights(config, program, device, start, said.append)
        outcome = None
        if train:

            def open_batches(step: int):
                return tiny.updates(step, program.gradient_accumulation_steps, change=change)

            with CheckpointWriter(config.run.async_checkpoint) as writer:  # ends its save however the run ends
                keeper = runs.Keeper(config, program, device, start, said.append, writer)
                stop = StopRequest() if stop is None else stop
                trainer = Trainer(
                    program,
                    device,
                    config,
                    log,
                    stop,
                    save=keeper.save,
                    evaluate=evaluate,
                    restore=keeper.restore,
                    writer=writer,
                )
                outcome = trainer.run(open_batches, progress.step, last_step, progress.carried)
        return Run(
            outcome,
            {name: read_variable(device.scope, name) for name in program.parameters},
            {key: read_variable(device.scope, name) for key, name in program.optimizer_state.items()},
            said,
        )


if __name__ == "__main__":
    run(PretrainingConfig.model_validate_json(Path(sys.argv[1]).read_text()), int(sys.argv[2]))
