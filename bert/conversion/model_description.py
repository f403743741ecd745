"""Reads a model's description (sizes, task, classes) from the files of all libraries.

config.json, bert_config.json, model_config.json   sizes, read as BertConfig; class of the model; classes
labels.json                                        classes of our own models
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bert.config.architecture import BertConfig, network_of
from bert.conversion.untrusted_files import ConversionError, read_json
from bert.conversion.usage import LABELS_FILE
from bert.model.head_specs import HEADS
from bert.printable import printable

CONFIG_FILES = ("bert_config.json", "config.json", "model_config.json")
_READ_ELSEWHERE = frozenset(("architectures", "init_class", "id2label", "label2id", "num_labels", "problem_type"))
_FAMILY = re.compile("^(ModernBert|Roberta|XLMRoberta|Camembert)(?=For|Model)")


def architecture_of(task: str, config: BertConfig, library: int = 0) -> str:
    """The class name of a task's model in Hugging Face (library 0) or PaddleNLP (-1)."""
    head = HEADS["masked-lm" if task == "pretraining" and not config.has_token_types() else task]
    name = head.classes[library]
    return name.replace("Bert", {"modernbert": "ModernBert", "roberta": "Roberta"}.get(config.model_type, "Bert"))


class ModelDescription(NamedTuple):
    """Content of a model's description file."""

    config: BertConfig
    task: str | None  # a key of HEADS; None if the file names no task
    labels: tuple[str, ...] | None  # names of the classes, by index


def read_description(path: Path, notes: list[str] | None = None) -> ModelDescription:
    """Read a description with any of the known key names; `notes` lists the settings that are not used."""
    values = _flatten(read_json(path, "the model's sizes"))
    try:
        config, others = network_of(values, path)
    except ValueError as error:
        raise ConversionError(str(error)) from None
    if not config.is_modern() and not values.keys() >= {"hidden_size", "num_hidden_layers"}:
        raise ConversionError(f"{path} must give hidden_size and num_hidden_layers; this does not describe a BERT")
    task, named = _task(values), values.get("architectures")
    if notes is not None and (ignored := sorted(others.keys() - _READ_ELSEWHERE)):
        notes.append(f"{path.name}: not used: {', '.join(ignored)}")
    if notes is not None and named and task is None:
        notes.append(f"{path.name}: architectures={str(named)[:80]} is no task that is known here; the heads tell it")
    return ModelDescription(config, task, _labels(values))


def _flatten(values: Any) -> dict[str, Any]:
    """Flatten PaddleNLP's older model_config.json, where the encoder's sizes are inside the head's settings."""
    flat = dict(values) if isinstance(values, dict) else {}
    nested = flat.pop("init_args", None)
    for inner in nested if isinstance(nested, list) else ():
        flat = {**(inner if isinstance(inner, dict) else {}), **flat}
    return flat


def _task(values: Mapping[str, Any]) -> str | None:
    named = values.get("architectures") or values.get("init_class")
    named = named[0] if isinstance(named, list) and named else named
    named = _FAMILY.sub("Bert", named) if isinstance(named, str) else named
    return next((task for task, head in HEADS.items() if named in head.classes), None)


def _labels(values: Mapping[str, Any]) -> tuple[str, ...] | None:
    by_id = values.get("id2label")
    if not isinstance(by_id, dict) or not by_id or by_id.keys() != {str(index) for index in range(len(by_id))}:
        return None
    return checked_labels((str(by_id[str(index)]) for index in range(len(by_id))), "id2label")


def read_labels(folder: Path) -> tuple[str, ...] | None:
    """The class names in labels.json, which is saved with our classifiers; None without the file."""
    path = folder / LABELS_FILE
    if not path.is_file():
        return None
    labels = read_json(path, "a list of the classes, in order")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ConversionError(f"{path} must be JSON with a list of the classes, in order; correct it")
    return checked_labels(labels, str(path))


def checked_labels(labels: Iterable[str], source: str) -> tuple[str, ...]:
    """The labels; ConversionError for a label with a control character, which could forge lines or drive a terminal."""
    labels = tuple(labels)
    for label in labels:
        if printable(label) != label:
            raise ConversionError(f"{source}: the label {label[:80]!r} has a control character; correct it there")
    return labels


def named_classes(labels: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The names of a classifier's outputs; unnamed ones become LABEL_0, LABEL_1 ..."""
    return labels if len(labels) == number else tuple(f"LABEL_{index}" for index in range(number))
