"""Reads the calibration of classifiers trained up to November 2026, which was stored in task.json beside the weights.

Their task.json has a temperature, by which logits are divided, and token_weights, which are added to them. Both are in
the weights now: `bert.model.head_specs.with_temperature` and `bert.model.heads.TokenWeights`. This module may go once
no folder of 88b30792 or earlier needs to be read; every call of it then goes too, and a key of these becomes an error.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert.conversion.untrusted_files import ConversionError, read_json
from bert.model.head_specs import TOKEN_WEIGHTS, with_temperature

if TYPE_CHECKING:  # not for --help
    import numpy as np

_KEYS = ("temperature", "token_weights")
_TASK_FILE = "task.json"


def without_old_calibration(task: Mapping[str, Any]) -> dict[str, Any]:
    """Remove from the content of a task.json the calibration that the weights now contain."""
    return {name: value for name, value in task.items() if name not in _KEYS}


def with_old_calibration(parameters: "Mapping[str, np.ndarray]", folder: Path) -> "dict[str, np.ndarray]":
    """The parameters of a text classifier, with the calibration that an older task.json in `folder` holds.

    Args:
        parameters: by our names, float32; others than a classifier's stay as they are.
    Raises:
        ConversionError: the task.json is damaged, or of other classes.
    """
    import numpy as np

    if "classifier.bias" not in parameters:
        return dict(parameters)
    task, classes = _task(folder), len(parameters["classifier.bias"])
    calibrated = dict(parameters)
    if (text := task.get("token_weights")) is not None:
        try:
            weights = np.frombuffer(b64decode(text, validate=True), "<f2").reshape(-1, classes)
        except (TypeError, ValueError) as error:
            raise ConversionError(
                f"token_weights in {folder / _TASK_FILE} are damaged or not of {classes} classes ({error}); copy the "
                "file again from where the model was trained"
            ) from None
        calibrated[TOKEN_WEIGHTS] = weights.astype(np.float32)
    return with_temperature(calibrated, _temperature(task, folder))


Run = Callable[["Mapping[str, np.ndarray]"], "Mapping[str, np.ndarray]"]  # inputs by name -> outputs by name


def with_old_temperature(run: Run, folder: Path) -> Run:
    """Wrap the `run` function of an export: divide its logits if an older task.json beside it has a temperature.

    The graph of an older export has the token weights.
    """
    temperature = _temperature(_task(folder), folder)
    if temperature == 1:
        return run

    def divided(feed: "Mapping[str, np.ndarray]") -> "Mapping[str, np.ndarray]":
        return {name: array / temperature if name == "logits" else array for name, array in run(feed).items()}

    return divided


def _task(folder: Path) -> dict[str, Any]:
    path = folder / _TASK_FILE
    task = read_json(path, "the name, length and columns of a task") if path.is_file() else {}
    return task if isinstance(task, dict) else {}  # `read_usage` refuses anything else


def _temperature(task: Mapping[str, Any], folder: Path) -> float:
    temperature = task.get("temperature", 1.0)
    if not isinstance(temperature, int | float) or not temperature > 0:
        raise ConversionError(
            f"temperature={temperature!r} in {folder / _TASK_FILE} must be a positive number; copy the file again from "
            "where the model was trained"
        )
    return float(temperature)
