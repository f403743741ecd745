"""`--seeds 5` and `run_glue.sh all CHECKPOINT`: one command that runs several trainings, each in its own folder.

The same command resumes: a training that is done is not repeated, a stopped one continues, a failed one is tried
again. The table at the end (mean, spread, average of GLUE) is also in the report, `python -m bert.reporting`.
"""

from argparse import SUPPRESS
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import ClassVar

from bert.commands.fine_tuning import FineTuningResults
from bert.config.setting_errors import Mistakes
from bert.exit_codes import OK
from bert.files import write_atomically
from bert.glue.task_table import TASKS
from bert.help_parser import HelpParser, wrapped
from bert.jobs.job import Execution, Group, Job, Planned, Step, start
from bert.jobs.training import Train, parts_of_time, trainings
from bert.own_text.flags import is_about_own_text
from bert.reporting.run_record import read_runs
from bert.reporting.spread import repetition_lines
from data.fetching.places import data_folder

Plan = Callable[[Sequence[str]], Planned]  # words of a single training -> its plan


def main(task: str, plan: Plan, words: Sequence[str]) -> int:
    return start(partial(planned, task, plan), words)


def planned(task: str, plan: Plan, words: Sequence[str]) -> Planned:
    """Plan all trainings. A question such as --dry-run is answered for the first one.

    Args:
        task: the name of the command.
        plan: of a single training.
    """
    parser = HelpParser(
        prog=f"scripts/run_{task}.sh",
        description=__doc__,
        examples=("--seeds 5", "--seeds 5 --first-seed 10 --output-dir results/repeated"),
        allow_abbrev=False,
    )
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each task (default: 3)")
    parser.add_argument("--first-seed", type=int, default=1, help="the others follow it (default: 1)")
    parser.add_argument("--output-dir", type=Path, help="default: results/seeds/NAME, of all tasks results/scores")
    tasks = "[all [DATA_DIR] CHECKPOINT] " if task == "glue" else ""
    parser.usage = f"%(prog)s {tasks}[arguments of a single training] --seeds N"
    arguments, rest = parser.parse_known_args(words)
    flags = {word.partition("=")[0].replace("_", "-") for word in rest}
    for flag in {"--seed", "--steps-this-run"} & flags:
        raise ValueError(f"{flag} is set for each run; --seeds and --first-seed choose the seeds, Ctrl-C stops")
    if len(numbers := _words_after("--seeds", words)) > 1:
        lowest = int(numbers[0])
        are_in_order = [*map(int, numbers)] == list(range(lowest, lowest + len(numbers)))
        first_seed = lowest if are_in_order else "FIRST"
        wanted = f"--seeds {len(numbers)} --first-seed {first_seed}"
        raise ValueError(f"--seeds {' '.join(numbers)}: --seeds is the number of trainings; pass {wanted}")
    if arguments.seeds < 1:
        raise ValueError(f"seeds={arguments.seeds} must be at least 1")
    if task == "pretraining":
        rest = _with_part_of_the_hours(rest, arguments.seeds)
    is_all = task == "glue" and rest[:1] == ["all"]
    commands = _all_tasks(rest) if is_all else {"": rest}
    folder = (arguments.output_dir or Path("results", "scores" if is_all else f"seeds/{task}")).expanduser()
    groups, plans, mistakes = list[Step](), list[Planned](), Mistakes()
    # All tasks with the first seed come first, so that a table of all is there early.
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for name, of_task in commands.items():
            title = str(Path(name) / f"seed-{seed}")
            with mistakes.noted():
                one = plan([*of_task, "--seed", str(seed), "--output-dir", str(folder / title)])
                groups.append(_group(title, name or task, one.job))
                plans.append(one)
    mistakes.refuse()
    first = plans[0]
    job = replace(first.job, output_dir=folder, steps=(*groups, Scores(folder)), goes_on=True)
    if not trainings(job) and job.hours is not None:  # on own text: each has a clock of its own, and its part of them
        job = replace(job, hours=job.hours * len(groups))
    return Planned(first.line, first.plan.shown_in_time(parts_of_time(job)), job)


def _words_after(flag: str, words: Sequence[str]) -> list[str]:
    """The whole numbers that follow a flag on the command line."""
    return list(takewhile(str.isdecimal, words[words.index(flag) + 1 :])) if flag in words else []


def _with_part_of_the_hours(words: Sequence[str], number: int) -> list[str]:
    """The command line of one of several trainings. With --text each has its own share of --hours."""
    parser = HelpParser(add_help=False, allow_abbrev=False, argument_default=SUPPRESS)
    for flag in ("--config", "--text", "--hours"):
        parser.add_argument(flag, nargs="+" if flag == "--text" else None)
    flags = vars(parser.parse_known_args(words)[0])
    if "hours" not in flags or not is_about_own_text(flags):
        return list(words)
    try:
        part = float(flags["hours"]) / number
    except ValueError:  # which the settings refuse, with the rule
        return list(words)
    return [*words, "--hours", f"{part:g}"]


def _group(title: str, family: str, job: Job) -> Group:
    """The steps of one training; a finished training is not started again."""
    steps = list[Step]()
    for step in job.steps:
        if isinstance(step, Train):
            step = replace(step, repeats=False)
        elif isinstance(step, FineTuningResults):
            step = replace(step, is_alone=False)
        steps.append(step)
    return Group(title, tuple(steps), family)


@dataclass(frozen=True)
class Scores(Step):
    """The step of a job that writes and prints the table of all finished trainings."""

    takes_time: ClassVar[bool] = False
    folder: Path

    @property
    def title(self) -> str:
        return "scores of all trainings"

    @property
    def product(self) -> Path:
        return self.folder / "scores.md"

    def run(self, execution: Execution) -> int:
        has_runs = any(self.folder.rglob("summary.json"))
        lines = repetition_lines(read_runs([self.folder])) if has_runs else ["no training has ended"]
        write_atomically(self.product, ("\n".join(lines) + "\n").encode())
        print("\n".join(["", wrapped("\n".join(lines)), "", f"This table: {self.product}"]))
        return OK


def _all_tasks(words: Sequence[str]) -> dict[str, list[str]]:
    """Words of run_glue.sh by task, for `all [DATA_DIR] CHECKPOINT [flags]`."""
    number = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    if number not in (2, 3):
        raise ValueError(f"{' '.join(words[:number])} must be all CHECKPOINT, or all DATA_DIR CHECKPOINT; see --help")
    checkpoint, flags = words[number - 1], words[number:]
    data_dir = Path(words[1]) if number == 3 else data_folder() / "glue"
    if not (data_dir.is_dir() or "--download" in flags):
        raise ValueError(
            f"DATA_DIR={data_dir} must be a folder with one for each task, such as CoLA; name it, or pass --download"
        )
    commands = {}
    for name in (name for name, task in TASKS.items() if task.train):
        data = [] if number == 2 and "--download" in flags else ["--data-dir", str(data_dir / name)]
        start = ["--from-pretrained-params", checkpoint, "--keep-checkpoints", "1"]
        commands[name.lower()] = ["--config", name.lower(), *data, *start, *flags]
    return commands
