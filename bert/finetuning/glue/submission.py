"""Write prediction files in the format of GLUE's leaderboard: TASK.tsv with the columns index and prediction."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert.files import write_atomically
from bert.finetuning.glue.task_table import GlueTask


def prediction_texts(task: GlueTask, labels: Sequence[str] | None, predictions: np.ndarray) -> list[str]:
    """The text of every prediction: the label of a class, or a number clipped to the task's range.

    Args:
        labels: the label of each class; None for a regression.
        predictions: [n], classes or numbers.
    """
    if labels is not None:
        return [labels[prediction] for prediction in predictions]
    low, high = task.value_range or (-np.inf, np.inf)
    return [f"{value:.6g}" for value in np.clip(predictions.astype(np.float64), low, high)]


def prediction_header(names: Sequence[str] = ("prediction",)) -> bytes:
    """The line of the columns' names."""
    return ("\t".join(["index", *names]) + "\n").encode()


def prediction_lines(indices: Sequence[str], columns: Sequence[Sequence[str]]) -> bytes:
    """For each index, a line with one field of each column."""
    return "".join("\t".join(fields) + "\n" for fields in zip(indices, *columns, strict=True)).encode()


def write_predictions(
    path: Path, indices: Sequence[str], columns: Sequence[Sequence[str]], names: Sequence[str] = ("prediction",)
) -> None:
    """Write the header and the lines; atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, prediction_header(names) + prediction_lines(indices, columns))
