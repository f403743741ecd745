"""`bash scripts/run_glue.sh`: fine-tunes BERT on a task of GLUE or on sentences of your own, and scores it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from bert.commands.fine_tuning import ALL_MODES, ArgumentSettings, FineTuningLauncher, planned_of, recipe_settings
from bert.glue.config import ENTRY as GLUE
from bert.glue.config import OWN_FILES
from bert.glue.task_table import task_name
from bert.jobs.job import start
from bert.launching.arguments import FLAGS_INSTEAD, CommandLine


def _argument_settings(line: CommandLine) -> ArgumentSettings:
    name = line.launch.get("config")
    if not line.positional:
        return recipe_settings(GLUE.recipes, name or _recipe(line.training))
    if name is not None:
        raise ValueError(f"config={name} contradicts the positional arguments; give only one of them")
    if len(line.positional) != 3:
        raise ValueError(
            f"{len(line.positional)} positional arguments ({' '.join(line.positional)}) must be TASK DATA_DIR "
            f"CHECKPOINT, or all [DATA_DIR] CHECKPOINT; or {FLAGS_INSTEAD}"
        )
    task = task_name(line.positional[0])
    settings: dict[str, Any] = dict(
        task_name=task, data_dir=line.positional[1], from_pretrained_params=line.positional[2]
    )
    if task.lower() in GLUE.recipes:
        settings["config"] = task.lower()
    else:
        settings["do_predict"] = True
    return ArgumentSettings(settings)


def _recipe(flags: Mapping[str, Any]) -> str:
    """The default recipe: of the named task if no other setting decides, or of the quickstart without a task.

    Data without a task never get the quickstart, which would train on the sentences of this project first.
    """
    if "task_name" not in flags:
        return "" if flags.keys() & {*OWN_FILES, "data_dir"} else "quickstart_sentiment"
    recipe = task_name(str(flags["task_name"])).lower()
    says_what_to_do = any(flags.get(mode, "false") != "false" for mode in ALL_MODES)
    return recipe if recipe in GLUE.recipes and not says_what_to_do else ""


LAUNCHER = FineTuningLauncher(
    script="scripts/run_glue.sh",
    entry=GLUE,
    usage="[--config NAME | --task-name TASK --download | TASK DATA_DIR CHECKPOINT | all [DATA_DIR] CHECKPOINT]",
    description="Fine-tune BERT on a task of GLUE or on your sentences, and score it. Files without --task-name are "
    "your "
    "own (custom). Without arguments it trains the quickstart, on sentences of this project.",
    examples=(
        "--config mrpc --download --dry-run",
        "--task-name SST-2 --data-dir glue/SST-2 --model bert-base-uncased --do-train --do-eval",
    ),
    main_settings={
        "task_name": "",
        "data_dir": "",
        "download": "",
        "from_pretrained_params": "",
        "output_dir": "",
        "epochs": "as in the recipe",
        "learning_rate": "as in the recipe",
        "batch_size": "as in the recipe",
    },
    epilog="The same command resumes a stopped run. All tasks of GLUE in one table: `all --help`.",
    names={"Recipes": GLUE.recipes},
    argument_settings=_argument_settings,
)
planned = partial(planned_of, LAUNCHER)
main = partial(start, planned)
