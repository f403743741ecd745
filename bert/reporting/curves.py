"""Writes a run's scalars for VisualDL, and at the end its row in VisualDL's table of hyper-parameters.

VisualDL shows only the newest file of a folder. A continued run therefore begins its file with the rows of earlier
steps in metrics.jsonl, without the steps that it repeats.
"""

import math
from datetime import datetime
from pathlib import Path
from typing import Any

from bert.config.stage_names import display_name
from bert.interpreter import shell_command
from bert.reporting.run_record import read_metrics

_PORT = 8040
REPLAYED_ROWS = 2_000  # of the training metrics, evenly thinned; VisualDL itself draws about that many points
_LONGEST_FOLDER = 12  # characters of a folder's name that the list of runs shows in full
# Columns of the table: sections that are changed most first, then facts such as world_size, then the model's sizes.
_SECTIONS = ("optimizer", "batch", "run", "precision", "data")
_LAST_SECTION = "model"
# Settings that do not change the result, such as paths.
_OTHER_SECTIONS = ("initialization", "hardware", "training_data")
_OTHER_SETTINGS = ("_dir", "_file", "_prefix", "_freq", "num_workers", "keep_checkpoints", "num_steps_per_checkpoint")


def curves_command(folder: Path | str) -> tuple[str, str]:
    """(purpose, command) to show the curves of all runs below a folder; VisualDL alone opens an empty page.

    Its server otherwise posts to its maker, and answers 500 where a browser asks for neither English nor Chinese.
    """
    private = ("--disable-telemetry", "--language", "en")
    command = shell_command("visualdl", "--logdir", folder, *private, "--port", str(_PORT))
    return f"the curves in a browser, at http://localhost:{_PORT}/app/scalar", command


class Tracker:
    """Base class that sends a run's scalars to a tracker. If a method raises, the caller stops using it."""

    def __init__(self, directory: Path):
        self.directory, self.name = directory, f"{directory.parent.name}/{directory.name}"
        self.writer: Any = None
        self.hyper_parameters: dict[str, Any] = {}

    def open(self, first_step: int) -> None:
        """Open `writer`, for a run that continues after `first_step`."""
        raise NotImplementedError

    def write(self, step: int, scalars: dict[str, float]) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def add(self, step: int, metrics: dict[str, Any], first_step: int) -> None:
        if self.writer is None:
            self.open(first_step)
        self.write(step, scalars_of(metrics))

    def close(self, final_step: int, figures: dict[str, Any]) -> None:
        """Add the run's final figures, and close the writer."""
        if self.writer is None:
            return
        names = ("training_sequences_per_second", "mfu", "skipped_steps")
        self.write(final_step, finite({f"final/{name}": value for name, value in figures.items() if name in names}))
        self.end()


class VisualDL(Tracker):
    """Writes scalars to `directory`/visualdl, and at the end a row of hyper-parameters."""

    def open(self, first_step: int) -> None:
        from visualdl import LogWriter  # slow to import, and only rank 0 of a run needs it

        self.writer = LogWriter(
            logdir=str(self.directory / "visualdl"), display_name=list_name(self.directory, datetime.now())
        )
        self._tags: list[str] = []
        read = read_metrics(self.directory / "metrics.jsonl", []) if first_step > 0 else ([], [])
        training, held_out = ([row for row in rows if row["step"] <= first_step] for rows in read)
        every = max(1, -(-len(training) // REPLAYED_ROWS))
        for row in sorted([*training[::every], *held_out], key=lambda row: row["step"]):
            step = row.pop("step")
            self.write(step, scalars_of({name: value for name, value in row.items() if name != "epoch"}))

    def write(self, step: int, scalars: dict[str, float]) -> None:
        worker = self.writer
        for name in ("_file_writer", "_async_writer", "_worker"):
            worker = getattr(worker, name, None)
        if worker is not None and not worker.is_alive():  # as on a full disk; later calls would block for ever
            raise OSError("its writing thread has ended; is the disk full?")
        for tag, value in scalars.items():
            self.writer.add_scalar(tag, value, step)
            if tag not in self._tags:
                self._tags.append(tag)

    def end(self) -> None:
        if self.hyper_parameters:
            self.writer.add_hparams(table_row(self.hyper_parameters), self._tags)
        self.writer.close()


def scalars_of(metrics: dict[str, Any]) -> dict[str, float]:
    """Scalars by tag, without constant counts, and without skipped updates while there are none."""
    from bert.reporting.metric_titles import is_count  # only the rank that writes curves loads it

    is_empty = metrics.get("skipped_steps") == 0
    return finite(
        {
            tag_of(name): value
            for name, value in metrics.items()
            if not is_count(name) and not (is_empty and name == "skipped_steps")
        }
    )


def list_name(directory: Path, start: datetime) -> str:
    """Name of a run in VisualDL's list, which shows about 25 characters: `quickstart/phase1 (results/..., TIME)`.

    The two innermost folders come first, because runs differ there. The time of the start keeps apart runs of equal
    names, of which VisualDL would show only one.
    """
    folders = directory.resolve().parts[-3:]
    outer = folders[-2]
    if len(outer) > _LONGEST_FOLDER:
        outer = f"{outer[:3]}..{outer[5 - _LONGEST_FOLDER :]}"
    return f"{outer}/{display_name(folders[-1])} ({'/'.join(folders).removeprefix('//')}, {start:%Y-%m-%d %H:%M:%S})"


def finite(scalars: dict[str, Any]) -> dict[str, float]:
    """The values that are finite numbers."""
    values = {tag: value.item() if hasattr(value, "item") else value for tag, value in scalars.items()}
    return {tag: value for tag, value in values.items() if type(value) in (int, float) and math.isfinite(value)}


def tag_of(name: str) -> str:
    return f"eval/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"


def table_row(parameters: dict[str, Any]) -> dict[str, Any]:
    """Settings by section and facts of the run as one flat row of numbers and strings."""
    row: dict[str, Any] = {}
    order = [*_SECTIONS, *(name for name in parameters if name not in (*_SECTIONS, _LAST_SECTION)), _LAST_SECTION]
    for name in order:
        value = parameters.get(name)
        for key, item in value.items() if isinstance(value, dict) else [(name, value)]:
            if name in _OTHER_SECTIONS or key.endswith(_OTHER_SETTINGS) or item is None:
                continue
            item = item.item() if hasattr(item, "item") else item
            # VisualDL would show a boolean as 0 or 1.
            row[key] = item if isinstance(item, (int, float, str)) and not isinstance(item, bool) else str(item)
    return row
