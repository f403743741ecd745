"""`bert-on-paddle NAME [ARGUMENTS]`: runs a command of the documents, in any folder.

The command replaces this process. It finds our modules through PYTHONPATH, and the current folder is not searched, so
files there may be called data.py, program.py or bert.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from bert_on_paddle import CODE
from bert_on_paddle.bert.exit_codes import BAD_INPUT, OK
from bert_on_paddle.bert.interpreter import COMMANDS, installed_environment

PROGRAM = "bert-on-paddle"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code of a wrong call or of --help; otherwise the process becomes the command."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return OK
    if words[0] == "--version":
        from bert_on_paddle.bert import __version__

        print(f"{PROGRAM} {__version__}")
        return OK
    name, arguments = words[0], words[1:]
    start = words_of(name)
    if start is None:
        print(f"error: {name} is not a command; `{PROGRAM} --help` lists them", file=sys.stderr)
        return BAD_INPUT
    execute([*start, *arguments])


def words_of(name: str) -> list[str] | None:
    """The interpreter's arguments for a command; None if there is none of this name."""
    for command in COMMANDS:
        if command.name == name:
            first = command.words[0]
            return [str(CODE / first) if first.endswith(".py") else first, *command.words[1:]]
    is_of_data = name.startswith("data.") and "/" not in name and (CODE / f"{name.replace('.', '/')}.py").is_file()
    return ["-m", name] if is_of_data else None


def data_commands() -> list[str]:
    """data.import_text and the others: the modules directly in data/."""
    return sorted(f"data.{path.stem}" for path in (CODE / "data").glob("[a-z]*.py"))


def usage() -> str:
    rows = [(command.name, command.purpose) for command in COMMANDS if words_of(command.name)]
    return "\n".join(
        [
            f"usage: {PROGRAM} NAME [ARGUMENTS]",
            "",
            *(f"  {name:<18}{purpose}" for name, purpose in rows),
            "",
            "  " + "\n  ".join(data_commands()),
            "",
            f"`{PROGRAM} NAME --help` lists the arguments. Results are written to the current folder.",
        ]
    )


def execute(words: Sequence[str]) -> NoReturn:
    called = Path(sys.argv[0])
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *words], installed_environment(called))
