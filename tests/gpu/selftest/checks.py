"""What a check is: a function that gives figures, or raises that it failed or could not run."""

import dataclasses
import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from bert.interpreter import repository_environment
from tests.gpu.selftest.machine import Machine

TAIL_LINES = 40


class Failed(Exception):
    """The check does not hold.

    Args:
        figures: what was measured nevertheless.
        output: the end of what a command printed.
    """

    def __init__(self, reason: str, figures: dict[str, Any] | None = None, output: str = "") -> None:
        super().__init__(reason)
        self.figures, self.output = figures or {}, output


class Skipped(Exception):
    """The check cannot run here; the text says why."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A check that holds: one line for people, and its figures."""

    text: str
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Bench:
    """What a check works with.

    Args:
        folder: of the self-test's data, runs, logs and results.
        log_file: gets the output of this check's commands.
        again: runs of the check that are there are made again.
    """

    machine: Machine
    folder: Path
    log_file: Path
    again: bool = False

    def run(
        self, command: Sequence[str], timeout_seconds: float, allowed_codes: Sequence[int] = (0,), **environment: str
    ) -> str:
        """The output of a command; a command that hangs is ended with all its children.

        Raises:
            Failed: another exit code than the allowed ones, or too long.
        """
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log_file, "a+b") as log:
            log.write(f"\n$ {shlex.join(command)}\n".encode())
            log.flush()
            start = log.tell()
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C ends it below, once
                env={**repository_environment(), "PYTHONSAFEPATH": "1", **environment},
            )
            reason = ""
            try:
                code = process.wait(timeout_seconds)
                reason = "" if code in allowed_codes else f"exit code {code}"
            except subprocess.TimeoutExpired:
                reason = f"not finished after {timeout_seconds:g} s"
            finally:
                _end(process)
            log.seek(start)
            output = log.read().decode(errors="replace")
        if reason:
            raise Failed(f"{reason}: {shlex.join(command)[:200]}", output=tail(output))
        return output


@dataclasses.dataclass(frozen=True)
class Check:
    """Args:
    run: raises Failed or Skipped.
    seconds: expected on one A100 and on two CPU cores, for the estimate of what is left.
    unable: why a machine cannot run it; "" if it can.
    """

    name: str
    title: str
    run: Callable[[Bench], Verdict]
    seconds: dict[str, float]
    unable: Callable[[Machine], str] = lambda machine: ""


def json_in(output: str) -> Any:
    """The last JSON object that begins a line, among whatever else a command printed.

    Raises:
        Failed: there is none.
    """
    found, position, decoder = None, 0, json.JSONDecoder()
    while (start := output.find("{", position)) >= 0:
        position = start + 1
        if start == 0 or output[start - 1] == "\n":
            try:
                found, position = decoder.raw_decode(output, start)
            except ValueError:
                continue
    if found is None:
        raise Failed("the command printed no JSON", output=tail(output))
    return found


def tail(text: str, lines: int = TAIL_LINES) -> str:
    return "\n".join(text.splitlines()[-lines:])


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process that still runs, and its ranks, which are leaders of groups of their own."""
    if process.poll() is not None:
        return
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    for member in [process, *family]:
        try:
            member.kill()
        except (psutil.NoSuchProcess, ProcessLookupError):
            pass
    process.wait()
    psutil.wait_procs(family, timeout=10)
