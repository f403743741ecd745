"""Reads the record of a run from its folder: the source of reports, tables and curves.

Reads what is there and notes what is missing or damaged.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bert.config.stage_names import display_name
from bert.files import json_of

METRICS_FILE, CONFIG_FILE, SUMMARY_FILE, LOG_FILE = "metrics.jsonl", "config.yaml", "summary.json", "log.jsonl"
SCORES_FILE = "scores.json"  # of a classifier: each class, mistakes, thresholds
BASELINE_MODEL = "baseline_model"  # the folder of the better one, if it is kept
BASELINE_FILE = "baseline.json"  # of labelled lines: what each is, and what was predicted; numbers, no texts
VERDICTS = ("verdict", "verdict_of_all_parts")  # in summary.json, beside a plain method; the second of --cross-validate
Row = dict[str, Any]
# What a start logs before its first update and no update changes.
_LASTING = ("unigram_entropy", "world_size", "device", "processor", "cpu_threads_per_rank")


@dataclass
class Leg:
    """One start of the run, from its first logged step to its last."""

    begin: float  # seconds since 1970
    end: float
    first_step: int | None = None
    last_step: int | None = None

    def started(self) -> str:
        return datetime.fromtimestamp(self.begin).strftime("%Y-%m-%d %H:%M:%S")

    def seconds(self) -> float:
        return max(0.0, self.end - self.begin)


@dataclass(frozen=True)
class RunRecord:
    name: str
    directory: Path
    training: list[Row]  # one row for each step; the last row of a step repeated after a crash
    held_out: list[Row]
    settings: dict[str, Any]
    summary: dict[str, Any]
    legs: list[Leg]
    checkpoints: list[int]
    checkpoint_bytes: int
    complaints: list[str]
    scores: dict[str, Any] = field(default_factory=dict)  # a classifier's scores.json

    def last_step(self) -> int | None:
        """The last logged update; without rows the summary's."""
        return max((row["step"] for row in [*self.training, *self.held_out]), default=self.summary.get("steps"))

    def curve(self, name: str) -> list[tuple[int, float]]:
        """Points (step, value) of a metric, where the value is a number."""
        rows = self.held_out if name.startswith("eval_") else self.training
        return [(row["step"], float(row[name])) for row in rows if type(row.get(name)) in (int, float)]

    def last(self, name: str) -> Any:
        """The metric's value in the summary, otherwise the last value of its curve, or None."""
        if self.summary.get(name) is not None:
            return self.summary[name]
        return next((value for _, value in reversed(self.curve(name))), None)

    def metric_names(self) -> list[str]:
        rows = [*self.training[-1:], *self.training[:1], *self.held_out]
        return list(dict.fromkeys(name for row in rows for name in row if name not in ("step", "epoch")))


def find_runs(paths: list[Path]) -> list[Path]:
    """Folders of runs: a path that holds metrics, otherwise all folders below it that do."""
    runs: dict[Path, None] = {}
    for path in paths:
        below = dict.fromkeys(_runs_below(path))
        if not below:
            raise ValueError(
                f"run={path} must be a folder with {METRICS_FILE} or {CONFIG_FILE}, or with such folders below it; "
                "give OUTPUT_DIR or OUTPUT_DIR/STAGE of a run"
            )
        runs |= below
    return list(runs)


def _runs_below(path: Path, above: tuple[Path, ...] = ()) -> list[Path]:
    """The path if it is a run, otherwise runs in its folders; a run's own folders are not searched."""
    above = (*above, path.resolve())
    if (path / METRICS_FILE).is_file() or (path / CONFIG_FILE).is_file():
        return [path]
    try:
        inside = sorted(child for child in path.iterdir() if child.is_dir() and child.resolve() not in above)
    except OSError:
        return []
    return [run for child in inside for run in _runs_below(child, above)]


def read_runs(paths: list[Path]) -> list[RunRecord]:
    """Read the runs that `find_runs` finds, named by their paths without the common part."""
    directories = find_runs(paths)
    common = os.path.commonpath([directory.resolve().parent for directory in directories])
    names = [os.path.relpath(path.resolve(), common) for path in directories]
    return [read_run(path, _display_path(name, names)) for path, name in zip(directories, names, strict=True)]


def _display_path(name: str, names: Sequence[str]) -> str:
    """The name of a run with its stage as readers know it, unless another run has this name."""
    readable = os.path.join(os.path.dirname(name), display_name(os.path.basename(name)))
    return name if readable in names else readable


def read_run(directory: Path, name: str) -> RunRecord:
    """Read a run's folder. Damaged files are listed as complaints and raise nothing."""
    complaints: list[str] = []
    training, held_out = read_metrics(directory / METRICS_FILE, complaints)
    from bert.config.plain_yaml import plain_yaml  # a rank reads no record

    settings = _mapping(directory / CONFIG_FILE, plain_yaml, complaints)
    summary = _mapping(directory / SUMMARY_FILE, json_of, complaints)
    scores = _mapping(directory / SCORES_FILE, json_of, complaints) if (directory / SCORES_FILE).is_file() else {}
    newest = max((row["step"] for row in [*training, *held_out]), default=0)
    if newest > summary.get("steps", newest):  # an earlier start ended with it
        complaints.append(
            f"{SUMMARY_FILE} is of update {summary['steps']:,}, and the run went on to {newest:,}; its figures are "
            f"taken from {METRICS_FILE}"
        )
        summary = {}
    if not training and not held_out:
        complaints.append(f"{METRICS_FILE} has no rows: the run has not reached its first log line")
    legs, facts = read_log(directory / LOG_FILE)
    folder = directory.parent / str(settings.get("bert_model", "")) / directory.name
    checkpoints = [path.parent for path in folder.glob("*/manifest.json") if path.parent.name.isdecimal()]
    steps = sorted(int(path.name) for path in checkpoints)
    size = sum(file.stat().st_size for path in checkpoints for file in path.iterdir())
    figures = facts | summary
    return RunRecord(name, directory, training, held_out, settings, figures, legs, steps, size, complaints, scores)


def read_metrics(metrics_file: Path, complaints: list[str]) -> tuple[list[Row], list[Row]]:
    """Read metrics.jsonl: (training rows, held-out rows), each step once.

    A row at or before the last one is of a continued run, which replaces the steps that it repeats.
    """
    training: list[Row] = []
    held_out: list[Row] = []
    for row in _json_lines(metrics_file, complaints):
        if isinstance(row.get("step"), int):
            rows = held_out if any(name.startswith("eval_") for name in row) else training
            while rows and rows[-1]["step"] >= row["step"]:
                rows.pop()
            rows.append(row)
    return training, held_out


def read_log(log_file: Path) -> tuple[list[Leg], Row]:
    """Read a log: (starts of the run, facts of the last start). A PARAMETER line begins each start."""
    legs: list[Leg] = []
    facts: Row = {}
    for record in _json_lines(log_file, [], prefix="DLLL "):
        step, data = record.get("step"), record.get("data")
        if step == "PARAMETER" and isinstance(data, dict):
            facts = {name: data[name] for name in _LASTING if data.get(name) is not None}
        try:
            now = float(record["timestamp"])
        except (KeyError, TypeError, ValueError):
            continue
        if step == "PARAMETER":
            legs.append(Leg(now, now))
        elif legs and isinstance(step, list) and len(step) == 2 and isinstance(step[1], int):
            leg = legs[-1]
            leg.first_step = step[1] if leg.first_step is None else min(leg.first_step, step[1])
            leg.last_step = max(leg.last_step or 0, step[1])
        if legs:
            legs[-1].end = now
    return legs, facts


def _json_lines(path: Path, complaints: list[str], prefix: str = "") -> Iterator[Row]:
    damaged = 0
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in filter(str.strip, file):
                try:
                    row = json_of(line.removeprefix(prefix))
                except ValueError:
                    row = None
                if isinstance(row, dict):
                    yield row
                else:
                    damaged += 1
    except OSError as error:
        complaints.append(f"{path.name} cannot be read: {error.strerror}")
    if damaged:
        complaints.append(f"{damaged} damaged line{'s' if damaged > 1 else ''} of {path.name} left out")


def _mapping(path: Path, parse: Any, complaints: list[str]) -> dict[str, Any]:
    try:
        values = parse(path.read_text(encoding="utf-8"))
        if isinstance(values, dict):
            return values
        complaints.append(f"{path.name} is damaged and was left out")
    except OSError as error:
        complaints.append(f"{path.name} cannot be read: {error.strerror}")
    except ValueError:
        complaints.append(f"{path.name} is damaged and was left out")
    return {}
