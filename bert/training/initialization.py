"""Which weights a run begins with: its own checkpoint, those of another run or library, or random ones."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from bert.checkpoints import files as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.checkpoints.state import CheckpointError, Progress
from bert.config.base import BertConfig, TrainingConfig
from bert.conversion.reading import read_pretrained
from bert.training.trainer import Device
from program import TrainingProgram


def initialize_weights(
    config: TrainingConfig, program: TrainingProgram, device: Device, progress: Progress, say: Callable[[str], None]
) -> Progress:
    """Continue a checkpoint, or start from given or random weights; returns where the run stands.

    Every rank reads the same files, so all start from the same bytes (and `Trainer.check_ranks` compares them).

    Raises:
        CheckpointError: what was asked for is missing, damaged, or does not fit, with all differences.
    """
    settings, variables = config.initialization, checkpoint.variables_of(program)
    if settings.from_checkpoint:
        directory = _checkpoint_to_continue(config, say)
        if directory is not None:
            parameters, optimizer, found = checkpoint.load(directory)
            checkpoint.check_continues(found, progress)
            checkpoint.restore(device.scope, device.place, variables, parameters, optimizer, found)
            for line in _changed_settings(found.settings, progress.settings):
                say(f"changed since the checkpoint: {line}")
            say(f"continuing {directory} at step {found.step}")
            return found
        say(f"no checkpoint of {config.stage()} in {settings.from_checkpoint} yet")
    if (steps := checkpoint_files.list_steps(config.checkpoint_dir())) and not config.run.benchmark:
        raise CheckpointError(
            f"{config.checkpoint_dir()} holds steps {steps} of an earlier run; continue it with --from-checkpoint "
            f"{config.run.output_dir} --last-step-of-checkpoint auto, or start afresh in another --output-dir"
        )
    if source := settings.initial_weights():
        path = Path(source)
        if is_strict := getattr(settings, "from_phase1_final_params", None) is not None:
            found = newest(path, config, "phase1", say)
            weights = checkpoint.load_parameters(found or checkpoint_files.weights_folder(path))
XX        checkpoint.initialize_from(
            device.scope, device.place, variables, weights, path, say, heads_may_differ=not is_strict
        )
        if program.amp_optimizer is not None:
            program.amp_optimizer.amp_init(device.place, scope=device.scope, rewrite_master_weight=True)
        say(f"starting from the weights of {path}")
    return progress


def load_weights_to_use(
    config: TrainingConfig, names: tuple[str, ...], device: Device, say: Callable[[str], None]
) -> None:
    """Weights for a program that is not trained: none may be missing.

    Raises:
        CheckpointError: none were named; they are missing, damaged, of another shape or without the task's head.
    """
    settings = config.initialization
    if settings.from_checkpoint:
        path = _checkpoint_to_continue(config, say)
    else:
        path = settings.initial_weights()
    if path is None:
        raise CheckpointError(
            "no weights to use: pass --from-pretrained-params with a fine-tuned model, or "
            "--from-checkpoint with the folder of its run"
        )
    path = checkpoint_files.weights_folder(path)
    parameters = pretrained_parameters(path, config.model, say)
    current = {name: checkpoint.read_variable(device.scope, name) for name in names}
    wrong = [line for line in checkpoint.differences(parameters, current) if not line.startswith("unknown: ")]
    if wrong:
        raise CheckpointError("\n  ".join([f"{path} does not fit this task and model:", *wrong]))
    checkpoint.write_parameters(device.scope, device.place, {name: parameters[name] for name in names})
    say(f"using the weights of {path}")


def pretrained_parameters(path: Path, model: BertConfig, say: Callable[[str], None]) -> Mapping[str, np.ndarray]:
    """Weights of any known format for `model`; what was left out or filled in is said.

    Raises:
        CheckpointError: unreadable, or made for a network whose shapes are the same and whose outputs are not.
    """
    pretrained = read_pretrained(path)
    for line in pretrained.notes:
        if not line.startswith("not there: "):  # said tensor by tensor when the weights are put in place
            say(f"{path}: {line}")
    if pretrained.config is not None:
        there, here = pretrained.config.num_attention_heads, model.num_attention_heads
        if there != here:
            raise CheckpointError(
                f"{path} was trained with {there} attention heads, this run has num_attention_heads="
                f"{here}; give the run the model's own sizes: --config-file"
            )
        for name in ("hidden_act", "layer_norm_eps"):
            if getattr(pretrained.config, name) != getattr(model, name):
                say(f"{path}: {name} was {getattr(pretrained.config, name)} there, is {getattr(model, name)} here")
    return pretrained.parameters


def _checkpoint_to_continue(config: TrainingConfig, say: Callable[[str], None]) -> Path | None:
    """The step directory named by --from-checkpoint; None only with `auto` and nothing there yet."""
    assert config.initialization.from_checkpoint is not None
    source, step = config.initialization.from_checkpoint, config.initialization.last_step_of_checkpoint
    if isinstance(step, int):
        return _existing_step(source, config, step)
    if (source / checkpoint_files.MANIFEST).exists():
        return source
    found = newest(source, config, config.stage(), say)
    if found is None and (step != "auto" or not _is_own(source, config)):
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


def _is_own(source: Path, config: TrainingConfig) -> bool:
    """Whether a folder is where this run itself saves: only there may `auto` find nothing."""
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


def newest(source: Path, config: TrainingConfig, stage: str, say: Callable[[str], None]) -> Path | None:
    """The newest valid checkpoint of a stage at or below `source`; None without any."""
    for parent in _parents(source, config, stage):
        if checkpoint_files.list_steps(parent):
            return checkpoint_files.newest_valid(parent, say)
    return None


def _parents(source: Path, config: TrainingConfig, stage: str) -> list[Path]:
    """Where STEP folders may be: in the folder itself, or in that of the stage below it or below the model's."""
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
