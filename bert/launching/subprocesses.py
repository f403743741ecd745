"""Runs a launcher in a process of its own for a Python program: settings in, exceptions out."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK, Failure
from bert.interpreter import isolated_environment

_ERROR = "error: "


def run_task(task: str, *, is_silent: bool = False, **settings: Any) -> None:
    """`bert.launching TASK` with settings as flags; its output goes to ours, unless it is to be silent.

    Raises:
        KeyboardInterrupt: it was stopped, and has saved.
        Failure: any other exit code.
    """
    command = [sys.executable, "-m", "bert.launching", task, *flags_of(settings)]
    output = subprocess.PIPE if is_silent else _own(sys.stdout)
    process = subprocess.Popen(
        command,
        env=isolated_environment(),
        stdout=output,
        stderr=subprocess.PIPE,
        encoding="utf-8",  # whatever the locale of this process
        errors="replace",
    )
    errors: list[str] = []
    copies = [(process.stderr, sys.stderr), (process.stdout, None if is_silent else sys.stdout)]
    readers = [
        threading.Thread(target=_pass_on, args=(source, target, errors), daemon=True)
        for source, target in copies
        if source is not None
    ]
    for reader in readers:
        reader.start()
    code = _wait(process)
    for reader in readers:
        reader.join()
    text = "\n".join(errors)
    if code == INTERRUPTED:
        raise KeyboardInterrupt("stopped; the same call continues from here")
    if code == BAD_INPUT:
        raise ValueError(text or f"the {task} run was refused; the reason is above")
    if code != OK:
        failure = Failure(text or f"the {task} run ended with exit code {code}; the reason is above")
        failure.exit_code = code
        raise failure


def flags_of(settings: Mapping[str, Any]) -> list[str]:
    """`{"epochs": 3, "do_eval": True, "amp": False, "seed": None}` -> --epochs 3 --do-eval --amp false."""
    words: list[str] = []
    for name, value in settings.items():
        if value is None:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if isinstance(value, (list, tuple)):
            words += map(str, value)
        elif isinstance(value, Path):
            words.append(str(value.expanduser()))
        elif value is not True:
            words.append(str(value).lower() if isinstance(value, bool) else str(value))
    return words


def _own(stream: Any) -> int | None:
    """A real file or terminal is inherited; a notebook's stream, which has no descriptor, is written to."""
    with contextlib.suppress(Exception):
        return None if stream.fileno() == 1 else subprocess.PIPE
    return subprocess.PIPE


def _wait(process: "subprocess.Popen[str]") -> int:
    """Ctrl-C reaches the launcher too, which saves first; another exception here stops it."""
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _pass_on(source: IO[str], target: Any, errors: list[str]) -> None:
    """Copy lines; those of errors are kept for the exception instead."""
    for line in source:
        if line.startswith(_ERROR):
            errors.append(line.removeprefix(_ERROR).rstrip("\n"))
        elif target is not None:
            target.write(line)
            target.flush()
