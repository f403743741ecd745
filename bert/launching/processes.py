"""Starts processes of this project so that they end with the process that started them."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert.config.flags import flag_name
from bert.interpreter import repository_environment
from bert.parent_death import LAUNCHER_VARIABLE, end_with
from bert.rank_environment import of_launcher

RANK = "PADDLE_TRAINER_ID"  # environment variable: the number of a rank
_OF_OTHER_PYTHONS = ("PYTHONOPTIMIZE", "PYTHONWARNINGS")  # which ranks of Paddle's launcher are not started with either


def flags_of(settings: Mapping[str, Any]) -> list[str]:
    """Settings as flags: `{"epochs": 3, "do_eval": True, "amp": False, "seed": None}` -> --epochs 3 --do-eval ..."""
    words: list[str] = []
    for name, value in settings.items():
        if value is None:
            continue
        words.append(flag_name(name))
        if isinstance(value, Path):
            value = value.expanduser()
        if isinstance(value, (list, tuple)):
            words += map(str, value)
        elif value is not True:
            words.append("false" if value is False else str(value))
    return words


def module_command(module: str, **options: Any) -> list[str]:
    """The command `python -m MODULE --option value ...`, with options as in `flags_of`."""
    return [sys.executable, "-m", module, *flags_of(options)]


def start_process(
    command: Sequence[str], variables: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> "subprocess.Popen[Any]":
    """Start a command of ours; it and its ranks end with this process, however this process ends.

    Paddle's launcher gets no variable that may be a secret; its ranks do, and so does a rank without it.
    """
    us = os.getpid()
    environment = repository_environment() | dict(variables) | {LAUNCHER_VARIABLE: str(us)}
    if RANK in variables:
        environment = {name: text for name, text in environment.items() if name not in _OF_OTHER_PYTHONS}

    def begin() -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # Slurm sends it to all, and it would kill Paddle's launcher
        end_with(us)

    if not _starts_ranks(command):
        return subprocess.Popen(command, env=environment, preexec_fn=begin, **options)
    environment, withheld = of_launcher(environment)
    environment |= variables
    try:
        return subprocess.Popen(command, env=environment, preexec_fn=begin, pass_fds=[withheld], **options)
    finally:
        os.close(withheld)


def _starts_ranks(command: Sequence[str]) -> bool:
    return "paddle.distributed.launch" in command


def ranks_of(process: "subprocess.Popen[Any]") -> list[int]:
    """Process ids of the ranks that paddle.distributed.launch started; none for another command."""
    if not _starts_ranks(process.args):  # type: ignore[arg-type]
        return []
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in children.split()]
