"""Reads a run's folder for the report and the curves. Reads what is there and notes what is missing or damaged."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

METRICS, CONFIG, SUMMARY, LOG = "metrics.jsonl", "config.yaml", "summary.json", "log.jsonl"
Row = dict[str, Any]
_LASTING = ("unigram_entropy", "world_size")


@dataclass(frozen=True)
class Leg:
    """One start of the run, from its first logged step to its last."""

    started: str  # date and time, as logged
    first_step: int | None
    last_step: int | None
    seconds: float  # until its last line


@dataclass(frozen=True)
class RunRecord:
    """Everything that was found; empty where nothing was found."""

    name: str
    directory: Path
    training: list[Row]  # each step once: of a step that was repeated after a crash the last row
    held_out: list[Row]
    settings: dict[str, Any]
    summary: dict[str, Any]
    legs: list[Leg]
    checkpoints: list[int]
    checkpoint_bytes: int
    complaints: list[str] = field(default_factory=list)

    def last_step(self) -> int | None:
        """The last update with a row; without rows that of the summary."""
        return max((row["step"] for row in [*self.training, *self.held_out]), default=self.summary.get("steps"))

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) where the metric is a number."""
        rows = self.held_out if name.startswith("eval_") else self.training
        return [
            (row["step"], float(row[name]))
            for row in rows
            if isinstance(row.get(name), (int, float)) and not isinstance(row[name], bool)
        ]

    def last(self, name: str) -> Any:
        """The value in the summary, otherwise the last value of the curve; None if there is neither."""
        if self.summary.get(name) is not None:
            return self.summary[name]
        curve = self.curve(name)
        return curve[-1][1] if curve else None

    def metric_names(self) -> list[str]:
        names: dict[str, None] = {}
        for row in [*self.training[-1:], *self.training[:1], *self.held_out]:
            names |= dict.fromkeys(name for name in row if name not in ("step", "epoch"))
        return list(names)


def find_runs(paths: list[Path]) -> list[Path]:
    """The runs' folders: a path that holds metrics, else all folders below it that do."""
    found: list[Path] = []
    for path in paths:
        runs = _runs_below(path)
        if not runs:
            raise ValueError(
                f"run={path} must be a folder with {METRICS} or {CONFIG}, or with such folders below it; "
                "give OUTPUT_DIR or OUTPUT_DIR/STAGE of a run"
            )
        found += [run for run in runs if run not in found]
    return found


def _runs_below(path: Path, above: tuple[Path, ...] = ()) -> list[Path]:
    """The path if it is a run, else those in its folders; a run is not searched for others, such as its benchmark."""
    above = (*above, path.resolve())
    if (path / METRICS).is_file() or (path / CONFIG).is_file():
        return [path]
    try:
        inside = sorted(child for child in path.iterdir() if child.is_dir() and child.resolve() not in above)
    except OSError:
        return []
    return [run for child in inside for run in _runs_below(child, above)]


def read_run(directory: Path, name: str) -> RunRecord:
    """Read a folder of a run. Damaged files are listed among the complaints and never raise."""
    complaints: list[str] = []
    training, held_out = read_metrics(directory / METRICS, complaints)
    settings = _mapping(directory / CONFIG, yaml.safe_load, complaints)
    summary = _mapping(directory / SUMMARY, json.loads, complaints)
    newest = max((row["step"] for row in [*training, *held_out]), default=0)
    if newest > summary.get("steps", newest):  # an earlier start ended with it
        complaints.append(
            f"{SUMMARY} is of update {summary['steps']:,}, and the run went on to {newest:,}; its figures are those "
            f"of {METRICS}"
        )
        summary = {}
    summary = {**_facts(directory / LOG), **summary}
    legs = read_legs(directory / LOG)
    if not training and not held_out:
        complaints.append(f"{METRICS} has no rows: the run has not reached its first log line")
    folder = directory.parent / str(settings.get("bert_model", "")) / directory.name
    checkpoints = [path.parent for path in folder.glob("*/manifest.json") if path.parent.name.isdecimal()]
    steps = sorted(int(path.name) for path in checkpoints)
    size = sum(file.stat().st_size for path in checkpoints for file in path.iterdir())
    return RunRecord(name, directory, training, held_out, settings, summary, legs, steps, size, complaints)


def read_metrics(metrics_file: Path, complaints: list[str]) -> tuple[list[Row], list[Row]]:
    """(rows of training metrics, rows of held-out metrics) of metrics.jsonl, each step once.

    A row at or before the last one is of a continued run, which replaces the steps that it repeats.
    """
    training: list[Row] = []
    held_out: list[Row] = []
    for row in _json_lines(metrics_file, complaints):
        if not isinstance(row.get("step"), int):
            continue
        kept = held_out if any(name.startswith("eval_") for name in row) else training
        while kept and kept[-1]["step"] >= row["step"]:
            kept.pop()
        kept.append(row)
    return training, held_out


def _facts(log_file: Path) -> Row:
    """What the last start logged before its first update and no update changes."""
    facts: Row = {}
    for record in _json_lines(log_file, [], prefix="DLLL "):
        if record.get("step") == "PARAMETER" and isinstance(record.get("data"), dict):
            facts = {name: record["data"][name] for name in _LASTING if record["data"].get(name) is not None}
    return facts


def read_legs(log_file: Path) -> list[Leg]:
    """The starts of a run. A PARAMETER line begins each."""
    legs: list[Leg] = []
    start, steps, latest = None, list[int](), 0.0
    for record in _json_lines(log_file, [], prefix="DLLL "):
        try:
            now = float(record["timestamp"])
        except (KeyError, TypeError, ValueError):
            continue
        if record.get("step") == "PARAMETER":
            if start is not None:
                legs.append(_leg(start, steps, latest))
            start, steps = now, []
        elif isinstance(record.get("step"), list) and len(record["step"]) == 2 and isinstance(record["step"][1], int):
            steps.append(record["step"][1])
        latest = now
    return [*legs, _leg(start, steps, latest)] if start is not None else legs


def _leg(start: float, steps: list[int], latest: float) -> Leg:
    began = datetime.fromtimestamp(start).strftime("%Y-%m-%d %H:%M:%S")
    return Leg(began, min(steps, default=None), max(steps, default=None), max(0.0, latest - start))


def _json_lines(path: Path, complaints: list[str], prefix: str = "") -> Iterator[Row]:
    damaged = 0
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    row = json.loads(line.removeprefix(prefix))
                except ValueError:
                    damaged += bool(line.strip())
                    continue
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
    except OSError as error:
        complaints.append(f"{path.name} cannot be read: {error.strerror}")
        return {}
    except (ValueError, yaml.YAMLError):
        values = None
    if not isinstance(values, dict):
        complaints.append(f"{path.name} is damaged and was left out")
        return {}
    return values
