"""Runs checks one after the other, keeps their results, and says what is left."""

import dataclasses
import json
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bert.files import write_atomically
from bert.reporting.figures import duration
from bert.reporting.logs import to_json
from tests.gpu.selftest.checks import Bench, Check, Failed, Skipped, tail
from tests.gpu.selftest.machine import Machine

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
) -> dict[str, Result]:
    """Run the checks that have no result yet; a skipped check is looked at again.

    Args:
        again: all | failed: these are run although they have a result.
        finished: called with all results after each check.
    """
    results = read_results(folder, machine)
    kept = {check.name for check in checks if _is_kept(results.get(check.name), again)}
    waiting = [check for check in checks if check.name not in kept]
    expected = sum(check.seconds[machine.device] for check in waiting)
    done_seconds = done_expected = PRIOR_SECONDS
    for number, check in enumerate(checks, start=1):
        head = f"[{number:>2}/{len(checks)}] {check.name:<34}"
        if check.name in kept:
            show(f"{head} {results[check.name].status}, kept: {results[check.name].text}")
            continue
        bench = Bench(
            machine, folder, folder / "logs" / f"{check.name}.log", again is not None or check.name in results
        )
        bench.log_file.unlink(missing_ok=True)
        result = run_check(check, bench)
        results[check.name] = result
        write_results(folder, machine, results)
        finished(results)
        share = check.seconds[machine.device]
        expected -= share
        if result.status != SKIPPED:
            done_seconds, done_expected = done_seconds + result.seconds, done_expected + share
        left = f"; about {duration(expected * done_seconds / done_expected)} left" if expected > 0 else ""
        show(f"{head} {result.status}, {duration(result.seconds)}: {result.text}{left}")
    return results


def _is_kept(result: Result | None, again: str | None) -> bool:
    kept = {None: (PASSED, FAILED), "failed": (PASSED,), "all": ()}[again]
    return result is not None and result.status in kept


def read_results(folder: Path, machine: Machine) -> dict[str, Result]:
    """Results of an earlier start on this machine; empty if there are none, or of another one."""
    try:
        record = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
        if record["machine"] != json.loads(to_json(machine.identity())):
            return {}
        return {values["name"]: Result(**values) for values in record["results"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_results(folder: Path, machine: Machine, results: dict[str, Result]) -> None:
    rows = [dataclasses.asdict(result) for result in results.values()]
    text = to_json({"machine": machine.identity(), "results": rows}, indent=1)
    write_atomically(folder / RESULTS, f"{text}\n".encode())
