"""`bash scripts/run_glue.sh`: fine-tunes BERT on a task of GLUE, or on sentences of your own, and scores it.

Three forms, each with optional flags: no arguments (the quickstart); a task, the folder of its files and a checkpoint;
a recipe with --config. NER recipes are accepted too, and started as scripts/run_ner.sh does.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert.config.command_line import parse_flags
from bert.finetuning.glue.config import ENTRY, OWN_FILES
from bert.finetuning.glue.task_table import task_name
from bert.interpreter import shell_command
from bert.launching import ner
from bert.launching.arguments import LauncherParser, names_help, split_positional
from bert.launching.finetuning import FineTuningPlan, finetune, make_plan
from bert.launching.finetuning_quickstart import recipe_settings

QUICKSTART = "quickstart_sentiment"
POSITIONAL = ("task", "data_dir", "checkpoint")


def main(words: Sequence[str]) -> int:
    return finetune(words, plan)


def plan(words: Sequence[str]) -> FineTuningPlan:
    """The plan of a command line; raises ValueError with value, rule and remedy."""
    positional, words = split_positional(words)
    parser = _parser()
    launcher, rest = parser.read(words)
    recipe = launcher.get("config")
    if positional:
        defaults = _positional_settings(positional, recipe)
    elif recipe in ner.ENTRY.recipes or (recipe and _is_of_entities(Path(recipe))):
        return ner.plan_of(launcher, rest, parser.names())
    flags = parse_flags(rest, ENTRY, parser.names())
    if not positional:
        recipe = recipe or _recipe_of(flags)
        defaults = recipe_settings(recipe, ENTRY, launcher, flags)
    return make_plan(ENTRY, launcher, defaults, flags)


def _positional_settings(positional: Sequence[str], recipe: str | None) -> dict[str, Any]:
    if recipe is not None:
        raise ValueError(f"config={recipe} contradicts the positional arguments; give only one of them")
    if len(positional) != len(POSITIONAL):
        raise ValueError(
            f"{len(positional)} positional arguments ({' '.join(positional)}) must be {len(POSITIONAL)}: "
            f"{' '.join(POSITIONAL)}; or use flags (--help)"
        )
    task, data_dir, checkpoint = positional
    name = task_name(task)
    settings: dict[str, Any] = {"task_name": name, "data_dir": data_dir, "from_pretrained_params": checkpoint}
    return settings | ({"config": name.lower()} if name.lower() in ENTRY.recipes else {"do_predict": True})


def _recipe_of(flags: Mapping[str, Any]) -> str | None:
    """Without --config: the recipe of a task that is named without saying what to do; the quickstart without a task.

    Data without a task never get the quickstart, which would train on the sentences of this project first.
    """
    if "task_name" not in flags:
        return None if flags.keys() & {*OWN_FILES, "data_dir"} else QUICKSTART
    name = task_name(str(flags["task_name"])).lower()
    says_what_to_do = any(flags.get(mode, "false") != "false" for mode in ("do_train", "do_eval", "do_predict"))
    return name if name in ENTRY.recipes and not says_what_to_do else None


def _is_of_entities(path: Path) -> bool:
    """Whether a settings file is one that run_ner.py wrote."""
    return path.is_file() and "tag_column:" in path.read_text(encoding="utf-8", errors="replace")


def _parser() -> LauncherParser:
    return LauncherParser(
        further=shell_command("run_glue.py", "--help"),
        topics={"recipes": names_help(Recipes=[*ENTRY.recipes, *ner.ENTRY.recipes])},
        prog="scripts/run_glue.sh",
        usage="%(prog)s [TASK DATA_DIR CHECKPOINT | --config NAME | --task-name TASK --download] [flags]",
        description="Fine-tune BERT on a task of GLUE, on sentences of your own, or to find entities, and score it.\n"
        "Files without --task-name are your own (custom). Without arguments: the quickstart, on sentences of this "
        "project.",
        epilog="Recipes of entities have the settings of run_ner.py. The same command resumes a stopped run.",
    )
