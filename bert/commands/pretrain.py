"""`bash scripts/run_pretraining.sh`: makes missing data, trains the phases, and shows the results.

Four forms, each with optional flags: no arguments (the quickstart); the 32 positional arguments of NVIDIA's scripts;
a preset or recipe with --config; own text with --text, which bert.commands.own_text reads. Each form but the last
stands for settings under the flags. `--phase1-NAME VALUE` changes a flag in one phase only.

Exit codes: 0 done; 2 wrong arguments; 75 stopped by a signal and saved, the same command resumes; anything else is
the code of the process that failed.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bert import REPOSITORY
from bert.config.architecture import BertConfig
from bert.config.batch_settings import BatchSettings
from bert.config.command_line import take_questions
from bert.config.flags import flag_name
from bert.config.nvidia_image import own_checkout
from bert.config.setting_errors import Mistakes, check_all, suggest, usage_errors
from bert.config.setting_sources import read_settings, resolve, resolve_config
from bert.config.training_settings import derive
from bert.config.unread_settings import unread_warnings
from bert.interpreter import is_installed, shell_command
from bert.jobs.job import Job, Planned, start
from bert.jobs.record import command_began
from bert.jobs.training import Train, parts_of_time
from bert.launching.arguments import (
    FLAGS_INSTEAD,
    POSITIONAL_PLAN,
    CommandLine,
    Launcher,
    Positional,
    errors_name_file,
    errors_of_phase,
    read_command_line,
    read_positional,
    settings_of_nvidia,
    sorted_by_owner,
)
from bert.launching.ranks import gpus_for, num_gpus, quickstart_processes
from bert.launching.settings import LaunchPlan
from bert.launching.start_training import check_machine, require_script
from bert.own_text.flags import add_text_flags, is_about_own_text, refuse_without_text
from bert.planning.estimates import training_flops_per_sequence
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY
from bert.pretraining.launch_settings import Preparation, PretrainingLaunch
from bert.pretraining.preparation import MissingShards, data_steps
from bert.pretraining.recipe_batch import batch_warning
from bert.pretraining.recipes import PRESETS, RECIPES, evening
from bert.pretraining.results import PretrainingResults

POSITIONAL = (
    Positional("batch_size", "256", "phase1_batch_size"),
    Positional("learning_rate", "6e-3", "phase1_learning_rate"),
    Positional("precision", "amp"),
    Positional("num_gpus", "8", "num_processes"),
    Positional("warmup_proportion", "0.2843", "phase1_warmup_proportion"),
    Positional("max_steps", "7038", "phase1_max_steps"),
    Positional("num_steps_per_checkpoint", "200"),
    Positional("create_logfile", "false"),
    Positional("gradient_merge_steps", "32", "phase1_gradient_merge_steps"),
    Positional("seed", "12439"),
    Positional("job_name", "bert_lamb_pretraining"),
    Positional("batch_size_phase2", "32", "phase2_batch_size"),
    Positional("learning_rate_phase2", "4e-3", "phase2_learning_rate"),
    Positional("warmup_proportion_phase2", "0.128", "phase2_warmup_proportion"),
    Positional("max_steps_phase2", "1563", "phase2_max_steps"),
    Positional("gradient_merge_steps_phase2", "128", "phase2_gradient_merge_steps"),
    Positional("input_dir", "$BERT_PREP_WORKING_DIR/pretrain/phase1/unbinned/parquet/", "phase1_input_dir"),
    Positional("input_dir_phase2", "$BERT_PREP_WORKING_DIR/pretrain/phase2/bin_size_64/parquet/", "phase2_input_dir"),
    Positional("code_dir", str(REPOSITORY)),
    Positional("init_checkpoint", None, "phase1_from_checkpoint"),
    Positional("wikipedia_source", "$BERT_PREP_WORKING_DIR/wikipedia/source/"),
    Positional("num_dask_workers", str(Preparation.model_fields["num_dask_workers"].default)),
    Positional("num_shards_per_worker", "128"),
    Positional("num_workers", "4"),
    Positional("sample_ratio", "0.9"),
    Positional("phase2_bin_size", "64"),
    Positional("masking", "static"),
    Positional("bert_config", None, "config_file"),
    Positional("benchmark", "false"),
    Positional("benchmark_steps", "10"),
    Positional("benchmark_warmup_steps", "10"),
    Positional("fuse_mha", "true"),
)
_LARGEST_MICRO_BATCH = 1024  # sequences; no card takes more of BERT-large
LAUNCHER = Launcher(
    script="scripts/run_pretraining.sh",
    entry=ENTRY,
    usage="[--text FOLDER | --config NAME | --phase1 | --phase2]",
    description="Pre-train BERT on your text, or by a recipe on shards. Without arguments it trains the quickstart. "
    "--phase1-NAME VALUE sets a flag in phase 1 (short sequences) only, --phase2-NAME in phase 2.",
    examples=(
        "--text my_texts --hours 2",
        "--text my_texts --from-pretrained-params bert-base-uncased --hours 2 --dry-run",
        "--config large --num-gpus 8",
    ),
    main_settings={
        "text": "",
        "from_pretrained_params": "",
        "output_dir": "results; with --text results/NAME, by the name of the text",
        "bert_model": "as in the recipe; with --text by the size of the text",
        "epochs": "as in the recipe; with --text 40, at most 8 hours",
        "learning_rate": "as in the recipe",
        "batch_size": "as in the recipe",
        "num_processes": "as in the recipe",
    },
    epilog="NVIDIA's positional arguments are read too: --help positional.",
    names={"Presets of both phases": [*PRESETS, evening.NAME], "Recipes of one phase": RECIPES},
    settings=PretrainingLaunch,
    positional=POSITIONAL,
    phases=(1, 2),
    add_flags=add_text_flags,
    help_flag="text",
)


class _ArgumentSettings(NamedTuple):
    """The settings that positional arguments stand for; flags override them."""

    name: str
    launch: Mapping[str, Any]
    phases: Mapping[int, dict[str, Any]]  # settings of each phase that is trained
    is_on_cpu: bool = False  # whether --device auto means the CPU, with any number of ranks


def parse_launch_arguments(argv: Sequence[str]) -> LaunchPlan:
    """Read a command line into a plan; raises ValueError with value, rule and remedy."""
    return plan_of(read_command_line(LAUNCHER, argv))


def plan_of(line: CommandLine) -> LaunchPlan:
    mistakes, flags = Mistakes(line.mistakes), dict(line.launch)
    with mistakes.noted():
        refuse_without_text(line.launch)
    questions = take_questions(flags, ENTRY)
    arguments, launch, configs = _ArgumentSettings("", {}, {}), PretrainingLaunch(), list[PretrainingConfig]()
    with mistakes.noted():
        arguments = _argument_settings(line)
    phases = [phase for phase in arguments.phases if line.training.get("phase") in (None, phase)]
    for phase, settings in line.phases.items():
        if settings and phases and phase not in phases:
            mistakes.add(f"--phase{phase}-... has no effect here: only phase {phases[0]} is trained; drop it")
    warnings = list[str]()
    for phase in phases:
        with mistakes.noted():
            configs.append(_phase(line, phase, arguments))
        with mistakes.noted():
            warnings += _unread(line, configs[-1:], phase)
    with mistakes.noted():
        if arguments.name == "quickstart":
            _refuse_own_data(configs, flags)
    with mistakes.noted():
        launch = read_settings(PretrainingLaunch, {**arguments.launch, **flags})
        check_all(partial(config.batch.schedule, launch.nodes.world_size()) for config in configs)
    if mistakes.are_there():  # those that the steps of the job would find are shown with them
        with mistakes.noted():
            _check_rest(line, arguments, phases, launch, is_start=not questions)
    mistakes.refuse()
    warnings += unread_warnings(launch, line.launch)
    of_recipes = [(config, arguments.phases[config.run.phase].get("config")) for config in configs]
    for config, name in of_recipes:
        if name in RECIPES:
            warnings.append(batch_warning(config, RECIPES[name](), launch.nodes.world_size()))
    warnings = [warning for warning in dict.fromkeys(warnings) if warning]
    plan = LaunchPlan(arguments.name or f"phase {phases[0]}", configs, launch, questions, warnings)
    plan.refuse_schedule()
    return plan


def _argument_settings(line: CommandLine) -> _ArgumentSettings:
    if line.positional:
        return _positional_settings(line)
    name = line.launch.get("config", "" if "phase" in line.training else "quickstart")
    if name in PRESETS:
        return _preset_settings(name, line)
    if name and name not in RECIPES and not Path(name).is_file():
        presets = [*PRESETS, evening.NAME]
        close = suggest(name, [*presets, *RECIPES], f"the presets are {', '.join(presets)}")
        raise ValueError(f"config={name} must be a preset, a recipe or a YAML file; {close}")
    layer = {"config": name} if name else {}
    return _ArgumentSettings(name, {}, {resolve_config({**layer, **line.training}, ENTRY).run.phase: layer})


def _preset_settings(name: str, line: CommandLine) -> _ArgumentSettings:
    preset, is_on_cpu = PRESETS[name], False
    launch = {"num_processes": preset.processes_per_node, "num_nodes": preset.num_nodes}
    if name == "quickstart":
        launch["num_processes"] = quickstart_processes(line.training.get("device", "auto"))
        is_on_cpu = not gpus_for("auto")
    phases = {}
    for phase, recipe in ((1, preset.phase1), (2, preset.phase2)):
        output_dir = {**line.training, **line.phases[phase]}.get("output_dir", RECIPES[recipe]().run.output_dir)
        report = Path(output_dir) / f"phase{phase}" / "report.json"  # beside the phase's other files
        phases[phase] = {"config": recipe, "report_file": report}
    return _ArgumentSettings(name, launch, phases, is_on_cpu)


def _refuse_order_of_pytorch(words: Sequence[str]) -> None:
    """Refuse the argument order of NVIDIA's PyTorch script, whose batch is for one GPU and update.

    Its ninth argument is true or false, ours a number; of its first eight only the size of the batch differs.
    """
    if (words[0].isdecimal() and int(words[0]) > _LARGEST_MICRO_BATCH) or words[8:9] in (["true"], ["false"]):
        raise ValueError(
            f"batch_size={words[0]} is of NVIDIA's PyTorch run_pretraining.sh, the sequences of one GPU in an update; "
            f"pass --config large_pytorch, that script's recipe, or {FLAGS_INSTEAD.removeprefix('pass ')}"
        )


def _positional_settings(line: CommandLine) -> _ArgumentSettings:
    _refuse_order_of_pytorch(line.positional)
    values = settings_of_nvidia(read_positional(line, POSITIONAL))
    is_own_copy = is_installed() and values["code_dir"] == str(REPOSITORY)  # results are no part of a package
    results = (Path() if is_own_copy else own_checkout(Path(values["code_dir"]))) / "results"
    if "phase1_from_checkpoint" in values:
        values["phase1_last_step_of_checkpoint"] = "auto"
    launch, common, of_phases = sorted_by_owner(LAUNCHER, values)
    common |= {"global_batch_size": None, "log_freq": 1, "output_dir": results}
    phases = {}
    for phase, settings in of_phases.items():
        report = {"report_file": results / f"dllogger_p{phase}.json"}
        phases[phase] = {"config": f"phase{phase}_large", **common, **report, **settings}
    return _ArgumentSettings(POSITIONAL_PLAN, launch, phases)


def _phase(line: CommandLine, phase: int, arguments: _ArgumentSettings) -> PretrainingConfig:
    """The settings of a phase, merged from the preset, flags, flags of this phase, and this machine."""
    timed = {"lr_schedule": "wsd"} if "hours" in line.launch else {}  # whose decay can begin at any time
    layers: list[Mapping[str, Any]] = [{**arguments.phases[phase], **timed}, line.training, line.phases[phase]]
    sizes_file = next((layer["config_file"] for layer in reversed(layers) if layer.get("config_file")), None)
    of_phase = set(line.phases[phase])
    if len(arguments.phases) > 1:  # a flag of both phases is a remedy only where it was typed for both
        of_phase |= {"max_seq_length", *BatchSettings.model_fields} - line.training.keys()
    with errors_of_phase(phase, of_phase), errors_name_file(BertConfig.model_fields, sizes_file):
        config: PretrainingConfig = resolve(layers, ENTRY)
    return derive(config, device="cpu") if arguments.is_on_cpu and config.hardware.device == "auto" else config


def _check_rest(
    line: CommandLine, form: _ArgumentSettings, phases: Sequence[int], launch: PretrainingLaunch, is_start: bool
) -> None:
    """Also collect the mistakes about data and this machine, for a command line with other mistakes."""
    checks: list[Callable[[], object]] = [partial(require_script, launch.start.script())]
    longest = {"max_position_embeddings": 1 << 20}  # with which a phase can be read whose length is a mistake
    for phase in phases:
        with contextlib.suppress(ValueError):  # which was noted
            config = _phase(line._replace(training={**line.training, **longest}), phase, form)
            checks.append(config.check_data)
            if is_start:
                checks.append(partial(check_machine, config, launch.nodes))
    check_all(checks)


def _unread(line: CommandLine, configs: Sequence[PretrainingConfig], phase: int) -> list[str]:
    """Warnings about settings that the user gave for a phase but that have no effect on it."""
    of_phase = line.phases[phase]
    common = [name for name in line.training if name not in of_phase]
    return [
        warning
        for config in configs
        if config.run.phase == phase
        for warning in (*unread_warnings(config, common), *unread_warnings(config, of_phase, f"phase{phase}-"))
    ]


def _unread_of_shards(line: CommandLine, job: Job) -> list[str]:
    """Warnings about settings for making shards, if no shards have to be made."""
    typed = [name for name in Preparation.model_fields if name in line.launch]
    if not typed or any(isinstance(step, MissingShards) and not step.exist() for step in job.all_steps()):
        return []
    there = ", ".join(str(step.product) for step in job.all_steps() if isinstance(step, MissingShards))
    return [f"{flag_name(name)} {line.launch[name]} has no effect, as the shards are there: {there}" for name in typed]


def _refuse_own_data(phases: Sequence[PretrainingConfig], flags: Mapping[str, Any]) -> None:
    """Refuse flags that would change the quickstart's data, or make it in a folder that has other data."""
    remedy = "name a preset (--config base) or one phase (--phase1)"
    for config in phases:
        recipe = RECIPES[f"quickstart_phase{config.run.phase}"]().data
        for name in ("input_dir", "eval_dir", "vocab_file"):
            if (folder := getattr(config.data, name)) != getattr(recipe, name):
                raise ValueError(
                    f"{name}={folder} is not where the quickstart makes its data; to train on yours, {remedy}"
                )
    for name in Preparation.model_fields:
        if name in flags:
            raise ValueError(
                f"{flag_name(name)}={flags[name]} has no effect with the quickstart, whose data is always the same; "
                f"drop it, or {remedy}"
            )


def main(argv: Sequence[str]) -> int:
    called = time.time()
    with usage_errors():
        line = read_command_line(LAUNCHER, argv)
    if is_about_own_text(line.launch):  # reads text and weights, which needs more packages
        from bert.commands import own_text

        return own_text.main(line, command_began(called))
    return start(planned, argv)


def planned(words: Sequence[str]) -> Planned:
    """Plan a command line. With --text the plan is made when the job is executed."""
    line = read_command_line(LAUNCHER, words)
    if is_about_own_text(line.launch):
        from bert.commands import own_text

        return own_text.planned(line)
    plan = plan_of(line)
    cards = num_gpus() if plan.name == "quickstart" and not plan.questions else 0
    if cards > 1:  # where NVIDIA's script of this name trains on all
        large = shell_command("scripts/run_pretraining.sh", "--config", "large")
        print(f"This is the small quickstart, on one of {cards} GPUs. BERT-large on all of them: {large}")
    job = job_of(plan, line.words)
    plan = replace(plan, warnings=[*plan.warnings, *_unread_of_shards(line, job)])
    return Planned(line, plan.shown_in_time(parts_of_time(job)), job)


def job_of(plan: LaunchPlan, words: Sequence[str] = (), for_all_nodes: bool = False) -> Job:
    """The job of a plan: make missing data, train each phase, then show the results.

    Args:
        for_all_nodes: one node makes the missing data for all; otherwise several nodes refuse to start without them.
    """
    launch, first = plan.launch, plan.phases[0]
    phases = []
    for config in plan.phases:
        phase = Train(
            script=launch.start.script(),
            config=config,
            ranks=plan.ranks,
            start=first_start(config, first),
            data=data_steps(plan.name, config, launch.shards, plan.ranks, for_all_nodes),
            job_id=f"{launch.start.job_name}_{config.stage()}",
            log_file=launch.start.log_file(config, plan.world_size()),
            share=_work(config, plan.world_size()),
        )
        phases.append(phase)
    results = PretrainingResults(plan.name, tuple(phases), tuple(words))
    return Job(plan.name, first.run.output_dir, (*phases, results), plan.ranks, plan.hours)


def first_start(config: PretrainingConfig, previous: PretrainingConfig) -> dict[str, Any]:
    """Choose the initial weights of a phase without a checkpoint: phase 2 starts from phase 1.

    Initial weights given for both phases are for phase 1 only; those given for phase 2 alone are kept.

    Args:
        previous: the settings of the first phase of the job, which may be `config`.
    """
    start, start_before = config.initialization, previous.initialization
    if config.run.benchmark or config.run.phase == 1 or previous.run.phase == 2 or start.from_phase1_final_params:
        return {}
    if (start.from_pretrained_params, start.from_checkpoint) != (
        start_before.from_pretrained_params,
        start_before.from_checkpoint,
    ):
        return {}
    others = type(start)().model_dump()
    return others | {"from_phase1_final_params": previous.checkpoint_dir()}


def _work(config: PretrainingConfig, world_size: int) -> float:
    """FLOPs of a phase, by which --hours are divided; of one update if the number of updates is not known yet."""
    data, schedule = config.data, config.batch.schedule(world_size)
    flops = training_flops_per_sequence(config.model, data.max_seq_length, data.max_predictions_per_seq)
    return float(flops * schedule.sequences(max(1, config.with_known_steps(world_size).run.max_steps)))
