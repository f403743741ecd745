"""`bash scripts/run_ner.sh`: fine-tunes BERT to find named entities, or other spans of words, and scores it.

Without a recipe (--config) and without files it runs the quickstart on sentences of this project.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from bert.config.command_line import parse_flags
from bert.finetuning.ner.config import ENTRY
from bert.interpreter import shell_command
from bert.launching.arguments import LauncherParser, names_help, split_positional
from bert.launching.finetuning import FineTuningPlan, finetune, make_plan
from bert.launching.finetuning_quickstart import recipe_settings

QUICKSTART = "quickstart_entities"


def main(words: Sequence[str]) -> int:
    return finetune(words, plan)


def plan(words: Sequence[str]) -> FineTuningPlan:
    """The plan of a command line; raises ValueError with value, rule and remedy."""
    positional, words = split_positional(words)
    if positional:
        raise ValueError(f"{' '.join(positional)} must be a flag, there are no positional arguments; see --help")
    parser = _parser()
    launcher, rest = parser.read(words)
    return plan_of(launcher, rest, parser.names())


def plan_of(launcher: dict[str, Any], words: Sequence[str], launcher_flags: Iterable[str]) -> FineTuningPlan:
    """The plan from the launcher's parsed flags and the remaining words."""
    flags = parse_flags(words, ENTRY, launcher_flags)
    has_files = flags.keys() & {"train_file", "eval_file", "predict_file"}
    recipe = launcher.get("config", None if has_files else QUICKSTART)
    return make_plan(ENTRY, launcher, recipe_settings(recipe, ENTRY, launcher, flags), flags)


def _parser() -> LauncherParser:
    return LauncherParser(
        further=shell_command("run_ner.py", "--help"),
        topics={"recipes": names_help(Recipes=ENTRY.recipes)},
        prog="scripts/run_ner.sh",
        usage="%(prog)s [--config NAME] [flags]",
        description="Fine-tune BERT to find named entities, and score it. Without arguments: the quickstart, on "
        "sentences of this project.",
        epilog="The same command resumes a stopped run.",
    )
