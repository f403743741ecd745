"""Initial weights of a start: from the run's own checkpoint, phase 1, another model, or random.

Every rank reads the same files, so all start from the same bytes (and `RankGuard` compares them). What reads the
formats of other libraries is loaded where weights are given.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.checkpoints.chosen_weights import chosen_weights, weights_folder
from bert.checkpoints.directories import VerifiedCheckpoint
from bert.checkpoints.progress import LoopState, Progress
from bert.checkpoints.state import CheckpointError
from bert.config.training_settings import BertConfig, TrainingConfig
from bert.model.initial_attention import attend_to_neighbours
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
    """Load the weights and, if it exists, the optimizer state into the scope; returns the run's progress.

    The weights come from the run's own checkpoint, from phase 1 (--from-phase1-final-params), from a checkpoint of any
    known format (--from-pretrained-params), or from the start-up program.

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
        logger.info(f"no checkpoint of {config.display_name()} in {settings.from_checkpoint} yet")
    if (steps := checkpoint_files.list_steps(config.checkpoint_dir())) and not config.run.benchmark:
        raise CheckpointError(
            f"{config.checkpoint_dir()} holds steps {steps} of an earlier run; continue it with --from-checkpoint "
            f"{config.run.output_dir} --last-step-of-checkpoint auto, or start afresh in another --output-dir"
        )
    if (initial := settings.initial_weights()) is None:
        if settings.attends_to_neighbours():
            attend_to_neighbours(model, device.scope, device.place)
        return progress
    is_of_phase1 = settings.is_of_phase1()
    if is_of_phase1:
        path, weights = _weights_of_phase1(config, initial)
        if not isinstance(path, Path) and (file := path.directory / checkpoint.CONFIG_FILE).exists():
            from bert.training.given_weights import check_network

            check_network(path, BertConfig.from_json_file(file), model)
    else:
        path = weights_folder(initial)
        from bert.training.given_weights import read_given, weights_for_task

        pretrained = read_given(path, model, config.vocabulary_file())
        weights = weights_for_task(pretrained, texts)
    weights = _with_positions(weights, model, path)
    checkpoint.initialize_from(device.scope, device.place, program, weights, path, heads_may_differ=not is_of_phase1)
    logger.info(f"starting from the weights of {path}")
    return replace(progress, carried=LoopState(started_from=str(path)))


def _resume(
    config: TrainingConfig, source: VerifiedCheckpoint, program: TrainingProgram, device: Device, progress: Progress
) -> Progress:
    """Load the run's own checkpoint: weights, optimizer, counters, position in the data."""
    parameters, optimizer, resumed = checkpoint.load(source)
    if (stable := stable_checkpoint(config, source, resumed)) is not None:
        source = stable
        parameters, optimizer, resumed = checkpoint.load(source)
    check_continues(resumed, progress, config)
    checkpoint.restore(device.scope, device.place, program, parameters, optimizer, resumed)
    for change in changed_settings(resumed, progress, type(config)):
        logger.info(f"changed since the checkpoint: {change}")
    logger.info(f"continuing {source} at step {resumed.step}")
    return resumed


def _weights_of_phase1(
    config: TrainingConfig, start: Path
) -> tuple[Path | VerifiedCheckpoint, Mapping[str, np.ndarray]]:
    """The last weights of phase 1, ours or NVIDIA's."""
    if (nvidia_file := _weights_of_nvidia(start)) is not None:
        from bert.training.given_weights import pretrained_parameters

        return nvidia_file, pretrained_parameters(nvidia_file, config.model)
    choice = chosen_weights(folder_of_steps(start, config, "phase1") or start)
    for line in choice.refused:
        logger.warning(line)
    source = choice.checkpoint or choice.path
    return source, checkpoint.load_parameters(source)


def _with_positions(weights: Mapping[str, np.ndarray], model: BertConfig, path: Any) -> Mapping[str, np.ndarray]:
    """Extend the position embeddings to the model's length by repeating the first ones."""
    table, rows = weights.get(POSITIONS), model.max_position_embeddings
    if table is None or len(table) >= rows:
        return weights
    logger.info(f"{path}: its {len(table):,} position embeddings are repeated to {rows:,}, for longer sequences")
    return {**weights, POSITIONS: np.resize(table, (rows, table.shape[1]))}


class WeightsToUse(NamedTuple):
    """The weights of a program without training."""

    source: Path | VerifiedCheckpoint
    parameters: Mapping[str, np.ndarray]  # by our names, float32


def read_weights_to_use(config: TrainingConfig) -> WeightsToUse:
    """Read the weights that the settings name, for a prediction or an evaluation.

    Raises:
        CheckpointError, ConversionError: the settings name none, or they are missing or damaged.
    """
    settings = config.initialization
    source: Path | VerifiedCheckpoint | None = None
    if settings.from_checkpoint:
        source = checkpoint_to_continue(config)
    elif start := settings.initial_weights():
        source = weights_folder(start)
    if source is None:
        raise CheckpointError(
            "no weights to use: pass --from-pretrained-params with a fine-tuned model, or "
            "--from-checkpoint with the folder of its run"
        )
    from bert.training.given_weights import pretrained_parameters

    return WeightsToUse(source, pretrained_parameters(source, config.model))


def load_weights_to_use(weights: WeightsToUse, names: tuple[str, ...], device: Device) -> None:
    """Load the parameters of a program into the scope; none may be missing."""
    source, parameters = weights
    current = {name: checkpoint.read_variable(device.scope, name) for name in names}
    wrong = [line for line in checkpoint.differences(parameters, current) if not line.startswith("unknown: ")]
    if wrong:
        raise CheckpointError("\n  ".join([f"{source} does not fit this task and model:", *wrong]))
    checkpoint.write_parameters(device.scope, device.place, {name: parameters[name] for name in names})
    logger.info(f"using the weights of {source}")


def _weights_of_nvidia(start: Path) -> Path | None:
    """The *.pdparams file of NVIDIA's phase 1, named by its path, its prefix, or a folder (of STEPs)."""
    steps = [checkpoint_files.step_directory(start, step) for step in reversed(checkpoint_files.list_steps(start))]
    for place in (start, *steps):
        if any(place.glob("*.pdparams")) or place.with_name(f"{place.stem}.pdparams").is_file():
            return place
    return None
