"""`bert-on-paddle NAME [ARGUMENTS]`: runs a command of the documents, in any folder.

The command replaces this process. The current folder is not searched for modules, so files there may be called data.py,
program.py or bert.
"""

import os
import sys
from collections.abc import Sequence

import data
from bert import __version__
from bert.exit_codes import BAD_INPUT, OK
from bert.interpreter import CODE, COMMANDS, isolated_environment

PROGRAM = "bert-on-paddle"


def main(argv: Sequence[str] | None = None) -> int:
    """Replace this process by the command; returns an exit code only for a wrong call or --help."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return OK
    if words[0] == "--version":
        print(f"{PROGRAM} {__version__}")
        return OK
    start = words_of(words[0])
    if start is None:
        print(f"error: {words[0]} is not a command; `{PROGRAM} --help` lists them", file=sys.stderr)
        return BAD_INPUT
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *start, *words[1:]], isolated_environment())


def words_of(name: str) -> list[str] | None:
    """Arguments of the interpreter for a command; None if there is no such command."""
    for command in COMMANDS:
        if command.name == name:
            return command.words()
    package, _, module = name.partition(".")
    is_of_data = package == "data" and "/" not in name and (CODE / f"{name.replace('.', '/')}.py").is_file()
    return ["-m", f"{data.__name__}.{module}"] if is_of_data else None


def usage() -> str:
    modules = sorted(f"data.{path.stem}" for path in (CODE / "data").glob("[a-z]*.py"))
    return "\n".join(
        [
            f"usage: {PROGRAM} NAME [ARGUMENTS]",
            "",
            *(f"  {command.name:<18}{command.purpose}" for command in COMMANDS),
            "",
            "  " + "\n  ".join(modules),
            "",
            f"`{PROGRAM} NAME --help` lists the arguments. Results are written to the current folder.",
        ]
    )
