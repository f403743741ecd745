"""config.json of Hugging Face and PaddleNLP, bert_config.json of Google, NVIDIA and ours -> BertConfig, and back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from bert.config.architecture import BertConfig
from bert.conversion import our_names
from bert.conversion.flat_names import expected_shape, fits
from bert.conversion.raw import ConversionError, regular_file

LABELS_FILE = "labels.json"
CONFIG_FILES = ("bert_config.json", "config.json", "model_config.json")
_LARGEST = 8 << 20
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
    "relu": "relu",
}
# Settings of networks that are not this one, with the only value that leaves it this one.
_MUST_BE = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "fuse": False,
    "model_type": "bert",
    "is_encoder_decoder": False,
    "pool_act": "tanh",
}
# What each library's classes are called, by head. The first of each is what is written.
ARCHITECTURES = {
    "pretraining": ("BertForPreTraining", "BertForPretraining"),
    "masked-lm": ("BertForMaskedLM",),
    "question-answering": ("BertForQuestionAnswering",),
    "sequence-classification": ("BertForSequenceClassification",),
    "token-classification": ("BertForTokenClassification",),
    "next-sentence": ("BertForNextSentencePrediction",),
    "encoder": ("BertModel",),
}


@dataclass(frozen=True)
class Description:
    """A model's description file, understood."""

    config: BertConfig
    task: str | None  # a key of ARCHITECTURES, None when the file does not say
    labels: tuple[str, ...] | None  # names of a classifier's classes, by index
    notes: tuple[str, ...]


def read_description(path: Path) -> Description:
    """Read a description with any of the known key names.

    Raises:
        ConversionError: not JSON, no sizes, or a network this project does not build.
    """
    if regular_file(path) > _LARGEST:
        raise ConversionError(f"{path} is larger than any description of a BERT; check the file")
    try:
        values = json.loads(path.read_bytes())
        values = _flattened(values)
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ConversionError(f"{path} must be JSON with the model's sizes ({type(error).__name__}: {error})") from None
    for key, value in _MUST_BE.items():
        if values.get(key, value) != value:
            raise ConversionError(
                f"{key}={values[key]!r} in {path} must be {json.dumps(value)}; such a network is not built here"
            )
    if "hidden_size" not in values or "num_hidden_layers" not in values:
        raise ConversionError(f"{path} must give hidden_size and num_hidden_layers; it is no description of a BERT")
    activation = values.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise ConversionError(f"hidden_act={activation!r} in {path} must be one of {', '.join(_ACTIVATIONS)}")
    known = {key: values[key] for key in BertConfig.model_fields if key in values and values[key] is not None}
    known["hidden_act"] = _ACTIVATIONS[activation]
    try:
        config = BertConfig(**known)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConversionError(f"{path}: {where}={str(first.get('input'))[:40]} {first['msg']}") from None
    ignored = sorted(values.keys() - BertConfig.model_fields.keys() - _MUST_BE.keys() - _SAID_ELSEWHERE)
    notes = (f"{path.name}: not used: {', '.join(ignored)}",) if ignored else ()
    return Description(config, _task(values), _labels(values), notes)


_SAID_ELSEWHERE = frozenset(("architectures", "init_class", "id2label", "label2id", "num_labels"))


def _flattened(values: Any) -> dict[str, Any]:
    """PaddleNLP's older model_config.json nests the encoder's sizes below those of the head."""
    if not isinstance(values, dict):
        raise TypeError(f"it holds a {type(values).__name__}, not an object")
    flat = dict(values)
    for nested in flat.pop("init_args", None) or ():
        if isinstance(nested, dict):
            flat = {**_flattened(nested), **flat}
    return flat


def _task(values: Mapping[str, Any]) -> str | None:
    named = values.get("architectures") or values.get("init_class")
    named = named[0] if isinstance(named, list) and named else named
    return next((task for task, classes in ARCHITECTURES.items() if named in classes), None)


def _labels(values: Mapping[str, Any]) -> tuple[str, ...] | None:
    by_id = values.get("id2label")
    if not isinstance(by_id, dict) or not by_id:
        return None
    try:
        ordered = sorted((int(index), str(label)) for index, label in by_id.items())
    except ValueError:
        return None
    return tuple(label for _, label in ordered) if [i for i, _ in ordered] == list(range(len(ordered))) else None


def read_labels(folder: Path) -> tuple[str, ...] | None:
    """The classes in labels.json, which our classifiers have beside their weights; None without it."""
    path = folder / LABELS_FILE
    if not path.is_file():
        return None
    try:
        labels = json.loads(path.read_bytes()) if regular_file(path) < _LARGEST else None
    except (ValueError, RecursionError):
        labels = None
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ConversionError(f"{path} must be a list of the classes, in order")
    return tuple(labels)


def check_sizes(parameters: Mapping[str, np.ndarray], num_layers: int, config: BertConfig, source: Path) -> None:
    """Hold every shape against the description (the vocabulary is padding's concern).

    Raises:
        ConversionError: with each difference in a line.
    """
    wrong = []
    if num_layers != config.num_hidden_layers:
        wrong.append(f"{num_layers} layers, num_hidden_layers is {config.num_hidden_layers}")
    rows = {"position_embeddings": config.max_position_embeddings, "token_type_embeddings": config.type_vocab_size}
    for name, array in parameters.items():
        wanted = expected_shape(
            name, len(parameters[our_names.WORD_EMBEDDINGS]), config.hidden_size, config.intermediate_size
        )
        kind = name.split(".")[2] if name.startswith("bert.embeddings.") else ""
        if kind in rows:
            wanted = (rows[kind], config.hidden_size)
        if not fits(array, wanted):
            wrong.append(f"{name} is {list(array.shape)}, must be {[size or 'any' for size in wanted]}")
    if wrong:
        raise ConversionError(
            f"{source} and its model description do not belong together:\n  " + "\n  ".join(wrong[:20])
        )


def describe(
    config: BertConfig, task: str, labels: tuple[str, ...] | None, num_outputs: int | None, class_name: str
) -> dict[str, Any]:
    """config.json for Hugging Face or PaddleNLP; `class_name` is the library's class for the task."""
    values: dict[str, Any] = {"architectures": [class_name], **json.loads(config.to_json())}
    if task in ("sequence-classification", "token-classification") and num_outputs:
        names = labels if labels and len(labels) == num_outputs else tuple(f"LABEL_{i}" for i in range(num_outputs))
        values["id2label"] = {str(index): name for index, name in enumerate(names)}
        values["label2id"] = {name: index for index, name in enumerate(names)}
        if num_outputs == 1:
            values["problem_type"] = "regression"
    return values
