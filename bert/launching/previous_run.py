"""Examines the earlier run in the output folder: whether it is another run, is finished, or can be resumed."""

import json
from pathlib import Path
from typing import Any

import yaml

from bert.checkpoints.directories import list_steps
from bert.config.training_settings import AnyConfig, TrainingConfig, derive

# A run may be resumed with other values of these settings: they do not decide what is learned from which samples.
# `check_continues` checks that global batch, seed and data equal those of the checkpoint when it is loaded.
MAY_DIFFER_SECTIONS = ("batch", "initialization", "hardware")
MAY_DIFFER = frozenset(
    "async_checkpoint benchmark benchmark_steps benchmark_warmup_steps cache_dir do_eval do_predict do_train eval_dir "
    "eval_freq eval_samples group_by_length keep_checkpoints log_freq loss_spike_action loss_spike_factor "
    "max_consecutive_skipped_steps model_prefix num_steps_per_checkpoint num_workers output_dir rank_check_freq "
    "report_file sequence_length_multiple steps_this_run vocab_file watchdog_seconds".split()
)


def settings_asked_for(config: TrainingConfig) -> Path:
    """The file of the settings that the user asked for; launch.yaml in the stage's folder also names the start."""
    return config.run.output_dir / f"{config.stage()}.yaml"


def has_checkpoint(config: TrainingConfig) -> bool:
    return bool(list_steps(config.checkpoint_dir()))


def is_done(config: TrainingConfig) -> bool:
    """Whether all updates were made and their checkpoint is there; a benchmark is never done."""
    done = read_json(config.stage_dir() / "summary.json").get("steps", 0) >= config.run.max_steps
    return done and not config.run.benchmark and (config.checkpoint_dir() / str(config.run.max_steps)).is_dir()


def refuse_other_run(config: TrainingConfig) -> None:
    """Refuse a run that differs in what it learns from the one in its output folder.

    Raises:
        ValueError: the first setting that differs and decides what is learned.
    """
    if not (trains(config) and settings_asked_for(config).exists() and has_checkpoint(config)):
        return
    before = yaml.safe_load(settings_asked_for(config).read_text(encoding="utf-8")) or {}
    for section, values in config.model_dump(mode="json").items():
        for name, value in values.items():
            if section in MAY_DIFFER_SECTIONS or name in MAY_DIFFER or before.get(name) == value:
                continue
            raise ValueError(
                f"{name}={value} differs from {before.get(name)} of the run in {config.run.output_dir}; "
                "pass another --output-dir, delete that one, or repeat its settings"
            )


def continued(config: AnyConfig) -> AnyConfig | None:
    """The settings with the run's own newest checkpoint as the start; None if there is none or a step was given."""
    if not trains(config) or config.run.benchmark or not has_checkpoint(config):
        return None
    if isinstance(config.initialization.last_step_of_checkpoint, int):
        return None
    start: dict[str, Any] = dict.fromkeys(type(config.initialization).model_fields)
    start |= {"from_checkpoint": config.checkpoint_dir(), "last_step_of_checkpoint": "auto"}
    return derive(config, **start)


def trains(config: TrainingConfig) -> bool:
    """Whether the run trains, as pre-training always does."""
    return getattr(config.run, "do_train", True)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
