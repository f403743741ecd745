"""Which Python runs our commands here: refuses one without our packages, and writes commands so that they work here.

Texts name commands as the documents do (`python run_squad.py`, `python -m data.inspect`, `bash scripts/run_squad.sh`);
`runnable` rewrites them for the reader's folder and interpreter before they are printed. Standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from bert.exit_codes import BAD_INPUT

CODE = Path(__file__).resolve().parent.parent  # the checkout, or the folder of the installed package
INSTALLED_COMMAND = "BERT_ON_PADDLE_COMMAND"  # environment variable: the console command that started this process
OLDEST_PYTHON = (3, 11)
# Module -> package, of requirements-base.txt.
PACKAGES = {
    "numpy": "numpy",
    "numba": "numba",
    "google.protobuf": "protobuf",
    "setuptools": "setuptools",
    "pydantic": "pydantic",
    "yaml": "PyYAML",
    "safetensors": "safetensors",
    "pyarrow": "pyarrow",
    "h5py": "h5py",
    "crc32c": "crc32c",
    "tokenizers": "tokenizers",
    "sentencex": "sentencex",
    "visualdl": "visualdl",
    "pandas": "pandas",
    "matplotlib": "matplotlib",
    "sklearn": "scikit-learn",
    "scipy": "scipy",
    "rich": "rich",
    "tqdm": "tqdm",
    "requests": "requests",
    "charset_normalizer": "charset-normalizer",
    "datasketch": "datasketch",
    "psutil": "psutil",
    "xxhash": "xxhash",
    "zstandard": "zstandard",
}


# Of these, what only training and preprocessing need: the server runs without (requirements-inference.txt).
TRAINING_ONLY = {"h5py", "sentencex", "visualdl", "pandas", "matplotlib", "sklearn", "scipy", "datasketch", "rich"}


class Command(NamedTuple):
    """A command of the documents and its name behind `bert-on-paddle`."""

    name: str
    documented: str
    words: tuple[str, ...]  # for the interpreter
    purpose: str


COMMANDS = (
    Command("pretrain", "bash scripts/run_pretraining.sh", ("-m", "bert.launching", "pretraining"), "pre-train BERT"),
    Command("squad", "bash scripts/run_squad.sh", ("-m", "bert.launching", "squad"), "fine-tune on questions"),
    Command("glue", "bash scripts/run_glue.sh", ("-m", "bert.launching", "glue"), "fine-tune on sentences"),
    Command("seeds", "bash scripts/run_seeds.sh", ("-m", "bert.launching", "seeds"), "one recipe with several seeds"),
    Command("ner", "bash scripts/run_ner.sh", ("-m", "bert.launching", "ner"), "fine-tune on named entities"),
    Command("predict", "python run_predict.py", ("run_predict.py",), "use a model"),
    Command("serve", "python -m bert.serving", ("-m", "bert.serving"), "serve a model over HTTP"),
    Command("convert", "python run_convert.py", ("run_convert.py",), "read and write other libraries' checkpoints"),
    Command("export", "python run_export.py", ("run_export.py",), "export a model"),
    Command("doctor", "python -m bert.doctor", ("-m", "bert.doctor"), "check whether this machine can train"),
    Command("report", "python -m bert.reporting", ("-m", "bert.reporting"), "report on runs"),
    Command("run_pretraining", "python run_pretraining.py", ("run_pretraining.py",), "one process of `pretrain`"),
    Command("run_squad", "python run_squad.py", ("run_squad.py",), "one process of `squad`; all its settings"),
    Command("run_glue", "python run_glue.py", ("run_glue.py",), "one process of `glue`; all its settings"),
    Command("run_ner", "python run_ner.py", ("run_ner.py",), "one process of `ner`; all its settings"),
)
_WRITTEN = re.compile(
    r"(?<![\w./-])(?:"
    r"(?:PYTHONPATH=\S+ )?python (?P<module>-m (?:bert|data)\.[\w.]*\w)"
    r"|python (?P<script>run_\w+\.py)"
    r"|(?:PYTHONPATH=\S+ )?python (?P<code>-c )"
    r"|bash (?P<shell>(?:scripts|data)/[\w/]+\.sh)"
    r"|(?P<tool>visualdl) (?=--)"
    r"|(?<!-m )pip install -r (?P<requirements>requirements[\w-]*\.txt)"
    r")"
)


def runnable(text: str) -> str:
    """The text with each command of ours as it works in the current folder with this interpreter."""
    return _WRITTEN.sub(_installed if is_installed() else _in_checkout, text)


def installed_command() -> str:
    """`bert-on-paddle` as it works here: as it was called, or beside this interpreter."""
    return os.environ.get(INSTALLED_COMMAND) or _beside_python("bert-on-paddle")


def repository_environment() -> dict[str, str]:
    """This process's environment, with our code on PYTHONPATH so that `python -m data...` works anywhere."""
    paths = [str(CODE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def installed_environment(called: Path | None = None) -> dict[str, str]:
    """The environment of a process that runs our commands for a program with its own modules in its own folder.

    Args:
        called: the console command as it was called; None: the one beside this interpreter.
    """
    return {
        **repository_environment(),
        "PYTHONSAFEPATH": "1",
        "PYTHONUTF8": os.environ.get("PYTHONUTF8", "1"),
        INSTALLED_COMMAND: _beside_python("bert-on-paddle") if called is None else _as_typed(called),
    }


def _as_typed(program: Path) -> str:
    """A program on the PATH by its name, another by its path."""
    found = shutil.which(program.name)
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(program)
    return program.name if is_found else _short(Path(os.path.abspath(program)))


def is_installed() -> bool:
    """Whether the user has the console command in mind: it runs, or a program imported `bert_on_paddle`."""
    return INSTALLED_COMMAND in os.environ or __name__ != "bert.interpreter"


def _installed(match: re.Match[str]) -> str:
    written = match[0]
    for command in COMMANDS:
        if written == command.documented:
            return f"{installed_command()} {command.name}"
    if written.startswith("python -m data."):
        return f"{installed_command()} {written.removeprefix('python -m ')}"
    return _in_checkout(match)


def _in_checkout(match: re.Match[str]) -> str:
    if match["requirements"]:
        return f"{python()} -m pip install -r {_path(match['requirements'])}"
    if match["tool"]:
        return f"{_beside_python(match['tool'])} "
    if match["script"]:
        return f"{python()} {_path(match['script'])}"
    if match["shell"]:
        return f"bash {_path(match['shell'])}"
    imports = "" if _is_current(CODE) else f"PYTHONPATH={shlex.quote(str(CODE))} "
    return f"{imports}{python()} {match['module'] or match['code']}"


def python() -> str:
    """This interpreter as a word of a command line: `python` if the PATH has it, otherwise its path."""
    for name in ("python", "python3"):
        if _is_this_python(shutil.which(name)):
            return name
    return _short(Path(sys.executable or "python"))


def _beside_python(tool: str) -> str:
    """A tool that is installed with this interpreter's packages."""
    path, found = Path(sys.executable or "python").with_name(tool), shutil.which(tool)
    return tool if found and os.path.realpath(Path(found).parent) == os.path.realpath(path.parent) else _short(path)


def _is_this_python(path: str | None) -> bool:
    """Two environments may share one binary, so the folder of the link must be the same too."""
    if not path or not sys.executable:
        return False
    ours, other = Path(sys.executable), Path(path)
    return os.path.realpath(ours) == os.path.realpath(other) and (
        os.path.realpath(ours.parent) == os.path.realpath(other.parent)
    )


def _path(name: str) -> str:
    """A file of the checkout, relative to the current folder if it is the checkout."""
    return name if _is_current(CODE) else shlex.quote(str(CODE / name))


def _is_current(folder: Path) -> bool:
    try:
        return os.path.samefile(folder, os.curdir)
    except OSError:  # the current folder was deleted
        return False


def _short(path: Path) -> str:
    """Relative to the current folder if it is below. Links of the last part stand: they choose the environment."""
    with_name = Path(os.path.realpath(path.parent)) / path.name
    try:
        return shlex.quote(str(with_name.relative_to(os.getcwd())))
    except (ValueError, OSError):
        return shlex.quote(str(path))


# ---- an interpreter without our packages -----------------------------------------------------------------------------


def prepare_command() -> None:
    """End one of our commands with one line if this Python lacks packages; do nothing in other programs.

    A Ctrl-C while packages load ends it with one line too.

    Called by `bert` before anything else is imported. `bert.doctor.requirements`, which scripts/setup.sh asks about
    any Python, always runs. A package of another version is not refused.
    """
    words = _words_of_command(getattr(sys, "orig_argv", sys.argv))
    if words is None:
        return
    if sys.version_info[:2] < OLDEST_PYTHON:
        reason = f"{sys.executable} is Python {sys.version.split()[0]}, and 3.11, 3.12 or 3.13 is needed"
    elif missing := _missing(is_server=words[:1] == ["-m"] and words[1].startswith("bert.serving")):
        more = f" and {len(missing) - 3} more packages" if len(missing) > 3 else ""
        reason = f"{sys.executable} lacks {', '.join(missing[:3])}{more}"
    else:
        sys.excepthook = _without_traceback_of_interrupt
        return
    print(f"error: {reason}; {remedy(words)}", file=sys.stderr)
    raise SystemExit(BAD_INPUT)


def _without_traceback_of_interrupt(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):  # the interpreter then ends by the signal: 130 for a shell
        print("interrupted", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def remedy(words: list[str] | None = None) -> str:
    """What to type instead of a command with these arguments of the interpreter (default: the one that runs)."""
    if words is None:
        words = _words_of_command(getattr(sys, "orig_argv", sys.argv)) or []
    fit = _other_python()
    again = " ".join([_short(fit or CODE / ".venv/bin/python"), *map(shlex.quote, words)])
    if is_installed():
        return "install the package again, with its dependencies"
    return f"run `{again}`" if fit else f"run `bash {_path('scripts/setup.sh')}` once, then `{again}`"


def _other_python() -> Path | None:
    """The interpreter that the scripts would take, if it is there and is not this one."""
    venv = Path(os.environ.get("BERT_VENV") or CODE / ".venv")
    candidates = [Path(os.environ.get("BERT_PYTHON") or ""), venv / "bin/python"]
    return next((path for path in candidates if path.is_file() and not _is_this_python(str(path))), None)


def _missing(is_server: bool = False) -> list[str]:
    found = []
    for module, package in PACKAGES.items():
        if is_server and module in TRAINING_ONLY:
            continue
        try:
            if importlib.util.find_spec(module) is None:
                found.append(package)
        except ModuleNotFoundError:  # the parent of google.protobuf
            found.append(package)
    return found


def _words_of_command(words: list[str]) -> list[str] | None:
    """The interpreter's arguments from `-m` or the script on, if that is a command of ours which needs the packages.

    Args:
        words: as sys.orig_argv; before Python 3.10 the script and its arguments.
    """
    for number, word in enumerate(words):
        if word == "-c":
            return None
        if word == "-m":
            module = words[number + 1] if number + 1 < len(words) else ""
            is_ours = module.split(".")[0] in ("bert", "data") and module != "bert.doctor.requirements"
            return words[number:] if is_ours else None
        if word.endswith(".py"):
            script = Path(os.path.abspath(word))
            is_ours = script.name.startswith("run_") and os.path.realpath(script.parent) == str(CODE)
            return [_path(script.name), *words[number + 1 :]] if is_ours else None
    return None
