"""Finds the checkpoint from which a run resumes, and checks that it may."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints.directories import VerifiedCheckpoint
from bert.checkpoints.progress import Progress
from bert.checkpoints.state import CheckpointError
from bert.config.flags import flag_name, flat_fields
from bert.config.training_settings import TrainingConfig
from bert.training.resumed_schedule import outlasts_decay

logger = logging.getLogger(__name__)


def checkpoint_to_continue(config: TrainingConfig) -> VerifiedCheckpoint | None:
    """The checkpoint that --from-checkpoint names; None only with `auto` before the first checkpoint."""
    assert config.initialization.from_checkpoint is not None
    source, step = config.initialization.from_checkpoint, config.initialization.last_step_of_checkpoint
    _refuse_weights_alone(source)
    if (source / checkpoint_files.MANIFEST).exists() and (step in (None, "auto") or source.name == str(step)):
        return checkpoint_files.verify(source)
    if isinstance(step, int):
        return checkpoint_files.verify(_existing_step(source, config, step))
    parent = folder_of_steps(source, config, config.stage())
    newest = None if parent is None else checkpoint_files.newest_valid(parent)
    if newest is None and (step != "auto" or not is_own(source, config)):
        raise CheckpointError(
            f"from_checkpoint={source} holds no valid checkpoint of {config.display_name()}; check the folder, or "
            f"pass --from-checkpoint {config.run.output_dir} --last-step-of-checkpoint auto, which starts afresh when "
            "the run has none yet"
        )
    stages = config.run.output_dir.glob(f"*/{config.stage()}") if newest is None else ()
    other_models = {path.parent.name for path in stages if checkpoint_files.list_steps(path)} - {config.run.bert_model}
    if other_models:
        raise CheckpointError(
            f"from_checkpoint={source} holds no checkpoint of bert_model={config.run.bert_model}, but of "
            f"{', '.join(sorted(other_models))}; pass --bert-model with that name, or another --output-dir"
        )
    if newest is None and parent is not None:
        raise CheckpointError(
            f"from_checkpoint={source} holds checkpoints of {config.display_name()}, none of them valid; nothing was "
            "overwritten: move the folder away to start afresh"
        )
    return newest


def stable_checkpoint(
    config: TrainingConfig, source: VerifiedCheckpoint, resumed: Progress
) -> VerifiedCheckpoint | None:
    """The checkpoint before the decay, if `auto` extends a run beyond its decay; otherwise None."""
    decay = resumed.carried.decay
    is_own_choice = config.initialization.last_step_of_checkpoint == "auto" and not config.run.benchmark
    if decay is None or decay.first == resumed.step or not (is_own_choice and outlasts_decay(config, resumed)):
        return None
    stable = checkpoint_files.step_directory(source.directory.parent, decay.first)
    if not stable.is_dir():
        raise CheckpointError(
            f"{stable}, the last checkpoint before the decay, is not there, and step {resumed.step} is in it; name a "
            f"step: --last-step-of-checkpoint {resumed.step} continues there, with a jump of the learning rate"
        )
    logger.info(
        f"the learning rate of step {resumed.step:,} has decayed; a longer run continues at step {decay.first:,}, "
        "before the decay, and its first save sets the later steps aside"
    )
    return checkpoint_files.verify(stable)


def _refuse_weights_alone(folder: Path) -> None:
    if any(folder.glob("*.pdparams")):
        raise CheckpointError(
            f"from_checkpoint={folder} is of another Paddle program, as NVIDIA's: its weights can be used, but not "
            f"its optimizer, step and position in the data; pass --from-pretrained-params {folder}"
        )


def is_own(source: Path, config: TrainingConfig) -> bool:
    """Whether this run saves its checkpoints in the folder; only then may `auto` find none."""
    own = config.checkpoint_dir()
    return source.resolve() in {path.resolve() for path in (config.run.output_dir, own, own.parent)}


def _folders(source: Path, config: TrainingConfig, stage: str) -> list[Path]:
    """Folders that may hold STEP folders: the named folder, its stage's folder, or the folder below the model's."""
    return [source, source / stage, source / config.run.bert_model / stage]


def folder_of_steps(source: Path, config: TrainingConfig, stage: str) -> Path | None:
    return next((path for path in _folders(source, config, stage) if checkpoint_files.list_steps(path)), None)


def _existing_step(source: Path, config: TrainingConfig, step: int) -> Path:
    folders = _folders(source, config, config.stage())
    for folder in folders:
        if (directory := checkpoint_files.step_directory(folder, step)).is_dir():
            _refuse_weights_alone(directory)
            return directory
    present = [other for folder in folders for other in checkpoint_files.list_steps(folder)]
    raise CheckpointError(
        f"last_step_of_checkpoint={step} is not in {source}, which holds {present or 'no steps'}; "
        "name one of them, or auto"
    )


def check_continues(resumed: Progress, progress: Progress, config: TrainingConfig) -> None:
    """Refuse to resume a run whose next samples would differ; name the changed settings and flags."""
    wrong = [
        f"{name} is {getattr(resumed, name)} in the checkpoint, {getattr(progress, name)} in this run"
        for name in ("stage", "seed", "global_batch_size")
        if getattr(resumed, name) != getattr(progress, name)
    ]
    before, now = resumed.settings.get("batch", {}), progress.settings.get("batch", {})
    wrong += [
        f"{name} is {before.get(name)} in the checkpoint, {now[name]} in this run"
        for name in now
        if name.startswith("batch_size_warmup_") and before.get(name) != now[name]
    ]
    if resumed.data_fingerprint != progress.data_fingerprint:
        wrong.append(_other_data(resumed, progress, config.training_data()))
    if not wrong:
        return
    remedy = "Use the settings and data it was started with, or a new run with --from-pretrained-params"
    lines = ["this run does not continue the checkpoint:", *wrong, remedy]
    if resumed.data_fingerprint != progress.data_fingerprint:
        changes = _changed_settings("data", resumed, progress, type(config))
        lines += [f"{name}={value} was {old}: {_remedy(name, old)}" for name, old, value in changes]
    raise CheckpointError("\n  ".join(lines))


def _other_data(resumed: Progress, progress: Progress, place: Path | None) -> str:
    """Compare the data of the run's beginning with today's, by the number of examples in an epoch."""
    before, now = resumed.num_examples, progress.num_examples
    what = f"the training data in {place}" if place else "the training data"
    if before is None or now is None:
        return f"{what} are not those with which the run began"
    if before == now:
        return f"{what} give {now:,} examples as when the run began, but not the same ones"
    return f"{what} gave {before:,} examples when the run began, and give {now:,} now"


def _remedy(name: str, value: Any) -> str:
    if value is None:
        return f"drop {flag_name(name)}"
    if isinstance(value, bool):
        return f"pass {flag_name(name if value else f'no_{name}')}"
    return f"pass {flag_name(name)} {value}"


def changed_settings(resumed: Progress, progress: Progress, config_class: type[TrainingConfig]) -> Iterator[str]:
    """`NAME BEFORE -> NOW` for each setting that differs from the checkpoint."""
    for section in progress.settings:
        if section not in ("initialization", "hardware"):
            for name, before, now in _changed_settings(section, resumed, progress, config_class):
                yield f"{name} {before} -> {now}"


def _changed_settings(
    section: str, resumed: Progress, progress: Progress, config_class: type[TrainingConfig]
) -> list[tuple[str, Any, Any]]:
    """(name, before, now); a setting that is missing in the checkpoint had its default."""
    fields, old, new = flat_fields(config_class), resumed.settings.get(section, {}), progress.settings.get(section, {})
    values = [(name, old[name] if name in old else fields[name][1].get_default(), new[name]) for name in sorted(new)]
    return [(name, before, now) for name, before, now in values if str(before) != str(now)]
