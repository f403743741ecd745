"""From the arguments of scripts/run_pretraining.sh to a plan: which phases, on how many processes, with which data.

Three ways to say it: nothing at all (the quickstart), the 32 positional arguments that users of NVIDIA's scripts know,
or names (a preset or recipe with --config, and flags). `--phase1-NAME VALUE` changes a flag in one phase only.
"""

import argparse
import dataclasses
import os
import shutil
import subprocess
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert import REPOSITORY
from bert.config.base import derive
from bert.config.command_line import parse_flags, resolve_config, suggest
from bert.planning.flags import PLAN_FLAGS, PlanRequest, add_plan_flags, take_plan_request
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY
from bert.pretraining.recipes import PRESETS, RECIPES, Preset

PRECISIONS = {
    "amp": {"amp": True, "tf32": False},
    "fp32": {"amp": False, "tf32": False},
    "tf32": {"amp": False, "tf32": True},
}
BIN_SIZES = ("none", "32", "64", "128", "256", "512")


@dataclasses.dataclass(frozen=True)
class Preparation:
    """How missing shards would be made."""

    wikipedia_source: Path
    num_workers: int
    num_shards_per_worker: int = 128
    sample_ratio: float = 0.9
    phase1_bin_size: int | None = None
    phase2_bin_size: int | None = 64

    def num_shards(self, config: PretrainingConfig, world_size: int) -> int:
        """A multiple of ranks x readers, so that every reader gets as many shards as the others."""
        return self.num_shards_per_worker * max(1, config.data.num_workers) * world_size

    def bin_size(self, phase: int) -> int | None:
        return self.phase2_bin_size if phase == 2 else self.phase1_bin_size


@dataclasses.dataclass(frozen=True)
class LaunchPlan:
    name: str
    phases: tuple[PretrainingConfig, ...]
    processes_per_node: int
    preparation: Preparation
    num_nodes: int = 1
    node_rank: int | None = None
    master: str | None = None
    code_dir: Path = REPOSITORY
    job_name: str = "bert_lamb_pretraining"
    create_logfile: bool = False
    show_config: bool = False
    dry_run: bool = False
    planning: PlanRequest | None = None

    def world_size(self) -> int:
        return self.num_nodes * self.processes_per_node


# Order and defaults of the positional arguments. Those named like a flag belong to phase 1, those that end in _phase2
# to phase 2, unless `_shared_flags` or `_positional_plan` says otherwise.
POSITIONAL = (
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
    ("init_checkpoint", "None"),
    ("wikipedia_source", "$BERT_PREP_WORKING_DIR/wikipedia/source/"),
    ("num_dask_workers", str(os.cpu_count())),
    ("num_shards_per_worker", "128"),
    ("num_workers", "4"),
    ("sample_ratio", "0.9"),
    ("phase2_bin_size", "64"),
    ("masking", "static"),
    ("bert_config", "None"),
    ("benchmark", "false"),
    ("benchmark_steps", "10"),
    ("benchmark_warmup_steps", "10"),
    ("fuse_mha", "true"),
)
_PHASE_FLAGS = ("batch_size", "learning_rate", "warmup_proportion", "max_steps", "gradient_merge_steps", "input_dir")
_SHARED_FLAGS = (
    "num_steps_per_checkpoint",
    "seed",
    "num_workers",
    "masking",
    "benchmark",
    "benchmark_steps",
    "benchmark_warmup_steps",
    "fuse_mha",
)


def parse_launch_arguments(argv: Sequence[str]) -> LaunchPlan:
    """Raises ValueError with value, rule and remedy."""
    first_flag = next((index for index, word in enumerate(argv) if word.startswith("--")), len(argv))
    positional, flags = list(argv[:first_flag]), list(argv[first_flag:])
    launch, rest = _launch_parser().parse_known_args(flags)
    common, per_phase = _split_phases(rest)
    if positional:
        if "config" in common:
            raise ValueError(f"config={common['config']} contradicts the positional arguments; give only one of them")
        return _positional_plan(positional, common, per_phase, launch)
    name = str(common.pop("config", "quickstart" if "phase" not in common else ""))
    if name in PRESETS:
        return _preset_plan(name, PRESETS[name], common, per_phase, launch)
    if name and name not in RECIPES and not Path(name).is_file():
        close = suggest(name, [*PRESETS, *RECIPES], f"the presets are {', '.join(PRESETS)}")
        raise ValueError(f"config={name} must be a preset, a recipe or a YAML file; {close}")
    return _single_phase_plan(name, common, per_phase, launch)


def _positional_plan(
    positional: list[str], common: dict[str, Any], per_phase: Mapping[int, dict[str, Any]], launch: argparse.Namespace
) -> LaunchPlan:
    if len(positional) > len(POSITIONAL):
        raise ValueError(
            f"{len(positional)} positional arguments must be at most {len(POSITIONAL)}; drop "
            f"{' '.join(positional[len(POSITIONAL) :])}, or use flags (--help)"
        )
    given = dict(zip((name for name, _ in POSITIONAL), positional, strict=False))
    values = {name: default if given.get(name, "-") in ("", "-") else given[name] for name, default in POSITIONAL}
    launch = argparse.Namespace(
        **{**vars(launch), **{name: value for name, value in values.items() if getattr(launch, name, "") is None}}
    )
    phases = [
        resolve_config({**_positional_flags(values, phase), **common, **per_phase[phase]}, ENTRY) for phase in (1, 2)
    ]
    return _plan("positional arguments", phases, launch, processes_per_node=8)


def _positional_flags(values: Mapping[str, str], phase: int) -> dict[str, Any]:
    """The flags of one phase that the positional arguments stand for."""
    suffix = "" if phase == 1 else "_phase2"
    results = Path(values["code_dir"]) / "results"
    flags: dict[str, Any] = {name: values[name + suffix] for name in _PHASE_FLAGS}
    flags |= {name: values[name] for name in _SHARED_FLAGS}
    flags |= PRECISIONS[_one_of("precision", values["precision"], PRECISIONS)]
    flags |= {
        "config": f"phase{phase}_large",
        "global_batch_size": None,
        "log_freq": 1,
        "output_dir": results,
        "report_file": results / f"dllogger_p{phase}.json",
    }
    if values["bert_config"] != "None":
        flags["config_file"] = values["bert_config"]
    if values["init_checkpoint"] != "None" and phase == 1:
        flags |= {"from_checkpoint": values["init_checkpoint"], "last_step_of_checkpoint": "auto"}
    return flags


def _preset_plan(
    name: str,
    preset: Preset,
    common: dict[str, Any],
    per_phase: Mapping[int, dict[str, Any]],
    launch: argparse.Namespace,
) -> LaunchPlan:
    only = common.pop("phase", None)
    if only and per_phase[3 - int(only)]:
        raise ValueError(f"--phase{3 - int(only)}-... has no effect with --phase{only}; drop it, or train both phases")
    recipes = {1: preset.phase1.__name__, 2: preset.phase2.__name__}
    phases = [
        resolve_config({"config": recipe, **common, **per_phase[phase]}, ENTRY)
        for phase, recipe in recipes.items()
        if only in (None, phase)
    ]
    if name == "quickstart":
        _refuse_own_data(phases)
        _refuse_preparation(launch)
    if "report_file" not in common:  # one for each phase, and beside its other files
        phases = [derive(config, report_file=config.stage_dir() / "report.json") for config in phases]
    if launch.num_nodes is None:
        launch.num_nodes = preset.num_nodes
    if name == "quickstart" and launch.num_gpus is None:
        launch.num_gpus = str(quickstart_processes(phases[0].hardware.device))
    return _plan(name, phases, launch, preset.processes_per_node)


def _refuse_own_data(phases: Sequence[PretrainingConfig]) -> None:
    """The quickstart makes its data where its recipe says; it must not make it where a user keeps theirs."""
    for config in phases:
        recipe = RECIPES[f"quickstart_phase{config.run.phase}"]().data
        for name in ("input_dir", "eval_dir", "vocab_file"):
            if getattr(config.data, name) != getattr(recipe, name):
                raise ValueError(
                    f"{name}={getattr(config.data, name)} is not where the quickstart makes its data; to "
                    "train on yours, name a preset (--config base) or one phase (--phase1)"
                )


def _refuse_preparation(launch: argparse.Namespace) -> None:
    """Flags about shards that are made on demand; those of the quickstart are always the same."""
    for name in (
        "wikipedia_source",
        "num_dask_workers",
        "num_shards_per_worker",
        "sample_ratio",
        "phase1_bin_size",
        "phase2_bin_size",
    ):
        if (value := getattr(launch, name, None)) is not None:
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"{flag}={value} has no effect with the quickstart, whose data is always the same; drop "
                "it, or name a preset (--config base) or one phase (--phase1)"
            )


def quickstart_processes(device: str) -> int:
    """Ranks of the quickstart: two on a CPU of two or more cores, where most operators use one core each; else one."""
    return 2 if (os.cpu_count() or 1) >= 2 and (device == "cpu" or not num_gpus()) else 1


def num_gpus() -> int:
    """GPUs that the driver lists; 0 without a driver."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return 0
    listed = subprocess.run([command, "--list-gpus"], capture_output=True, text=True, check=False)
    return len(listed.stdout.splitlines()) if listed.returncode == 0 else 0


def _single_phase_plan(
    name: str, common: dict[str, Any], per_phase: Mapping[int, dict[str, Any]], launch: argparse.Namespace
) -> LaunchPlan:
    config = resolve_config({**({"config": name} if name else {}), **common}, ENTRY)
    if any(per_phase.values()):
        config = resolve_config({**({"config": name} if name else {}), **common, **per_phase[config.run.phase]}, ENTRY)
    return _plan(name or f"phase {config.run.phase}", [config], launch, processes_per_node=1)


def _plan(
    name: str, phases: Sequence[PretrainingConfig], launch: argparse.Namespace, processes_per_node: int
) -> LaunchPlan:
    bin_sizes = {
        f"phase{phase}_bin_size": _one_of(f"phase{phase}_bin_size", given or default, BIN_SIZES)
        for phase, given, default in ((1, launch.phase1_bin_size, "none"), (2, launch.phase2_bin_size, "64"))
    }
    preparation = Preparation(
        wikipedia_source=Path(
            os.path.expandvars(launch.wikipedia_source or "$BERT_PREP_WORKING_DIR/wikipedia/source/")
        ),
        num_workers=_whole("num_dask_workers", launch.num_dask_workers or str(os.cpu_count())),
        num_shards_per_worker=_whole("num_shards_per_worker", launch.num_shards_per_worker or "128"),
        sample_ratio=_ratio("sample_ratio", launch.sample_ratio or "0.9"),
        **{name: None if size == "none" else int(size) for name, size in bin_sizes.items()},
    )
    plan = LaunchPlan(
        name=name,
        phases=tuple(phases),
        preparation=preparation,
        processes_per_node=_whole("num_processes", launch.num_gpus or str(processes_per_node)),
        num_nodes=_whole("num_nodes", str(launch.num_nodes or 1)),
        node_rank=None if launch.node_rank is None else _whole("node_rank", launch.node_rank, 0),
        master=launch.master,
        code_dir=Path(launch.code_dir or REPOSITORY),
        job_name=launch.job_name or "bert_lamb_pretraining",
        create_logfile=_one_of("create_logfile", launch.create_logfile or "false", ("true", "false")) == "true",
        show_config=launch.show_config,
        dry_run=launch.dry_run,
        planning=take_plan_request(vars(launch)),
    )
    if plan.num_nodes > 1 and plan.master is None and not (plan.dry_run or plan.show_config or plan.planning):
        raise ValueError(
            f"num_nodes={plan.num_nodes} needs the address of the first node; pass --master HOST:PORT "
            "on every node, and --num-nodes 1 to train on this node alone"
        )
    for config in phases:
        config.batch.gradient_accumulation_steps(plan.world_size())
    return plan


def _split_phases(words: Sequence[str]) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Flags for all phases, and those said with --phaseN- for one phase only."""
    parts: dict[int, list[str]] = {0: [], 1: [], 2: []}
    target = 0
    for word in words:
        if word.startswith("--"):
            target = next((phase for phase in (1, 2) if word.startswith(f"--phase{phase}-")), 0)
            word = word if target == 0 else "--" + word[len("--phase1-") :]
        parts[target].append(word)
    extra = [flag for action in _launch_parser()._actions for flag in action.option_strings]
    common = parse_flags(parts[0], ENTRY, extra)
    per_phase = {phase: parse_flags(parts[phase], ENTRY, extra) for phase in (1, 2)}
    for phase, flags in per_phase.items():
        for name in {"dry_run", "show_config", "phase", "config", *PLAN_FLAGS} & flags.keys():
            raise ValueError(
                f"--phase{phase}-{name.replace('_', '-')} is not a setting of a phase; give it without phase{phase}-"
            )
    return common, per_phase


def _launch_parser() -> argparse.ArgumentParser:
    numbered = "\n".join(f"  {number:2} {name:30} {default}" for number, (name, default) in enumerate(POSITIONAL, 1))
    parser = argparse.ArgumentParser(
        prog="run_pretraining.sh",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [32 positional arguments | --config NAME | --phase1 | --phase2] [flags]",
        description="Pre-train BERT: both phases of a preset, or one phase. Without arguments: the quickstart."
        + _wrapped("Presets of both phases", PRESETS)
        + _wrapped("Recipes of one phase", RECIPES),
        epilog="Further flags are those of `python run_pretraining.py --help`; --phase1-NAME VALUE sets a flag in\n"
        f"phase 1 only, --phase2-NAME in phase 2.\n\nPositional arguments and their defaults, which a - also\n"
        f"stands for:\n{numbered}",
    )
    add = parser.add_argument
    add("--num-processes", "--num-gpus", dest="num_gpus", metavar="N", help="processes (GPUs) on each node")
    add("--num-nodes", metavar="N", help="nodes; start the same command on each of them")
    add("--node-rank", metavar="R", help="number of this node; none: the launcher agrees on one")
    add("--master", metavar="HOST:PORT", help="address of the first node")
    add("--code-dir", metavar="DIR", help="checkout that holds run_pretraining.py")
    add("--job-name", metavar="NAME", help="first part of the log file's name")
    add("--create-logfile", nargs="?", const="true", metavar="true|false", help="keep the output in a file as well")
    add("--wikipedia-source", metavar="DIR", help="text to make missing shards from")
    add("--num-dask-workers", metavar="N", help="processes that make missing shards")
    add("--num-shards-per-worker", metavar="N", help="shards for each reader of each rank")
    add("--sample-ratio", metavar="R", help="share of the documents to use")
    for phase in (1, 2):
        add(f"--phase{phase}-bin-size", metavar="|".join(BIN_SIZES), help="tokens a bin of the phase's shards spans")
    add("--show-config", action="store_true", help="print every resolved setting as YAML")
    add("--dry-run", action="store_true", help="print the plan and stop")
    add_plan_flags(parser)
    return parser


def _wrapped(title: str, names: Iterable[str]) -> str:
    return "\n" + textwrap.fill(f"{title}: {', '.join(names)}.", 100, break_on_hyphens=False) + "\n"


def _one_of(name: str, value: str, choices: "Sequence[str] | Mapping[str, Any]") -> str:
    if value not in choices:
        raise ValueError(
            f"{name}={value} must be one of {', '.join(choices)}; {suggest(value, choices, 'pass one of them')}"
        )
    return value


def _whole(name: str, value: str, least: int = 1) -> int:
    if not value.isdecimal() or int(value) < least:
        raise ValueError(f"{name}={value} must be a whole number from {least} up; change it")
    return int(value)


def _ratio(name: str, value: str) -> float:
    try:
        ratio = float(value)
    except ValueError:
        ratio = 0.0
    if not 0 < ratio <= 1:
        raise ValueError(f"{name}={value} must be above 0 and at most 1; change it")
    return ratio
