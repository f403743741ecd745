"""The training of a phase on the ranks of this node, and what a phase starts from."""

import time
from typing import Any

from bert.launching.process_runner import Runner
from bert.launching.settings import LaunchPlan
from bert.launching.start_training import launch
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY


def train_phase(plan: LaunchPlan, config: PretrainingConfig, runner: Runner) -> int:
    job, log_file = plan.launch.start, None
    if job.create_logfile:
        stamp = time.strftime("%y%m%d%H%M%S")
        precision = "amp" if config.precision.amp else "tf32" if config.precision.tf32 == "on" else "fp32"
        batch = config.batch.resolved_global_batch_size(plan.world_size())
        run = f"paddle_bert_pretraining_{config.stage()}_{precision}_gbs{batch}"  # as NVIDIA's script names it
        log_file = config.run.output_dir / f"{job.job_name}.{run}.{stamp}.log"
    return launch(
        job.code_dir / ENTRY.script,
        config,
        plan.ranks,
        runner,
        start=first_start(config, previous=plan.phases[0]),
        job_id=f"{job.job_name}_phase{config.run.phase}",
        log_file=log_file,
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
