"""The start of a leg: its weights (the run's own checkpoint, those of another run or library, or random ones), and its
learning-rate schedule, also of a run that is extended: --max-steps raised on a run with checkpoints.

An extended run has the schedule of a run of the new length, from its current update on, with the warm-up that it has
had: the warm-up keeps its number of updates and is not repeated, the decay is spread over the new length. The rate
therefore rises once, at the current update, to the point of the new decay: with linear decay to 0, a finished run of
2,500 updates that is extended to 5,000 continues at about half its peak.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.checkpoints.directories import VerifiedCheckpoint
from bert.checkpoints.progress import LoopState, Progress
from bert.checkpoints.state import CheckpointError
from bert.config.architecture import MODERN_ONLY
from bert.config.flags import flag_name, flat_fields
from bert.config.training_settings import BertConfig, TrainingConfig
from bert.conversion.reading import WITHOUT, read_pretrained
from bert.conversion.vocabularies import with_new_words
from bert.files import read_json
from bert.model.optimization import APPLIED_UPDATES, Schedule, load_schedule
from bert.tokenization.vocabulary import Vocabulary
from bert.training.devices import Device
from program import TrainingProgram

logger = logging.getLogger(__name__)

POSITIONS = "bert.embeddings.position_embeddings.weight"


def initialize_weights(
    config: TrainingConfig,
    program: TrainingProgram,
    device: Device,
    progress: Progress,
    earlier_data: Mapping[str, int] = MappingProxyType({}),
) -> Progress:
    """Resume from a checkpoint, or start from given or random weights; returns the run's progress.

    Args:
        earlier_data: fingerprints of the data before others were added, each with the last step that it decides.

    Every rank reads the same files, so all start from the same bytes (and `RankGuard` compares them).
    """
    settings = config.initialization
    if settings.from_checkpoint:
        source = _checkpoint_to_continue(config)
        if source is not None:
            parameters, optimizer, resumed = checkpoint.load(source)
            if (stable := _before_the_decay(config, source, resumed)) is not None:
                source = stable
                parameters, optimizer, resumed = checkpoint.load(source)
            if resumed.step <= earlier_data.get(resumed.data_fingerprint, -1):
                resumed = replace(resumed, data_fingerprint=progress.data_fingerprint)
            _check_continues(resumed, progress, type(config))
            checkpoint.restore(device.scope, device.place, program, parameters, optimizer, resumed)
            for section in (name for name in progress.settings if name not in ("initialization", "hardware")):
                for name, before, now in _changed_settings(section, resumed, progress, type(config)):
                    logger.info(f"changed since the checkpoint: {name} {before} -> {now}")
            logger.info(f"continuing {source} at step {resumed.step}")
            return resumed
        logger.info(f"no checkpoint of {config.stage()} in {settings.from_checkpoint} yet")
    if (steps := checkpoint_files.list_steps(config.checkpoint_dir())) and not config.run.benchmark:
        raise CheckpointError(
            f"{config.checkpoint_dir()} holds steps {steps} of an earlier run; continue it with --from-checkpoint "
            f"{config.run.output_dir} --last-step-of-checkpoint auto, or start afresh in another --output-dir"
        )
    if (start := settings.initial_weights()) is None:
        return progress
    is_strict = getattr(settings, "from_phase1_final_params", None) is not None
    path: Path | VerifiedCheckpoint
    weights: Mapping[str, np.ndarray]
    if not is_strict:
        path = checkpoint_files.weights_folder(start)
        weights = pretrained_parameters(path, config.model, config.vocabulary_file())
    elif (theirs := _weights_of_nvidia(start)) is not None:
        path, weights = theirs, pretrained_parameters(theirs, config.model)
    elif (parent := _folder_of_steps(start, config, "phase1")) and (
        final := checkpoint_files.newest_valid(parent, up_to=checkpoint_files.final_step(parent))
    ):
        path, weights = final, checkpoint.load_exact_parameters(final)
    else:
        path = checkpoint_files.weights_folder(start)
        weights = checkpoint.load_parameters(path)
    if is_strict and not isinstance(path, Path) and (file := path.directory / checkpoint.CONFIG_FILE).exists():
        _check_network(path, BertConfig.from_json_file(file), config.model)
    weights = _with_positions(weights, config.model, path)
    checkpoint.initialize_from(device.scope, device.place, program, weights, path, heads_may_differ=not is_strict)
    logger.info(f"starting from the weights of {path}")
    return replace(progress, carried=LoopState(started_from=str(path)))


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


def pretrained_parameters(
    path: Path | VerifiedCheckpoint, model: BertConfig, vocab_file: Path | None = None
) -> Mapping[str, np.ndarray]:
    """Weights of any known format for `model`; tensors left out or filled in are logged.

    Args:
        vocab_file: of the run, which may have further words at its end.
    """
    pretrained = read_pretrained(path)
    for line in pretrained.notes:
        if not line.startswith(WITHOUT):  # logged tensor by tensor when the weights are loaded
            logger.info(f"{path}: {line}")
    if (trained := pretrained.config) is not None:
        _check_network(path, trained, model)
        if vocab_file is not None and (added := model.vocab_size - trained.vocab_size) > 0:
            parameters = with_new_words(pretrained, Vocabulary.from_file(vocab_file))
            logger.info(f"{path}: {added:,} words are added, each with the mean of its pieces")
            return parameters
    return pretrained.parameters


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


def _checkpoint_to_continue(config: TrainingConfig) -> VerifiedCheckpoint | None:
    """The checkpoint named by --from-checkpoint; None only with `auto` before the first checkpoint."""
    assert config.initialization.from_checkpoint is not None
    source, step = config.initialization.from_checkpoint, config.initialization.last_step_of_checkpoint
    _refuse_weights_alone(source)
    if (source / checkpoint_files.MANIFEST).exists() and (step in (None, "auto") or source.name == str(step)):
        return checkpoint_files.verify(source)
    if isinstance(step, int):
        return checkpoint_files.verify(_existing_step(source, config, step))
    parent = _folder_of_steps(source, config, config.stage())
    newest = None if parent is None else checkpoint_files.newest_valid(parent)
    if newest is None and (step != "auto" or not is_own(source, config)):
        raise CheckpointError(
            f"from_checkpoint={source} holds no valid checkpoint of {config.stage()}; check the folder, or "
            f"pass --from-checkpoint {config.run.output_dir} --last-step-of-checkpoint auto, which starts afresh when "
            "the run has none yet"
        )
    stages = config.run.output_dir.glob(f"*/{config.stage()}") if newest is None else ()
    others = {path.parent.name for path in stages if checkpoint_files.list_steps(path)} - {config.run.bert_model}
    if others:
        raise CheckpointError(
            f"from_checkpoint={source} holds no checkpoint of bert_model={config.run.bert_model}, but of "
            f"{', '.join(sorted(others))}; pass --bert-model with that name, or another --output-dir"
        )
    if newest is None and parent is not None:
        raise CheckpointError(
            f"from_checkpoint={source} holds checkpoints of {config.stage()}, none of them valid; nothing was "
            "overwritten: move the folder away to start afresh"
        )
    return newest


def _before_the_decay(
    config: TrainingConfig, source: VerifiedCheckpoint, resumed: Progress
) -> VerifiedCheckpoint | None:
    """The checkpoint before the decay where `auto` continues longer than the decay was planned for."""
    decay = resumed.carried.decay
    is_own_choice = config.initialization.last_step_of_checkpoint == "auto" and not config.run.benchmark
    if decay is None or decay.first == resumed.step or not (is_own_choice and _outlasts_decay(config, resumed)):
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


def _outlasts_decay(config: TrainingConfig, resumed: Progress) -> bool:
    """Whether the run is to last longer than its decay: more updates, or new time before it or after its summary."""
    decay, run = resumed.carried.decay, config.run
    if decay is None or config.optimizer.lr_schedule != "wsd":
        return False
    is_complete = read_json(config.stage_dir() / "summary.json").get("steps") == resumed.step >= decay.last
    has_new_time = run.finish_in is not None and (resumed.step == decay.first or is_complete)
    was_named = config.initialization.last_step_of_checkpoint == decay.first  # by who wants more updates than time gave
    before = decay.last if was_named else int(resumed.settings["run"]["max_steps"])
    return has_new_time or run.max_steps > before


def _weights_of_nvidia(start: Path) -> Path | None:
    """The *.pdparams of NVIDIA's phase 1: named itself, by its prefix, or by a folder (of STEPs)."""
    steps = [checkpoint_files.step_directory(start, step) for step in reversed(checkpoint_files.list_steps(start))]
    for place in (start, *steps):
        if any(place.glob("*.pdparams")) or place.with_name(f"{place.stem}.pdparams").is_file():
            return place
    return None


def _refuse_weights_alone(folder: Path) -> None:
    if any(folder.glob("*.pdparams")):
        raise CheckpointError(
            f"from_checkpoint={folder} is of another Paddle program, as NVIDIA's: its weights can be used, but not "
            f"its optimizer, step and position in the data; pass --from-pretrained-params {folder}"
        )


def is_own(source: Path, config: TrainingConfig) -> bool:
    """Whether this run saves its checkpoints in the folder: only there may `auto` find none."""
    own = config.checkpoint_dir()
    return source.resolve() in {path.resolve() for path in (config.run.output_dir, own, own.parent)}


def _folders(source: Path, config: TrainingConfig, stage: str) -> list[Path]:
    """Folders that may hold STEP folders: the given one, its folder of the stage, or that below the model's folder."""
    return [source, source / stage, source / config.run.bert_model / stage]


def _folder_of_steps(source: Path, config: TrainingConfig, stage: str) -> Path | None:
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


def _check_continues(resumed: Progress, progress: Progress, config_class: type[TrainingConfig]) -> None:
    """`check_continues`, whose refusal of other data names the settings of the data that changed, and their flags."""
    try:
        checkpoint.check_continues(resumed, progress)
    except CheckpointError as error:
        changes = []
        if resumed.data_fingerprint != progress.data_fingerprint:
            changes = _changed_settings("data", resumed, progress, config_class)
        lines = [f"\n  {name}={now} was {before}: {_remedy(name, before)}" for name, before, now in changes]
        raise CheckpointError(f"{error}{''.join(lines)}") from None


def _remedy(name: str, value: Any) -> str:
    if value is None:
        return f"drop {flag_name(name)}"
    if isinstance(value, bool):
        return f"pass {flag_name(name if value else f'no_{name}')}"
    return f"pass {flag_name(name)} {value}"


def _changed_settings(
    section: str, resumed: Progress, progress: Progress, config_class: type[TrainingConfig]
) -> list[tuple[str, Any, Any]]:
    """(name, before, now); a setting that the version of the checkpoint did not have had its default."""
    fields, old, new = flat_fields(config_class), resumed.settings.get(section, {}), progress.settings.get(section, {})
    values = [(name, old[name] if name in old else fields[name][1].get_default(), new[name]) for name in sorted(new)]
    return [(name, before, now) for name, before, now in values if str(before) != str(now)]


# ---- the schedule ----------------------------------------------------------------------------------------------------


def schedule_of(config: TrainingConfig, warmup_steps: int | None = None, max_steps: int | None = None) -> Schedule:
    """The schedule of the settings; warm-up and length may be those of an earlier leg."""
    warmup_steps = config.warmup_steps() if warmup_steps is None else warmup_steps
    return Schedule(config.optimizer, warmup_steps, max_steps or config.run.max_steps)


def resume_schedule(config: TrainingConfig, device: Device, progress: Progress) -> None:
    """Load the schedule of a resumed run and log a change of its length; an extended run gets its patience anew.

    A run that lasts longer than its decay forgets it: the rate is stable again.
    """
    if progress.step == 0:
        return
    if config.optimizer.lr_schedule != "wsd" or _outlasts_decay(config, progress):
        progress.carried.decay = None
    state, before, now = progress.carried, int(progress.settings["run"]["max_steps"]), config.run.max_steps
    share = progress.settings["optimizer"]["warmup_proportion"]
    warmup_steps = config.warmup_steps()
    if share == config.optimizer.warmup_proportion:  # the same warm-up as before: that which the run has had
        warmup_steps = int(before * share) if state.warmup_steps is None else state.warmup_steps
    schedule = schedule_of(config, warmup_steps)
    load_schedule(device.scope, schedule, device.place)
    applied = progress.counters.get(APPLIED_UPDATES, progress.step)
    if before != now and progress.step < now and not config.run.benchmark:
        last = schedule_of(config, warmup_steps, before).learning_rate_at(applied - 1)
        logger.info(
            f"{'extended' if now > before else 'shortened'} from {before:,} to {now:,} updates; learning rate "
            f"continues at {schedule.learning_rate_at(applied):.3g} (that of the last update was {last:.3g})"
        )
    state.warmup_steps = warmup_steps if warmup_steps != config.warmup_steps() else None
    if now > before:
        state.evaluations.since_best = state.evaluations.above = 0
