"""Infers settings from the files in the folder of a model's weights, which `bert.conversion` reads."""

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from bert.checkpoints.chosen_weights import weights_folder
from bert.config.flags import is_on
from bert.config.training_settings import InitializationSettings
from bert.conversion.locating import locate, published_model, resolve
from bert.conversion.model_description import CONFIG_FILES, ModelDescription, read_description, read_labels
from bert.conversion.task_file import read_usage
from bert.conversion.tokenizer_settings import stated_normalization, tokenizer_warnings
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.usage import LABELS_FILE, Usage
from bert.tokenization.normalization import UNCASED
from bert.tokenization.vocabulary_files import read_vocabulary, vocabulary_beside

logger = logging.getLogger(__name__)


def description_file(weights: Path) -> Path | None:
    """Path of the model description beside the weights (a folder or a file); None without one."""
    files = (_folder_of(weights) / name for name in CONFIG_FILES)
    return next((file for file in files if file.is_file()), None)


def description_beside(weights: Path) -> ModelDescription | None:
    """Content of the model description beside the weights, read once per command."""
    file = description_file(weights)
    return None if file is None else _read_once(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _read_once(file: Path, changed: int) -> ModelDescription:
    return read_description(file)


def named_weights(values: Mapping[str, Any]) -> Path | None:
    """The weights that from_pretrained_params or from_checkpoint name, as `weights_folder` finds them.

    Of a published model, only the small files are fetched.
    """
    pretrained = str(values.get("from_pretrained_params") or "")
    if pretrained.lower() in ("", "none"):
        checkpoint = str(values.get("from_checkpoint") or "")
        return weights_folder(Path(checkpoint).expanduser()) if checkpoint.lower() not in ("", "none") else None
    if "vocab_file" in values and published_model(pretrained) is None:
        return weights_folder(Path(pretrained).expanduser())
    return weights_folder(resolve(pretrained, weights=False))


def implied_by_weights(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings implied by the files of the weights: the model's sizes, vocabulary and lower-casing.

    Args:
        values: flat settings; those that name sizes keep them.
    """
    path = named_weights(values)
    if path is None:
        return {}
    folder = _folder_of(path)
    implied: dict[str, Any] = {}
    if "hidden_size" not in values and (description := description_beside(path)) is not None:
        implied |= description.config.model_dump()
        if "bert_model" not in values:  # the default name means other sizes
            implied["bert_model"] = _name_of(folder)
    if (vocabulary := vocabulary_beside(folder)) is not None:
        implied["vocab_file"] = vocabulary
    elif path.is_dir() and "vocab_file" not in values:
        locate(path, [])  # no model at all is refused as such
    stated, file = stated_normalization(folder), values.get("vocab_file") or vocabulary
    if "lowercase" not in stated and file is not None:
        with suppress(OSError, ValueError):  # `check_vocabulary_file` reports it
            inferred = read_vocabulary(Path(file).expanduser()).normalization()
            stated = {**({} if inferred == UNCASED else vars(inferred)), **stated}
    names = {"do_lower_case": "lowercase"}
    names |= {name: name for name in ("strip_accents", "word_segmenter", "equal_letters")}
    implied |= {name: value for name, key in names.items() if (value := stated.get(key)) is not None}
    for warning in tokenizer_warnings(folder):
        logger.warning(warning)
    return implied


def usage_in_training(values: Mapping[str, Any], *tasks: str) -> Usage:
    """How the weights of a prediction were trained, as their files say.

    Args:
        values: flat settings.
        tasks: names of tasks that fit; older checkpoints do not name theirs.
    Returns:
        An empty one when training, without weights, and for weights of another task.
    """
    path = None if is_on(values, "do_train") else named_weights(values)
    usage = Usage() if path is None else read_usage(_folder_of(path))
    return usage if usage.name in (None, *tasks) else Usage()


def usage_of_the_weights(settings: InitializationSettings) -> Usage:
    """How the weights of a prediction were trained, by flat settings."""
    weights = _used_weights(settings)
    return Usage() if weights is None else read_usage(_folder_of(weights))


def _used_weights(settings: InitializationSettings) -> Path | None:
    if settings.from_checkpoint is not None:
        return weights_folder(settings.from_checkpoint)
    weights = settings.initial_weights()
    return None if weights is None else weights_folder(resolve(weights, weights=False))


def _folder_of(weights: Path) -> Path:
    return weights.parent if weights.is_file() or not weights.exists() else weights


def _name_of(folder: Path) -> str:
    """Name of a model: MODEL of OUTPUT/MODEL/STAGE/STEP or of a hub's cache folder, otherwise the folder's name."""
    name = folder.resolve().name
    if folder.parent.name == "snapshots":  # of huggingface_hub's cache
        name = folder.parts[-3].rpartition("--")[2]
    elif folder.name.isdecimal() and len(folder.parts) >= 3:
        name = folder.parts[-3]
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-") or "bert"


def labels_beside(weights: Path) -> tuple[str, ...] | None:
    """Class names, in order, from labels.json or the model description beside the weights.

    Returns:
        None without them, or if they are the placeholders LABEL_0, LABEL_1 ...
    """
    folder = _folder_of(weights)
    if (labels := read_labels(folder)) is not None:
        return labels
    for name in CONFIG_FILES:
        with suppress(ConversionError):
            labels = read_description(folder / name).labels
            if labels and not all(label.startswith("LABEL_") for label in labels):
                return labels
    return None


def labels_of_the_weights(settings: InitializationSettings, expected: tuple[str, ...] | None) -> tuple[str, ...]:
    """Class names of a trained classifier that predicts, in the order of its outputs.

    Args:
        expected: the labels of the task; None: any. Names that differ in case or separators only are the same.
    """
    weights, folder = settings.from_checkpoint or settings.initial_weights(), _used_weights(settings)
    labels = None if folder is None else labels_beside(folder)
    if expected is None:
        if labels is None:
            raise ValueError(
                f"the classes of {weights or 'random weights'} are unknown: there is no {LABELS_FILE}. "
                "Train with --do-train, pass --from-pretrained-params with a fine-tuned model, or write "
                'that file: a JSON list of the classes, in order, e.g. ["no", "yes"]'
            )
        return labels
    if labels is None or labels == expected:
        return expected
    by_plain_name = {_comparable(label): label for label in expected}
    renamed = tuple(by_plain_name.get(_comparable(label), label) for label in labels)
    if set(renamed) == set(expected):
        logger.info("classes in the order of the weights: %s", ", ".join(renamed))
        return renamed
    logger.info(f"classes of {weights}: {', '.join(labels)}; they are read as {', '.join(expected)}, in that order")
    return expected


def _comparable(label: str) -> str:
    return label.lower().replace(" ", "_").replace("-", "_")
