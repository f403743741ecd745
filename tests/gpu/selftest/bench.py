"""Tools of the self-test's checks: commands with a time limit, and storage for measurements."""

import contextlib
import dataclasses
import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from bert.launching.processes import start_process
from tests.gpu.selftest.machine import Machine


@dataclasses.dataclass
class Bench:
    """Args:
    folder: of the self-test's data, runs, logs and results.
    log_file: gets the output of this check's commands.
    text: what the check found, one line for people.
    figures: for results.jsonl; those that were measured before a check fails stay.
    """

    machine: Machine
    folder: Path
    log_file: Path
    text: str = ""
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)

    def run(
        self, command: Sequence[str], timeout_seconds: float, allowed_codes: Sequence[int] = (0,), **environment: str
    ) -> str:
        """Return the output of a command; a command that hangs is ended with all its children.

        Raises:
            AssertionError: another exit code than the allowed ones, or too long; the end of the output is printed.
        """
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        variables = {"PYTHONSAFEPATH": "1", **environment}
        with open(self.log_file, "a+b") as log:
            log.write(f"\n$ {shlex.join(command)}\n".encode())
            log.flush()
            start = log.tell()
            # Ctrl-C ends it below, once.
            pipes = {"stdout": log, "stderr": subprocess.STDOUT, "start_new_session": True}
            process = start_process(command, variables, **pipes)
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
            print(tail(output))
            raise AssertionError(f"{reason}: {shlex.join(command)[:200]}")
        return output


def json_in(output: str) -> Any:
    """Return the last JSON object that begins a line of a command's output."""
    for start in reversed([match.start() for match in re.finditer(r"^\{", output, re.M)]):
        with contextlib.suppress(ValueError):
            return json.JSONDecoder().raw_decode(output, start)[0]
    raise AssertionError(f"the command printed no JSON: {tail(output)}")


def tail(text: str) -> str:
    return "\n".join(text.splitlines()[-40:])


def _end(process: subprocess.Popen) -> None:
    """End a process that still runs, and its ranks, each of which leads a group of its own."""
    if process.poll() is None:
        family = psutil.Process(process.pid).children(recursive=True)  # not yet waited for, so its number is its own
        for member in [process, *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait()
        psutil.wait_procs(family, timeout=10)
