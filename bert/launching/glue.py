"""`python -m bert.launching.glue ...`, which scripts/run_glue.sh calls: arguments -> settings -> ranks -> the result.

Nothing at all is the quickstart; else a task, the folder of its files and a checkpoint, or names: a recipe (of
run_glue.py or run_ner.py) with --config, and flags.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert.config.base import derive
from bert.config.command_line import EntryPoint, dump_yaml, usage_errors
from bert.finetuning.config import FineTuningConfig
from bert.finetuning.glue.config import ENTRY as GLUE
from bert.finetuning.glue.recipes import GLUE_RECIPES
from bert.finetuning.glue.tasks import find_task
from bert.finetuning.ner.config import ENTRY as NER
from bert.finetuning.ner.recipes import NER_RECIPES
from bert.launching.finetuning import Ranks, add_rank_flags, launch, parse, ranks_of
from bert.launching.finetuning_quickstart import output_settings, pretrained_settings, random_settings, value_of
from bert.launching.plan import quickstart_processes

QUICKSTART = "quickstart_sentiment"
QUICKSTART_OUTPUT = Path("results/glue_quickstart")
VOCABULARY_SIZE = 1024  # only where no checkpoint brings a vocabulary
POSITIONAL = ("task", "data_dir", "checkpoint")


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    with usage_errors():
        own, entry, config, ranks = plan(words)
    if own.show_config:
        print(dump_yaml(config), end="")
        return 0
    code = launch(entry, config, ranks)
    if code == 0 and not config.run.benchmark:
        print("\n".join(result_lines(config, entry)))
    return code


def plan(words: Sequence[str]) -> tuple[argparse.Namespace, EntryPoint, FineTuningConfig, Ranks]:
    """The launcher's own arguments, the script, its settings, and where the processes are.

    Raises:
        ValueError: with value, rule and remedy.
    """
    first_flag = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    positional, flags = list(words[:first_flag]), list(words[first_flag:])
    own, rest = _parser().parse_known_args(flags)
    defaults: dict[str, Any] = {}
    if positional:
        defaults = _positional(positional, own)
    elif own.config is not None:
        defaults = {"config": own.config}
    elif not any(word.split("=")[0] == "--task-name" for word in rest):
        defaults = {"config": QUICKSTART}
    recipe = str(defaults.get("config", ""))
    entry = NER if recipe in NER.recipes or _settles_on_tags(recipe) else GLUE
    if recipe.startswith("quickstart"):
        own.num_processes = own.num_processes or quickstart_processes("cpu")  # where its recipes run
        defaults |= _quickstart_defaults(recipe, rest)
    _, config = parse(entry, flags, _parser(), defaults)
    ranks = ranks_of(own, config.hardware.device)
    return own, entry, shared_out(config, ranks.num_processes * ranks.num_nodes), ranks


def shared_out(config: FineTuningConfig, world_size: int) -> FineTuningConfig:
    """The same global batch on any number of ranks: a pass takes at most what it took, and a divisor of its share."""
    total = config.batch.global_batch_size
    if total is None or total % world_size or total % (config.batch.batch_size * world_size) == 0:
        return config
    share = total // world_size
    largest = max(size for size in range(1, min(share, config.batch.batch_size) + 1) if share % size == 0)
    return derive(config, batch_size=largest)


def result_lines(config: FineTuningConfig, entry: EntryPoint) -> list[str]:
    """What came out, and where it is."""
    summary = json.loads((config.stage_dir() / "summary.json").read_text(encoding="utf-8"))
    rows = [
        (name.removeprefix("eval_").replace("_", " "), value, "{:.4f}")
        for name, value in summary.items()
        if name.startswith("eval_") and isinstance(value, float)
    ]
    rows += [
        (title, summary.get(key), "{:.1f}")
        for title, key in (
            ("training, sequences/s", "training_sequences_per_second"),
            ("inference, sequences/s", "inference_sequences_per_second"),
        )
    ]
    lines = ["", *(f"  {title:<32}{form.format(value):>9}" for title, value, form in rows if value is not None)]
    model = config.best_dir() if config.best_dir().is_dir() else config.checkpoint_dir()
    lines += ["", f"Predictions and summary.json: {config.stage_dir()}"]
    if model.is_dir():
        lines.append(f"Use the model:  python {entry.script} --from-pretrained-params {model} --do-predict ...")
    return lines


def _positional(positional: Sequence[str], own: argparse.Namespace) -> dict[str, Any]:
    if own.config is not None:
        raise ValueError(f"config={own.config} contradicts the positional arguments; give only one of them")
    if len(positional) != len(POSITIONAL):
        raise ValueError(
            f"{len(positional)} positional arguments ({' '.join(positional)}) must be {len(POSITIONAL)}: "
            f"{' '.join(POSITIONAL)}; or use flags (--help)"
        )
    task, data_dir, checkpoint = positional
    name = find_task(task).name
    settings: dict[str, Any] = {"task_name": name, "data_dir": data_dir, "from_pretrained_params": checkpoint}
    if name.lower() in GLUE.recipes:
        settings["config"] = name.lower()
    else:
        settings["do_predict"] = True
    return settings


def _settles_on_tags(config: str) -> bool:
    """Whether a settings file is one that run_ner.py wrote."""
    path = Path(config)
    return path.is_file() and "tag_column:" in path.read_text(encoding="utf-8", errors="replace")


def _quickstart_defaults(recipe: str, flags: Sequence[str]) -> dict[str, Any]:
    """A folder for what comes out, and the model that the pre-training quickstart left, unless another is named."""
    output_dir = Path(value_of("--output-dir", flags) or QUICKSTART_OUTPUT / recipe.removeprefix("quickstart_"))
    settings = output_settings(output_dir)
    if any(word.split("=")[0] in ("--from-pretrained-params", "--from-checkpoint") for word in flags):
        return settings
    train_file = {**GLUE_RECIPES, **NER_RECIPES}[recipe]()["train_file"]
    return settings | (
        pretrained_settings() or random_settings(output_dir / "data", _named_lines(train_file), VOCABULARY_SIZE)
    )


def _named_lines(train_file: Path) -> list[str]:
    lines = train_file.read_text(encoding="utf-8").splitlines()
    return [f"line-{number} {line}" for number, line in enumerate(lines) if line]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run_glue.sh",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [TASK DATA_DIR CHECKPOINT | --config NAME] [flags]",
        description="Fine-tune BERT on a task of GLUE, on sentences of your own, or to find entities, and score it.\n"
        "Without arguments: the quickstart, on sentences of this project.\n\n"
        f"Recipes of --config: {', '.join([*GLUE.recipes, *NER.recipes])}.",
        epilog="Further flags are those of `python run_glue.py --help` (of run_ner.py with its recipes). The same "
        "command continues what was stopped.",
    )
    add_rank_flags(parser)
    parser.add_argument("--config", metavar="NAME_OR_FILE", help="a recipe, or a YAML file")
    parser.add_argument("--show-config", action="store_true", help="print every resolved setting as YAML")
    return parser


if __name__ == "__main__":
    sys.exit(main())
