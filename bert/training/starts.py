"""The start of a leg: its weights are those of the run's own checkpoint, of phase 1, given ones, or random.

Every rank reads the same files, so all start from the same bytes (and `RankGuard` compares them).
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.checkpoints.directories import VerifiedCheckpoint
from bert.checkpoints.progress import LoopState, Progress
from bert.checkpoints.state import CheckpointError
from bert.config.architecture import MODERN_ONLY
from bert.config.training_settings import BertConfig, TrainingConfig
from bert.conversion.model_description import LABELS_FILE, TASK_FILE, named_classes, read_usage
from bert.conversion.reading import WITHOUT, PretrainedWeights, read_pretrained
from bert.conversion.vocabularies import with_new_words
from bert.model.head_specs import HEAD_TENSORS
from bert.model.initial_attention import attend_to_neighbours
from bert.tokenization.vocabulary_files import read_vocabulary
from bert.training.devices import Device
from bert.training.resumption import (
    changed_settings,
    check_continues,
    checkpoint_to_continue,
    folder_of_steps,
    stable_checkpoint,
)
from program import TrainingProgram

logger = logging.getLogger(__name__)

POSITIONS = "bert.embeddings.position_embeddings.weight"


def load_start(
    config: TrainingConfig,
    program: TrainingProgram,
    device: Device,
    progress: Progress,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> Progress:
    """Write the weights, and where there are any the state of the optimizer; returns the run's progress.

    They are those of the run's own checkpoint, of phase 1 (--from-phase1-final-params), given ones of any known format
    (--from-pretrained-params), or those that the start-up program drew.

    Args:
        progress: of a run that has not begun.
        texts: files that the task keeps beside its weights, name -> content; they say what its classifier is for.

    Raises:
        CheckpointError: the named checkpoint is missing or damaged, or a new run would overwrite another's.
    """
    settings, model = config.initialization, config.model
    if settings.from_checkpoint:
        if (source := checkpoint_to_continue(config)) is not None:
            return _resume(config, source, program, device, progress)
        logger.info(f"no checkpoint of {config.stage()} in {settings.from_checkpoint} yet")
    if (steps := checkpoint_files.list_steps(config.checkpoint_dir())) and not config.run.benchmark:
        raise CheckpointError(
            f"{config.checkpoint_dir()} holds steps {steps} of an earlier run; continue it with --from-checkpoint "
            f"{config.run.output_dir} --last-step-of-checkpoint auto, or start afresh in another --output-dir"
        )
    if (given := settings.initial_weights()) is None:
        if getattr(settings, "initial_attention", "random") == "neighbours":
            attend_to_neighbours(model, device.scope, device.place)
        return progress
    is_of_phase1 = getattr(settings, "from_phase1_final_params", None) is not None  # none of its tensors may be missing
    if is_of_phase1:
        path, weights = _weights_of_phase1(config, given)
        if not isinstance(path, Path) and (file := path.directory / checkpoint.CONFIG_FILE).exists():
            _check_network(path, BertConfig.from_json_file(file), model)
    else:
        path = checkpoint_files.weights_folder(given)
        pretrained = _read_given(path, model, config.vocabulary_file())
        weights = weights_for_task(pretrained, texts)
    weights = _with_positions(weights, model, path)
    checkpoint.initialize_from(device.scope, device.place, program, weights, path, heads_may_differ=not is_of_phase1)
    logger.info(f"starting from the weights of {path}")
    return replace(progress, carried=LoopState(started_from=str(path)))


def _resume(
    config: TrainingConfig, source: VerifiedCheckpoint, program: TrainingProgram, device: Device, progress: Progress
) -> Progress:
    """The run's own checkpoint: weights, optimizer, counters, position in the data."""
    parameters, optimizer, resumed = checkpoint.load(source)
    if (stable := stable_checkpoint(config, source, resumed)) is not None:
        source = stable
        parameters, optimizer, resumed = checkpoint.load(source)
    check_continues(resumed, progress, type(config))
    checkpoint.restore(device.scope, device.place, program, parameters, optimizer, resumed)
    for change in changed_settings(resumed, progress, type(config)):
        logger.info(f"changed since the checkpoint: {change}")
    logger.info(f"continuing {source} at step {resumed.step}")
    return resumed


def _weights_of_phase1(
    config: TrainingConfig, start: Path
) -> tuple[Path | VerifiedCheckpoint, Mapping[str, np.ndarray]]:
    """The last weights of phase 1, ours or NVIDIA's."""
    if (theirs := _weights_of_nvidia(start)) is not None:
        return theirs, pretrained_parameters(theirs, config.model)
    parent = folder_of_steps(start, config, "phase1")
    final = parent and checkpoint_files.newest_valid(parent, up_to=checkpoint_files.final_step(parent))
    if final:
        return final, checkpoint.load_parameters(final)
    path = checkpoint_files.weights_folder(start)
    return path, checkpoint.load_parameters(path)


def _with_positions(weights: Mapping[str, np.ndarray], model: BertConfig, path: Any) -> Mapping[str, np.ndarray]:
    """The weights with as many position embeddings as the model has, of which the first are repeated."""
    table, rows = weights.get(POSITIONS), model.max_position_embeddings
    if table is None or len(table) >= rows:
        return weights
    logger.info(f"{path}: its {len(table):,} position embeddings are repeated to {rows:,}, for longer sequences")
    return {**weights, POSITIONS: np.resize(table, (rows, table.shape[1]))}


def load_weights_to_use(config: TrainingConfig, names: tuple[str, ...], device: Device) -> None:
    """Load the weights of a program that is not trained: none may be missing."""
    settings = config.initialization
    source: Path | VerifiedCheckpoint | None = None
    if settings.from_checkpoint:
        source = checkpoint_to_continue(config)
    elif start := settings.initial_weights():
        source = checkpoint_files.weights_folder(start)
    if source is None:
        raise CheckpointError(
            "no weights to use: pass --from-pretrained-params with a fine-tuned model, or "
            "--from-checkpoint with the folder of its run"
        )
    parameters = pretrained_parameters(source, config.model)
    current = {name: checkpoint.read_variable(device.scope, name) for name in names}
    wrong = [line for line in checkpoint.differences(parameters, current) if not line.startswith("unknown: ")]
    if wrong:
        raise CheckpointError("\n  ".join([f"{source} does not fit this task and model:", *wrong]))
    checkpoint.write_parameters(device.scope, device.place, {name: parameters[name] for name in names})
    logger.info(f"using the weights of {source}")


def pretrained_parameters(
    path: Path | VerifiedCheckpoint, model: BertConfig, vocab_file: Path | None = None
) -> Mapping[str, np.ndarray]:
    """Weights of any known format for `model`; tensors left out or filled in are logged.

    Args:
        vocab_file: of the run, which may have further words at its end.
    """
    return _read_given(path, model, vocab_file).parameters


def _read_given(path: Path | VerifiedCheckpoint, model: BertConfig, vocab_file: Path | None) -> PretrainedWeights:
    pretrained = read_pretrained(path)
    for line in pretrained.notes:
        if not line.startswith(WITHOUT):  # logged tensor by tensor when the weights are loaded
            logger.info(f"{path}: {line}")
    if (trained := pretrained.config) is not None:
        _check_network(path, trained, model)
        if vocab_file is not None and (added := model.vocab_size - trained.vocab_size) > 0:
            parameters = with_new_words(pretrained, read_vocabulary(vocab_file))
            logger.info(f"{path}: {added:,} words are added, each with the mean of its pieces")
            return replace(pretrained, parameters=dict(parameters))
    return pretrained


class Outputs(NamedTuple):
    """What the outputs of a classifier are."""

    kind: str  # "classes", "labels of a text", "tags of words" or "a number"
    labels: tuple[str, ...]  # by index

    def __str__(self) -> str:
        shown = ", ".join(self.labels[:5]) + (" ..." if len(self.labels) > 5 else "")
        return f"{self.kind} {shown}" if self.labels else self.kind


def weights_for_task(weights: PretrainedWeights, texts: Mapping[str, str]) -> Mapping[str, np.ndarray]:
    """The weights, without a classifier that was trained for other outputs than those of the task.

    A row of a classifier belongs to one label. With other labels, or the same ones in another order, its rows would
    mean something else, also where their number is the same.

    Args:
        texts: files that the task keeps beside its weights, name -> content.
    """
    theirs, ours = _outputs_of_weights(weights), _outputs_of_task(texts)
    if ours is None or theirs in (None, ours):
        return weights.parameters
    logger.info(
        f"{weights.folder}: its classifier is for {theirs}; this training has {ours}, so a new classifier is trained"
    )
    return {name: array for name, array in weights.parameters.items() if name not in HEAD_TENSORS["classifier"]}


def _outputs_of_weights(weights: PretrainedWeights) -> Outputs | None:
    """None without a classifier."""
    bias = weights.parameters.get("classifier.bias")
    if bias is None:
        return None
    labels, is_tagger = named_classes(weights.labels or (), len(bias)), weights.task == "token-classification"
    usage = read_usage(weights.folder)
    return _outputs(labels, usage.regression, usage.label_separator is not None, is_tagger)


def _outputs_of_task(texts: Mapping[str, str]) -> Outputs | None:
    """None if the task has no classifier."""
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


def _check_network(path: Any, trained: BertConfig, model: BertConfig) -> None:
    """Refuse weights of another network with the same tensors; log settings that no tensor shows."""
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


def _weights_of_nvidia(start: Path) -> Path | None:
    """The *.pdparams of NVIDIA's phase 1: named itself, by its prefix, or by a folder (of STEPs)."""
    steps = [checkpoint_files.step_directory(start, step) for step in reversed(checkpoint_files.list_steps(start))]
    for place in (start, *steps):
        if any(place.glob("*.pdparams")) or place.with_name(f"{place.stem}.pdparams").is_file():
            return place
    return None
