"""Shared code of the competitors' processes: read batches, predict when told to, measure. Needs numpy only.

A competitor stays alive between rounds, so that those of all competitors can take turns: it prints one line of JSON
when it is ready, and one for each order.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Feed = dict[str, np.ndarray]
Run = Callable[[Feed], np.ndarray]


def write_batches(file: Path, cases: Mapping[str, Iterable[Feed]]) -> None:
    """Write the batches of each case as arrays "CASE/NUMBER/INPUT"; without "CASE/" if its name is empty."""
    arrays = {
        f"{case}/{number}/{name}".lstrip("/"): values
        for case, batches in cases.items()
        for number, batch in enumerate(batches)
        for name, values in batch.items()
    }
    np.savez(file, **arrays)


def read_batches(file: Path) -> dict[str, list[Feed]]:
    """The batches of each case that `write_batches` has written."""
    cases: dict[str, dict[int, Feed]] = {}
    with np.load(file) as arrays:
        for key in arrays.files:
            *case, number, name = key.split("/")
            cases.setdefault("".join(case), {}).setdefault(int(number), {})[name] = arrays[key]
    return {case: [batches[number] for number in sorted(batches)] for case, batches in cases.items()}


def serve(variants: Mapping[str, Run], cases: Mapping[str, list[Feed]]) -> None:
    """Execute the orders on standard input, each a line of JSON that asks for a prediction, until the input ends.

    {"variant": NAME, "case": NAME, "first": i, "runs": n} -> {"seconds": [...], "cpu": [...]} of batches i to i + n - 1
    {"variant": NAME, "case": NAME, "save": FILE} -> {}; the outputs of all batches of the case are in FILE, a .npz
    """
    _print(variants=list(variants))
    for line in sys.stdin:
        order = json.loads(line)
        run, batches = variants[order["variant"]], cases[order["case"]]
        if "save" in order:
            np.savez(order["save"], *[run(batch) for batch in batches])
            _print()
            continue
        seconds, cpu = [], []
        for number in range(order["first"], order["first"] + order["runs"]):
            batch = batches[number % len(batches)]
            begin, begin_cpu = time.perf_counter(), time.process_time()
            run(batch)
            seconds.append(time.perf_counter() - begin)
            cpu.append(time.process_time() - begin_cpu)
        _print(seconds=seconds, cpu=cpu)


def _print(**values: Any) -> None:
    print(json.dumps(values), flush=True)
