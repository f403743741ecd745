"""Initial weights of a run: its own checkpoint, those of another run or library, or random ones."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.checkpoints.directories import VerifiedCheckpoint
from bert.checkpoints.progress import LoopState, Progress
from bert.checkpoints.state import CheckpointError
from bert.config.training_settings import BertConfig, TrainingConfig
from bert.conversion.reading import read_pretrained
from bert.training.devices import Device
from program import TrainingProgram

logger = logging.getLogger(__name__)


def initialize_weights(
    config: TrainingConfig, program: TrainingProgram, device: Device, progress: Progress
) -> Progress:
    """Resume from a checkpoint, or start from given or random weights; returns the run's progress.

    Every rank reads the same files, so all start from the same bytes (and `Trainer.check_ranks` compares them).

    Raises:
        CheckpointError: what was asked for is missing, damaged, or does not fit, with all differences.
    """
    settings = config.initialization
    if settings.from_checkpoint:
        source = _checkpoint_to_continue(config)
        if source is not None:
            parameters, optimizer, found = checkpoint.load(source)
            checkpoint.check_continues(found, progress)
            checkpoint.restore(device.scope, device.place, program, parameters, optimizer, found)
            for line in _changed_settings(found.settings, progress.settings):
                logger.info(f"changed since the checkpoint: {line}")
            logger.info(f"continuing {source} at step {found.step}")
            return found
        logger.info(f"no checkpoint of {config.stage()} in {settings.from_checkpoint} yet")
    if (steps := checkpoint_files.list_steps(config.checkpoint_dir())) and not config.run.benchmark:
        raise CheckpointError(
            f"{config.checkpoint_dir()} holds steps {steps} of an earlier run; continue it with --from-checkpoint "
            f"{config.run.output_dir} --last-step-of-checkpoint auto, or start afresh in another --output-dir"
        )
    if start := settings.initial_weights():
        is_strict = getattr(settings, "from_phase1_final_params", None) is not None
        final = _final(start, config, "phase1") if is_strict else None
        path = final or checkpoint_files.weights_folder(start)
        weights: Mapping[str, np.ndarray]
        if is_strict:
            weights = checkpoint.load_exact_parameters(final) if final else checkpoint.load_parameters(path)
        else:
            weights = pretrained_parameters(path, config.model)
        checkpoint.initialize_from(device.scope, device.place, program, weights, path, heads_may_differ=not is_strict)
        logger.info(f"starting from the weights of {path}")
        return replace(progress, carried=LoopState(started_from=str(path)))
    return progress


def load_weights_to_use(config: TrainingConfig, names: tuple[str, ...], device: Device) -> None:
    """Load the weights of a program that is not trained: none may be missing.

    Raises:
        CheckpointError: none were named; they are missing, damaged, of another shape or without the task's head.
    """
    settings = config.initialization
    source: Path | VerifiedCheckpoint | None = None
    if settings.from_checkpoint:
        source = _checkpoint_to_continue(config)
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


def pretrained_parameters(path: Path | VerifiedCheckpoint, model: BertConfig) -> Mapping[str, np.ndarray]:
    """Weights of any known format for `model`; tensors left out or filled in are logged.

    Raises:
        CheckpointError: unreadable, or made for another network whose tensors have the same shapes.
    """
    pretrained = read_pretrained(path)
    for line in pretrained.notes:
        if not line.startswith("not there: "):  # logged tensor by tensor when the weights are loaded
            logger.info(f"{path}: {line}")
    if pretrained.config is not None:
        there, here = pretrained.config.num_attention_heads, model.num_attention_heads
        if there != here:
            raise CheckpointError(
                f"{path} was trained with {there} attention heads, this run has num_attention_heads="
                f"{here}; give the run the model's own sizes: --config-file"
            )
        for name in ("hidden_act", "layer_norm_eps"):
            if getattr(pretrained.config, name) != getattr(model, name):
                logger.info(
                    f"{path}: {name} was {getattr(pretrained.config, name)} there, is {getattr(model, name)} here"
                )
    return pretrained.parameters


def _checkpoint_to_continue(config: TrainingConfig) -> VerifiedCheckpoint | None:
    """The checkpoint named by --from-checkpoint; None only with `auto` before the first checkpoint."""
    assert config.initialization.from_checkpoint is not None
    source, step = config.initialization.from_checkpoint, config.initialization.last_step_of_checkpoint
    if isinstance(step, int):
        return checkpoint_files.verify(_existing_step(source, config, step))
    if (source / checkpoint_files.MANIFEST).exists():
        return checkpoint_files.verify(source)
    found = _newest(source, config, config.stage())
    if found is None and (step != "auto" or not is_own(source, config)):
        raise CheckpointError(
            f"from_checkpoint={source} holds no valid checkpoint of {config.stage()}; check the folder, or "
            f"pass --from-checkpoint {config.run.output_dir} --last-step-of-checkpoint auto, which starts afresh when "
            "the run has none yet"
        )
    if found is None and any(checkpoint_files.list_steps(p) for p in _parents(source, config, config.stage())):
        raise CheckpointError(
            f"from_checkpoint={source} holds checkpoints of {config.stage()}, none of them valid; nothing was "
            "overwritten: move the folder away to start afresh"
        )
    return found


def is_own(source: Path, config: TrainingConfig) -> bool:
    """Whether this run saves its checkpoints in the folder: only there may `auto` find none."""
    return source.resolve() in {
        parent.resolve() for parent in (config.run.output_dir, config.checkpoint_dir(), config.checkpoint_dir().parent)
    }


def _existing_step(source: Path, config: TrainingConfig, step: int) -> Path:
    for parent in _parents(source, config, config.stage()):
        if (directory := checkpoint_files.step_directory(parent, step)).is_dir():
            return directory
    present = [s for p in _parents(source, config, config.stage()) for s in checkpoint_files.list_steps(p)]
    raise CheckpointError(
        f"last_step_of_checkpoint={step} is not in {source}, which holds {present or 'no steps'}; "
        "name one of them, or auto"
    )


def _newest(source: Path, config: TrainingConfig, stage: str) -> VerifiedCheckpoint | None:
    """The newest valid checkpoint of a stage at or below `source`; None without any."""
    for parent in _parents(source, config, stage):
        if checkpoint_files.list_steps(parent):
            return checkpoint_files.newest_valid(parent)
    return None


def _final(source: Path, config: TrainingConfig, stage: str) -> VerifiedCheckpoint | None:
    """The valid checkpoint with which a stage at or below `source` ended; None without any."""
    for parent in _parents(source, config, stage):
        if checkpoint_files.list_steps(parent):
            return checkpoint_files.newest_valid(parent, up_to=checkpoint_files.final_step(parent))
    return None


def _parents(source: Path, config: TrainingConfig, stage: str) -> list[Path]:
    """Folders that may hold STEP folders: the given one, its folder of the stage, or that below the model's folder."""
    return [source, source / stage, source / config.run.bert_model / stage]


def _changed_settings(before: dict, now: dict) -> list[str]:
    lines = []
    for section in now:
        if section in ("initialization", "hardware"):
            continue
        old = before.get(section, {})
        for name in sorted(now[section].keys() | old.keys()):
            if old.get(name) != now[section].get(name):
                lines.append(f"{name} {old.get(name)} -> {now[section].get(name)}")
    return lines
