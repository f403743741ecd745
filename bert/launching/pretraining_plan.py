"""The arguments of scripts/run_pretraining.sh -> a plan: which phases, on which ranks, with which data.

Four forms, each with optional flags: no arguments (the quickstart); the 32 positional arguments of NVIDIA's scripts;
a preset or recipe with --config; own text with --text, which bert.own_text reads. `--phase1-NAME VALUE` changes a
flag in one phase only.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert import REPOSITORY
from bert.config.command_line import resolve_config, suggest
from bert.config.setting_sources import merged
from bert.config.training_settings import derive
from bert.interpreter import is_installed, shell_command
from bert.launching.arguments import (
    PRECISIONS,
    LauncherParser,
    errors_of_phase,
    names_help,
    one_of,
    positional_help,
    ratio,
    read_positional,
    split_phases,
    split_positional,
    whole_number,
)
from bert.launching.start_training import Ranks, num_gpus, quickstart_processes, read_ranks
from bert.own_text.flags import add_text_flags, refuse_without_text
from bert.planning.planner import PlanRequest, add_plan_flags, take_plan_request
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY
from bert.pretraining.recipes import PRESETS, RECIPES, evening

BIN_SIZES = ("none", "32", "64", "128", "256", "512")

# Order and defaults of the positional arguments. Those named like a flag of the launcher set it. A name that ends in
# _phase2 belongs to phase 2, and the same name without it to phase 1; the others are settings of both phases.
POSITIONAL: tuple[tuple[str, str | None], ...] = (
    ("batch_size", "256"),
    ("learning_rate", "6e-3"),
    ("precision", "amp"),
    ("num_gpus", "8"),
    ("warmup_proportion", "0.2843"),
    ("max_steps", "7038"),
    ("num_steps_per_checkpoint", "200"),
    ("create_logfile", "false"),
    ("gradient_merge_steps", "32"),
    ("seed", "12439"),
    ("job_name", "bert_lamb_pretraining"),
    ("batch_size_phase2", "32"),
    ("learning_rate_phase2", "4e-3"),
    ("warmup_proportion_phase2", "0.128"),
    ("max_steps_phase2", "1563"),
    ("gradient_merge_steps_phase2", "128"),
    ("input_dir", "$BERT_PREP_WORKING_DIR/pretrain/phase1/unbinned/parquet/"),
    ("input_dir_phase2", "$BERT_PREP_WORKING_DIR/pretrain/phase2/bin_size_64/parquet/"),
    ("code_dir", str(REPOSITORY)),
    ("init_checkpoint", None),
    ("wikipedia_source", "$BERT_PREP_WORKING_DIR/wikipedia/source/"),
    ("num_dask_workers", str(os.cpu_count())),
    ("num_shards_per_worker", "128"),
    ("num_workers", "4"),
    ("sample_ratio", "0.9"),
    ("phase2_bin_size", "64"),
    ("masking", "static"),
    ("bert_config", None),
    ("benchmark", "false"),
    ("benchmark_steps", "10"),
    ("benchmark_warmup_steps", "10"),
    ("fuse_mha", "true"),
)


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Settings for making missing shards; the fields are named like their flags."""

    wikipedia_source: Path
    num_dask_workers: int
    num_shards_per_worker: int
    sample_ratio: float
    phase1_bin_size: int | None
    phase2_bin_size: int | None

    def num_shards(self, config: PretrainingConfig, world_size: int) -> int:
        """A multiple of ranks x readers, so that every reader gets as many shards as the others."""
        return self.num_shards_per_worker * max(1, config.data.num_workers) * world_size

    def bin_size(self, phase: int) -> int | None:
        return self.phase2_bin_size if phase == 2 else self.phase1_bin_size


_PREPARATION_FLAGS = tuple(field.name for field in dataclasses.fields(Preparation))
_LAUNCHER_FLAGS = ("num_gpus", "create_logfile", "job_name", "code_dir", *_PREPARATION_FLAGS)
# Defaults of the launcher's flags; those of the ranks come from the preset.
_DEFAULTS = {**dict(POSITIONAL), "phase1_bin_size": "none"}


@dataclasses.dataclass(frozen=True)
class LaunchPlan:
    name: str
    phases: tuple[PretrainingConfig, ...]
    ranks: Ranks
    preparation: Preparation
    code_dir: Path
    job_name: str
    create_logfile: bool
    show_config: bool
    dry_run: bool
    planning: PlanRequest | None

    def world_size(self) -> int:
        return self.ranks.world_size()

    def device(self) -> str:
        """The device setting; the quickstart takes the CPU where there is no GPU, with any number of ranks."""
        device = self.phases[0].hardware.device
        return "cpu" if self.name == "quickstart" and device == "auto" and num_gpus() == 0 else device


def parse_launch_arguments(argv: Sequence[str]) -> LaunchPlan:
    """The plan of a command line; raises ValueError with value, rule and remedy."""
    positional, words = split_positional(argv)
    parser = launcher_parser()
    launcher, rest = parser.read(words)
    refuse_without_text(launcher)
    common, per_phase = split_phases(rest, parser.names())
    name = launcher.get("config", "quickstart" if "phase" not in common else "")
    if positional:
        values = read_positional(positional, POSITIONAL, launcher)
        launcher = {**{name: values[name] for name in _LAUNCHER_FLAGS if name in values}, **launcher}
        name, layers = "positional arguments", {phase: _positional_settings(values, phase) for phase in (1, 2)}
    elif name in PRESETS:
        layers = _preset_settings(name, common.pop("phase", None), per_phase)
    else:
        layers = _settings_of_one_phase(name, common)
    phases = []
    for phase, layer in layers.items():
        with errors_of_phase(phase, per_phase[phase]):
            config = resolve_config(merged(layer, common, per_phase[phase], alternatives=ENTRY.alternatives), ENTRY)
        if name in PRESETS and "report_file" not in {**common, **per_phase[phase]}:  # beside the phase's other files
            config = derive(config, report_file=config.stage_dir() / "report.json")
        phases.append(config)
    if name == "quickstart":
        _refuse_own_data(phases, launcher)
    return _plan(name or f"phase {phases[0].run.phase}", phases, launcher)


def _positional_settings(values: Mapping[str, str], phase: int) -> dict[str, Any]:
    """The settings of one phase from the positional arguments."""
    is_own_copy = is_installed() and values["code_dir"] == str(REPOSITORY)  # results are no part of a package
    results = (Path() if is_own_copy else Path(values["code_dir"])) / "results"
    settings: dict[str, Any] = {
        "config": f"phase{phase}_large",
        "global_batch_size": None,
        "log_freq": 1,
        "output_dir": results,
        "report_file": results / f"dllogger_p{phase}.json",
        **PRECISIONS[one_of("precision", values["precision"], PRECISIONS)],
    }
    if "bert_config" in values:
        settings["config_file"] = values["bert_config"]
    if "init_checkpoint" in values and phase == 1:
        settings |= {"from_checkpoint": values["init_checkpoint"], "last_step_of_checkpoint": "auto"}
    for name, value in values.items():
        if name not in (*_LAUNCHER_FLAGS, "precision", "bert_config", "init_checkpoint") and not name.endswith(
            "_phase2"
        ):
            settings[name] = values.get(f"{name}_phase2", value) if phase == 2 else value
    if values["fuse_mha"].lower() == "false":  # there it means fused attention too
        settings["fuse_attention"] = "off"
    return settings


def _preset_settings(name: str, only: int | None, per_phase: Mapping[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The recipe of each phase of a preset, or of the only one that is asked for."""
    if only and per_phase[3 - only]:
        raise ValueError(f"--phase{3 - only}-... has no effect with --phase{only}; drop it, or train both phases")
    recipes = {1: PRESETS[name].phase1, 2: PRESETS[name].phase2}
    return {phase: {"config": recipe.__name__} for phase, recipe in recipes.items() if only in (None, phase)}


def _settings_of_one_phase(name: str, common: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    if name and name not in RECIPES and not Path(name).is_file():
        presets = [*PRESETS, evening.NAME]
        close = suggest(name, [*presets, *RECIPES], f"the presets are {', '.join(presets)}")
        raise ValueError(f"config={name} must be a preset, a recipe or a YAML file; {close}")
    layer = {"config": name} if name else {}
    return {resolve_config(merged(layer, common, alternatives=ENTRY.alternatives), ENTRY).run.phase: layer}


def _refuse_own_data(phases: Sequence[PretrainingConfig], launcher: Mapping[str, Any]) -> None:
    """Refuse flags that would change the quickstart's data or make it in a folder of other data."""
    for config in phases:
        recipe = RECIPES[f"quickstart_phase{config.run.phase}"]().data
        for name in ("input_dir", "eval_dir", "vocab_file"):
            if getattr(config.data, name) != getattr(recipe, name):
                raise ValueError(
                    f"{name}={getattr(config.data, name)} is not where the quickstart makes its data; to "
                    "train on yours, name a preset (--config base) or one phase (--phase1)"
                )
    for name in _PREPARATION_FLAGS:
        if name in launcher:
            raise ValueError(
                f"--{name.replace('_', '-')}={launcher[name]} has no effect with the quickstart, whose data is always "
                "the same; drop it, or name a preset (--config base) or one phase (--phase1)"
            )


def _plan(name: str, phases: Sequence[PretrainingConfig], launcher: dict[str, Any]) -> LaunchPlan:
    num_processes, num_nodes = 1, 1
    if name == "quickstart":
        num_processes = quickstart_processes(phases[0].hardware.device)
    elif name in PRESETS:
        num_processes, num_nodes = PRESETS[name].processes_per_node, PRESETS[name].num_nodes
    values = {**_DEFAULTS, **launcher}
    plan = LaunchPlan(
        name=name,
        phases=tuple(phases),
        ranks=read_ranks(launcher, num_processes, num_nodes),
        preparation=Preparation(
            wikipedia_source=Path(os.path.expandvars(values["wikipedia_source"])),
            num_dask_workers=whole_number("num_dask_workers", values["num_dask_workers"]),
            num_shards_per_worker=whole_number("num_shards_per_worker", values["num_shards_per_worker"]),
            sample_ratio=ratio("sample_ratio", values["sample_ratio"]),
            phase1_bin_size=_bin_size("phase1_bin_size", values["phase1_bin_size"]),
            phase2_bin_size=_bin_size("phase2_bin_size", values["phase2_bin_size"]),
        ),
        code_dir=Path(values["code_dir"]),
        job_name=values["job_name"],
        create_logfile=one_of("create_logfile", values["create_logfile"], ("true", "false")) == "true",
        show_config=values.get("show_config", False),
        dry_run=values.get("dry_run", False),
        planning=take_plan_request(launcher),
    )
    for config in phases:
        config.batch.gradient_accumulation_steps(plan.world_size())
    return plan


def _bin_size(name: str, value: str) -> int | None:
    return None if one_of(name, value, BIN_SIZES) == "none" else int(value)


def launcher_parser() -> LauncherParser:
    """The flags of run_pretraining.sh that are not settings of the training."""
    parser = LauncherParser(
        further=shell_command("run_pretraining.py", "--help"),
        topics={
            "positional": positional_help(POSITIONAL),
            "recipes": names_help(
                **{"Presets of both phases": [*PRESETS, evening.NAME], "Recipes of one phase": RECIPES}
            ),
        },
        prog="scripts/run_pretraining.sh",
        usage="%(prog)s [--text FOLDER | 32 positional arguments | --config NAME | --phase1 | --phase2] [flags]",
        description="Pre-train BERT: on your own text, both phases of a preset, or one phase. Without arguments: the "
        "quickstart.",
        epilog="--phase1-NAME VALUE sets a flag in phase 1 only, --phase2-NAME in phase 2.",
    )
    add = parser.add_argument
    add("--job-name", metavar="NAME", help="first part of the log file's name")
    add("--create-logfile", nargs="?", const="true", metavar="true|false", help="keep the output in a file as well")
    add("--code-dir", metavar="DIR", help="checkout that holds run_pretraining.py")
    add = parser.add_argument_group("shards").add_argument
    add("--wikipedia-source", metavar="DIR", help="text to make missing shards from")
    add("--num-dask-workers", metavar="N", help="processes that make missing shards")
    add("--num-shards-per-worker", metavar="N", help="shards for each reader of each rank")
    add("--sample-ratio", metavar="R", help="share of the documents to use")
    for phase in (1, 2):
        add(f"--phase{phase}-bin-size", metavar="|".join(BIN_SIZES), help="width of the phase's bins, in tokens")
    add_text_flags(parser)
    add_plan_flags(parser.add_argument_group("plan"))
    return parser
