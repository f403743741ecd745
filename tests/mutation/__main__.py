"""Put single faults into modules, one after the other, and print those that the module's own default tests pass.

It works in a private copy of the working tree; the checkout is not touched.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

from tests.mutation.operators import Fault, choose, fault_of_text, faults_of
from tests.mutation.workplace import Limits, Outcome, Workplace, end_processes, own_tests, prepare_process, warm

KNOWN = Path(__file__).with_name("known_faults.toml")
WIDTH = 100


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/run_mutation_tests.sh", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE.py", help="modules, as bert/labels/scores.py")
    parser.add_argument("--faults", type=int, default=20, metavar="N", help="faults in each module (default: 20)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="which faults are chosen (default: 0)")
    parser.add_argument("--line", type=int, metavar="L", help="only faults of this line")
    parser.add_argument(
        "--tests", nargs="+", metavar="PATH", help="files and folders, instead of the module's own tests"
    )
    parser.add_argument("--list", action="store_true", help="print the chosen faults, and run nothing")
    parser.add_argument("--file", type=Path, metavar="FAULTS", help="faults of a TOML file, as known_faults.toml is")
    parser.add_argument("--known", action="store_true", help=f"the faults of tests/mutation/{KNOWN.name}")
    parser.add_argument("--at-least", type=float, metavar="P", help="exit with 1 if fewer than P%% are noticed")
    options = parser.parse_args(argv)
    if options.known:
        options.file = KNOWN
    if not options.modules and not options.file:
        parser.error("name a module, or pass --known or --file FAULTS")
    options.modules = [os.path.relpath(path) for path in options.modules]
    for path in options.modules:
        if not path.endswith(".py") or not Path(path).is_file():
            parser.error(f"{path} must be a Python module, named from the root of the checkout")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    prepare_process()
    work = Path(tempfile.mkdtemp(prefix="mutation-"))
    try:
        place = Workplace(Path.cwd(), work)
        faults = _faults_by_module(options, place)
        if options.list:
            for fault in [fault for chosen in faults.values() for fault in chosen]:
                print(_in_words(fault))
            return 0
        return _run(options, place, faults)
    except KeyboardInterrupt:
        return 130
    finally:
        end_processes()
        shutil.rmtree(work, ignore_errors=True)


def _faults_by_module(options: argparse.Namespace, place: Workplace) -> dict[str, list[Fault]]:
    faults: dict[str, list[Fault]] = defaultdict(list)
    if options.file:
        for row in tomllib.loads(options.file.read_text(encoding="utf-8"))["fault"]:
            if options.modules and row["path"] not in options.modules:
                continue
            fault = fault_of_text(row["path"], place.read(row["path"]), row["old"], row["new"])
            if fault:
                faults[row["path"]].append(fault)
            else:
                print(_shorten(f"stale: {row['path']} does not have once: {' '.join(row['old'].split())}"))
        return faults
    for path in options.modules:
        source = place.read(path)
        found = [fault for fault in faults_of(path, source) if options.line in (None, fault.line)]
        faults[path] = choose(found, options.faults, options.seed, source)
    return faults


def _run(options: argparse.Namespace, place: Workplace, faults: dict[str, list[Fault]]) -> int:
    total, number, survivors = sum(map(len, faults.values())), 0, []
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    limits_of: dict[tuple[str, ...], Limits] = {}
    for path, chosen in faults.items():
        tests = tuple(options.tests or own_tests(path, place.folder))
        if tests not in limits_of:
            limits = _unfaulted(place, tests)
            if not limits:
                return 2
            limits_of[tests] = limits
        for fault in chosen:
            number += 1
            with place.faulty(path, fault.apply(place.read(path))):
                outcome = place.run(list(tests), limits_of[tests])
            outcomes[path].append(outcome)
            if outcome.passed:
                survivors.append(fault)
            told = f"{number:3}/{total}  {outcome.cpu_seconds:5.1f} CPU s  {fault.path}:{fault.line} {fault.kind}  "
            file, *names = outcome.by.split("::")
            test = "::".join([file.rpartition("/")[2], *names])
            print(_shorten(told + ("SURVIVES" if outcome.passed else test)), flush=True)
    noticed = _print_table(outcomes)
    if survivors:
        print("\nsurvivors:")
    for fault in survivors:
        print(_in_words(fault))
    return int(options.at_least is not None and noticed < options.at_least)


def _unfaulted(place: Workplace, tests: tuple[str, ...]) -> Limits | None:
    """Run without a fault, import the modules of this run, run again; return the limits. None if tests fail."""
    cold = place.run(list(tests), Limits())
    if cold.passed:
        warm(cold.modules)
        again = place.run(list(tests), Limits.after(cold))
        if again.passed:
            times = f"{cold.cpu_seconds:.1f} CPU s, with packages imported {again.cpu_seconds:.1f}"
            print(_shorten(f"without a fault: {times}: {' '.join(tests)}"), flush=True)
            return Limits.after(again)
        cold = again
    print(place.output()[-4000:], file=sys.stderr)
    print(f"error: without a fault the tests must pass: {cold.by}", file=sys.stderr)
    return None


def _print_table(outcomes: dict[str, list[Outcome]]) -> float:
    """Print the counts of each module; return the share of noticed faults, in percent."""
    rows = [(path, len(ran), sum(not outcome.passed for outcome in ran)) for path, ran in outcomes.items()]
    if len(rows) > 1:
        rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    print(f"\n{'module':50} {'faults':>7} {'noticed':>8} {'survive':>8} {'share':>6}")
    for path, ran, noticed in rows:
        print(f"{path:50} {ran:7} {noticed:8} {ran - noticed:8} {noticed / ran:6.0%}")
    return 100 * rows[-1][2] / rows[-1][1] if rows else 100.0


def _in_words(fault: Fault) -> str:
    place = f"{fault.path}:{fault.line}  "
    most = max(20, (WIDTH - len(place) - len(" => ")) // 2)
    before, after = (text if len(text) <= most else text[: most - 3] + "..." for text in (fault.before, fault.after))
    return _shorten(f"{place}{before} => {after or '(nothing)'}")


def _shorten(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."


if __name__ == "__main__":
    sys.exit(main())
