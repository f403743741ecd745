"""Finds the Python that runs our commands, refuses one without our packages, and writes commands for pasting.

Commands are named as they run in the root of the checkout (`python -m data.inspect`), commands of an installed package
as `bert-on-paddle data.inspect`. Standard library only.
"""

import os
import resource
import shlex
import shutil
import sys
import warnings
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from bert.exit_codes import BAD_INPUT, OK
from bert.standard_output import discard_output, end_silently_without_reader

CODE = Path(__file__).resolve().parent.parent  # the checkout, or the folder of the installed package
OLDEST_PYTHON = (3, 11)
_LEAST_ADDRESSES = 1_500_000_000  # bytes; Paddle 2.6 loads with 0.9 billion, a quickstart trains with 1.5
_ROOTS = ("bert", "data", "program", "bert_on_paddle")  # first parts of our modules' names


class Command(NamedTuple):
    """A documented command, and its name after `bert-on-paddle`."""

    name: str
    start: str  # a script or a module
    purpose: str

    def words(self) -> list[str]:
        """Arguments of the interpreter that start the command."""
        if self.start.endswith(".py"):
            return [str(CODE / self.start)]
        task = Path(self.start).stem.removeprefix("run_")
        return ["-m", "bert.commands", task] if self.start.endswith(".sh") else ["-m", self.start]


COMMANDS = (
    Command("pretrain", "scripts/run_pretraining.sh", "pre-train BERT"),
    Command("squad", "scripts/run_squad.sh", "fine-tune on questions"),
    Command("glue", "scripts/run_glue.sh", "fine-tune on sentences"),
    Command("classify", "scripts/run_classify.sh", "fine-tune on your own labelled texts"),
    Command("ner", "scripts/run_ner.sh", "fine-tune on named entities"),
    Command("vectors", "scripts/run_vectors.sh", "train vectors for search"),
    Command("predict", "run_predict.py", "use a model"),
    Command("index", "bert.indexing", "make and search an index of documents"),
    Command("serve", "bert.serving", "serve a model over HTTP"),
    Command("convert", "run_convert.py", "read and write other libraries' checkpoints"),
    Command("export", "run_export.py", "export a model"),
    Command("doctor", "bert.doctor", "check whether this machine can train"),
    Command("report", "bert.reporting", "report on runs"),
    Command("run_pretraining", "run_pretraining.py", "one process of `pretrain`"),
    Command("run_squad", "run_squad.py", "one process of `squad`; all its settings"),
    Command("run_glue", "run_glue.py", "one process of `glue`; all its settings"),
    Command("run_ner", "run_ner.py", "one process of `ner`; all its settings"),
    Command("run_vectors", "run_vectors.py", "one process of `vectors`; all its settings"),
    Command("run_reranker", "run_reranker.py", "one process of `vectors --reranker`; all its settings"),
)


def is_installed() -> bool:
    """Whether this is the installed package and not the checkout, whose module is `bert.interpreter`."""
    return __name__.startswith("bert_on_paddle.")


def shell_command(start: str, *arguments: str | Path) -> str:
    """A command as the user types it: in the root of the checkout, or anywhere if the package is installed.

    Args:
        start: a script (`run_predict.py`, `scripts/run_squad.sh`), a module (`data.inspect`), or a tool that is
            installed with our packages (`visualdl`).
    """
    own = {command.start.removeprefix("bert_on_paddle."): command.name for command in COMMANDS}
    name = start.removeprefix("bert_on_paddle.")
    is_module = name.startswith(("bert.", "data."))
    if is_installed():
        words = ["bert-on-paddle", own.get(name, name)] if is_module or name in own else [name]
    elif start.endswith(".sh"):
        words = ["bash", start]
    elif start.endswith(".py") or is_module:
        words = [python(), *(["-m"] if is_module else []), start]
    else:
        words = [str(Path(python()).with_name(start))]
    return " ".join([*words, *(shlex.quote(str(argument)) for argument in arguments)])


def install_command(extra: str | None = None) -> str:
    """The command that installs an extra, such as `serve`; None: the packages for training."""
    if is_installed():
        return f"{python()} -m pip install 'bert-on-paddle{f'[{extra}]' if extra else ''}'"
    environment = [f"BERT_VENV={_short(Path(sys.prefix))}"]
    if sys.prefix in (sys.base_prefix, str(CODE / ".venv")):
        environment = []
    elif sys.prefix == str(CODE / ".venv-paddle3.1"):
        environment = ["BERT_PADDLE=3.1"]  # named by BERT_VENV, it would get Paddle 2.6
    return " ".join([*environment, "bash scripts/setup.sh", *([extra] if extra else [])])


def repository_environment() -> dict[str, str]:
    """The environment of this process, plus a PYTHONPATH where `python -m data...` finds our modules."""
    if is_installed():
        return dict(os.environ)
    paths = [str(CODE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def isolated_environment() -> dict[str, str]:
    """As `repository_environment`, but modules of the current folder are not imported."""
    return {**repository_environment(), "PYTHONSAFEPATH": "1", "PYTHONUTF8": os.environ.get("PYTHONUTF8", "1")}


def python() -> str:
    """This interpreter as the user types it: `python` if the PATH has it, otherwise its path."""
    for name in ("python", "python3"):
        if _is_this_python(shutil.which(name)):
            return name
    return _short(Path(sys.executable or "python"))


def _is_this_python(path: str | None) -> bool:
    """Whether a path is this interpreter in this environment; two environments may share one binary."""
    if not path or not sys.executable:
        return False
    running, other = Path(sys.executable), Path(path)
    return os.path.realpath(running) == os.path.realpath(other) and (
        os.path.realpath(running.parent) == os.path.realpath(other.parent)
    )


def _short(path: Path) -> str:
    """The path, relative to the checkout if it is inside it."""
    return shlex.quote(str(path.relative_to(CODE) if path.is_relative_to(CODE) else path))


# ---- an interpreter without our packages -----------------------------------------------------------------------------


def prepare_command() -> None:
    """If one of our commands runs: a missing package or a Ctrl-C while packages load ends it with one line.

    A reader of standard output that leaves (`| head`) ends it without a line. Called by `bert` before anything else is
    imported.
    """
    if _words_of_command() is None:
        return
    problem = _hostile_setting()
    if sys.version_info[:2] < OLDEST_PYTHON:
        problem = f"{sys.executable} is Python {sys.version.split()[0]}, and 3.11, 3.12 or 3.13 is needed; {remedy()}"
    if problem is not None:
        print(f"error: {problem}", file=sys.stderr)
        raise SystemExit(BAD_INPUT)
    if any(option.startswith("error") for option in sys.warnoptions):
        warnings.simplefilter("default")  # packages warn of each other, which would end every command
    sys.excepthook = _in_one_line
    end_silently_without_reader()


def _hostile_setting() -> str | None:
    """An error about a shell setting that prevents Paddle from loading, with the remedy; otherwise None."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < _LEAST_ADDRESSES:
        is_low = f"{limit // 1_000_000:,} MB, below the {_LEAST_ADDRESSES // 1_000_000:,} MB that Paddle needs"
        return f"the limit of addresses (ulimit -v) is {is_low}; raise it: ulimit -v unlimited"
    needed = "removes docstrings, without which Paddle cannot be loaded"
    return f"PYTHONOPTIMIZE=2 (-OO) {needed}; unset PYTHONOPTIMIZE" if sys.flags.optimize > 1 else None


def _in_one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):  # the interpreter then ends by the signal: 130 for a shell
        print("interrupted", file=sys.stderr)
    elif issubclass(kind, BrokenPipeError):  # outside of `bert.command_errors.command` only help is written
        discard_output()
        raise SystemExit(OK)
    elif package := missing_package(error):
        print(f"error: {sys.executable} lacks the package {package}; {remedy()}", file=sys.stderr)
        raise SystemExit(BAD_INPUT)
    else:
        sys.__excepthook__(kind, error, trace)


def missing_package(error: BaseException) -> str | None:
    """The package that an import did not find; None for one of our own modules or another error."""
    package = error.name.partition(".")[0] if isinstance(error, ModuleNotFoundError) and error.name else ""
    return package if package and package not in _ROOTS else None


def remedy() -> str:
    """The command to type instead, with an interpreter that has our packages."""
    if is_installed():
        return "install the package again, with its dependencies"
    other = _other_python()
    again = " ".join([_short(other or CODE / ".venv/bin/python"), *map(shlex.quote, _words_of_command() or [])])
    return f"run `{again}`" if other else f"run `bash scripts/setup.sh` once, then `{again}`"


def _other_python() -> Path | None:
    """The interpreter that the scripts would use, if it exists and is not this one."""
    venv = Path(os.environ.get("BERT_VENV") or CODE / ".venv")
    candidates = [Path(os.environ.get("BERT_PYTHON") or ""), venv / "bin/python"]
    return next((path for path in candidates if path.is_file() and not _is_this_python(str(path))), None)


def _words_of_command() -> list[str] | None:
    """Arguments from `-m` or the script on, if they start a command of ours; otherwise None."""
    words = getattr(sys, "orig_argv", sys.argv)  # before Python 3.10 the script and its arguments
    for number, word in enumerate(words):
        if word == "-c":
            return None
        if word == "-m":
            module = words[number + 1] if number + 1 < len(words) else ""
            return words[number:] if module.split(".")[0] in _ROOTS else None
        if word.endswith(".py"):
            script = Path(os.path.abspath(word))
            is_ours = script.name.startswith("run_") and os.path.realpath(script.parent) == str(CODE)
            return [script.name, *words[number + 1 :]] if is_ours else None
    return None
