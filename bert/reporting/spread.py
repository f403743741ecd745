"""Runs that differ only in their seed: mean, spread and extremes of metrics, scores of tasks, the average of GLUE.

GLUE's rule: the score of a task is the mean of its metrics, of MNLI that of the matched and the mismatched set; the
average is the mean over the tasks. A task's rate is the one with the best mean score.
"""

import os
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.config.setting_sources import plain_yaml
from bert.files import read_json
from bert.reporting.progress import metric_form
from bert.reporting.run_record import RunRecord

NO_METRICS = ("_sequences", "_total", "thresh")  # ends of names
MEASURED = ("final_loss", "skipped_steps")  # beside the metrics of evaluations
SPREAD = ("mean", "standard deviation", "median", "lowest", "highest")
_SCORE = re.compile(r"(eval_)?((mis)?matched_)?score")  # of a task, or of each of MNLI's sets
# Settings that runs of one training may differ in: the seed, the start of a resumed run, what brings missing data.
_OF_ONE_RUN = ("seed", "report_file", "from_checkpoint", "last_step_of_checkpoint", "download", "max_bad_line_fraction")
FLATTERY = (
    "Scores are on the evaluation sets, which chose each run's best weights and, of several, the rate: both flatter. A "
    "task's score is the mean of its metrics (MNLI: matched and mismatched), times 100."
)
Table = tuple[list[str], list[list[str]]]  # titles, rows


def metrics_in(summary: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an evaluation by their names without eval_, and what training measured."""
    return {
        name.removeprefix("eval_"): float(value)
        for name, value in summary.items()
        if isinstance(value, (int, float))
        and ((name.startswith("eval_") and not name.endswith(NO_METRICS)) or name in MEASURED)
    }


def metrics_of(folder: Path) -> dict[str, float]:
    """`STAGE METRIC` -> value, of the summaries of all stages of a run."""
    files = sorted(folder.glob("*/summary.json"))
    return {
        f"{file.parent.name} {name}": value for file in files for name, value in metrics_in(read_json(file)).items()
    }


def score_in(figures: Mapping[str, Any]) -> float | None:
    """The score of a task, of MNLI the mean of both sets, in a summary or in its metrics; None: it has none."""
    scores = [value for name, value in figures.items() if _SCORE.fullmatch(name)]
    return statistics.mean(scores) if scores else None


@dataclass(frozen=True)
class Repetitions:
    """Finished runs that differ only in their seed."""

    name: str
    task: str  # the settings but for seed and learning rate
    settings: Mapping[str, Any]
    metrics: Mapping[int, Mapping[str, float]]  # by seed

    def scores(self) -> dict[int, float]:
        """Per cent, by seed; empty where the task has no score."""
        found = {seed: score_in(metrics) for seed, metrics in self.metrics.items()}
        return {seed: 100 * score for seed, score in found.items() if score is not None}

    def is_of_glue(self) -> bool:
        return self.settings.get("task_name", "custom") != "custom"


def repetitions(runs: Sequence[RunRecord]) -> list[Repetitions]:
    """The finished runs, in groups that differ only in their seed."""
    groups: dict[tuple[str, Any], list[tuple[RunRecord, dict[str, Any]]]] = {}
    for run in runs:
        settings = _asked_for(run)
        if run.summary.get("finished") and isinstance(settings.get("seed"), int):
            task = repr(
                [run.directory.name, *((k, v) for k, v in settings.items() if k not in ("seed", "learning_rate"))]
            )
            groups.setdefault((task, settings.get("learning_rate")), []).append((run, settings))
    found = []
    for (task, _), members in groups.items():
        common = os.path.commonpath([os.path.dirname(run.name) for run, _ in members])
        name = " ".join(filter(None, [common, members[0][0].directory.name]))
        metrics = {settings["seed"]: metrics_in(run.summary) for run, settings in members}
        found.append(Repetitions(name, task, members[0][1], metrics))
    return found


def _asked_for(run: RunRecord) -> dict[str, Any]:
    """The settings of a run without those of one run alone; paths below its output folder are relative to it."""
    file = run.directory.with_name(f"{run.directory.name}.yaml")
    try:
        settings = plain_yaml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        settings = run.settings
    output = f"{settings.get('output_dir')}/"
    kept = {name: value for name, value in settings.items() if name == "seed" or name not in _OF_ONE_RUN}
    kept.pop("output_dir", None)
    return {n: v.removeprefix(output) if isinstance(v, str) else v for n, v in kept.items()}


def repetition_tables(runs: Sequence[RunRecord], fewest: int = 1) -> list[Table]:
    """One table of all tasks that have scores, with the average; of other runs a table of metrics each.

    Args:
        fewest: seeds that a training must have.
    """
    groups = [group for group in repetitions(runs) if len(group.metrics) >= fewest]
    scored = [group for group in groups if group.scores()]
    tables = [_score_table(scored)] if len(scored) > 1 else []
    return [*tables, *(metric_rows(g.metrics, "seed", g.name) for g in groups if not tables or g not in scored)]


def repetition_lines(runs: Sequence[RunRecord]) -> list[str]:
    """The tables as Markdown, with what they flatter; for runs none of which has ended one line."""
    tables = [line for table in repetition_tables(runs) for line in ["", *markdown(table)]][1:]
    return [*tables, "", FLATTERY] if tables else ["no run has ended"]


def _score_table(groups: Sequence[Repetitions]) -> Table:
    rows = []
    for group in groups:
        names = [n for n in dict.fromkeys(n for run in group.metrics.values() for n in run) if not n.endswith("score")]
        means = {n: statistics.mean(run[n] for run in group.metrics.values() if n in run) for n in names}
        metrics = ", ".join(f"{n.replace('_', ' ')} {means[n]:{metric_form(n)}}" for n in names if n not in MEASURED)
        rate, scores = group.settings.get("learning_rate"), list(group.scores().values())
        rows.append(
            [group.name, f"{float(rate):g}" if rate else "-", metrics, *spread_cells(scores, ".1f"), str(len(scores))]
        )
    title, averages = average(groups)
    rows += [[title, "", "", *spread_cells(averages, ".1f"), str(len(averages))]] if averages else []
    return ["runs", "learning rate", "metrics", "score", *SPREAD[1:], "seeds"], rows


def average(groups: Sequence[Repetitions]) -> tuple[str, list[float]]:
    """What it is of, and its values: of the seeds that all tasks have, each task at its best rate."""
    tasks: dict[str, Repetitions] = {}
    for group in sorted(groups, key=lambda group: statistics.mean(group.scores().values())):
        tasks[group.task] = group  # the best comes last
    of_glue = [group for group in tasks.values() if group.is_of_glue()]
    averaged = of_glue or list(tasks.values())
    scores = [group.scores() for group in averaged]
    seeds = sorted(set[int].intersection(*map(set, scores))) if len(scores) > 1 else []
    title = f"average of {len(averaged)} tasks{' of GLUE' if of_glue else ''}"
    title += ", each at its best rate" if len(tasks) < len(groups) else ""
    return title, [statistics.mean(score[seed] for score in scores) for seed in seeds]


def spread_cells(values: Sequence[float], form: str) -> list[str]:
    """The cells below SPREAD; a single value has no standard deviation."""
    spread = statistics.stdev(values) if len(values) > 1 else None
    figures = (statistics.mean(values), spread, statistics.median(values), min(values), max(values))
    return ["-" if value is None else f"{value:{form}}" for value in figures]


def metric_rows(metrics: Mapping[int, Mapping[str, float]], unit: str, title: str = "metric") -> Table:
    """A row per metric, over the runs (by the numbers of their `unit`)."""
    names = list(dict.fromkeys(name for values in metrics.values() for name in values))
    rows = []
    for name in names:
        by_value = sorted((values[name], number) for number, values in metrics.items() if name in values)
        form = metric_form(name.rpartition(" ")[2], {other.rpartition(" ")[2]: 0 for other in names})
        *middle, lowest, highest = spread_cells([value for value, _ in by_value], form)
        ends = (f"{end} ({unit} {number})" for end, (_, number) in ((lowest, by_value[0]), (highest, by_value[-1])))
        rows.append([name, *middle, *ends, str(len(by_value))])
    return [title, *SPREAD, f"{unit}s"], rows


def markdown(table: Table) -> list[str]:
    titles, rows = table
    return [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def metric_table(metrics: Mapping[int, Mapping[str, float]], unit: str) -> list[str]:
    """`metric_rows` as Markdown."""
    return markdown(metric_rows(metrics, unit))
