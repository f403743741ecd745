"""`bash scripts/run_seeds.sh CONFIG --seeds 5`: one recipe with several seeds; mean, spread and failures.

Each seed is a run of the recipe's own launcher in a folder of its own. The same command resumes: finished seeds are not
run again, a stopped one continues, a failed one is tried again.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert.commands.squad import SQUAD_PRESETS
from bert.config.command_line import usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK
from bert.files import only_writer, read_json, require_writable, write_atomically
from bert.help_parser import HelpParser
from bert.interpreter import shell_command
from bert.launching.process_runner import Runner
from bert.pretraining.recipes import PRESETS, evening
from bert.reporting.progress import duration
from bert.reporting.spread import metric_table, metrics_of
from bert.tasks import TASKS

_RECIPES = {  # by task; a name that several tasks have belongs to the first of them
    **{name: tuple(entry.recipes) for name, entry in TASKS.items()},
    "pretraining": (*PRESETS, evening.NAME),
    "squad": (*SQUAD_PRESETS, *TASKS["squad"].recipes),
}
_RECORD = "seeds.json"


class Trainings:
    """Trainings that follow each other, each in a folder of its own below one, whose record says how they ended.

    The same command resumes: finished ones are not run again, a stopped one continues, a failed one is tried again.

    Args:
        settings: of the command; an earlier start's must be the same, in mappings those of entries with a finished run.
    """

    def __init__(self, folder: Path, file: str, settings: Mapping[str, Any], is_read_only: bool = False) -> None:
        if not is_read_only:
            require_writable(folder)
        self.folder, self._file = folder, folder / file
        self._runner: Runner | None = None  # from the first training on it takes Ctrl-C
        earlier = read_json(self._file)
        if not earlier and self._file.exists():
            raise ValueError(f"{self._file} must be a JSON object and is damaged; remove it: runs are made again")
        self.record: dict[str, Any] = {**settings, "exit_codes": {}, "seconds": {}, **earlier}
        done = {key.partition("/")[0] for key, code in self.record["exit_codes"].items() if code == OK}
        for name, now in settings.items():
            before = self.record[name]
            entries = {name: (before, now)}
            if isinstance(now, dict):
                known = {key for key in done & now.keys() if before.get(key) and "folder" not in before[key]}
                entries = {f"{name} {key}": (before[key], now[key]) for key in known}  # earlier versions knew a folder
            for of, (then, value) in entries.items():
                if _compared(then) != _compared(value):
                    raise ValueError(
                        f"{folder}: holds seeds of another command ({of}: {then}, now {value}); give another "
                        "--output-dir, or remove it"
                    )
            self.record[name] = before | now if isinstance(now, dict) else now

    def code(self, key: str) -> int | None:
        """Its exit code; None: it has not ended."""
        return self.record["exit_codes"].get(key)

    def run(self, key: str, title: str, task: str, output_dir: Path, words: Sequence[str]) -> int:
        """Run a training; returns its exit code: INTERRUPTED after a stop."""
        print(f"\n==== {title}", flush=True)
        self._runner = runner = self._runner or Runner()
        command, started = [sys.executable, "-m", "bert.launching", task, *words], time.monotonic()
        code = runner.run([*command, "--output-dir", str(output_dir)])
        if runner.stop_requested or code == INTERRUPTED:
            print("stopped; the same command continues", file=sys.stderr)
            return INTERRUPTED
        if code != BAD_INPUT:  # which a corrected command mends
            self.record["exit_codes"][key] = code
            seconds = self.record["seconds"].get(key, 0) + time.monotonic() - started
            self.record["seconds"][key] = round(seconds, 1)
            self.save()
        return code

    def save(self) -> None:
        write_atomically(self._file, (json.dumps(self.record, indent=1) + "\n").encode())


def _compared(value: Any) -> Any:
    """Flags without those that only bring data which a run lacked."""
    if not isinstance(value, list):
        return value
    words, kept, is_left_out = [word for flag in value for word in flag.split("=", 1)], list[str](), False
    for word in words:
        if word.startswith("--"):
            is_left_out = word.replace("_", "-") in ("--download", "--max-bad-line-fraction")
        kept += [] if is_left_out else [word]
    return kept


def refuse_flags(flags: Iterable[str], words: Sequence[str], remedy: str) -> None:
    """Refuse the flags that differ from run to run, or leave runs unfinished."""
    typed = {word.partition("=")[0].replace("_", "-") for word in words}
    for flag in flags:
        if flag in typed:
            raise ValueError(f"{flag} is set for each {remedy}")
    if "--steps-this-run" in typed:
        raise ValueError("--steps-this-run leaves runs unfinished, which have no results; drop it (Ctrl-C stops)")


def numbers_of(seeds: int, first_seed: int) -> range:
    if seeds < 1 or first_seed < 0:
        raise ValueError(f"seeds={seeds} must be at least 1, first_seed={first_seed} at least 0")
    return range(first_seed, first_seed + seeds)


def main(words: Sequence[str]) -> int:
    parser = _parser()
    arguments, rest = parser.parse_known_args(list(words))
    with contextlib.ExitStack() as stack:
        return _run(arguments, rest, stack)


def _run(arguments: argparse.Namespace, rest: list[str], stack: contextlib.ExitStack) -> int:
    with usage_errors():
        task = _task_of(arguments.recipe, arguments.task)
        given = "CONFIG, --seeds, --first-seed and --output-dir"
        refuse_flags(("--seed", "--output-dir", "--config"), rest, f"seed; give {given}")
        numbers = numbers_of(arguments.seeds, arguments.first_seed)
        folder = (arguments.output_dir or Path("results/seeds") / Path(arguments.recipe).stem).expanduser()
        stack.enter_context(only_writer(folder))
        trainings = Trainings(folder, _RECORD, {"task": task, "config": arguments.recipe, "flags": rest})
    for number in numbers:
        if trainings.code(str(number)) == OK and (folder / f"seed-{number}").exists():
            continue
        title = f"seed {number} ({number - numbers.start + 1} of {len(numbers)})"
        command = ["--config", arguments.recipe, "--seed", str(number), *rest]
        code = trainings.run(str(number), title, task, folder / f"seed-{number}", command)
        if code in (INTERRUPTED, BAD_INPUT):  # every other seed would be refused as well
            return code
    record = trainings.record
    lines = report(folder, list(numbers), record)
    write_atomically(folder / "seeds.md", ("\n".join(lines) + "\n").encode())
    print("\n" + "\n".join(lines))
    return max((record["exit_codes"][str(number)] for number in numbers), default=OK)


def report(folder: Path, numbers: list[int], record: dict[str, Any]) -> list[str]:
    """Markdown: what was run, a row per metric, and the seeds that failed."""
    failed = [number for number in numbers if record["exit_codes"].get(str(number)) != OK]
    metrics = {number: metrics_of(folder / f"seed-{number}") for number in numbers if number not in failed}
    words = [record["config"], "--seeds", str(len(numbers))]
    words += ["--first-seed", str(numbers[0])] if numbers[0] != 1 else []
    words += ["--task", record["task"], "--output-dir", str(folder), *record["flags"]]
    took = duration(sum(record["seconds"].get(str(number), 0) for number in numbers))
    lines = [
        f"{record['config']}: {len(numbers)} seeds in {took}; `{shell_command('scripts/run_seeds.sh', *words)}`",
        "",
    ]
    lines += metric_table(metrics, "seed")
    codes = ", ".join(f"seed {number} with exit code {record['exit_codes'].get(str(number))}" for number in failed)
    return [*lines, "", f"failed: {len(failed)}" + (f" ({codes}; the same command tries them again)" if failed else "")]


def _task_of(recipe: str, task: str | None) -> str:
    for name, recipes in _RECIPES.items():
        if recipe in recipes and task in (None, name):
            return name
    if task is not None and Path(recipe).exists():  # a file of settings
        return task
    if Path(recipe).suffix in (".yaml", ".yml", ".json"):
        rule = "does not exist" if not Path(recipe).exists() else "needs --task, which says whose settings they are"
        raise ValueError(f"CONFIG={recipe} {rule}; give a file of settings with --task, or the name of a recipe")
    names = "; ".join(f"{name}: {', '.join(recipes)}" for name, recipes in _RECIPES.items())
    raise ValueError(f"CONFIG={recipe} must be a recipe, or a file of settings with --task. Recipes of {names}")


def _parser() -> HelpParser:
    parser = HelpParser(
        prog="scripts/run_seeds.sh",
        allow_abbrev=False,  # --seed would be --seeds
        description="Run a recipe with several seeds and report mean, spread and failures.",
        epilog="Further flags are those of the recipe's own launcher, for example --from-pretrained-params.",
    )
    parser.add_argument("recipe", metavar="CONFIG", help="a recipe of any task, or a file of settings with --task")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
    parser.add_argument("--first-seed", type=int, default=1, help="the others follow it (default: 1)")
    parser.add_argument("--task", choices=tuple(_RECIPES), help="where several have a recipe of that name")
    parser.add_argument("--output-dir", type=Path, help="default: results/seeds/CONFIG")
    return parser
