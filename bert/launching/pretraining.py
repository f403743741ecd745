"""`bash scripts/run_pretraining.sh`: makes missing data, trains the phases, shows the results.

Exit codes: 0 done; 2 wrong arguments; 75 stopped by a signal and saved, the same command resumes; anything else is
the code of the process that failed.
"""

import importlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import psutil

from bert.command_errors import discard_output
from bert.config.command_line import dump_yaml, usage_errors
from bert.config.training_settings import derive
from bert.files import require_writable
from bert.launching import pretraining_quickstart, pretraining_report
from bert.launching.preparation import prepare_shards
from bert.launching.pretraining_plan import LaunchPlan, parse_launch_arguments
from bert.launching.previous_run import is_done, kept_start, refuse_other_run
from bert.launching.process_runner import Runner
from bert.launching.start_training import explain_exit, launch
from bert.own_text.flags import is_about_own_text
from bert.planning.flags import planned
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.dry_run import dry_run_report
from bert.pretraining.epochs import with_known_steps

MOST_SECONDS_OF_A_SHELL = 30.0  # to find the interpreter and load this
SUMMARY_PATIENCE_SECONDS = 60.0  # a file written by the first node may appear late on a shared file system


def main(argv: Sequence[str]) -> int:
    started = _start_of_the_command()
    if is_about_own_text(argv):  # reads text and weights, which needs more packages
        return importlib.import_module("bert.own_text.command").main(argv, _train, started)
    with usage_errors():
        plan = parse_launch_arguments(argv)
        if plan.show_config or plan.dry_run:
            for config in plan.phases:
                print(dump_yaml(config) if plan.show_config else dry_run_report(config, plan.world_size()) + "\n")
            return 0
        if plan.planning is not None:
            print(planned(with_known_lengths(plan).phases, plan.planning))
            return 0
        plan = with_known_lengths(plan)
        plan.ranks.devices(plan.device())  # before data is made for ranks that cannot be started
        for config in plan.phases:
            require_writable(config.run.output_dir)
            refuse_other_run(config)
    return _run(plan, Runner())


def _start_of_the_command() -> float:
    """When the shell that became this process was started; an installation of packages before does not count."""
    now = time.time()
    return max(psutil.Process().create_time(), now - MOST_SECONDS_OF_A_SHELL)


def _run(plan: LaunchPlan, runner: Runner) -> int:
    started, unfinished = time.monotonic(), [config for config in plan.phases if not is_done(config)]
    if not unfinished:
        print(f"Already done: {plan.phases[0].run.output_dir} (delete it, or pass another --output-dir, to train anew)")
    for config in unfinished:
        if code := explain_exit(prepare_data(plan, config, runner), config, runner):
            return code
        with usage_errors():
            config = with_known_steps(config, plan.world_size())
        if code := _train(plan, config, runner):
            return code
        if not (config.run.benchmark or _is_done_here(plan, config)):
            print(f"phase {config.run.phase} has steps left; the same command continues")
            return 0
    if plan.ranks.node_rank in (None, 0) and not plan.phases[0].run.benchmark:
        try:
            pretraining_report.show(with_known_lengths(plan), time.monotonic() - started if unfinished else None)
            for config in plan.phases[1:]:
                if notice := kept_start(config, plan.phases[0]):
                    print(notice)
            sys.stdout.flush()
        except BrokenPipeError:  # no reader (`| head`); the files are written
            discard_output()
    return 0


def with_known_lengths(plan: LaunchPlan) -> LaunchPlan:
    """The plan with --max-steps in place of --epochs in the phases whose shards are there."""
    return replace(plan, phases=tuple(with_known_steps(config, plan.world_size()) for config in plan.phases))


def prepare_data(plan: LaunchPlan, config: PretrainingConfig, runner: Runner, only_this_node: bool = False) -> int:
    """Make the phase's data if it is missing; returns the exit code of the command that made it."""
    with usage_errors():
        if plan.name == "quickstart":
            with pretraining_quickstart.data_lock(config):
                return pretraining_quickstart.prepare(config, runner.run)
        return prepare_shards(plan, config, runner.run, only_this_node)


def _train(plan: LaunchPlan, config: PretrainingConfig, runner: Runner) -> int:
    log_file = None
    if plan.create_logfile:
        stamp = time.strftime("%y%m%d%H%M%S")
        batch = config.batch.resolved_global_batch_size(plan.world_size())
        log_file = config.run.output_dir / f"{plan.job_name}.phase{config.run.phase}_gbs{batch}.{stamp}.log"
    return launch(
        plan.code_dir / "run_pretraining.py",
        config,
        plan.ranks,
        runner,
        start=first_start(config, previous=plan.phases[0]),
        device=plan.device(),
        job_id=f"{plan.job_name}_phase{config.run.phase}",
        log_file=log_file,
    )


def first_start(config: PretrainingConfig, previous: PretrainingConfig) -> PretrainingConfig:
    """The settings of a phase that has no checkpoint yet: phase 2 starts from the weights of phase 1.

    Initial weights given for both phases are for phase 1 only; those given for phase 2 alone are kept.
    """
    start, start_before = config.initialization, previous.initialization
    if config.run.benchmark or config.run.phase == 1 or previous.run.phase == 2 or start.from_phase1_final_params:
        return config
    if (start.from_pretrained_params, start.from_checkpoint) != (
        start_before.from_pretrained_params,
        start_before.from_checkpoint,
    ):
        return config
    return derive(
        config,
        from_phase1_final_params=previous.checkpoint_dir(),
        from_pretrained_params=None,
        from_checkpoint=None,
        last_step_of_checkpoint=None,
    )


def _is_done_here(plan: LaunchPlan, config: PretrainingConfig) -> bool:
    """Whether the phase is done, as this node sees it."""
    waits = plan.ranks.num_nodes > 1 and not config.run.steps_this_run
    deadline = time.monotonic() + (SUMMARY_PATIENCE_SECONDS if waits else 0.0)
    while not (done := is_done(config)) and time.monotonic() < deadline:
        time.sleep(1.0)
    return done
