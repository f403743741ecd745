"""Metrics of several runs of one training: mean, spread and extremes."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from bert.files import read_json
from bert.reporting.progress import metric_form

NO_METRICS = ("_sequences", "_total", "thresh")  # ends of names
MEASURED = ("final_loss", "skipped_steps")  # beside the metrics of evaluations


def metrics_of(folder: Path) -> dict[str, float]:
    """`STAGE METRIC` -> value, of the summaries of all stages of a run."""
    metrics = {}
    for file in sorted(folder.glob("*/summary.json")):
        for name, value in read_json(file).items():
            is_metric = name.startswith("eval_") and not name.endswith(NO_METRICS)
            if isinstance(value, (int, float)) and (is_metric or name in MEASURED):
                metrics[f"{file.parent.name} {name.removeprefix('eval_')}"] = float(value)
    return metrics


def table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table_head(titles: Sequence[str]) -> list[str]:
    return [table_row(titles), "|---" * len(titles) + "|"]


SPREAD = ("mean", "standard deviation", "median", "lowest", "highest")  # titles of what `summary` begins with


def summary(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, spread (None of one value), median, ends and number, by the names of scores.json."""
    spread = statistics.stdev(values) if len(values) > 1 else None
    middle = {"mean": statistics.mean(values), "standard_deviation": spread, "median": statistics.median(values)}
    return {**middle, "lowest": min(values), "highest": max(values), "seeds": len(values)}


def spread_cells(values: Sequence[float], form: str) -> list[str]:
    """The cells below SPREAD."""
    return ["-" if value is None else f"{value:{form}}" for value in summary(values).values()][: len(SPREAD)]


def metric_table(metrics: Mapping[int, Mapping[str, float]], unit: str) -> list[str]:
    """Markdown: a row per metric, over the runs (by the numbers of their `unit`)."""
    names = list(dict.fromkeys(name for values in metrics.values() for name in values))
    lines = table_head(["metric", *SPREAD, f"{unit}s"])
    for name in names:
        by_value = sorted((values[name], number) for number, values in metrics.items() if name in values)
        form = metric_form(name.rpartition(" ")[2], {other.rpartition(" ")[2]: 0 for other in names})
        *middle, lowest, highest = spread_cells([value for value, _ in by_value], form)
        ends = (f"{end} ({unit} {number})" for end, (_, number) in ((lowest, by_value[0]), (highest, by_value[-1])))
        lines.append(table_row([name, *middle, *ends, str(len(by_value))]))
    return lines
