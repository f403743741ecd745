"""Examines the earlier run in the output folder: is it another run, is it finished, can it be resumed?"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from bert.checkpoints.directories import final_step, list_steps, newest_valid, step_directory
from bert.config.flags import flat_fields
from bert.config.plain_yaml import read_yaml
from bert.config.settings_base import MAY_DIFFER, MAY_GROW
from bert.config.training_settings import TrainingConfig
from bert.files import read_json
from bert.reporting.progress import megabytes
from bert.training.loss_guards import is_trained

_LARGE_BYTES = 1_000_000_000  # of a checkpoint, of which sha256 takes half a second


def settings_asked_for(config: TrainingConfig) -> Path:
    """Path of the file with the settings as the user requested them; the run file also has the start."""
    return config.run.output_dir / f"{config.stage()}.yaml"


def is_done(config: TrainingConfig) -> bool:
    """Whether the training is finished (all updates, early stopping or a decay) and its checkpoint is valid.

    A benchmark is never done. Where the number of updates is not known yet, the run is done if one with these epochs
    is. A damaged checkpoint is reported: the run continues from an earlier one.
    """
    run, summary = config.run, read_json(config.stage_dir() / "summary.json")
    if run.benchmark:
        return False
    if run.max_steps < 1:
        fields = flat_fields(type(config))
        is_longer = any(MAY_GROW in fields[name][1].metadata for name in _differences(config))
        return bool(summary.get("finished")) and not is_longer and newest_saved(config) == summary.get("steps")
    step, is_longer = summary.get("steps", 0), run.max_steps > summary.get("max_steps", 0)
    since_best = summary.get("early_stopping", 0) if summary.get("stopped_early") and not is_longer else 0
    last_step = None if is_longer else summary.get("last_step")
    return is_trained(run, step, since_best, last_step) and newest_saved(config) == step


def newest_saved(config: TrainingConfig) -> int | None:
    """Step of the newest valid checkpoint; reports damaged ones, also a damaged best one if it is the result."""
    parent = config.checkpoint_dir()
    last = max(list_steps(parent), default=0)
    size = sum(path.stat().st_size for path in step_directory(parent, last).glob("*"))
    if size > _LARGE_BYTES:
        print(f"verifying {step_directory(parent, last)}, {megabytes(size)} ...", flush=True)
    newest, result = newest_valid(parent), final_step(parent)
    if result not in (None, last):
        newest_valid(parent, up_to=result)
    return int(newest.directory.name) if newest is not None else None


def refuse_other_run(config: TrainingConfig, world_size: int) -> None:
    """Refuse a run whose training differs from the run in its output folder.

    `check_continues` checks that seed and data are the checkpoint's when it is loaded. A run may be extended:
    more updates or epochs than before. It may be shortened to what it has not made yet.
    """
    differences = _differences(config) if config.trains() else {}
    model = differences.get("bert_model", (None, config.run.bert_model))[1]
    if not list_steps(config.run.output_dir / model / config.stage()):  # in a folder of the model's name
        return
    refused = {name: both for name, both in differences.items() if _must_equal(config, name, *both)}
    before = _newest_progress(config).get("global_batch_size")
    if before is not None and config.trains() and not config.run.benchmark:
        if (batch := config.batch.resolved_global_batch_size(world_size)) != before:
            refused["global_batch_size"] = batch, before
    for name, (value, old) in refused.items():
        raise ValueError(
            f"{name}={value} differs from {old} of the run in {config.run.output_dir}; "
            "pass another --output-dir, delete that one, or repeat its settings"
        )


def _differences(config: TrainingConfig) -> dict[str, tuple[Any, Any]]:
    """Settings that differ from the run in the output folder: name -> (value, earlier value)."""
    if not settings_asked_for(config).exists():
        return {}
    before, values = read_yaml(settings_asked_for(config)), config.model_dump(mode="json")
    pairs = {  # a setting that its version did not have had the default
        name: (values[section][name], before.get(name, field.get_default()))
        for name, (section, field) in flat_fields(type(config)).items()
    }
    return {name: pairs[name] for name in ("bert_model", *pairs) if pairs[name][0] != pairs[name][1]}


def _must_equal(config: TrainingConfig, name: str, value: Any, old: Any) -> bool:
    """Whether a resumed run must keep this setting's value."""
    section, field = flat_fields(type(config))[name]
    if MAY_DIFFER in type(config).model_fields[section].metadata:
        return False
    if MAY_DIFFER in field.metadata and name not in config.decides_also():
        return False
    return MAY_GROW not in field.metadata or not _may_extend(config, name, value, old)


def without_effect(config: TrainingConfig, names: Collection[str] | None = None) -> str:
    """A line for each setting (of `names`) that differs from the finished run and has no effect on it."""
    fields = flat_fields(type(config))
    never = {name for name, (_, field) in fields.items() if MAY_GROW in field.metadata}
    never |= {"output_dir", "report_file", *type(config.hardware).model_fields}
    return "".join(
        f"{name}={value} has no effect on the finished {config.display_name()}, which had {old}\n"
        for name, (value, old) in _differences(config).items()
        if name not in never and (names is None or name in names)
    )


def _may_extend(config: TrainingConfig, name: str, value: Any, before: Any) -> bool:
    """Whether a run may be resumed with another length, either longer or as the data say."""
    if name != "max_steps":
        return value is None or before is None or value > before
    if value < 1:
        return config.run.length_is_of_the_data()
    done = list_steps(config.checkpoint_dir())[-1]
    if value < done:
        raise ValueError(
            f"max_steps={value} must be at least the {done} updates that the run in {config.run.output_dir} has "
            "made (more extends it); pass another --output-dir for a shorter run"
        )
    return True


def newest_loop_state(config: TrainingConfig) -> dict[str, Any]:
    """The loop state in the newest checkpoint, from which the next start continues; empty without one."""
    return _newest_progress(config).get("carried") or {}


def _newest_progress(config: TrainingConfig) -> dict[str, Any]:
    """The `Progress` in the newest checkpoint; empty without one."""
    step = max(list_steps(config.checkpoint_dir()), default=0)
    return read_json(config.checkpoint_dir() / str(step) / f"{config.run.model_prefix}_progress.json")


def kept_start(phase2: TrainingConfig, phase1: TrainingConfig) -> str | None:
    """A notice if phase 2 began with weights of phase 1 that are no longer the last; otherwise None."""
    last, source = final_step(phase1.checkpoint_dir()), Path(newest_loop_state(phase2).get("started_from") or "")
    if source.parent != phase1.checkpoint_dir() or last is None or source.name == str(last):
        return None
    return (
        f"{phase2.stage()} keeps its start, the weights of {phase1.stage()} after update {source.name}, though "
        f"{phase1.stage()} now ends at {last}; to restart it, remove {phase2.stage_dir()} and "
        f"{phase2.checkpoint_dir()}"
    )


def continuation(config: TrainingConfig) -> dict[str, Any]:
    """Settings that resume the run from its newest checkpoint; empty if there is none or a step was given."""
    has_step = isinstance(config.initialization.last_step_of_checkpoint, int)
    if not config.trains() or config.run.benchmark or has_step or not list_steps(config.checkpoint_dir()):
        return {}
    others = type(config.initialization)().model_dump()
    return others | {"from_checkpoint": config.checkpoint_dir(), "last_step_of_checkpoint": "auto"}
