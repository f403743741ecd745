"""Hook of MkDocs: the page of the command line, made of the help of every command while the site is built."""

import contextlib
import io
import os
import runpy
import sys
import warnings
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = "reference/command_line.md"
sys.path.insert(0, str(REPOSITORY))
os.environ["COLUMNS"] = "100"

# Heading -> (what is typed, module, words before --help).
TRAINING = {
    f"bash scripts/run_{name}.sh": ("bert.commands", [name])
    for name in ("pretraining", "classify", "vectors", "squad", "glue", "ner")
}
USE = {f".venv/bin/python run_{name}.py": (f"run_{name}", []) for name in ("predict", "export", "convert")} | {
    f".venv/bin/python -m bert.{name}": (f"bert.{name}", []) for name in ("indexing", "serving", "reporting", "doctor")
}
SLURM = {"sbatch run.sub": ("bert.commands.slurm", [])}
ALL_SETTINGS = {
    f".venv/bin/python run_{name}.py": (f"run_{name}", [])
    for name in ("pretraining", "vectors", "squad", "glue", "ner")
}


def data_commands() -> dict[str, tuple[str, list[str]]]:
    files = sorted((REPOSITORY / "data").glob("*.py"))
    names = [path.stem for path in files if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")]
    return {f".venv/bin/python -m data.{name}": (f"data.{name}", []) for name in names}


def help_of(module: str, words: list[str]) -> str:
    """What the module prints when it is run with these words and --help.

    Raises:
        RuntimeError: it does not end with exit code 0.
    """
    printed, arguments = io.StringIO(), sys.argv
    sys.argv = [module, *words, "--help"]
    code: object = None
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a module that an earlier one has imported
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = arguments
    if code not in (None, 0):
        raise RuntimeError(f"{module} {' '.join(words)} --help ended with {code}")
    return printed.getvalue()


def page() -> str:
    parts = ["# Command line", "Look up here the flags of each command, as its `--help` prints them."]
    groups = {
        "Training": TRAINING,
        "Using a model": USE,
        "Data": data_commands(),
        "Slurm": SLURM,
        "Every setting of the trainers": ALL_SETTINGS,
    }
    for title, commands in groups.items():
        parts.append(f"## {title}")
        for command, (module, words) in commands.items():
            parts += [f"### {command}", f"```text\n{help_of(module, words).strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def on_files(files, config):
    """Add the page to the files of the site."""
    from mkdocs.structure.files import File  # the other commands of this folder run without MkDocs

    files.append(File.generated(config, PAGE, content=page()))
    return files
