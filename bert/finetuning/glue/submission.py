"""Prediction files as GLUE's leaderboard takes them: TASK.tsv with columns index and prediction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert.files import write_atomically
from bert.finetuning.glue.tasks import GlueTask


def prediction_texts(task: GlueTask, labels: Sequence[str] | None, predictions: np.ndarray) -> list[str]:
    """Predictions as they stand in the file: labels of the task, or numbers within its range.

    Args:
        labels: of the classes; None for numbers.
        predictions: [n], classes or numbers.
    """
    if labels is not None:
        return [labels[prediction] for prediction in predictions]
    low, high = task.value_range or (-np.inf, np.inf)
    return [f"{value:.6g}" for value in np.clip(predictions.astype(np.float64), low, high)]


def write_predictions(
    path: Path, indices: Sequence[str], columns: Sequence[Sequence[str]], names: Sequence[str] = ("prediction",)
) -> None:
    """Write a line for each index, with one field of each column; the whole file or none of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(fields) for fields in (("index", *names), *zip(indices, *columns, strict=True))]
    write_atomically(path, ("\n".join(lines) + "\n").encode())
