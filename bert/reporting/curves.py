"""A run for VisualDL: its scalars and, at its end, its row in the table of hyper-parameters. No Paddle inside.

VisualDL shows the newest file of a folder only, so a continued run begins its file with what metrics.jsonl has of the
steps before: the curves go on, without what the continued run does anew.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPLAYED_ROWS = 2_000  # of the training metrics; VisualDL itself draws a sample of about that many points
# Columns of the table, what is changed most first; then facts such as world_size, then the model's sizes.
_SECTIONS = ("optimizer", "batch", "run", "precision", "data")
_LAST_SECTION = "model"
# Settings that do not change what is learned, or say where files are.
_OTHER_SECTIONS = ("initialization", "hardware", "training_data")
_OTHER_SETTINGS = ("_dir", "_file", "_prefix", "_freq", "num_workers", "keep_checkpoints", "num_steps_per_checkpoint")


class Curves:
    """Writes to `directory`/visualdl; every method may raise, and the caller drops it then."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._writer: Any = None
        self._tags: list[str] = []
        self.hyper_parameters: dict[str, Any] = {}

    def open(self, first_step: int) -> None:
        """Start this run's file, with the rows of earlier ones up to `first_step` in it."""
        from visualdl import LogWriter  # slow to import, and only rank 0 of a run needs it

        self._writer = LogWriter(logdir=str(self._directory / "visualdl"))
        for row in rows_until(self._directory / "metrics.jsonl", first_step):
            step = row.pop("step")
            self._add(step, {tag_of(name): value for name, value in row.items() if name != "epoch"})

    def add(self, step: int, metrics: dict[str, Any], first_step: int) -> None:
        """Scalars after update `step`."""
        if self._writer is None:
            self.open(first_step)
        self._add(step, {tag_of(name): value for name, value in metrics.items()})

    def close(self, final_step: int, figures: dict[str, Any]) -> None:
        """Add the run's figures and its row in the table of hyper-parameters; the last value of each scalar is beside
        it."""
        if self._writer is None:
            return
        self._check_thread()
        self._add(
            final_step,
            {
                f"final/{name}": value
                for name, value in figures.items()
                if name in ("training_sequences_per_second", "mfu", "skipped_steps")
            },
        )
        if self.hyper_parameters:
            self._writer.add_hparams(table_row(self.hyper_parameters), self._tags)
        self._writer.close()

    def _check_thread(self) -> None:
        """VisualDL writes in a thread that ends when the disk is full; the next calls would then wait for ever."""
        worker = self._writer
        for name in ("_file_writer", "_async_writer", "_worker"):
            worker = getattr(worker, name, None)
        if worker is not None and not worker.is_alive():
            raise OSError("its writing thread has ended; is the disk full?")

    def _add(self, step: int, scalars: dict[str, Any]) -> None:
        self._check_thread()
        for tag, value in scalars.items():
            value = value.item() if hasattr(value, "item") else value
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                self._writer.add_scalar(tag, value, step)
                if tag not in self._tags:
                    self._tags.append(tag)


def tag_of(name: str) -> str:
    """`loss` -> `train/loss`, `eval_f1` -> `eval/f1`."""
    return f"eval/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"


def table_row(parameters: dict[str, Any]) -> dict[str, Any]:
    """Settings by section, and facts of the run, as one flat row of numbers and strings."""
    row: dict[str, Any] = {}
    order = [*_SECTIONS, *(name for name in parameters if name not in (*_SECTIONS, _LAST_SECTION)), _LAST_SECTION]
    for name in order:
        value = parameters.get(name)
        for key, item in value.items() if isinstance(value, dict) else [(name, value)]:
            if name in _OTHER_SECTIONS or key.endswith(_OTHER_SETTINGS) or item is None:
                continue
            item = item.item() if hasattr(item, "item") else item
            # A truth value would be shown as 0 or 1.
            row[key] = item if isinstance(item, (int, float, str)) and not isinstance(item, bool) else str(item)
    return row


def rows_until(metrics_file: Path, first_step: int) -> Iterator[dict[str, Any]]:
    """Earlier rows of metrics.jsonl up to a step, each step once (the last time it was done), many ones thinned."""
    if first_step <= 0 or not metrics_file.exists():
        return
    training: dict[int, dict[str, Any]] = {}
    held_out: dict[int, dict[str, Any]] = {}
    with open(metrics_file, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                row = json.loads(line)
                step = int(row["step"])
            except (ValueError, KeyError, TypeError):  # a line that a crash cut off
                continue
            if step <= first_step:
                is_held_out = any(name.startswith("eval_") for name in row)
                (held_out if is_held_out else training)[step] = row
    every = max(1, -(-len(training) // REPLAYED_ROWS))
    rows = [*list(training.values())[::every], *held_out.values()]
    yield from sorted(rows, key=lambda row: row["step"])
