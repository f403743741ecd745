"""`bash scripts/run_pretraining.sh`: makes missing data, trains the phases, shows the results.

Exit codes: 0 done; 2 wrong arguments; 75 stopped by a signal and saved, the same command resumes; anything else is
the code of the process that failed.
"""

import importlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from bert.command_errors import discard_output
from bert.config.command_line import usage_errors
from bert.config.training_settings import derive
from bert.exit_codes import OK
from bert.files import read_json, require_writable
from bert.interpreter import shell_command
from bert.launching.arguments import read_command_line
from bert.launching.preparation import prepare_data
from bert.launching.pretraining_plan import LAUNCHER, plan_of
from bert.launching.previous_run import is_done, kept_start, refuse_other_run
from bert.launching.process_runner import Runner
from bert.launching.ranks import num_gpus
from bert.launching.settings import LaunchPlan
from bert.launching.start_training import explain_exit, launch
from bert.own_text.flags import is_about_own_text
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY
from bert.pretraining.epochs import with_known_steps
from bert.reporting.curves import curves_command
from bert.reporting.progress import duration
from bert.reporting.run_record import RunRecord, read_run

MOST_SECONDS_OF_A_SHELL = 30.0  # to find the interpreter and load this
SUMMARY_PATIENCE_SECONDS = 60.0  # a file written by the first node may appear late on a shared file system

_ROWS = (  # title, key of summary.json, format
    ("updates", "steps", ","),
    ("epochs over the samples", "epochs", ".2f"),
    ("training loss (masked LM + next sentence)", "final_loss", ".3f"),
    ("masked-LM loss before training, held out (nats)", "initial_eval_masked_lm_loss", ".3f"),
    ("masked-LM loss, held out (nats)", "eval_masked_lm_loss", ".3f"),
    ("lowest masked-LM loss, held out (nats)", "best_eval_masked_lm_loss", ".3f"),
    ("labelled lines right, probe", "eval_probe_accuracy", ".1%"),
    ("most labelled lines right, probe", "best_eval_probe_accuracy", ".1%"),
    ("... after update, kept as a checkpoint", "best_step", ","),
    ("unigram entropy, to be below (nats)", "unigram_entropy", ".3f"),
    ("masked-LM accuracy, held out", "eval_masked_lm_accuracy", ".1%"),
    ("next-sentence accuracy, held out", "eval_next_sentence_accuracy", ".1%"),
    ("sequences a second", "training_sequences_per_second", ",.1f"),
    ("tokens a second", "tokens_per_second", ",.0f"),
    ("model FLOPs utilisation", "mfu", ".1%"),
    ("updates skipped for overflow", "skipped_steps", ",.0f"),
)

_TERMS = (
    "An update changes the weights once. Losses are in nats, lower is better; the unigram entropy is that of guessing "
    "by the frequency of words alone."
)


def main(argv: Sequence[str]) -> int:
    # The start of the shell that became this process; an installation of packages before does not count.
    started = max(psutil.Process().create_time(), time.time() - MOST_SECONDS_OF_A_SHELL)
    with usage_errors():
        line = read_command_line(LAUNCHER, argv)
    if is_about_own_text(line.launch):  # reads text and weights, which needs more packages
        return importlib.import_module("bert.own_text.run").main(line, started)
    with usage_errors():
        plan = plan_of(line)
        if plan.answers():
            return OK
        plan.ranks.devices(plan.phases[0].hardware.device)  # before data is made for ranks that cannot be started
        plan = replace(plan, phases=[with_known_steps(config, plan.world_size()) for config in plan.phases])
        for config in plan.phases:
            require_writable(config.run.output_dir)
            refuse_other_run(config)
    if plan.name == "quickstart" and (cards := num_gpus()) > 1:  # where NVIDIA's script of this name trains on all
        large = shell_command("scripts/run_pretraining.sh", "--config", "large")
        print(f"This is the small quickstart, on one of {cards} GPUs. BERT-large on all of them: {large}")
    return _run(plan, Runner())


def _run(plan: LaunchPlan, runner: Runner) -> int:
    started, unfinished = time.monotonic(), [config for config in plan.phases if not is_done(config)]
    output_dir = plan.phases[0].run.output_dir
    if not unfinished:
        print(f"Already done: {output_dir} (delete it, or pass another --output-dir, to train anew)")
    for config in unfinished:
        with usage_errors():
            code = prepare_data(plan, config, runner.run)
        if code:
            return explain_exit(code, config, runner)
        with usage_errors():
            config = with_known_steps(config, plan.world_size())
        if code := train_phase(plan, config, runner):
            return code
        if not (config.run.benchmark or _is_done_here(plan, config)):
            print(f"phase {config.run.phase} has steps left; the same command continues")
            return OK
    is_first_node = plan.ranks.node_rank in (None, 0)
    for config in plan.phases if is_first_node and plan.phases[0].run.benchmark else ():
        rate = read_json(config.log_dir() / "summary.json").get("training_sequences_per_second") or 0.0
        print(f"phase {config.run.phase}: training_sequences_per_second {rate:,.1f} ({config.log_dir()})")
    if is_first_node and not plan.phases[0].run.benchmark:
        try:
            show_figures(plan, time.monotonic() - started if unfinished else None)
            show_commands(_next_commands(output_dir))
            for config in plan.phases[1:]:
                if notice := kept_start(config, plan.phases[0]):
                    print(notice)
            sys.stdout.flush()
        except BrokenPipeError:  # no reader (`| head`); the files are written
            discard_output()
    return OK


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


def show_figures(plan: LaunchPlan, seconds: float | None) -> None:
    """Write summary.json and loss.png beside the phases, and print the table; `seconds` is None without training."""
    output_dir = plan.phases[0].run.output_dir
    runs = [read_run(config.stage_dir(), config.stage()) for config in plan.phases]
    summaries = {run.name: run.summary for run in runs}
    summary_file, picture = output_dir / "summary.json", output_dir / "loss.png"
    known = read_json(summary_file)  # of the other phase, when this plan has only one
    summary_file.write_text(json.dumps({**known, "preset": plan.name, **summaries}, indent=2) + "\n", encoding="utf-8")
    try:
        draw(picture, runs)
    except Exception as error:  # a picture is never worth a failed run
        print(f"no picture: {error}")
    print_table(summaries)
    if seconds is None:
        trained = sum(summary.get("e2e_train_time") or 0.0 for summary in summaries.values())
        took = f"Trained before{f', in {duration(trained)}' if trained else ''}"
    else:
        took = duration(seconds)
    print(f"\n{took}. Summary: {summary_file}. Picture: {picture}")


def print_table(summaries: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Held-out results")
    table.add_column("")
    for phase in summaries:
        table.add_column(phase.replace("phase", "phase "), justify="right")
    evaluated = [summary for summary in summaries.values() if "eval_masked_lm_loss" in summary]
    is_mlm = bool(evaluated) and not any("eval_next_sentence_accuracy" in summary for summary in evaluated)
    for title, key, form in _ROWS:
        values = [summary.get(key) for summary in summaries.values()]
        if all(value is None for value in values):  # such as what labelled lines or given weights alone have
            continue
        title = title.replace(" + next sentence", "") if is_mlm else title
        table.add_row(title, *("-" if value is None else format(value, form) for value in values))
    if any("unigram_entropy" in summary for summary in evaluated):
        table.caption, table.caption_justify = _TERMS, "left"
    console = Console()
    with console.capture() as text:  # on a closed pipe rich would end the process
        console.print(table)
    print(text.get())


def _next_commands(output_dir: Path) -> list[tuple[str, str]]:
    """(purpose, command)."""
    pretrain, longer = "scripts/run_pretraining.sh", ["--output-dir", "results/longer", "--phase1-max-steps", "4000"]
    return [
        curves_command(output_dir),
        ("train longer", shell_command(pretrain, *longer)),
        ("what BERT-large on 8 GPUs would take", shell_command(pretrain, "--config", "large", "--dry-run")),
        ("fine-tune what was trained", shell_command("scripts/run_squad.sh", "--help")),
    ]


def show_commands(commands: Sequence[tuple[str, str]]) -> None:
    """Print (purpose, command)."""
    print("\n".join(["Next, try:", *(f"  {command}   # {purpose}" for purpose, command in commands)]))


def draw(picture: Path, runs: Sequence[RunRecord]) -> None:
    """Masked-LM loss over the updates of all phases: training, held out, and the unigram entropy."""
    from matplotlib.figure import Figure  # slow to import; a Figure without pyplot needs no display

    figure = Figure(figsize=(8, 4.5), layout="tight")
    axes, start = figure.subplots(), 0
    for run in runs:
        title, color = run.name.replace("phase", "phase "), f"C{int(run.name[-1]) - 1}"
        for key, style, label, alpha in (
            ("masked_lm_loss", "-", "training", 0.6),
            ("eval_masked_lm_loss", "o--", "held out", 1.0),
            ("eval_expected_masked_lm_loss", "x:", "held out, expected", 0.6),
        ):
            if points := [(start + step, value) for step, value in run.curve(key)]:
                curve = zip(*points, strict=True)
                axes.plot(*curve, style, markersize=4, label=f"{title}, {label}", color=color, alpha=alpha)
        end = start + run.summary.get("steps", 0)
        if (entropy := run.summary.get("unigram_entropy")) is not None:
            label = "unigram entropy" if start == 0 else "_"
            axes.hlines(entropy, start, end, colors="0.5", linestyles="dotted", label=label)
        start = end
    axes.set(xlabel="update", ylabel="masked-LM loss (nats)")
    axes.legend()
    figure.savefig(picture, dpi=120)
