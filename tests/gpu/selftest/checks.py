"""What a check is: a function that gives figures, or raises that it failed or could not run."""

import contextlib
import dataclasses
import json
import re
import shlex
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from bert.files import write_atomically
from bert.interpreter import repository_environment
from bert.reporting.logs import to_json
from bert.reporting.progress import duration
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
        variables = {**repository_environment(), "PYTHONSAFEPATH": "1", **environment}
        with open(self.log_file, "a+b") as log:
            log.write(f"\n$ {shlex.join(command)}\n".encode())
            log.flush()
            start = log.tell()
            # Ctrl-C ends it below, once.
            pipes = {"stdout": log, "stderr": subprocess.STDOUT, "start_new_session": True}
            process = subprocess.Popen(command, env=variables, **pipes)
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
    for start in reversed([match.start() for match in re.finditer(r"^\{", output, re.M)]):
        with contextlib.suppress(ValueError):
            return json.JSONDecoder().raw_decode(output, start)[0]
    raise Failed("the command printed no JSON", output=tail(output))


def tail(text: str, lines: int = TAIL_LINES) -> str:
    return "\n".join(text.splitlines()[-lines:])


def _end(process: subprocess.Popen) -> None:
    """End a process that still runs, and its ranks, which are leaders of groups of their own."""
    if process.poll() is None:
        family = psutil.Process(process.pid).children(recursive=True)  # not yet waited for, so its number is its own
        for member in [process, *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait()
        psutil.wait_procs(family, timeout=10)


PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
RESULTS = "results.json"
PRIOR_SECONDS = 60.0  # at the expected pace, so that the first checks do not decide the estimate alone


@dataclasses.dataclass(frozen=True)
class Result:
    """`text` is one line: what was found, or why the check failed or was skipped."""

    name: str
    title: str
    status: str
    seconds: float
    text: str
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    output: str = ""  # of a failed check


def run_check(check: Check, bench: Bench) -> Result:
    """Never raises but for an interruption: an error of a check is a failure of it."""
    start, figures, output = time.perf_counter(), {}, ""
    try:
        if reason := check.unable(bench.machine):
            raise Skipped(reason)
        verdict = check.run(bench)
        status, text, figures = PASSED, verdict.text, verdict.figures
    except Skipped as error:
        status, text = SKIPPED, str(error)
    except Failed as error:
        status, text, figures, output = FAILED, str(error), error.figures, error.output
    except Exception as error:
        status, text, output = FAILED, f"{type(error).__name__}: {error}", tail(traceback.format_exc())
    line = " ".join(text.split())
    return Result(check.name, check.title, status, time.perf_counter() - start, line, figures, output)


def run_checks(
    checks: Sequence[Check],
    machine: Machine,
    folder: Path,
    again: str | None,
    show: Callable[[str], None],
    finished: Callable[[dict[str, Result]], None],
    facts: dict[str, Any],
) -> dict[str, Result]:
    """Run the checks that have no result yet; a skipped check is looked at again.

    Args:
        again: all | failed: these are run although they have a result.
        finished: called with all results after each check.
        facts: what `machine.describe` gives.
    """
    results = read_results(folder, machine)
    kept_statuses = {None: (PASSED, FAILED), "failed": (PASSED,), "all": ()}[again]
    kept = {check.name for check in checks if (r := results.get(check.name)) and r.status in kept_statuses}
    waiting = [check for check in checks if check.name not in kept]
    expected = sum(check.seconds[machine.device] for check in waiting)
    done_seconds = done_expected = PRIOR_SECONDS
    for number, check in enumerate(checks, start=1):
        head = f"[{number:>2}/{len(checks)}] {check.name:<34}"
        if check.name in kept:
            show(f"{head} {results[check.name].status}, kept: {results[check.name].text}")
            continue
        log_file = folder / "logs" / f"{check.name}.log"
        log_file.unlink(missing_ok=True)
        bench = Bench(machine, folder, log_file, again is not None or check.name in results)
        result = run_check(check, bench)
        results[check.name] = result
        write_results(folder, facts, results)
        finished(results)
        share = check.seconds[machine.device]
        expected -= share
        if result.status != SKIPPED:
            done_seconds, done_expected = done_seconds + result.seconds, done_expected + share
        left = f"; about {duration(expected * done_seconds / done_expected)} left" if expected > 0 else ""
        show(f"{head} {result.status}, {duration(result.seconds)}: {result.text}{left}")
    return results


def read_results(folder: Path, machine: Machine) -> dict[str, Result]:
    """Results of an earlier start on this machine; empty if there are none, or of another one."""
    try:
        record = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
        identity = json.loads(to_json(machine.identity()))
        if {name: record["machine"][name] for name in identity} != identity:
            return {}
        return {values["name"]: Result(**values) for values in record["results"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_results(folder: Path, facts: dict[str, Any], results: dict[str, Result]) -> None:
    rows = [dataclasses.asdict(result) for result in results.values()]
    text = to_json({"machine": facts, "results": rows}, indent=1)
    write_atomically(folder / RESULTS, f"{text}\n".encode())
