"""What the commands of fine-tuning share: settings, the quickstarts' data, ranks, start and results."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert import REPOSITORY
from bert.checkpoints.directories import list_steps, weights_folder
from bert.config.command_line import take_questions
from bert.config.setting_errors import usage_errors
from bert.config.setting_sources import read_settings, resolve_config
from bert.exit_codes import OK
from bert.files import read_json, require_writable
from bert.finetuning.config import FineTuningConfig, with_global_batch
from bert.help_parser import wrapped
from bert.interpreter import shell_command
from bert.launching.arguments import POSITIONAL_PLAN, CommandLine, Launcher, read_command_line
from bert.launching.process_runner import Runner, module_command, start_process
from bert.launching.ranks import gpus_for, quickstart_processes
from bert.launching.settings import LaunchPlan
from bert.launching.start_training import launch
from bert.pretraining.recipes import QUICKSTART_DIR
from bert.reporting.curves import curves_command
from bert.reporting.progress import metric_form
from bert.reporting.results import next_commands
from bert.reporting.run_record import SCORES_FILE
from data.text.lddl_writer import QUIET_COUNTS

ALL_MODES = ("do_train", "do_eval", "do_predict")
Row = tuple[str, str, str]  # title, key of summary.json, format
_THROUGHPUT: list[Row] = [
    ("training, sequences/s", "training_sequences_per_second", ".1f"),
    ("inference, sequences/s", "inference_sequences_per_second", ".1f"),
    ("baseline, seconds", "baseline_seconds", ".1f"),
]


@dataclass(frozen=True)
class Form:
    """What the arguments stand for before the flags of the training are laid over it."""

    settings: Mapping[str, Any]
    launch: Mapping[str, Any] = field(default_factory=dict)
    quickstart: str = ""  # the recipe, if it trains on data of this project, which are made


@dataclass(frozen=True, kw_only=True)
class FineTuningLauncher(Launcher):
    """A launcher of fine-tuning, with the settings of its quickstarts and its table of results."""

    form: Callable[[CommandLine], Form]
    quickstart_output: str = "results/glue_quickstart/{}"  # the name of the quickstart for {}
    vocabulary_size: int = 1024  # in tokens, without pre-trained weights
    questions: Mapping[str, str] | None = None  # of SQuAD: which files of this project each quickstart reads
    scores: Sequence[tuple[str, str, str]] = ()  # title, key of summary.json, format; none: all metrics


def run(task: FineTuningLauncher, words: Sequence[str]) -> int:
    """A training from its command line to its results; returns the exit code."""
    with usage_errors():
        plan = plan_of(task, words)
        if plan.answers():
            return OK
    return train(task, plan)


def train(task: FineTuningLauncher, plan: LaunchPlan) -> int:
    (config,) = plan.phases
    log_file = config.run.output_dir / "logfile.txt" if plan.name == POSITIONAL_PLAN else None  # as NVIDIA's scripts
    code = launch(REPOSITORY / task.entry.script, config, plan.ranks, Runner(), log_file=log_file)
    if code == OK:
        print("\n".join(result_lines(config, task.scores)))
    return code


def form_of_recipe(recipes: Mapping[str, Any], name: str) -> Form:
    is_quickstart = name in recipes and name.startswith("quickstart")
    return Form({"config": name} if name else {}, quickstart=name if is_quickstart else "")


def plan_of(task: FineTuningLauncher, words: Sequence[str]) -> LaunchPlan:
    """The plan of a task's command line; raises ValueError with value, rule and remedy."""
    line = read_command_line(task, words)
    flags = dict(line.launch)
    questions = take_questions(flags, task.entry)
    form = task.form(line)
    settings, launch_settings = dict(form.settings), dict(form.launch)
    if form.quickstart:
        with line.notices_on_stderr_if_config_is_printed():
            settings |= _quickstart(task, form, line, makes_data=not questions)
        device = {**dict(task.entry.recipes[form.quickstart]()), **settings, **line.training}.get("device", "auto")
        launch_settings["num_processes"] = quickstart_processes(device)
    config = resolve_config({**settings, **line.training}, task.entry)
    available = max(1, gpus_for(config.hardware.device))
    launched = read_settings(task.settings, {"num_processes": available, **launch_settings, **flags})
    config = with_global_batch(config, launched.nodes.world_size())
    return LaunchPlan(POSITIONAL_PLAN if line.positional else settings.get("config", ""), [config], launched, questions)


def _quickstart(task: FineTuningLauncher, form: Form, line: CommandLine, makes_data: bool) -> dict[str, Any]:
    """Output folders, data of this project, and initial weights unless the flags name some.

    The weights are the result of the pre-training quickstart, or random numbers, with a vocabulary made of the data.
    Without `makes_data` the settings are those of a first start, and nothing is written.
    """
    # Mistakes are found before data are made; the vocabulary is one of these.
    resolve_config({**form.settings, "vocab_file": "vocab.txt", **line.training}, task.entry)
    default = task.quickstart_output.format(form.quickstart.removeprefix("quickstart_"))
    output_dir = Path(line.training.get("output_dir", default)).expanduser()
    data = output_dir / "data"
    if makes_data:
        require_writable(output_dir)
    elif not data.exists():
        print(wrapped(f"The quickstart's data are made at its start, in {data}; until then they cannot be counted."))
    settings: dict[str, Any] = {"output_dir": output_dir, "report_file": output_dir / "report.json"}
    if task.questions is not None:
        files = task.questions[form.quickstart]
        if makes_data:
            _run_module("data.examples.sample_questions", output_dir=data)
        settings |= {"train_file": data / f"train{files}.json", "predict_file": data / f"held_out{files}.json"}
        settings |= {} if gpus_for("auto") else {"device": "cpu"}
        text = data / "train.json"
    else:
        text = dict(task.entry.recipes[form.quickstart]())["train_file"]
    if line.training.keys() & {"from_pretrained_params", "from_checkpoint"}:
        return settings
    return settings | (_pretrained_settings() or _random_settings(data, text, task.vocabulary_size, makes_data))


def _pretrained_settings() -> dict[str, Any]:
    """The model of the pre-training quickstart; empty if there is none."""
    folder = QUICKSTART_DIR / "bert-quickstart"
    if folder.is_dir() and weights_folder(folder) != folder:
        print(f"starting from the pre-trained weights in {weights_folder(folder)}", flush=True)
        return {"from_pretrained_params": weights_folder(folder)}
    makes = f"`{shell_command('scripts/run_pretraining.sh')}` makes one; --from-pretrained-params names another."
    without = "so the weights are random, and the scores will be near those of guessing"
    print(wrapped(f"There is no pre-trained model in {folder}, {without}. {makes}"), flush=True)
    return {}


def _random_settings(data: Path, text: Path, size: int, makes_data: bool) -> dict[str, Any]:
    """A small model of random weights, with a vocabulary of `size` tokens or fewer made of the training file."""
    vocabulary = data / "vocab.txt"
    if makes_data and not vocabulary.is_file():
        source = data / "text"
        source.mkdir(parents=True, exist_ok=True)
        documents = (f"document-{number} {document}\n" for number, document in enumerate(_documents(text)))
        (source / "0.txt").write_text("".join(documents), encoding="utf-8")
        _run_module("data.train_vocabulary", input=source, vocab_size=size, output=vocabulary)
    if vocabulary.is_file():
        size = len(vocabulary.read_text(encoding="utf-8").splitlines())
    return {"bert_model": "bert-quickstart", "vocab_size": size, "vocab_file": vocabulary}


def _documents(file: Path) -> list[str]:
    """The paragraphs of SQuAD's JSON, the lines of another file."""
    content = file.read_text(encoding="utf-8")
    if file.suffix != ".json":
        return [line for line in content.splitlines() if line]
    return [paragraph["context"] for article in json.loads(content)["data"] for paragraph in article["paragraphs"]]


def _run_module(module: str, **options: Any) -> None:
    """Run a command of data/; ValueError if it fails, after its own error."""
    output = sys.stderr if sys.stdout is sys.stderr else None  # CommandLine.notices_on_stderr_if_config_is_printed
    if code := start_process(module_command(module, **options), stdout=output).wait():
        raise ValueError(f"python -m {module} ended with exit code {code}; the reason is above")


def result_lines(config: FineTuningConfig, scores: Sequence[Row]) -> list[str]:
    """A table of the scores and the throughput, as far as summary.json has them, and where the results are."""
    folder = config.log_dir()
    summary = read_json(folder / "summary.json")
    rows = [*_of_both_weights(scores or evaluation_scores(summary), summary), *_THROUGHPUT]
    rows = [row for row in rows if summary.get(row[1]) is not None]
    lines = ["", *(f"  {title:<32}{format(summary[key], form):>9}" for title, key, form in rows), ""]
    if config.run.benchmark:
        return [*lines, f"Summary: {folder}/summary.json"]
    for found in (summary, read_json(folder / SCORES_FILE)):
        lines += wrapped(found.get("verdict", "")).splitlines()
    lines.append(wrapped(f"Predictions and summary.json: {folder}"))
    commands, is_alone = [], QUIET_COUNTS not in os.environ  # not one of several runs, whose checkpoints may go
    if is_alone and list_steps(config.checkpoint_dir()):
        words = shell_command("run_predict.py", config.checkpoint_dir(), *config.example_words)
        commands.append(("use the model", words))
    if config.run.do_train and config.hardware.visualdl:
        commands.append(curves_command(folder))
    return [*lines, next_commands(commands)] if commands else lines


def _of_both_weights(scores: Sequence[Row], summary: Mapping[str, Any]) -> list[Row]:
    """The scores, which are of the best weights; then of the last, where these are others."""
    if "last_step" not in summary:
        return list(scores)
    last = [(title, f"last_{key}", form) for title, key, form in scores]
    return [("best evaluation, after update", "best_step", ","), *scores, ("last update", "last_step", ","), *last]


def evaluation_scores(summary: Mapping[str, Any]) -> list[Row]:
    """All metrics of the evaluation."""
    names = [name for name, value in summary.items() if name.startswith("eval_") and isinstance(value, float)]
    return [(name.removeprefix("eval_").replace("_", " "), name, metric_form(name, summary)) for name in names]
