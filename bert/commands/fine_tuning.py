"""Shared code of the fine-tuning commands: settings, quickstart data, ranks, start and results."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from bert import REPOSITORY
from bert.checkpoints.directories import list_steps
from bert.commands.quickstart_data import MadeData, SampleVocabulary, quickstart_data
from bert.config.command_line import Question, take_questions
from bert.config.flags import flag_name
from bert.config.setting_errors import Mistakes
from bert.config.setting_sources import read_settings, resolve
from bert.config.training_settings import derive
from bert.config.unread_settings import unread_warnings
from bert.conversion.usage import LINEAR_MODEL_FILE
from bert.exit_codes import BAD_INPUT, OK
from bert.files import read_json, unset_variable
from bert.finetuning.config import FineTuningConfig, with_global_batch
from bert.help_parser import wrapped
from bert.interpreter import shell_command
from bert.jobs.job import Execution, Job, Planned, Step
from bert.jobs.training import Train, parts_of_time
from bert.launching.arguments import POSITIONAL_PLAN, CommandLine, Launcher, read_command_line
from bert.launching.ranks import gpus_for, quickstart_processes
from bert.launching.settings import LaunchPlan
from bert.reporting.curves import curves_command
from bert.reporting.metric_titles import BASELINE_TITLES, with_baseline_title
from bert.reporting.progress import announce, metric_form
from bert.reporting.results import next_commands
from bert.reporting.run_record import BASELINE_MODEL, SCORES_FILE

_FILES = ("text", "train_file", "eval_file", "predict_file")  # settings that name what a command reads
ALL_MODES = ("do_train", "do_eval", "do_predict")
Row = tuple[str, str, str]  # title, key of summary.json, format
_THROUGHPUT: list[Row] = [
    ("training, sequences/s", "training_sequences_per_second", ".1f"),
    ("inference, sequences/s", "inference_sequences_per_second", ".1f"),
    ("baseline, seconds", "baseline_seconds", ".1f"),
]


@dataclass(frozen=True)
class ArgumentSettings:
    """The settings that positional arguments stand for; flags override them."""

    settings: Mapping[str, Any]
    launch: Mapping[str, Any] = field(default_factory=dict)
    quickstart: str = ""  # name of the recipe, if it trains on example data of this project


@dataclass(frozen=True, kw_only=True)
class FineTuningLauncher(Launcher):
    """Describes one fine-tuning command: its quickstarts and its table of results."""

    argument_settings: Callable[[CommandLine], ArgumentSettings]
    quickstart_output: str = "results/glue_quickstart/{}"  # output folder of a quickstart; {} is its name
    vocabulary_size: int = 1024  # tokens of the quickstart's vocabulary if no pre-trained weights are used
    questions: Mapping[str, str] | None = None  # SQuAD only: example file of each quickstart
    scores: Sequence[tuple[str, str, str]] = ()  # rows (title, key of summary.json, format); empty: all metrics


def recipe_settings(recipes: Mapping[str, Any], name: str) -> ArgumentSettings:
    is_quickstart = name in recipes and name.startswith("quickstart")
    return ArgumentSettings({"config": name} if name else {}, quickstart=name if is_quickstart else "")


def planned_of(task: FineTuningLauncher, words: Sequence[str]) -> Planned:
    """Plan the job of a command line; raises ValueError with a line for each mistake."""
    line = read_command_line(task, words)
    announce("reading", (Path(str(line.training[name])).expanduser() for name in _FILES if name in line.training))
    mistakes, flags = Mistakes(line.mistakes), dict(line.launch)
    questions = take_questions(flags, task.entry)
    with mistakes.noted():
        arguments = task.argument_settings(line)
        plan, training = _plan(task, line, arguments, flags, questions)
    if mistakes.are_there():  # such as a model that cannot be fetched, before the files are checked
        for mistake in _missing_files(line):
            mistakes.add(mistake)
    mistakes.refuse()
    results = FineTuningResults(training, tuple(task.scores))
    job = Job(plan.name, training.config.run.output_dir, (training, results), plan.ranks, plan.hours)
    return Planned(line, plan.shown_in_time(parts_of_time(job)), job)


def _missing_files(line: CommandLine) -> Iterator[str]:
    """The lines about missing files that `check_files` raises for a command line."""
    for name in _FILES[1:]:
        path = Path(str(line.training.get(name, "."))).expanduser()
        if not path.exists():
            yield f"{name}={path} must be an existing file; check {flag_name(name)}{unset_variable(path)}"


def _plan(
    task: FineTuningLauncher,
    line: CommandLine,
    arguments: ArgumentSettings,
    flags: dict[str, Any],
    questions: Sequence[Question],
) -> tuple[LaunchPlan, "FineTune"]:
    settings, launch_settings = dict(arguments.settings), dict(arguments.launch)
    made = MadeData()
    if arguments.quickstart:
        with line.notices_on_stderr_if_config_is_printed():
            default = task.quickstart_output.format(arguments.quickstart.removeprefix("quickstart_"))
            folder = Path(line.training.get("output_dir", default)).expanduser()
            kind = None if task.questions is None else task.questions[arguments.quickstart]
            made = quickstart_data(task.entry, line, settings, folder, kind, task.vocabulary_size)
        settings |= made.settings
        device = {**dict(task.entry.recipes[arguments.quickstart]()), **settings, **line.training}.get("device", "auto")
        launch_settings["num_processes"] = quickstart_processes(device)
    timed = {"lr_schedule": "wsd"} if "hours" in flags else {}  # whose decay can begin at any time
    config = resolve([{**timed, **settings}, line.training], task.entry)
    available = max(1, gpus_for(config.hardware.device))
    launched = read_settings(task.settings, {"num_processes": available, **launch_settings, **flags})
    if "plan" not in line.launch:  # --plan is about other devices than this machine has
        config = with_global_batch(config, launched.nodes.world_size())
    name = POSITIONAL_PLAN if line.positional else settings.get("config", "")
    training = FineTune(
        script=REPOSITORY / task.entry.script,
        config=config,
        ranks=launched.nodes,
        data=made.steps,
        log_file=config.run.output_dir / "logfile.txt" if line.positional else None,  # as NVIDIA's scripts
        repeats=True,
        typed=frozenset({**line.launch, **line.training}),
        vocabulary=made.vocabulary,
    )
    unread = [*unread_warnings(config, line.training), *unread_warnings(launched, line.launch)]
    plan = LaunchPlan(name, [config], launched, questions, unread)
    plan.refuse_schedule()
    return plan, training


@dataclass(frozen=True, kw_only=True)
class FineTune(Train):
    """The step of a job that fine-tunes, evaluates or predicts.

    Attributes:
        typed: names of the settings that were given on the command line.
        vocabulary: the step of its data that makes the vocabulary, by which the model is sized; None: none is made.
    """

    seconds_beside: ClassVar[float] = 12.0  # extra time, such as for the baselines
    config: FineTuningConfig
    typed: frozenset[str] = frozenset()
    vocabulary: SampleVocabulary | None = None

    def settled(self, execution: Execution) -> Self:
        if self.vocabulary is None:
            return self
        return replace(self, config=derive(self.config, vocab_size=self.vocabulary.size_now()))

    def check(self, here: bool) -> None:
        """Also refuse missing or wrong files that the user named; other files may exist where the job runs."""
        mistakes, error = Mistakes(), self._wrong_files()
        with mistakes.noted():
            super().check(here)
        with mistakes.noted():
            if error is not None and (here or str(error).partition("=")[0] in self.typed):
                raise error
        mistakes.refuse()

    def _wrong_files(self) -> ValueError | None:
        """The error of `check_files`, or None; files that a step makes or fetches may be missing."""
        if self.data or self.config.fetches_data():
            return None
        try:
            self.config.check_files()
        except ValueError as error:
            return error
        return None


@dataclass(frozen=True)
class FineTuningResults(Step):
    """Shows the scores, the throughput, and where the results are.

    Attributes:
        scores: title, key of summary.json, format; none: all metrics.
        is_alone: it is not one of several runs, whose checkpoints may go.
    """

    takes_time: ClassVar[bool] = False
    training: FineTune
    scores: tuple[Row, ...] = ()
    is_alone: bool = True

    @property
    def title(self) -> str:
        return "showing the results"

    def run(self, execution: Execution) -> int:
        config = self.training.config
        print("\n".join(result_lines(config, self.scores, self.is_alone)), flush=True)
        summary = read_json(config.log_dir() / "summary.json")
        is_measured = any(summary.get(key) is not None for _, key, _ in _THROUGHPUT)
        return BAD_INPUT if config.run.benchmark and not is_measured else OK


def result_lines(config: FineTuningConfig, scores: Sequence[Row], is_alone: bool = True) -> list[str]:
    """The table of scores and throughput, as far as summary.json has them, and where the results are."""
    folder = config.log_dir()
    summary = read_json(folder / "summary.json")
    rows = [*_of_both_weights(scores or evaluation_scores(summary), summary), *_THROUGHPUT]
    rows = [row for row in rows if summary.get(row[1]) is not None]
    width = max([32, *(len(title) + 1 for title, *_ in rows)])
    lines = ["", *(f"  {title:<{width}}{format(summary[key], form):>9}" for title, key, form in rows), ""]
    if config.run.benchmark:
        lines += [] if rows else ["nothing was measured"]
        return [*lines, f"Summary: {folder}/summary.json"]
    for record in (summary, read_json(folder / SCORES_FILE)):
        lines += wrapped(record.get("verdict", "")).splitlines()
    lines.append(wrapped(f"Predictions and summary.json: {folder}"))
    commands, better = [], better_baseline(summary)
    if is_alone and list_steps(config.checkpoint_dir()):
        words = shell_command("run_predict.py", config.checkpoint_dir(), *config.example_words)
        commands.append((f"use the model, although the {better} scores higher" if better else "use the model", words))
    if (baseline := folder / BASELINE_MODEL / LINEAR_MODEL_FILE).is_file():
        title = "use the kept baseline, which scores higher" if better else "use the kept baseline"
        commands.insert(0 if better else len(commands), (title, shell_command("run_predict.py", baseline.parent)))
    if config.run.do_train and config.hardware.visualdl:
        commands.append(curves_command(folder))
    return [*lines, next_commands(commands)] if commands else lines


def better_baseline(summary: Mapping[str, Any]) -> str:
    """Name of the best baseline if it scores higher than the model, such as "bag-of-words baseline"; otherwise ""."""
    ending = "_alone_score"
    measured = {key: value for key, value in summary.items() if key.endswith(ending) and value is not None}
    best = max(measured, key=measured.__getitem__, default="")
    is_better = bool(best) and measured[best] > summary.get("eval_score", math.inf)
    name = best.removeprefix("eval_").removesuffix("_score").replace("_", " ")
    return BASELINE_TITLES.get(name, name) if is_better else ""


def _of_both_weights(scores: Sequence[Row], summary: Mapping[str, Any]) -> list[Row]:
    """The scores of the best weights, then of the last weights if these differ."""
    if "last_step" not in summary:
        return list(scores)
    last = [(title, f"last_{key}", form) for title, key, form in scores]
    return [("best evaluation, after update", "best_step", ","), *scores, ("last update", "last_step", ","), *last]


def evaluation_scores(summary: Mapping[str, Any]) -> list[Row]:
    """All evaluation metrics of a summary."""
    names = [name for name, value in summary.items() if name.startswith("eval_") and isinstance(value, float)]
    titles = [with_baseline_title(name.removeprefix("eval_").replace("_", " ")) for name in names]
    return [(title, name, metric_form(name, summary)) for title, name in zip(titles, names, strict=True)]
