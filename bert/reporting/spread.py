"""Compares runs that differ only in their seed: mean, spread and extremes of metrics, and GLUE's average.

GLUE's rule: the score of a task is the mean of its metrics, for MNLI over the matched and the mismatched set; the
average is the mean over the tasks.
"""

import os
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert.config.plain_yaml import plain_yaml
from bert.reporting.progress import metric_form
from bert.reporting.run_record import RunRecord

NO_METRICS = ("_sequences", "_total", "thresh")  # ends of names
MEASURED = ("final_loss", "skipped_steps")  # beside the metrics of evaluations
SPREAD = ("mean", "standard deviation", "median", "lowest", "highest")
FLATTERY = (
    "Scores are on the evaluation sets, which chose each run's best weights: that flatters. A task's score is the mean "
    "of its metrics (MNLI: matched and mismatched), times 100."
)
_SCORE = re.compile(r"((mis)?matched_)?score")
# Settings that may differ in runs of one training, beside the seed: the start of a resumed run, what brings data.
_OF_ONE_RUN = tuple(
    "seed output_dir report_file from_checkpoint last_step_of_checkpoint download max_bad_line_fraction".split()
)
Table = tuple[list[str], list[list[str]]]  # titles, rows


def metrics_in(summary: Mapping[str, Any]) -> dict[str, float]:
    """Evaluation metrics in a summary, without eval_ in their names, and measurements of the training."""
    return {
        name.removeprefix("eval_"): float(value)
        for name, value in summary.items()
        if isinstance(value, (int, float))
        and ((name.startswith("eval_") and not name.endswith(NO_METRICS)) or name in MEASURED)
    }


class Repetitions(NamedTuple):
    """Finished runs that differ only in their seed."""

    name: str
    glue_task: str  # "" if the runs are not of GLUE
    metrics: dict[int, dict[str, float]]  # metrics by seed

    def scores(self) -> dict[int, float]:
        """Score of each seed in per cent; empty if the task has no score."""
        scores = {seed: [v for n, v in run.items() if _SCORE.fullmatch(n)] for seed, run in self.metrics.items()}
        return {seed: 100 * statistics.mean(values) for seed, values in scores.items() if values}


def repetitions(runs: Sequence[RunRecord]) -> list[Repetitions]:
    """Group the finished runs that differ only in their seed."""
    groups: dict[str, list[tuple[RunRecord, dict[str, Any]]]] = {}
    for run in runs:
        settings = _settings_asked_for(run)
        if run.summary.get("finished") and "seed" in settings:
            output = f"{settings.get('output_dir')}/"  # paths below it are compared without it
            same = {n: str(v).removeprefix(output) for n, v in settings.items() if n not in _OF_ONE_RUN}
            groups.setdefault(repr((run.directory.name, same)), []).append((run, settings))
    repetitions = []
    for members in groups.values():
        common = os.path.commonpath([os.path.dirname(run.name) for run, _ in members])
        task = str(members[0][1].get("task_name") or "custom")
        metrics = {settings["seed"]: metrics_in(run.summary) for run, settings in members}
        name = " ".join(filter(None, [common, members[0][0].directory.name]))
        repetitions.append(Repetitions(name, "" if task == "custom" else task, metrics))
    return repetitions


def _settings_asked_for(run: RunRecord) -> dict[str, Any]:
    """The settings that the user requested. In those of the run's last start, paths may point to its checkpoint."""
    try:
        return dict(plain_yaml(run.directory.with_name(f"{run.directory.name}.yaml").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return run.settings


def repetition_tables(runs: Sequence[RunRecord], fewest: int = 1) -> list[Table]:
    """One table of all tasks with scores and their average; for other runs one table of metrics each.

    Args:
        fewest: seeds that a training must have.
    """
    groups = [group for group in repetitions(runs) if len(group.metrics) >= fewest]
    scored = [group for group in groups if group.scores()]
    tables = [_score_table(scored)] if len(scored) > 1 else []
    return [*tables, *(metric_rows(g.metrics, "seed", g.name) for g in groups if not tables or g not in scored)]


def repetition_lines(runs: Sequence[RunRecord]) -> list[str]:
    """The tables as Markdown, and a note on what makes the scores too optimistic."""
    return [line for table in repetition_tables(runs) for line in [*markdown(table), ""]] + [FLATTERY]


def _score_table(groups: Sequence[Repetitions]) -> Table:
    scores = [(group.name, list(group.scores().values())) for group in groups]
    rows = [[name, *spread_cells(v, ".1f"), str(len(v))] for name, v in [*scores, average(groups)] if v]
    return ["score", *SPREAD, "seeds"], rows


def average(groups: Sequence[Repetitions]) -> tuple[str, list[float]]:
    """The name of GLUE's average, and its value for each seed that all tasks have (the best run of each task)."""
    by_score = sorted(groups, key=lambda group: statistics.mean(group.scores().values()))
    scores = {group.glue_task: group.scores() for group in by_score if group.glue_task}  # the best comes last
    seeds = sorted(set[int].intersection(*map(set, scores.values()))) if len(scores) > 1 else []
    values = [statistics.mean(score[seed] for score in scores.values()) for seed in seeds]
    return f"average of {len(scores)} tasks of GLUE", values


def spread_cells(values: Sequence[float], form: str) -> list[str]:
    """Cells of the columns SPREAD; a single value has no standard deviation."""
    spread = statistics.stdev(values) if len(values) > 1 else None
    figures = (statistics.mean(values), spread, statistics.median(values), min(values), max(values))
    return ["-" if value is None else f"{value:{form}}" for value in figures]


def metric_rows(metrics: Mapping[int, Mapping[str, float]], unit: str, title: str = "metric") -> Table:
    """Table with a row for each metric, over runs that differ in their `unit`, such as the seed."""
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
