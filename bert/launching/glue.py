"""`bash scripts/run_glue.sh` and `run_ner.sh`: fine-tune BERT to classify sentences, or to find entities, and score it.

Nothing at all is the quickstart; else a recipe with --config, and flags. For GLUE also a task, the folder of its files
and a checkpoint. run_glue.sh takes the recipes of entities too.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bert.config.base import derive
from bert.config.command_line import EntryPoint, parse_flags, settings_or_answers
from bert.finetuning.config import FineTuningConfig
from bert.finetuning.glue.config import ENTRY as GLUE
from bert.finetuning.glue.tasks import find_task
from bert.finetuning.ner.config import ENTRY as NER
from bert.launching.arguments import LauncherParser, split_positional
from bert.launching.finetuning import FineTuningPlan, Row, finetune, ranks_for, summary_lines, trained_model
from bert.launching.finetuning_quickstart import quickstart_settings
from bert.launching.ranks import quickstart_processes

QUICKSTART_OUTPUT = Path("results/glue_quickstart")
VOCABULARY_SIZE = 1024  # only where no checkpoint brings a vocabulary
POSITIONAL = ("task", "data_dir", "checkpoint")
# Entry point -> its quickstart, which is started where none of these settings names data.
QUICKSTARTS = {
    GLUE.script: ("quickstart_sentiment", {"task_name"}),
    NER.script: ("quickstart_entities", {"train_file", "eval_file", "predict_file"}),
}


def main(words: Sequence[str], entry: EntryPoint = GLUE) -> int:
    return finetune(words, partial(plan, entry=entry), result_lines)


def ner_main(words: Sequence[str]) -> int:
    return main(words, NER)


def plan(words: Sequence[str], entry: EntryPoint = GLUE) -> FineTuningPlan:
    """Raises ValueError with value, rule and remedy."""
    positional, words = split_positional(words)
    parser = _parser(entry)
    launcher, rest = parser.read(words)
    recipe = launcher.get("config")
    if recipe in NER.recipes or (recipe and _is_of_entities(Path(recipe))):
        entry = NER
    flags = parse_flags(rest, entry, parser.names())
    quickstart, names_data = QUICKSTARTS[entry.script]
    defaults: dict[str, Any] = {}
    if positional:
        defaults = _positional_settings(positional, recipe, entry)
    elif recipe or not flags.keys() & names_data:
        defaults = {"config": recipe or quickstart}
    recipe = str(defaults.get("config"))
    if recipe.startswith("quickstart") and recipe in entry.recipes:
        launcher.setdefault("num_gpus", str(quickstart_processes("cpu")))  # the recipe is for the CPU
        defaults |= _quickstart_settings(recipe, entry, flags)
    config = settings_or_answers({**defaults, **flags}, entry)
    ranks = ranks_for(launcher, config)
    return FineTuningPlan(launcher, entry, with_global_batch(config, ranks.world_size()), ranks)


def with_global_batch(config: FineTuningConfig, world_size: int) -> FineTuningConfig:
    """The same global batch on any number of ranks, in micro-batches that divide a rank's share and are not larger."""
    total = config.batch.global_batch_size
    if total is None or total % world_size or total % (config.batch.batch_size * world_size) == 0:
        return config
    share = total // world_size
    largest = max(size for size in range(1, min(share, config.batch.batch_size) + 1) if share % size == 0)
    return derive(config, batch_size=largest)


def result_lines(plan: FineTuningPlan) -> list[str]:
    """The scores, and where the results are."""
    config = plan.config
    lines = summary_lines(config, _scores)
    if config.run.benchmark:
        return [*lines, f"Summary: {config.stage_dir()}/benchmark/summary.json"]
    lines.append(f"Predictions and summary.json: {config.stage_dir()}")
    if (model := trained_model(config)) is not None:
        lines.append(f"Use the model:  python {plan.entry.script} --from-pretrained-params {model} --do-predict ...")
    return lines


def _scores(summary: Mapping[str, Any]) -> list[Row]:
    names = [name for name, value in summary.items() if name.startswith("eval_") and isinstance(value, float)]
    return [(name.removeprefix("eval_").replace("_", " "), name, ".4f") for name in names]


def _positional_settings(positional: Sequence[str], recipe: str | None, entry: EntryPoint) -> dict[str, Any]:
    if recipe is not None:
        raise ValueError(f"config={recipe} contradicts the positional arguments; give only one of them")
    if len(positional) != len(POSITIONAL) or entry is not GLUE:
        number = f"{len(POSITIONAL)}: {' '.join(POSITIONAL)}" if entry is GLUE else "none"
        raise ValueError(
            f"{len(positional)} positional arguments ({' '.join(positional)}) must be {number}; or use flags (--help)"
        )
    task, data_dir, checkpoint = positional
    name = find_task(task).name
    settings: dict[str, Any] = {"task_name": name, "data_dir": data_dir, "from_pretrained_params": checkpoint}
    return settings | ({"config": name.lower()} if name.lower() in GLUE.recipes else {"do_predict": True})


def _is_of_entities(path: Path) -> bool:
    """Whether a settings file is one that run_ner.py wrote."""
    return path.is_file() and "tag_column:" in path.read_text(encoding="utf-8", errors="replace")


def _quickstart_settings(recipe: str, entry: EntryPoint, flags: Mapping[str, Any]) -> dict[str, Any]:
    output_dir = Path(flags.get("output_dir", QUICKSTART_OUTPUT / recipe.removeprefix("quickstart_")))
    train_file = dict(entry.recipes[recipe]())["train_file"]
    return quickstart_settings(output_dir, flags, lambda: _named_lines(train_file), VOCABULARY_SIZE)


def _named_lines(train_file: Path) -> list[str]:
    lines = train_file.read_text(encoding="utf-8").splitlines()
    return [f"line-{number} {line}" for number, line in enumerate(lines) if line]


def _parser(entry: EntryPoint) -> LauncherParser:
    recipes = [*GLUE.recipes, *NER.recipes] if entry is GLUE else list(NER.recipes)
    what = "on a task of GLUE, on sentences of your own, or to find entities" if entry is GLUE else "to find entities"
    form = "[TASK DATA_DIR CHECKPOINT | --config NAME]" if entry is GLUE else "[--config NAME]"
    also = " (of run_ner.py with its recipes)" if entry is GLUE else ""
    return LauncherParser(
        prog=entry.script.replace(".py", ".sh"),
        usage=f"%(prog)s {form} [flags]",
        description=f"Fine-tune BERT {what}, and score it.\nWithout arguments: the quickstart, on sentences of this "
        f"project.\n\nRecipes of --config: {', '.join(recipes)}.",
        epilog=f"Further flags are those of `python {entry.script} --help`{also}. The same command continues what was "
        "stopped.",
    )
