"""`--seeds 5`, `--learning-rates X,Y`, `run_glue.sh all CHECKPOINT`: one command repeated, each run in its own folder.

The same command resumes: a run that has ended is not repeated, a stopped one continues, a failed one is tried again.
The table at the end (mean, spread, average of GLUE) is also in the report of these runs, `python -m bert.reporting`.
"""

import contextlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bert.commands.repeated_commands import (
    are_several_tasks,
    commands_of_tasks,
    flag_names,
    parser_of,
    rates_of,
    refuse_flags,
    split_positional,
    task_of_recipe,
)
from bert.config.command_line import usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK
from bert.files import only_writer, write_atomically
from bert.launching.process_runner import Runner
from bert.reporting.run_record import RunRecord, read_runs
from bert.reporting.spread import repetition_lines, score_in

_QUESTIONS = {"--dry-run", "--show-config", "--plan"}
_RECORD = "repetition.txt"  # the command of a run that has ended, in its folder


class Repetition(NamedTuple):
    task: str  # its name among several
    folder: Path
    words: Sequence[str]  # of the command but for the output folder

    def has_ended(self) -> bool:
        """Raises ValueError if it ended with another command."""
        record = self.folder / _RECORD
        earlier, now = record.read_text(encoding="utf-8") if record.exists() else None, self.recorded_command()
        if earlier not in (None, now):
            raise ValueError(
                f"{self.folder} holds a run of another command ({earlier}, now {now}); give another --output-dir, or "
                "remove it"
            )
        return earlier is not None

    def recorded_command(self) -> str:
        """The command without the flags that only bring data which the run lacked."""
        words = [word for flag in self.words for word in flag.split("=", 1)]
        for flag, length in (("--download", 1), ("--max-bad-line-fraction", 2)):
            while flag in words:
                del words[words.index(flag) : words.index(flag) + length]
        return " ".join(words)

    def records(self) -> list[RunRecord]:
        return read_runs([self.folder]) if self.has_ended() else []


def main(task: str, words: Sequence[str]) -> int:
    with contextlib.ExitStack() as stack:
        with usage_errors():
            is_list = task == "glue" and are_several_tasks(parser_of(task, is_list=True).parse_known_args(words)[1])
            arguments, rest = parser_of(task, is_list).parse_known_args(words)
            rates = rates_of(arguments.learning_rates)
            refuse_flags(rest, {"--seed", "--steps-this-run", *(["--learning-rate"] if rates else [])})
            if is_list:
                commands = commands_of_tasks(rest, arguments.data_dir)
                usual = f"scores/{Path(split_positional(rest)[0][-1]).name}"
            else:
                task = task_of_recipe(arguments.config, arguments.task) if task == "seeds" else task
                usual = f"seeds/{Path(arguments.config or task).stem}"
                commands = {"": [*rest, *(["--config", arguments.config] if arguments.config else [])]}
            folder = (arguments.output_dir or Path("results") / usual).expanduser()
            runs = _runs(commands, folder, range(arguments.first_seed, arguments.first_seed + arguments.seeds), rates)
            left = sum(not run.has_ended() for run in runs)
            print(f"{len(runs)} runs in {folder}: {len(runs) - left} ended, {left} left", flush=True)
            if is_question := bool(flag_names(rest) & _QUESTIONS):  # asked of one run of each task
                runs = list({run.task: run for run in reversed(runs)}.values())[::-1]
            else:
                stack.enter_context(only_writer(folder))
        if is_question:
            return max(_start(Runner(), task, run) for run in runs)
        return _run_all(task, runs, folder, arguments.keep_models if is_list else "all")


def _run_all(task: str, runs: Sequence[Repetition], folder: Path, keep_models: str) -> int:
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
        if keep_models != "all":
            _remove_checkpoints([other for other in runs if other.task == run.task], keep_models == "best")
    ended = read_runs([folder]) if any(run.has_ended() for run in runs) else []
    lines = repetition_lines(ended)
    if ended:
        write_atomically(folder / "scores.md", ("\n".join(lines) + "\n").encode())
        lines.append(f"\nThis table: {folder}/scores.md")
    failures = ["", "failed (the same command tries them again):", *failures] if failures else []
    print("\n".join(["", *lines, *failures]))
    return worst


def _start(runner: Runner, task: str, run: Repetition) -> int:
    command = [sys.executable, "-m", "bert.commands", task, *run.words]
    return runner.run([*command, "--output-dir", str(run.folder)])


def _runs(
    commands: Mapping[str, Sequence[str]], folder: Path, seeds: range, rates: Sequence[float]
) -> list[Repetition]:
    """All tasks with the first seed come first, so that a table of all is there early."""
    if not seeds or seeds[0] < 0:
        raise ValueError(f"seeds={len(seeds)} must be at least 1, first_seed={seeds.start} at least 0")
    runs = []
    for seed in seeds:
        for task, words in commands.items():
            for rate in (f"{rate:g}" for rate in rates) if rates else [""]:
                own = folder / task / (f"lr-{rate}" if rate else "") / f"seed-{seed}"
                typed = [*words, *(["--learning-rate", rate] if rate else []), "--seed", str(seed)]
                runs.append(Repetition(task, own, typed))
    return runs


def _remove_checkpoints(runs: Sequence[Repetition], keeps_best: bool) -> None:
    """Remove the checkpoints of runs that have ended, but for the run of the best score."""
    ended = [record for run in runs for record in run.records()]
    best = max(ended, key=lambda record: score_in(record.summary) or 0.0, default=None)
    for record in ended:
        if record is not best or not keeps_best:
            shutil.rmtree(record.directory.parent / record.settings["bert_model"], ignore_errors=True)
