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


def metric_table(metrics: Mapping[int, Mapping[str, float]], unit: str) -> list[str]:
    """Markdown: a row per metric, over the runs (by the numbers of their `unit`)."""
    names = list(dict.fromkeys(name for values in metrics.values() for name in values))
    lines = table_head(["metric", "mean", "standard deviation", "median", "lowest", "highest", f"{unit}s"])
    for name in names:
        by_value = sorted((values[name], number) for number, values in metrics.items() if name in values)
        values = [value for value, _ in by_value]
        form = metric_form(name.rpartition(" ")[2], {other.rpartition(" ")[2]: 0 for other in names})
        spread = f"{statistics.stdev(values):{form}}" if len(values) > 1 else "-"
        ends = (f"{value:{form}} ({unit} {number})" for value, number in (by_value[0], by_value[-1]))
        middle = [f"{statistics.mean(values):{form}}", spread, f"{statistics.median(values):{form}}"]
        lines.append(table_row([name, *middle, *ends, str(len(values))]))
    return lines
