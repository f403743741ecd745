"""`--seeds 5` and `run_glue.sh all CHECKPOINT`: one command repeated with several seeds, each run in its own folder.

The same command resumes: a run that has ended is not repeated, a stopped one continues, a failed one is tried again.
The table at the end (mean, spread, average of GLUE) is also in the report of these runs, `python -m bert.reporting`.
"""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bert.config.setting_errors import usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK
from bert.files import only_writer, write_atomically
from bert.glue.task_table import TASKS
from bert.help_parser import HelpParser, wrapped
from bert.launching.process_runner import Runner
from bert.reporting.run_record import read_runs
from bert.reporting.spread import repetition_lines
from data.fetching.places import data_folder

_QUESTIONS = {"--dry-run", "--show-config", "--plan"}
_RECORD = "repetition.txt"  # the command of a run that has ended, in its folder


class Repetition(NamedTuple):
    task: str  # its name among several
    folder: Path
    words: Sequence[str]  # of the command but for the output folder

    def has_ended(self) -> bool:
        """Raises ValueError if it ended with another command."""
        record, now = self.folder / _RECORD, self.recorded_command()
        if not record.exists():
            return False
        if (earlier := record.read_text(encoding="utf-8")) != now:
            raise ValueError(
                f"{self.folder} holds a run of another command ({earlier}, now {now}); give another --output-dir, or "
                "remove it"
            )
        return True

    def recorded_command(self) -> str:
        """The flags in a fixed order, without those that ask, or only bring data which the run lacked."""
        words = [word for flag in self.words for word in flag.split("=", 1)]
        for flag, length in (("--download", 1), ("--max-bad-line-fraction", 2), *((flag, 1) for flag in _QUESTIONS)):
            while flag in words:
                del words[words.index(flag) : words.index(flag) + length]
        starts = [number for number, word in enumerate(words) if number == 0 or word.startswith("--")]
        groups = (words[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True))
        return " ".join(" ".join(group) for group in sorted(groups))


def main(task: str, words: Sequence[str]) -> int:
    with contextlib.ExitStack() as stack:
        with usage_errors():
            parser = HelpParser(prog=f"scripts/run_{task}.sh", description=__doc__, allow_abbrev=False)
            parser.add_argument("--seeds", type=int, default=3, help="runs of each task (default: 3)")
            parser.add_argument("--first-seed", type=int, default=1, help="the others follow it (default: 1)")
            parser.add_argument(
                "--output-dir", type=Path, help="default: results/seeds/NAME, of all tasks results/scores"
            )
            tasks = "[all [DATA_DIR] CHECKPOINT] " if task == "glue" else ""
            parser.usage = f"%(prog)s {tasks}[arguments of a single run] --seeds N"
            arguments, rest = parser.parse_known_args(words)
            flags = {word.partition("=")[0].replace("_", "-") for word in rest}
            for flag in {"--seed", "--steps-this-run"} & flags:
                raise ValueError(f"{flag} is set for each run; --seeds and --first-seed choose the seeds, Ctrl-C stops")
            if arguments.seeds < 1:
                raise ValueError(f"seeds={arguments.seeds} must be at least 1")
            is_all = task == "glue" and rest[:1] == ["all"]
            commands = _all_tasks(rest) if is_all else {"": rest}
            folder = (arguments.output_dir or Path("results", "scores" if is_all else f"seeds/{task}")).expanduser()
            runs = [  # all tasks with the first seed come first, so that a table of all is there early
                Repetition(name, folder / name / f"seed-{seed}", [*words, "--seed", str(seed)])
                for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds)
                for name, words in commands.items()
            ]
            left = sum(not run.has_ended() for run in runs)
            print(f"{len(runs)} runs in {folder}: {len(runs) - left} ended, {left} left", flush=True)
            if not flags & _QUESTIONS:
                stack.enter_context(only_writer(folder))
        if flags & _QUESTIONS:  # of one run of each task
            return max(_start(Runner(), task, run) for run in runs[: len(commands)])
        return _run_all(task, runs, folder)


def _run_all(task: str, runs: Sequence[Repetition], folder: Path) -> int:
    runner, worst, failures, refused = Runner(), OK, list[str](), set[str]()
    for number, run in enumerate(runs, start=1):
        if run.has_ended() or run.task in refused:
            continue
        title = str(run.folder.relative_to(folder))
        print(f"\n==== {title} ({number} of {len(runs)})", flush=True)
        code = _start(runner, task, run)
        if runner.stop_requested or code == INTERRUPTED:
            print("stopped; the same command continues", file=sys.stderr)
            return INTERRUPTED
        if code == OK:
            write_atomically(run.folder / _RECORD, run.recorded_command().encode())
        else:
            worst, failures = max(worst, code), [*failures, f"  {title}: exit code {code}"]
            refused |= {run.task} if code == BAD_INPUT else set()  # its other runs would be refused as well
    lines = repetition_lines(read_runs([folder])) if any(run.has_ended() for run in runs) else ["no run has ended"]
    write_atomically(folder / "scores.md", ("\n".join(lines) + "\n").encode())
    failed = ["", "failed (the same command tries them again):", *failures] if failures else []
    print("\n".join(["", wrapped("\n".join(lines)), "", f"This table: {folder}/scores.md", *failed]))
    return worst


def _start(runner: Runner, task: str, run: Repetition) -> int:
    command = [sys.executable, "-m", "bert.commands", task, *run.words]
    return runner.run([*command, "--output-dir", str(run.folder)])


def _all_tasks(words: Sequence[str]) -> dict[str, list[str]]:
    """Task -> words of run_glue.sh, for `all [DATA_DIR] CHECKPOINT [flags]`."""
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
