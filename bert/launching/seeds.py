"""`bash scripts/run_seeds.sh CONFIG --seeds 5`: one recipe with several seeds; mean, spread and failures.

Each seed is a run of the recipe's own launcher in a folder of its own. The same command resumes: finished seeds are not
run again, a stopped one continues, a failed one is tried again.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert.config.command_line import usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK
from bert.files import read_json, require_writable, write_atomically
from bert.help_parser import HelpParser
from bert.interpreter import shell_command
from bert.launching.finetuning_tasks import SQUAD_PRESETS
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


def main(words: Sequence[str]) -> int:
    parser = _parser()
    arguments, rest = parser.parse_known_args(list(words))
    with usage_errors():
        task = _task_of(arguments.recipe, arguments.task)
        for flag in ("--seed", "--output-dir", "--config"):
            if any(word == flag or word.startswith(f"{flag}=") for word in rest):
                raise ValueError(f"{flag} is set for each seed; give CONFIG, --seeds, --first-seed and --output-dir")
        if arguments.seeds < 1 or arguments.first_seed < 0:
            raise ValueError(
                f"seeds={arguments.seeds} must be at least 1, first_seed={arguments.first_seed} at least 0"
            )
        folder = arguments.output_dir or Path("results/seeds") / Path(arguments.recipe).stem
        require_writable(folder)
        record = _read_record(folder, {"task": task, "config": arguments.recipe, "flags": rest})
    numbers = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    runner = Runner()
    for number in numbers:
        if record["exit_codes"].get(str(number)) == OK:
            continue
        print(f"\n==== seed {number} ({number - numbers.start + 1} of {len(numbers)})", flush=True)
        command = [sys.executable, "-m", "bert.launching", task, "--config", arguments.recipe, "--seed", str(number)]
        started = time.monotonic()
        code = runner.run([*command, "--output-dir", str(folder / f"seed-{number}"), *rest])
        if runner.stop_requested or code == INTERRUPTED:
            print("stopped; the same command continues", file=sys.stderr)
            return INTERRUPTED
        if code == BAD_INPUT:  # every other seed would be refused as well
            return code
        record["exit_codes"][str(number)] = code
        record["seconds"][str(number)] = round(record["seconds"].get(str(number), 0) + time.monotonic() - started, 1)
        write_atomically(folder / _RECORD, (json.dumps(record, indent=1) + "\n").encode())
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


def _read_record(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """What is known of earlier starts in the folder; ValueError if they had other settings."""
    record = {**settings, "exit_codes": {}, "seconds": {}, **read_json(folder / _RECORD)}
    if other := [name for name, value in settings.items() if record[name] != value]:
        raise ValueError(
            f"{folder}: holds seeds of another command ({other[0]}: {record[other[0]]}, now {settings[other[0]]}); "
            "give another --output-dir, or remove it"
        )
    return record


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
