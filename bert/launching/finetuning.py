"""Shared by the launchers of all fine-tuning tasks: settings, ranks, start, and the table of results."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert import REPOSITORY
from bert.checkpoints.directories import best_directory
from bert.config.command_line import EntryPoint, dump_yaml, settings_or_answers, usage_errors
from bert.files import read_json
from bert.finetuning.config import FineTuningConfig, with_global_batch
from bert.interpreter import repository_environment, shell_command
from bert.launching.arguments import notices_aside
from bert.launching.process_runner import Runner
from bert.launching.start_training import Ranks, launch, num_gpus, read_ranks
from bert.planning.dry_run import WORLD_SIZE
from bert.reporting.curves import curves_command
from bert.reporting.progress import metric_form

Row = tuple[str, str, str]  # title, key of summary.json, format
_THROUGHPUT: list[Row] = [
    ("training, sequences/s", "training_sequences_per_second", ".1f"),
    ("inference, sequences/s", "inference_sequences_per_second", ".1f"),
]


class FineTuningPlan(NamedTuple):
    """The settings and ranks that a command line asks for."""

    launcher: dict[str, Any]  # the flags of the launcher
    entry: EntryPoint
    config: Any  # of the entry point's config_class
    ranks: Ranks


def evaluation_scores(summary: dict[str, Any]) -> list[Row]:
    """All metrics of the evaluation."""
    names = [name for name, value in summary.items() if name.startswith("eval_") and isinstance(value, float)]
    return [(name.removeprefix("eval_").replace("_", " "), name, metric_form(name, summary)) for name in names]


def finetune(
    words: Sequence[str],
    plan_of: Callable[[Sequence[str]], FineTuningPlan],
    scores_of: Callable[[dict[str, Any]], list[Row]] = evaluation_scores,
) -> int:
    """Plan, train on all ranks, show the results; returns the exit code.

    Args:
        scores_of: the rows of the table of results that summary.json has scores for.
    """
    with usage_errors(), notices_aside(words):
        plan = plan_of(words)
    if "show_config" in plan.launcher:
        print(dump_yaml(plan.config), end="")
        return 0
    if "dry_run" in plan.launcher:
        return _dry_run(plan)
    code = launch(REPOSITORY / plan.entry.script, plan.config, plan.ranks, Runner())
    if code == 0:
        print("\n".join(result_lines(plan, scores_of)))
    return code


def _dry_run(plan: FineTuningPlan) -> int:
    """Let the training script print its plan for the ranks of this launcher; it reads the data as the ranks do."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as settings:
        settings.write(dump_yaml(plan.config))
        settings.flush()
        command = [sys.executable, str(REPOSITORY / plan.entry.script), "--config", settings.name, "--dry-run"]
        environment = {**repository_environment(), WORLD_SIZE: str(plan.ranks.world_size())}
        return subprocess.run(command, check=False, env=environment).returncode


def make_plan(
    entry: EntryPoint, launcher: dict[str, Any], defaults: Mapping[str, Any], flags: Mapping[str, Any]
) -> FineTuningPlan:
    """The plan from `flags` laid over `defaults`; without --num-gpus it has a rank for each GPU, or one rank.

    Raises:
        SystemExit: a question such as --plan was answered instead.
    """
    config = settings_or_answers({**defaults, **flags}, entry)
    available = 0 if config.hardware.device == "cpu" else num_gpus()
    ranks = read_ranks(launcher, max(1, available))
    return FineTuningPlan(launcher, entry, with_global_batch(config, ranks.world_size()), ranks)


def result_lines(plan: FineTuningPlan, scores_of: Callable[[dict[str, Any]], list[Row]]) -> list[str]:
    """A table of the scores and the throughput, as far as summary.json has them, and where the results are."""
    config = plan.config
    folder = config.log_dir()
    summary = read_json(folder / "summary.json")
    rows = [row for row in [*scores_of(summary), *_THROUGHPUT] if summary.get(row[1]) is not None]
    lines = ["", *(f"  {title:<32}{format(summary[key], form):>9}" for title, key, form in rows), ""]
    if config.run.benchmark:
        return [*lines, f"Summary: {folder}/summary.json"]
    lines.append(f"Predictions and summary.json: {folder}")
    if config.run.do_train and config.hardware.visualdl:
        purpose, command = curves_command(folder)
        lines.append(f"{purpose[0].upper()}{purpose[1:]}:  {command}")
    if (model := trained_model(config)) is not None:
        lines.append(f"Use the model:  {shell_command('run_predict.py', model)}")
    return lines


def trained_model(config: FineTuningConfig) -> Path | None:
    """The folder of weights to use: of the best evaluation, or of the newest checkpoint; None if there are none."""
    folder = config.checkpoint_dir()
    if (best := best_directory(folder)) is not None:
        return best.parent
    return folder if folder.is_dir() else None
