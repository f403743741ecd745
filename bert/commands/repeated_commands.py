"""Command lines of several runs -> the commands that are repeated, those of single trainings."""

from collections.abc import Sequence
from pathlib import Path

from bert.commands.squad import SQUAD_PRESETS
from bert.config.setting_errors import suggest
from bert.glue.config import GLUE_RECIPES
from bert.glue.task_table import TASKS as GLUE_TASKS
from bert.glue.task_table import find_task
from bert.help_parser import HelpParser
from bert.pretraining.recipes import PRESETS, evening
from bert.tasks import TASKS
from data.fetching.places import data_folder
from data.text.inputs import COMPRESSIONS

RECIPES = {  # by task; a name that several tasks have belongs to the first of them
    **{name: tuple(entry.recipes) for name, entry in TASKS.items()},
    "pretraining": (*PRESETS, evening.NAME),
    "squad": (*SQUAD_PRESETS, *TASKS["squad"].recipes),
}
_FLAGS = {"--seeds", "--first-seed", "--learning-rates"}


def task_of_recipe(recipe: str, task: str | None) -> str:
    """The task that has a recipe of this name; of a file of settings the task that is given."""
    known = [name for name, recipes in RECIPES.items() if recipe in recipes and task in (None, name)]
    if not known and not (task and Path(recipe).is_file()):
        names = "; ".join(f"{name}: {', '.join(recipes)}" for name, recipes in RECIPES.items())
        raise ValueError(f"CONFIG={recipe} must be a recipe, or a file of settings with --task. Recipes of {names}")
    return (known or [str(task)])[0]


def is_asked_for(task: str, words: Sequence[str]) -> bool:
    """Whether the arguments of a script are those of several runs."""
    positional, _ = split_positional(words)
    is_list = len(positional) == 2 or any(word == "all" or "," in word for word in positional[:1])
    return task == "seeds" or bool(flag_names(words) & _FLAGS) or (task == "glue" and is_list)


def split_positional(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before the first flag, and the others."""
    first = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    return [*words[:first]], [*words[first:]]


def are_several_tasks(words: Sequence[str]) -> bool:
    """Whether the arguments of run_glue.sh for several runs are TASKS [DATA_DIR] CHECKPOINT."""
    positional, _ = split_positional(words)
    return len(positional) in (2, 3) or any(word == "all" or "," in word for word in positional[:1])


def commands_of_tasks(words: Sequence[str], data_dir: Path | None) -> dict[str, list[str]]:
    """Task -> words of run_glue.sh, for `all` or a list of names, recipes and own files (TRAIN, or TRAIN:EVAL)."""
    positional, flags = split_positional(words)
    if len(positional) not in (2, 3):
        raise ValueError(f"{' '.join(positional)} must be TASKS CHECKPOINT, or TASKS DATA_DIR CHECKPOINT; see --help")
    tasks, *folder, checkpoint = positional
    data_dir = Path(folder[0]).expanduser() if folder else data_dir
    every = [name for name, task in GLUE_TASKS.items() if task.train]
    names = [name.strip() for word in tasks.split(",") for name in (every if word.strip() == "all" else [word])]
    commands: dict[str, list[str]] = {}
    for name, own in (_command(name, data_dir, "--download" in flags, len(names) == 1) for name in names):
        if name in commands:
            raise ValueError(f"tasks={tasks} names {name} twice; name each once, files in folders of different names")
        commands[name] = [*own, "--from-pretrained-params", checkpoint, "--keep-checkpoints", "1", *flags]
    return commands


def _command(word: str, data_dir: Path | None, is_fetched: bool, is_alone: bool) -> tuple[str, list[str]]:
    train, _, evaluated = word.partition(":")
    if (file := Path(train)).is_file():
        if evaluated and not Path(evaluated).is_file():
            raise ValueError(f"eval_file={evaluated} must be an existing file; correct {word}")
        stem = Path(file.stem if file.suffix in COMPRESSIONS else file.name).stem
        name = file.absolute().parent.name if stem == "train" else stem
        return name, ["--train-file", train, *(["--eval-file", evaluated] if evaluated else [])]
    recipe = word.lower()
    if recipe not in GLUE_RECIPES:
        try:
            recipe = find_task(word).name.lower()
        except ValueError:
            hint = suggest(word, ["all", *GLUE_TASKS, *GLUE_RECIPES], f"the tasks are {', '.join(GLUE_TASKS)}")
            raise ValueError(f"task={word} must be a task, a recipe, or a file of labelled lines; {hint}") from None
    if recipe not in GLUE_RECIPES:
        raise ValueError(f"task={word} has nothing to train on; leave it out")
    task = str(GLUE_RECIPES[recipe]()["task_name"])
    if task == "custom" or (is_fetched and data_dir is None):  # data of this project, or where --download keeps them
        return recipe, ["--config", recipe]
    folder = (data_dir or data_folder() / "glue") / task
    folder = data_dir if is_alone and data_dir is not None and not folder.is_dir() else folder
    return recipe, ["--config", recipe, "--data-dir", str(folder)]


def flag_names(words: Sequence[str]) -> set[str]:
    return {word.partition("=")[0].replace("_", "-") for word in words}


def refuse_flags(words: Sequence[str], flags: set[str]) -> None:
    for flag in sorted(flags & flag_names(words)):
        if flag == "--steps-this-run":
            raise ValueError(f"{flag} leaves runs unfinished, which have no results; drop it (Ctrl-C stops)")
        raise ValueError(f"{flag} is set for each run; give --seeds, --first-seed and --learning-rates")


def rates_of(words: str | None) -> list[float]:
    try:
        rates = [float(word) for word in words.split(",")] if words else []
    except ValueError:
        rates = [0.0]
    if any(not 0 < rate < 1 for rate in rates):
        raise ValueError(f"learning_rates={words} must be positive numbers with commas between, as 2e-5,3e-5,5e-5")
    return list(dict.fromkeys(rates))


def parser_of(task: str, is_list: bool) -> HelpParser:
    usage = {True: "TASKS [DATA_DIR] CHECKPOINT [flags]", False: "[arguments] --seeds N"}[is_list]
    parser = HelpParser(
        prog=f"scripts/run_{task}.sh",
        usage=f"%(prog)s {'CONFIG [flags]' if task == 'seeds' else usage}",
        allow_abbrev=False,  # --seed would be --seeds
        description="Repeats the training with each seed, each learning rate and each of several tasks, every run in a "
        "folder of its own. The same command resumes: a run that has ended is not repeated. The table at the end has "
        "mean and spread, of tasks of GLUE also the average.",
        epilog="Further flags are those of the single training. TASKS is `all`, or tasks, recipes and files with "
        "commas between: mrpc,rte,mine.csv,train.tsv:test.tsv. DATA_DIR has a folder for each task (CoLA, SST-2 ...); "
        "--download fetches them.",
    )
    if task == "seeds":
        parser.add_argument("config", metavar="CONFIG", help="a recipe of any task, or a file of settings with --task")
        parser.add_argument("--task", choices=tuple(RECIPES), help="where several have a recipe of that name")
    elif not is_list:
        parser.add_argument("--config", metavar="NAME_OR_FILE", help="as of the single training")
    number = 5 if task == "seeds" else 3
    parser.add_argument("--seeds", type=int, default=number, help=f"runs of each task and rate (default: {number})")
    parser.add_argument("--first-seed", type=int, default=1, help="the others follow it (default: 1)")
    parser.add_argument("--learning-rates", metavar="X,Y", help="to choose from (default: that of the recipe)")
    parser.add_argument("--output-dir", type=Path, help="default: results/seeds/NAME, of TASKS results/scores/NAME")
    if is_list:
        parser.add_argument("--data-dir", type=Path, help="as DATA_DIR")
        parser.add_argument(
            "--keep-models", choices=("best", "none", "all"), default="best", help="(default: a task's best)"
        )
    return parser
