"""Reads initial weights of any known format, and checks that they fit the network and the task.

It is loaded only where weights are given: a fresh or continued training reads its own checkpoints.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert.checkpoints.directories import VerifiedCheckpoint
from bert.checkpoints.state import CheckpointError
from bert.config.architecture import MODERN_ONLY, BertConfig
from bert.conversion.model_description import named_classes
from bert.conversion.reading import WITHOUT, PretrainedWeights, read_pretrained
from bert.conversion.task_file import read_usage
from bert.conversion.usage import LABELS_FILE, TASK_FILE
from bert.conversion.vocabularies import with_new_words
from bert.files import shown
from bert.model.head_specs import HEAD_TENSORS, TOKEN_WEIGHTS
from bert.tokenization.vocabulary_files import read_vocabulary

logger = logging.getLogger(__name__)


def pretrained_parameters(
    path: Path | VerifiedCheckpoint, model: BertConfig, vocab_file: Path | None = None
) -> Mapping[str, np.ndarray]:
    """Parameters of `model` from weights of any known format; omitted and added tensors are logged.

    Args:
        vocab_file: of the run, which may have further words at its end.
    """
    return read_given(path, model, vocab_file).parameters


def read_given(path: Path | VerifiedCheckpoint, model: BertConfig, vocab_file: Path | None) -> PretrainedWeights:
    """Read weights, labels and task; ValueError if the network differs from `model`."""
    pretrained = read_pretrained(path)
    for line in pretrained.notes:
        if not line.startswith(WITHOUT):  # logged tensor by tensor when the weights are loaded
            logger.info(f"{path}: {line}")
    if (trained := pretrained.config) is not None:
        check_network(path, trained, model)
        if vocab_file is not None and (added := model.vocab_size - trained.vocab_size) > 0:
            parameters = with_new_words(pretrained, read_vocabulary(vocab_file))
            logger.info(f"{path}: {added:,} words are added, each with the mean of its pieces")
            return replace(pretrained, parameters=dict(parameters))
    return pretrained


class Outputs(NamedTuple):
    """Description of a classifier's outputs."""

    kind: str  # "classes", "labels of a text", "tags of words" or "a number"
    labels: tuple[str, ...]  # class names by index

    def __str__(self) -> str:
        names = ", ".join(self.labels[:5]) + (" ..." if len(self.labels) > 5 else "")
        return f"{self.kind} {names}" if self.labels else self.kind


def weights_for_task(weights: PretrainedWeights, texts: Mapping[str, str]) -> Mapping[str, np.ndarray]:
    """The weights without token weights, and without a classifier whose outputs differ from the task's.

    A row of a classifier belongs to one label. With other labels, or the same ones in another order, its rows would
    mean something else, also where their number is the same. Token weights were fitted to the lines of their training.

    Args:
        texts: files that the task keeps beside its weights, name -> content.
    """
    parameters = {name: array for name, array in weights.parameters.items() if name != TOKEN_WEIGHTS}
    if TOKEN_WEIGHTS in weights.parameters:
        logger.info(
            f"not used: the token weights of {shown(weights.folder)}, learned from its lines; train on both sets of "
            "lines together to have them"
        )
    theirs, ours = _outputs_of_weights(weights), _outputs_of_task(texts)
    if ours is None or theirs in (None, ours):
        return parameters
    logger.info(
        f"{weights.folder}: its classifier is for {theirs}; this training has {ours}, so a new classifier is trained"
    )
    return {name: array for name, array in parameters.items() if name not in HEAD_TENSORS["classifier"]}


def _outputs_of_weights(weights: PretrainedWeights) -> Outputs | None:
    """Outputs of the weights' classifier; None without one."""
    bias = weights.parameters.get("classifier.bias")
    if bias is None:
        return None
    labels, usage = named_classes(weights.labels or (), len(bias)), read_usage(weights.folder)
    is_regression = usage.regression or len(bias) == 1  # other libraries name a number by its one output
    is_tagger = weights.task == "token-classification" or usage.name == "ner"  # other libraries by the first
    return _outputs(labels, is_regression, usage.label_separator is not None, is_tagger)


def _outputs_of_task(texts: Mapping[str, str]) -> Outputs | None:
    """Outputs of the task's classifier; None without one."""
    labels, usage = json.loads(texts.get(LABELS_FILE, "[]")), json.loads(texts.get(TASK_FILE, "{}"))
    if not labels and not usage.get("regression"):
        return None
    has_several, is_tagger = usage.get("label_separator") is not None, usage.get("name") == "ner"
    return _outputs(labels, bool(usage.get("regression")), has_several, is_tagger)


def _outputs(labels: Sequence[str], is_regression: bool, has_several: bool, is_tagger: bool) -> Outputs:
    if is_regression:
        return Outputs("a number", ())
    kind = "tags of words" if is_tagger else "labels of a text" if has_several else "classes"
    return Outputs(kind, tuple(labels))


def check_network(path: Any, trained: BertConfig, model: BertConfig) -> None:
    """Refuse weights of another network with equal tensors; log settings that tensors cannot show."""
    if trained.model_type != model.model_type:
        raise CheckpointError(
            f"{path} is a {trained.model_type}, this run has model_type={model.model_type}; pass --model-type "
            f"{trained.model_type} and the model's own sizes: --config-file"
        )
    if trained.num_attention_heads != model.num_attention_heads:
        raise CheckpointError(
            f"{path} was trained with {trained.num_attention_heads} attention heads, this run has "
            f"num_attention_heads={model.num_attention_heads}; give the run the model's own sizes: --config-file"
        )
    for name in ("hidden_act", "layer_norm_eps", *(sorted(MODERN_ONLY) if model.is_modern() else ())):
        if getattr(trained, name) != getattr(model, name):
            logger.info(f"{path}: {name} was {getattr(trained, name)} there, is {getattr(model, name)} here")
