"""The self-test of a machine with GPUs: everything that could not be tried while this project was written.

    bash scripts/run_gpu_selftest.sh                     # everything; start it again after an interruption
    bash scripts/run_gpu_selftest.sh --list              # the checks, and what this machine cannot run
    bash scripts/run_gpu_selftest.sh --device cpu        # what can be tried without a GPU

The first five minutes answer the most likely failures: driver, NCCL, kernels, memory, speed. Exit code 0 if no check
failed, 1 if one did. Send back the two files that the last line names.
"""

import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import bert  # noqa: F401 - before Paddle, whichever module loads it
from bert.command_errors import command
from bert.files import only_writer, write_atomically
from bert.help_parser import HelpParser
from bert.launching.ranks import num_gpus
from bert.reporting.progress import duration
from tests.gpu.selftest.answers import FIRST_CHECKS
from tests.gpu.selftest.checks import FAILED, RESULTS, Bench, Check, Result, run_check, run_checks
from tests.gpu.selftest.kernel_checks import kernel_checks
from tests.gpu.selftest.machine import Machine, describe, find_machine
from tests.gpu.selftest.recipe_checks import recipe_checks
from tests.gpu.selftest.report import report
from tests.gpu.selftest.trainings import all_reduce_check, training_checks

REPORT = "report.md"


def all_checks() -> list[Check]:
    """In the order in which they run: the most likely failures first."""
    checks = [*kernel_checks(), all_reduce_check(), *training_checks(), *recipe_checks()]
    first = {name: number for number, name in enumerate(FIRST_CHECKS)}
    return sorted(checks, key=lambda check: first.get(check.name, len(first)))


def chosen(checks: Sequence[Check], names: Sequence[str]) -> list[Check]:
    """The checks called so, otherwise those whose names begin so; all without names.

    Raises:
        ValueError: a name that fits none.
    """
    wanted = set() if names else {check.name for check in checks}
    for name in names:
        found = {check.name for check in checks if check.name.startswith(name)}
        if not found:
            raise ValueError(f"only={name} must be the name of a check or its beginning; --list shows them")
        wanted |= {name} & found or found
    return [check for check in checks if check.name in wanted]


def parser() -> HelpParser:
    result = HelpParser(prog="scripts/run_gpu_selftest.sh", description=__doc__)
    add = result.add_argument
    add("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto: the GPUs")
    add("--gpus", type=int, metavar="N", help="GPUs to use; all without it")
    text = "this check, or those that begin so; may be repeated"
    add("--only", action="append", default=[], metavar="NAME", help=text)
    text = "run checks again that have a result"
    add("--again", nargs="?", const="all", choices=("all", "failed"), help=text)
    add("--list", action="store_true", help="list the checks and stop")
    folder = Path("results/gpu_selftest")
    add("--output-dir", type=Path, default=folder, metavar="DIR", help="data, logs and report")
    return result


def listing(checks: Sequence[Check], machine: Machine) -> str:
    """One line for each check."""
    lines = []
    for check in checks:
        reason = check.unable(machine)
        end = f"not here: {reason}" if reason else duration(check.seconds[machine.device])
        lines.append(f"{check.name:<34} {check.title} ({end})")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None, checks: Sequence[Check] | None = None) -> int:
    arguments = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the running command, as Ctrl-C does
    folder: Path = arguments.output_dir.absolute()
    with command(folder, "interrupted; the same command continues with the check that was running"):
        listed = all_checks() if checks is None else checks
        selected = chosen(listed, arguments.only)
        device = "cpu" if arguments.list and arguments.device == "auto" and not num_gpus() else arguments.device
        if arguments.list:
            print(listing(selected, find_machine(device, arguments.gpus)))
            return 0
        folder.mkdir(parents=True, exist_ok=True)
        with only_writer(folder):
            if device != "cpu" and num_gpus() == 0:  # the report says so before this ends; earlier results stay
                bench = Bench(Machine("gpu", 0), folder, folder / "logs/doctor.log", again=True)
                looked = [run_check(check, bench) for check in listed if check.name == "doctor"]
                write_atomically(folder / REPORT, report(describe(bench.machine), looked).encode())
            return examine(selected, find_machine(device, arguments.gpus), folder, arguments.again)
    return 1


def examine(checks: Sequence[Check], machine: Machine, folder: Path, again: str | None) -> int:
    """Run the checks and write the report after each; 1 if one of them failed."""
    facts, path = describe(machine), folder / REPORT

    def write_report(results: dict[str, Result]) -> None:
        write_atomically(path, report(facts, list(results.values())).encode())

    results = run_checks(checks, machine, folder, again, partial(print, flush=True), write_report, facts)
    write_report(results)
    failed = [check.name for check in checks if results[check.name].status == FAILED]
    names = f": {', '.join(failed)}" if failed else ""
    print(f"{len(failed)} of {len(checks)} failed{names}. Send back {path} and {RESULTS} beside it")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
