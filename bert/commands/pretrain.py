"""`bash scripts/run_pretraining.sh`: makes missing data, trains the phases, shows the results.

Four forms, each with optional flags: no arguments (the quickstart); the 32 positional arguments of NVIDIA's scripts;
a preset or recipe with --config; own text with --text, which bert.commands.own_text reads. Each form but the last
stands for settings under the flags. `--phase1-NAME VALUE` changes a flag in one phase only.

Exit codes: 0 done; 2 wrong arguments; 75 stopped by a signal and saved, the same command resumes; anything else is
the code of the process that failed.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from bert import REPOSITORY
from bert.command_errors import discard_output
from bert.config.command_line import take_questions
from bert.config.flags import flag_name
from bert.config.setting_errors import Mistakes, suggest, usage_errors
from bert.config.setting_sources import merged, read_settings, resolve_config
from bert.exit_codes import OK
from bert.files import read_json
from bert.help_parser import wrapped
from bert.interpreter import is_installed, shell_command
from bert.jobs.job import Execution, Job, Step
from bert.jobs.planned import Planned, start
from bert.jobs.record import command_began
from bert.jobs.training import trainings
from bert.launching.arguments import (
    FLAGS_INSTEAD,
    POSITIONAL_PLAN,
    CommandLine,
    Launcher,
    Positional,
    errors_of_phase,
    read_command_line,
    read_positional,
    settings_of_nvidia,
    sorted_by_owner,
)
from bert.launching.previous_run import kept_start, without_effect
from bert.launching.ranks import gpus_for, num_gpus, quickstart_processes
from bert.launching.settings import LaunchPlan
from bert.own_text.flags import add_text_flags, is_about_own_text, refuse_without_text
from bert.planning.estimates import training_flops_per_sequence
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY
from bert.pretraining.epochs import with_known_steps
from bert.pretraining.launch_settings import Preparation, PretrainingLaunch
from bert.pretraining.phases import TrainPhase, phase_step
from bert.pretraining.preparation import data_steps
from bert.pretraining.recipes import PRESETS, RECIPES, evening
from bert.reporting.curves import curves_command
from bert.reporting.results import next_commands, show_figures

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
    description="Pre-train BERT: on your own text (40 epochs, at most 8 hours, unless a length is given), both phases "
    "of a preset, or one phase. Without arguments: the quickstart. "
    "--phase1-NAME VALUE sets a flag in phase 1 (short sequences) only, --phase2-NAME in phase 2.",
    epilog="NVIDIA's positional arguments are read too: --help positional.",
    names={"Presets of both phases": [*PRESETS, evening.NAME], "Recipes of one phase": RECIPES},
    settings=PretrainingLaunch,
    positional=POSITIONAL,
    phases=(1, 2),
    add_flags=add_text_flags,
)


class _ArgumentSettings(NamedTuple):
    """The settings that the words before the flags stand for; flags override them."""

    name: str
    launch: Mapping[str, Any]
    phases: Mapping[int, dict[str, Any]]  # the settings of each phase that is trained
    device: Mapping[str, Any] = MappingProxyType({})  # what --device auto stands for, over the flags of both phases


def parse_launch_arguments(argv: Sequence[str]) -> LaunchPlan:
    """The plan of a command line; raises ValueError with value, rule and remedy."""
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
    for phase in phases:
        with mistakes.noted():
            configs.append(_phase(line, phase, arguments))
    with mistakes.noted():
        if arguments.name == "quickstart":
            _refuse_own_data(configs, flags)
    with mistakes.noted():
        launch = read_settings(PretrainingLaunch, {**arguments.launch, **flags})
        for config in configs:
            config.batch.schedule(launch.nodes.world_size())
    mistakes.refuse()
    plan = LaunchPlan(arguments.name or f"phase {phases[0]}", configs, launch, questions)
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
    preset, device = PRESETS[name], dict[str, str]()
    launch = {"num_processes": preset.processes_per_node, "num_nodes": preset.num_nodes}
    if name == "quickstart":
        launch["num_processes"] = quickstart_processes(line.training.get("device", "auto"))
        if line.training.get("device", "auto") == "auto" and not gpus_for("auto"):
            device = {"device": "cpu"}  # with any number of ranks
    phases = {}
    for phase, recipe in ((1, preset.phase1), (2, preset.phase2)):
        output_dir = {**line.training, **line.phases[phase]}.get("output_dir", RECIPES[recipe]().run.output_dir)
        report = Path(output_dir) / f"phase{phase}" / "report.json"  # beside the phase's other files
        phases[phase] = {"config": recipe, "report_file": report}
    return _ArgumentSettings(name, launch, phases, device)


def _refuse_order_of_pytorch(words: Sequence[str]) -> None:
    """Refuse the arguments of NVIDIA's PyTorch script, whose batch is what a GPU has in an update.

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
    results = (Path() if is_own_copy else Path(values["code_dir"])) / "results"
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
    timed = {"lr_schedule": "wsd"} if "hours" in line.launch else {}  # whose decay can begin at any time
    with errors_of_phase(phase, line.phases[phase]):
        layers = [arguments.phases[phase], timed, line.training, arguments.device, line.phases[phase]]
        config: PretrainingConfig = resolve_config(merged(layers, ENTRY.rules), ENTRY)
        return config


def _refuse_own_data(phases: Sequence[PretrainingConfig], flags: Mapping[str, Any]) -> None:
    """Refuse flags that would change the quickstart's data or make it in a folder of other data."""
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
    begun = command_began()
    with usage_errors():
        line = read_command_line(LAUNCHER, argv)
    if is_about_own_text(line.launch):  # reads text and weights, which needs more packages
        from bert.commands import own_text

        return own_text.main(line, begun)
    return start(planned, argv)


def planned(words: Sequence[str]) -> Planned:
    """The plan of a command line; of one about own text, its plan is made when it is executed."""
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
    work = [step.share for step in trainings(job)]
    return Planned(line, plan.shown_in_time([share / sum(work) for share in work]), job)


def job_of(plan: LaunchPlan, words: Sequence[str] = ()) -> Job:
    """Missing data and the training of each phase, then the results."""
    launch, first = plan.launch, plan.phases[0]
    phases = []
    for config in plan.phases:
        data = data_steps(plan.name, config, launch.shards, plan.ranks)
        step = phase_step(config, first, launch.start, plan.ranks, data)
        phases.append(replace(step, share=_work(config, plan.world_size())))
    results = PretrainingResults(plan.name, tuple(phases), tuple(words))
    return Job(plan.name, first.run.output_dir, (*phases, results), plan.ranks, plan.hours)


def _work(config: PretrainingConfig, world_size: int) -> float:
    """The arithmetic of a phase, by which --hours are divided; of one whose updates are not known yet, of an update."""
    data, schedule = config.data, config.batch.schedule(world_size)
    flops = training_flops_per_sequence(config.model, data.max_seq_length, data.max_predictions_per_seq)
    return float(flops * schedule.sequences(max(1, with_known_steps(config, world_size).run.max_steps)))


@dataclass(frozen=True)
class PretrainingResults(Step):
    """Shows the figures of the phases, the picture and the next commands.

    Attributes:
        words: of the command, which its longer form repeats.
    """

    takes_time: ClassVar[bool] = False
    preset: str
    phases: tuple[TrainPhase, ...]
    words: tuple[str, ...]

    @property
    def title(self) -> str:
        return "showing the results"

    def run(self, execution: Execution) -> int:
        configs = [step.settled(execution).config for step in self.phases]
        if not execution.has_worked:
            output_dir = configs[0].run.output_dir
            print(wrapped(f"Already done: {output_dir} (delete it, or pass another --output-dir, to train anew)"))
            print("".join(map(without_effect, configs)), end="")
        if not execution.job.is_first_node():
            return OK
        if configs[0].run.benchmark:
            for config in configs:
                rate = read_json(config.log_dir() / "summary.json").get("training_sequences_per_second") or 0.0
                figure = f"phase {config.run.phase}: training_sequences_per_second {rate:,.1f} ({config.log_dir()})"
                print(wrapped(figure))
            return OK
        try:
            show_figures(self.preset, configs, execution.seconds() if execution.has_worked else None)
            print(next_commands(_next_commands(self.preset, configs, self.words)))
            for config in configs[1:]:
                if notice := kept_start(config, configs[0]):
                    print(notice)
            sys.stdout.flush()
        except BrokenPipeError:  # no reader (`| head`); the files are written
            discard_output()
        return OK


def _next_commands(preset: str, phases: Sequence[PretrainingConfig], words: Sequence[str]) -> list[tuple[str, str]]:
    """(purpose, command); `words` are those of the command that ran, which its longer form repeats."""
    pretrain, first, last = "scripts/run_pretraining.sh", phases[0], phases[-1]
    longer = [f"--phase{first.run.phase}-max-steps", str(2 * first.run.max_steps), "--output-dir", "results/longer"]
    weights: list[str | Path] = ["--from-pretrained-params", last.checkpoint_dir()]
    on_squad = ["--config", "squad_large", "--download"] if first.model.hidden_size >= 768 else []
    large = shell_command(pretrain, "--config", "large", "--dry-run")
    commands = [curves_command(first.run.output_dir)]
    if not any("epochs" in word or "hours" in word for word in words):  # which go with no number of steps
        twice = f"the same, phase {first.run.phase} twice as long"
        commands.append((twice, shell_command(pretrain, *words, *longer)))
    commands.append(("fine-tune it on questions", shell_command("scripts/run_squad.sh", *on_squad, *weights)))
    if preset == "quickstart":
        commands.append(("what BERT-large on 8 GPUs would take", large))
    return commands
