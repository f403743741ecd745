"""The step that trains a phase, and what a phase starts from."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from bert.config.setting_errors import Mistakes, check_all
from bert.config.training_settings import TrainingConfig, derive
from bert.jobs.job import Execution, Step
from bert.jobs.training import Train
from bert.launching.ranks import Ranks
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY
from bert.pretraining.epochs import with_known_steps
from bert.pretraining.launch_settings import JobSettings


@dataclass(frozen=True, kw_only=True)
class TrainPhase(Train):
    """Trains a phase; the number of its updates is known once its shards are there."""

    config: PretrainingConfig
    job: JobSettings

    def settled(self, execution: Execution) -> Self:
        return self._with_known_steps()

    def launch(self, config: TrainingConfig, execution: Execution) -> int:
        """Start the ranks; with --hours the updates are the most, and the warm-up is a share of those that fit."""
        assert isinstance(config, PretrainingConfig)
        run = config.run
        if execution.job.hours is not None and run.finish_in is not None and run.expected_steps is None:
            config = derive(config, expected_steps=run.max_steps)
        return super().launch(config, execution)

    def _with_known_steps(self) -> Self:
        return replace(self, config=with_known_steps(self.config, self.ranks.world_size()))

    def check_here(self) -> None:
        check_all([super().check_here, self.config.check_data])

    def check(self) -> None:
        mistakes = Mistakes()
        with mistakes.noted():
            self.job.require_code()
        with mistakes.noted():
            Train.check(self._with_known_steps())
        mistakes.refuse()


def phase_step(
    config: PretrainingConfig, previous: PretrainingConfig, job: JobSettings, ranks: Ranks, data: Sequence[Step] = ()
) -> TrainPhase:
    """The training of a phase.

    Args:
        previous: the settings of the first phase of the job, which may be `config`.
        data: steps that make its shards.
    """
    log_file = None
    if job.create_logfile:
        stamp = time.strftime("%y%m%d%H%M%S")
        precision = "amp" if config.precision.amp else "tf32" if config.precision.tf32 == "on" else "fp32"
        batch = config.batch.resolved_global_batch_size(ranks.world_size())
        run = f"paddle_bert_pretraining_{config.stage()}_{precision}_gbs{batch}"  # as NVIDIA's script names it
        log_file = config.run.output_dir / f"{job.job_name}.{run}.{stamp}.log"
    return TrainPhase(
        script=job.code_dir / ENTRY.script,
        config=config,
        ranks=ranks,
        start=first_start(config, previous),
        data=tuple(data),
        job_id=f"{job.job_name}_phase{config.run.phase}",
        log_file=log_file,
        job=job,
    )


def first_start(config: PretrainingConfig, previous: PretrainingConfig) -> dict[str, Any]:
    """The start of a phase that has no checkpoint yet, where it is not the one asked for: phase 2 starts from phase 1.

    Initial weights given for both phases are for phase 1 only; those given for phase 2 alone are kept.
    """
    start, start_before = config.initialization, previous.initialization
    if config.run.benchmark or config.run.phase == 1 or previous.run.phase == 2 or start.from_phase1_final_params:
        return {}
    if (start.from_pretrained_params, start.from_checkpoint) != (
        start_before.from_pretrained_params,
        start_before.from_checkpoint,
    ):
        return {}
    others = type(start)().model_dump()
    return others | {"from_phase1_final_params": previous.checkpoint_dir()}
