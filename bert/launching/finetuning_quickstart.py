"""Shared by the quickstarts of fine-tuning: output folders, initial weights, and a vocabulary if there is none."""

import atexit
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from bert.checkpoints.directories import weights_folder
from bert.config.command_line import EntryPoint, resolve_config
from bert.files import require_writable
from bert.interpreter import repository_environment, shell_command
from bert.launching.process_runner import module_command
from bert.launching.start_training import quickstart_processes
from bert.pretraining.recipes import QUICKSTART_DIR

QUICKSTART_OUTPUT = Path("results/glue_quickstart")
VOCABULARY_SIZE = 1024  # of GLUE and NER, only where no checkpoint brings a vocabulary


def recipe_settings(
    recipe: str | None, entry: EntryPoint, launcher: dict[str, Any], flags: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a recipe of GLUE or NER; a quickstart's also have output folders and initial weights."""
    if recipe is None or recipe not in entry.recipes or not recipe.startswith("quickstart"):
        return {} if recipe is None else {"config": recipe}
    check_flags(recipe, entry, flags)
    launcher.setdefault("num_gpus", str(quickstart_processes("cpu")))  # the recipe is for the CPU
    output_dir = Path(flags.get("output_dir", QUICKSTART_OUTPUT / recipe.removeprefix("quickstart_")))
    train_file: Path = dict(entry.recipes[recipe]())["train_file"]
    return {
        "config": recipe,
        **quickstart_settings(
            output_dir, data_dir(output_dir, launcher), flags, lambda: _lines_of(train_file), VOCABULARY_SIZE
        ),
    }


def check_flags(recipe: str, entry: EntryPoint, flags: Mapping[str, Any]) -> None:
    """Refuse settings that are wrong before data are made for them; the vocabulary that is made is not there yet."""
    given = dict(flags)
    given.pop("show_config", None)
    for inquiry in entry.inquiries:
        inquiry.take(given)
    resolve_config({"config": recipe, "vocab_file": "vocab.txt", **given}, entry)


def data_dir(output_dir: Path, launcher: Mapping[str, Any]) -> Path:
    """Where a quickstart makes its data; for a dry run a folder that is removed at the end, unless they exist.

    Raises:
        OSError: `output_dir` cannot be written.
    """
    folder = output_dir / "data"
    if "dry_run" not in launcher:
        require_writable(output_dir)
    elif not folder.exists():
        folder = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _lines_of(file: Path) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [f"line-{number} {line}" for number, line in enumerate(lines) if line]


def quickstart_settings(
    output_dir: Path, data: Path, flags: Mapping[str, Any], lines: Callable[[], Iterable[str]], vocab_size: int
) -> dict[str, Any]:
    """Settings of a quickstart that writes all its files to `output_dir`.

    Args:
        flags: the settings that were given. The first of these sets the initial weights: flags, the result of the
            pre-training quickstart, random numbers.
        lines: text (a name and a text each) from which a vocabulary of `vocab_size` is made if there are no weights.
    """
    settings = {"output_dir": output_dir, "report_file": output_dir / "report.json"}
    if flags.keys() & {"from_pretrained_params", "from_checkpoint"}:
        return settings
    return settings | (_pretrained_settings() or _random_settings(data, lines(), vocab_size))


def _pretrained_settings() -> dict[str, Any]:
    """The model of the pre-training quickstart; empty if there is none."""
    folder = QUICKSTART_DIR / "bert-quickstart"
    if folder.is_dir() and weights_folder(folder) != folder:
        print(f"starting from the pre-trained weights in {weights_folder(folder)}", flush=True)
        return {"from_pretrained_params": weights_folder(folder)}
    print(
        f"There is no pre-trained model in {folder}, so the weights are random, and the scores will be near those of "
        f"guessing. `{shell_command('scripts/run_pretraining.sh')}` makes one; --from-pretrained-params names another.",
        flush=True,
    )
    return {}


def _random_settings(data_dir: Path, lines: Iterable[str], vocab_size: int) -> dict[str, Any]:
    """A small model of random weights, with a vocabulary made of `lines` in `data_dir`."""
    vocabulary = data_dir / "vocab.txt"
    if not vocabulary.is_file():
        source = data_dir / "text"
        source.mkdir(parents=True, exist_ok=True)
        (source / "0.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        run_module("data.train_vocabulary", input=source, vocab_size=vocab_size, output=vocabulary)
    size = len(vocabulary.read_text(encoding="utf-8").splitlines())
    return {"bert_model": "bert-quickstart", "vocab_size": size, "vocab_file": vocabulary}


def run_module(module: str, **options: Any) -> None:
    """Run a command of data/; ValueError if it fails, after its own error."""
    output = sys.stderr if sys.stdout is sys.stderr else None  # arguments.notices_aside
    done = subprocess.run(module_command(module, **options), check=False, env=repository_environment(), stdout=output)
    if done.returncode:
        raise ValueError(f"python -m {module} ended with exit code {done.returncode}; the reason is above")
