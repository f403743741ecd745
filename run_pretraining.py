"""Pre-train BERT, one phase per run: parse -> check -> build -> load -> loop. See `--help` and README.md."""

import contextlib
import os
import sys

from bert.config.command_line import dump_yaml, parse_arguments, usage_errors
from bert.exit_codes import DIVERGED
from bert.pretraining.entry import ENTRY
from bert.reporting.logs import QUIET_STEPS, RunLog


def main(argv: list[str] | None = None) -> int:
    config = parse_arguments(ENTRY, argv)
    with usage_errors():
        config.check_files()
        return run(config)


def run(config) -> int:
    # Paddle takes a second to load: not for --help, --dry-run or an error in the settings.
    from bert.checkpoints import files as checkpoint_files
    from bert.checkpoints.writer import CheckpointWriter
    from bert.exit_codes import INTERRUPTED
    from bert.pretraining import task as pretraining
    from bert.runtime import distributed
    from bert.samples.loader import evaluation_unigram_entropy
    from bert.training import initialization
    from bert.training import run as runs
    from bert.training.interruption import StopRequest
    from bert.training.trainer import RanksDiffer, Trainer, TrainingDiverged
    from program import build_evaluation_program

    stop = StopRequest()  # first: a STOP file made from now on is meant for this run
    group = distributed.group_from_environment(runs.choose_device(config))
    data = pretraining.open_data(config, group)
    stop.install()
    run_dir = config.stage_dir() / "benchmark" if config.run.benchmark else config.stage_dir()
    with contextlib.ExitStack() as stack:
        log = None
        if group.is_main:
            stack.enter_context(checkpoint_files.run_lock(config.checkpoint_dir()))
            log = RunLog(
                run_dir,
                config.run.report_file,
                total_steps=config.run.max_steps,
                visualdl=config.hardware.visualdl,
                show_steps=QUIET_STEPS not in os.environ,
            )
            stack.callback(log.close)
            (run_dir / "config.yaml").write_text(dump_yaml(config))
        say = runs.say_to(log)
        threads = runs.join_ranks(config, group, say)
        program, device = runs.build(config, pretraining.objective_of(config), group)
        start = runs.start_of_run(config, data.train.fingerprint, group)
        progress = initialization.initialize_weights(config, program, device, start, say)
        entropy = None
        if data.held_out is not None:
            entropy = evaluation_unigram_entropy(data.held_out, config.run.eval_samples)
            say(f"unigram entropy of the held-out labels: {entropy:.4f} nats")
        if log:
            log.first_step = progress.step
            log.parameters(
                {
                    **start.settings,
                    "world_size": group.world_size,
                    "cpu_threads_per_rank": threads,
                    "peak_tflops_per_rank": device.peak_tflops,
                    "unigram_entropy": entropy,
                    "training_data": data.train.describe(),
                }
            )
        evaluation = build_evaluation_program(program.objective)
        runs.prepare_to_stop(config, group, stop, say)
        writer = stack.enter_context(CheckpointWriter(config.run.async_checkpoint))
        keeper = runs.Keeper(config, program, device, start, say, writer)
        watchdog = runs.watchdog(config, group)
        trainer = Trainer(
            program,
            device,
            config,
            log,
            stop,
            save=keeper.save,
            evaluate=pretraining.evaluator(config, evaluation, data, device),
            restore=keeper.restore,
            writer=writer,
            watchdog=watchdog,
        )
        if progress.step >= config.run.max_steps and not config.run.benchmark:
            say(f"phase {config.run.phase} is done: step {progress.step} of {config.run.max_steps}")
            if not device.collective.any(group.is_main and not (config.stage_dir() / "summary.json").exists()):
                return 0
        try:
            with watchdog:
                outcome = trainer.run(
                    data.loader.batches, progress.step, runs.last_step(config, progress.step), progress.carried
                )
        except (TrainingDiverged, RanksDiffer) as error:
            print(f"error: {error}", file=sys.stderr)
            return DIVERGED
        if log:
            log.summary(pretraining.summary(config, outcome, device, program, entropy))
        distributed.finalize(group)
    if outcome.interrupted_by:
        say(f"stopped by {outcome.interrupted_by} at step {outcome.step}, saved; start again to continue")
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
