"""`bash scripts/run_glue.sh all CHECKPOINT`: every task of GLUE or of a list, which may have files of your own, over
several seeds and learning rates; a table with mean and spread, the average, a picture.

Each training is one of run_glue.sh in a folder of its own, as those of run_seeds.sh. Only the checkpoint of the best
run of a task stays.
"""

import argparse
import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bert.checkpoints.directories import weights_folder
from bert.commands import glue
from bert.commands.fine_tuning import plan_of
from bert.commands.score_tables import Results, TaskScores, score_names
from bert.commands.seeds import Trainings, numbers_of, refuse_flags
from bert.config.command_line import usage_errors
from bert.config.setting_errors import suggest
from bert.conversion.locating import resolve
from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK
from bert.files import only_writer, sha256_of_file
from bert.finetuning.config import with_steps
from bert.finetuning.glue.config import ENTRY, GlueConfig
from bert.finetuning.glue.features import sentence_features
from bert.finetuning.glue.reading import Examples, find_file, read_examples
from bert.finetuning.glue.task_table import TASKS, Split, find_task
from bert.finetuning.inquiries import training_seconds
from bert.help_parser import HelpParser
from bert.planning.estimates import checkpoint_bytes
from bert.reporting.progress import duration, megabytes
from bert.reporting.spread import metrics_of
from bert.tokenization.library import text_tokenizer
from bert.tokenization.vocabulary import Vocabulary
from data.fetching.transfer import data_folder
from data.text.inputs import COMPRESSIONS

_SAMPLE = 2_000  # examples whose lengths stand for all
_START_SECONDS = 15.0  # of a training, before its first update and after its last
_DEFAULTS = ("--keep-checkpoints", "1")
_SET_HERE = (
    "--seed --learning-rate --config --task-name --from-pretrained-params --model --train-file --train --eval-file "
    "--eval --do-train --do-eval --show-config --plan"
).split()


@dataclass(frozen=True)
class Entry:
    """A task of the list: its name, its flags of run_glue.sh, and what decides its data."""

    name: str
    flags: tuple[str, ...]
    is_of_glue: bool
    data: dict[str, str]


@dataclass(frozen=True)
class Planned:
    """What a task's trainings will be."""

    entry: Entry
    config: GlueConfig
    rates: tuple[float, ...]
    sizes: tuple[int, int, int] | None  # sequences of the training and the evaluation, updates; None: not there yet
    seconds: float | None  # of one training

    def key(self, rate: float, seed: int) -> str:
        return f"{self.entry.name}/lr-{rate:g}/seed-{seed}"


def entries_of(words: str, data_dir: Path | None, is_fetched: bool) -> list[Entry]:
    """The tasks of `all` or of a list of names, recipes and own files (TRAIN, or TRAIN:EVAL)."""
    every = [name for name, task in TASKS.items() if task.train]
    names = [name for word in words.split(",") for name in (every if word.strip() == "all" else [word])]
    entries = [_entry(name.strip(), data_dir, is_fetched, len(names) == 1) for name in names]
    if twice := {entry.name for entry in entries if [other.name for other in entries].count(entry.name) > 1}:
        raise ValueError(f"tasks={words} names {min(twice)} twice; name each once, files in folders of different names")
    return entries


def _entry(word: str, data_dir: Path | None, is_fetched: bool, is_alone: bool) -> Entry:
    train, _, evaluated = word.partition(":")
    if Path(train).is_file():
        paths = {"train_file": Path(train), **({"eval_file": Path(evaluated)} if evaluated else {})}
        for name, path in paths.items():
            if not path.is_file():
                raise ValueError(f"{name}={path} must be an existing file; correct {word}")
        file = Path(train)
        stem = Path(file.stem if file.suffix in COMPRESSIONS else file.name).stem
        name = paths["train_file"].absolute().parent.name if stem == "train" else stem
        flags = [word for name, path in paths.items() for word in (f"--{name.replace('_', '-')}", str(path))]
        data = {str(path): sha256_of_file(path) for path in paths.values()}
        return Entry(name, tuple(flags), False, data)
    recipe = word.lower()
    if recipe not in ENTRY.recipes:
        try:
            recipe = find_task(word).name.lower()
        except ValueError:
            hint = suggest(word, ["all", *TASKS, *ENTRY.recipes], f"the tasks are {', '.join(TASKS)}")
            raise ValueError(f"task={word} must be a task, a recipe, or a file of labelled lines; {hint}") from None
    if recipe not in ENTRY.recipes:
        raise ValueError(f"task={word} has nothing to train on; leave it out")
    task = str(dict(ENTRY.recipes[recipe]())["task_name"])
    if task == "custom":  # of this project
        return Entry(recipe, ("--config", recipe), False, {})
    if is_fetched and data_dir is None:
        return Entry(recipe, ("--config", recipe), True, {})
    folder = (data_dir or data_folder() / "glue") / task
    folder = data_dir if is_alone and data_dir is not None and not folder.is_dir() else folder
    splits = [TASKS[task].train, *TASKS[task].dev.values()]
    names = {name for split in splits if split is not None for name in split.files if (folder / name).is_file()}
    data = {name: sha256_of_file(folder / name) for name in sorted(names)}
    return Entry(recipe, ("--config", recipe, "--data-dir", str(folder)), True, data)


def plan_task(entry: Entry, rates: Sequence[float], common: Sequence[str], is_dry: bool) -> Planned:
    """Settings, sizes and time of a task's trainings; its data are fetched first, unless it `is_dry`."""
    launched = plan_of(glue.LAUNCHER, [*entry.flags, *common])
    (config,), sizes, seconds = launched.phases, None, None
    if not is_dry:
        config.prepare_files()
    try:
        config.check_files()
    except (ValueError, OSError):
        if not (is_dry and config.data.download):
            raise
    else:
        train, evaluated, lengths = _sizes(config)
        stepped = with_steps(config, train, launched.world_size())
        sizes = (train, evaluated, stepped.run.max_steps)
        expected = training_seconds(stepped, launched.world_size(), lengths, evaluated)
        seconds = None if expected is None else sum(expected) + _START_SECONDS
    chosen = tuple(rates) or (config.optimizer.learning_rate,)
    return Planned(entry, config, chosen, sizes, seconds)


def _sizes(config: GlueConfig) -> tuple[int, int, Any]:
    """Sequences to train on and to evaluate; lengths of a sample of the former."""
    task, data = config.task(), config.data
    assert task.train is not None, "the settings have checked it"

    def examples(file: Path | None, split: Split) -> Examples:
        path = file if data.data_dir is None else find_file(data.data_dir, split)
        assert path is not None, "the files were checked"
        return read_examples(path, split, task, data.max_bad_line_fraction)

    train = examples(data.train_file, task.train)
    number = len(train)
    if config.holds_out():
        evaluated = number // data.folds
        number -= evaluated
    else:
        evaluated = sum(len(examples(data.eval_file, split)) for split in task.dev.values())
    tokenizer = text_tokenizer(Vocabulary.from_file(data.vocab_file), data.do_lower_case)
    texts = [column[:_SAMPLE] for column in train.texts]
    return number, evaluated, sentence_features(tokenizer, texts, data.max_seq_length)[0].lengths()


class Scores:
    """The trainings of all tasks, rates and seeds."""

    def __init__(self, plans: Sequence[Planned], seeds: range, trainings: Trainings, common: Sequence[str]) -> None:
        self._plans, self._seeds, self._trainings, self._common = plans, seeds, trainings, common
        self.refused: dict[str, str] = {}  # task -> why it has no more runs

    def runs(self) -> Iterator[tuple[Planned, float, int]]:
        """All tasks with the first seed come first, so that a table of all is there early."""
        return ((plan, rate, seed) for seed in self._seeds for plan in self._plans for rate in plan.rates)

    def left(self) -> list[tuple[Planned, float, int]]:
        return [run for run in self.runs() if not self._metrics(*run)]

    def seconds_left(self) -> float | None:
        """By the times of a task's runs that ended, otherwise by the planner; None where that knows none."""
        total, seconds = 0.0, self._trainings.record["seconds"]
        for plan, _, _ in self.left():
            keys = [plan.key(rate, seed) for rate in plan.rates for seed in self._seeds]
            took = [seconds[key] for key in keys if key in seconds]
            expected = sum(took) / len(took) if took else plan.seconds
            if expected is None:
                return None
            total += expected
        return total

    def run(self, keep_models: str) -> int:
        """Run what is left; returns the worst exit code, INTERRUPTED after a stop."""
        code, left = OK, self.left()
        for plan in self._plans if keep_models == "none" else ():
            self._remove_checkpoints(plan, False)
        for number, (plan, rate, seed) in enumerate(left, start=1):
            name, key = plan.entry.name, plan.key(rate, seed)
            if name in self.refused:
                continue
            title = f"{name}, rate {rate:g}, seed {seed} ({number} of {len(left)} left)"
            words = [*plan.entry.flags, *self._common, "--learning-rate", f"{rate:g}", "--seed", str(seed)]
            ended = self._trainings.run(key, title, "glue", self._trainings.folder / key, words)
            if ended == INTERRUPTED:
                return INTERRUPTED
            if ended == BAD_INPUT:
                self.refused[name] = "it was refused, for the reason above"
            code = max(code, ended)
            self.results().write(self._trainings.folder, picture=False)
            if keep_models != "all":
                self._remove_checkpoints(plan, keep_models == "best")
        return code

    def results(self) -> Results:
        tasks = []
        for plan in self._plans:
            runs = {(rate, seed): self._metrics(plan, rate, seed) for rate in plan.rates for seed in self._seeds}
            tasks.append(
                TaskScores(
                    plan.entry.name,
                    plan.entry.is_of_glue,
                    tuple(plan.config.task().dev),
                    {run: metrics for run, metrics in runs.items() if metrics},
                )
            )
        return Results(tasks)

    def failures(self) -> list[str]:
        """A line for each task without runs and for each run that failed."""
        lines = [f"{name}: {reason}" for name, reason in self.refused.items()]
        for plan, rate, seed in self.left():
            if (code := self._trainings.code(plan.key(rate, seed))) is not None:
                ended = f"exit code {code}" if code != OK else "it ended without a score"
                lines.append(f"{plan.entry.name}, rate {rate:g}, seed {seed}: {ended}")
        return lines

    def _metrics(self, plan: Planned, rate: float, seed: int) -> dict[str, float]:
        """Metric -> value of a run that has ended, with its scores; empty of another."""
        key = plan.key(rate, seed)
        if self._trainings.code(key) != OK:
            return {}
        prefix = f"{plan.config.stage()} "
        metrics = metrics_of(self._trainings.folder / key)
        metrics = {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
        return metrics if metrics.keys() >= {*score_names(plan.config.task().dev)} else {}

    def _remove_checkpoints(self, plan: Planned, keeps_best: bool) -> None:
        (scores,) = [task for task in self.results().tasks if task.name == plan.entry.name]
        best = scores.best_run() if keeps_best else None
        for run in scores.runs:
            if run != best:
                shutil.rmtree(self._trainings.folder / plan.key(*run) / plan.config.run.bert_model, ignore_errors=True)


def main(words: Sequence[str]) -> int:
    arguments, others = _parser().parse_known_args(list(words))
    with contextlib.ExitStack() as stack:
        return _run(arguments, others, stack)


def _run(arguments: argparse.Namespace, others: list[str], stack: contextlib.ExitStack) -> int:
    positional, rest = glue.split_positional(others)
    with usage_errors():
        if len(positional) not in (2, 3):
            shown = " ".join(positional) or "the command's beginning"
            raise ValueError(f"{shown} must be TASKS CHECKPOINT, or TASKS DATA_DIR CHECKPOINT; see --help")
        refuse_flags(_SET_HERE, rest, "run; give TASKS, --seeds and --learning-rates")
        tasks, *data, checkpoint = positional
        seeds, rates = numbers_of(arguments.seeds, arguments.first_seed), _rates(arguments.learning_rates)
        data_dir = Path(data[0]).expanduser() if data else arguments.data_dir
        entries = entries_of(tasks, data_dir, "--download" in rest)
        folder = (arguments.output_dir or Path("results/scores") / Path(checkpoint).name).expanduser()
        common = ["--from-pretrained-params", checkpoint, *_DEFAULTS, *rest]  # later flags win
        facts: dict[str, Any] = {"checkpoint": str(weights_folder(resolve(checkpoint, weights=False))), "flags": rest}
        facts["data"] = {entry.name: entry.data for entry in entries}
        if not arguments.dry_run:
            stack.enter_context(only_writer(folder))
        trainings = Trainings(folder, "runs.json", facts, is_read_only=arguments.dry_run)
        plans, refused = _plans(entries, rates, common, arguments.dry_run)
        scores = Scores(plans, seeds, trainings, common)
        scores.refused |= refused
        print("\n".join(_shown(scores, plans, seeds, folder, arguments.keep_models)), flush=True)
        if arguments.dry_run:
            return OK
        needed, free = _disk_bytes(plans, len(seeds), arguments.keep_models), shutil.disk_usage(folder).free
        needed -= sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        if scores.left() and needed > free:
            raise ValueError(
                f"{folder} has {megabytes(free)} free, and the checkpoints need up to {megabytes(needed)}; free some "
                "space, pass --keep-models none, or another --output-dir"
            )
        trainings.save()
    if (code := scores.run(arguments.keep_models)) == INTERRUPTED:
        return code
    failures, lines = scores.failures(), scores.results().write(folder, picture=True)
    files = f"all of this and the single runs: {folder}/scores.md, scores.json, scores.png"
    has_ended = len(scores.left()) < len(list(scores.runs()))
    if failures:
        lines += ["", "failed (the same command tries them again):", *(f"  {line}" for line in failures)]
    print("\n".join(["", *lines, *(["", files] if has_ended else [])]))
    return code or (BAD_INPUT if failures else OK)


def _plans(
    entries: Sequence[Entry], rates: Sequence[float], common: Sequence[str], is_dry: bool
) -> tuple[list[Planned], dict[str, str]]:
    """The plans, and the tasks that have none with the reasons; the first reason as an error if none has one."""
    plans, refused = [], {}
    for entry in entries:
        try:
            plans.append(plan_task(entry, rates, common, is_dry))
        except (ValueError, OSError) as error:
            if isinstance(error, ValidationError) or len(entries) == 1:
                raise  # a flag is wrong for all
            refused[entry.name] = str(error)
    if not plans:
        raise ValueError(next(f"{name}: {reason}" for name, reason in refused.items()))
    return plans, refused


def _rates(words: str | None) -> list[float]:
    try:
        rates = [float(word) for word in words.split(",")] if words else []
    except ValueError:
        rates = [0.0]
    if any(not 0 < rate < 1 for rate in rates):
        raise ValueError(f"learning_rates={words} must be positive numbers with commas between, as 2e-5,3e-5,5e-5")
    return list(dict.fromkeys(rates))


def _disk_bytes(plans: Sequence[Planned], num_seeds: int, keep_models: str) -> int:
    """Of the checkpoints at most: those of the run that trains, and what stays of the others."""
    size = max(checkpoint_bytes(plan.config.model) for plan in plans)
    a_run = plans[0].config.run.keep_checkpoints + 1  # the best beside the newest
    runs = sum(len(plan.rates) for plan in plans) * num_seeds
    return size * (a_run + 1 + {"none": 0, "best": len(plans), "all": a_run * runs}[keep_models])


def _shown(scores: Scores, plans: Sequence[Planned], seeds: range, folder: Path, keep_models: str) -> list[str]:
    """The plan as text."""
    lines = [f"{'task':<18}{'training':>10}{'evaluated':>11}{'updates':>9}{'runs':>6}  a run takes"]
    for plan in plans:
        sizes = "".join(f"{size:>{width},}" for size, width in zip(plan.sizes or (), (10, 11, 9), strict=False))
        took = "not known" if plan.seconds is None else f"about {duration(plan.seconds)}"
        number = len(plan.rates) * len(seeds)
        lines.append(f"{plan.entry.name:<18}{sizes or 'no data there yet':>30}{number:>6}  {took}")
    lines += [f"{name:<18}left out: {reason}" for name, reason in scores.refused.items()]
    total, left = len(list(scores.runs())), len(scores.left())
    seconds = scores.seconds_left()
    when = "" if seconds is None or not left else f", about {duration(seconds)} (estimate)"
    rates = dict.fromkeys(f"{rate:g}" for plan in plans for rate in plan.rates)
    state = f"{total - left} done, {left} left{when}"
    lines += ["", f"{total} runs: rates {', '.join(rates)}, seeds {seeds[0]} to {seeds[-1]}; {state}"]
    lines.append(f"disk: up to {megabytes(_disk_bytes(plans, len(seeds), keep_models))} of checkpoints in {folder}")
    return lines


def _parser() -> HelpParser:
    parser = HelpParser(
        prog="scripts/run_glue.sh",
        usage="%(prog)s TASKS [DATA_DIR] CHECKPOINT [flags]",
        allow_abbrev=False,  # --seed would be --seeds
        description=__doc__,
        epilog="TASKS is `all`, or tasks, recipes and files with commas between: mrpc,rte,mine.csv,train.tsv:test.tsv. "
        "DATA_DIR has a folder for each task (CoLA, SST-2 ...); --download fetches them. Further flags are those of "
        "the trainings. The same command resumes.",
    )
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each task and rate (default: 3)")
    parser.add_argument("--first-seed", type=int, default=1, help="the others follow it (default: 1)")
    parser.add_argument("--learning-rates", metavar="X,Y", help="to choose from (default: that of the task's recipe)")
    parser.add_argument("--data-dir", type=Path, help="as DATA_DIR")
    parser.add_argument("--output-dir", type=Path, help="default: results/scores/CHECKPOINT")
    parser.add_argument(
        "--keep-models",
        choices=("best", "none", "all"),
        default="best",
        help="checkpoints to keep (default: a task's best)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan (runs, time, disk) and stop")
    return parser
