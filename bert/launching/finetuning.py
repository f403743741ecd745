"""What the launchers of all fine-tuning tasks share: ranks, start, and the lines that show the results."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert import REPOSITORY
from bert.config.command_line import EntryPoint, dump_yaml, usage_errors
from bert.finetuning.config import FineTuningConfig
from bert.launching.launch import launch
from bert.launching.previous_run import read_json
from bert.launching.ranks import Ranks, num_gpus, read_ranks
from bert.launching.runner import Runner

Row = tuple[str, str, str]  # title, key of summary.json, format
_THROUGHPUT: list[Row] = [
    ("training, sequences/s", "training_sequences_per_second", ".1f"),
    ("inference, sequences/s", "inference_sequences_per_second", ".1f"),
]


class FineTuningPlan(NamedTuple):
    """What a command line asks for."""

    launcher: dict[str, Any]  # the flags of the launcher
    entry: EntryPoint
    config: Any  # of the entry point's config_class
    ranks: Ranks


def finetune(
    words: Sequence[str],
    plan_of: Callable[[Sequence[str]], FineTuningPlan],
    result_lines: Callable[[FineTuningPlan], list[str]],
) -> int:
    """Plan, train on all ranks, show the results; returns the exit code."""
    with usage_errors():
        plan = plan_of(words)
    if "show_config" in plan.launcher:
        print(dump_yaml(plan.config), end="")
        return 0
    code = launch(REPOSITORY / plan.entry.script, plan.config, plan.ranks, Runner())
    if code == 0:
        print("\n".join(result_lines(plan)))
    return code


def ranks_for(launcher: dict[str, Any], config: FineTuningConfig) -> Ranks:
    """The ranks that the launcher's flags say; without --num-gpus one for each GPU, or one."""
    available = 0 if config.hardware.device == "cpu" else num_gpus()
    return read_ranks(launcher, max(1, available))


def summary_lines(config: FineTuningConfig, scores: Callable[[dict[str, Any]], Iterable[Row]]) -> list[str]:
    """A table of the scores, as far as summary.json has them, and of the throughput."""
    folder = config.stage_dir() / "benchmark" if config.run.benchmark else config.stage_dir()
    summary = read_json(folder / "summary.json")
    rows = [row for row in [*scores(summary), *_THROUGHPUT] if summary.get(row[1]) is not None]
    return ["", *(f"  {title:<32}{format(summary[key], form):>9}" for title, key, form in rows), ""]


def trained_model(config: FineTuningConfig) -> Path | None:
    """The folder of weights to use: of the best evaluation, or of the newest checkpoint; None if there are none."""
    return next((folder for folder in (config.best_dir(), config.checkpoint_dir()) if folder.is_dir()), None)
