"""What both processes of the comparison of inference do alike: read orders, run batches, answer. Needs numpy only.

An order is a line of JSON on standard input, its answer a line on standard output:
    {"variant": NAME, "case": NAME, "first": i, "runs": n} -> {"seconds": [...], "cpu": [...]} of batches i to i + n - 1
    {"variant": NAME, "case": NAME, "save": FILE} -> the first output of all batches of the case, in a .npz file
Processes wait for their orders, so that the competitors run in turn, one at a time, under the same load.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

Run = Callable[[Mapping[str, np.ndarray]], np.ndarray]


def read_cases(file: Path) -> dict[str, list[dict[str, np.ndarray]]]:
    """Batches of every case: int64 [b, s] by the names of the inputs."""
    cases: dict[str, dict[int, dict[str, np.ndarray]]] = {}
    with np.load(file) as arrays:
        for key in arrays.files:
            case, number, name = key.split("|")
            cases.setdefault(case, {}).setdefault(int(number), {})[name] = arrays[key]
    return {case: [batches[number] for number in sorted(batches)] for case, batches in cases.items()}


def write_cases(file: Path, cases: Mapping[str, list[dict[str, np.ndarray]]]) -> None:
    arrays = {
        f"{case}|{number}|{name}": values
        for case, batches in cases.items()
        for number, batch in enumerate(batches)
        for name, values in batch.items()
    }
    np.savez(file, **arrays)


def serve(variants: Mapping[str, Run], cases: Mapping[str, list[dict[str, np.ndarray]]]) -> None:
    """Carry out orders until standard input ends."""
    print(json.dumps({"variants": list(variants)}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        run, batches = variants[order["variant"]], cases[order["case"]]
        if "save" in order:
            np.savez(order["save"], *[run(batch) for batch in batches])
            print("{}", flush=True)
            continue
        seconds, cpu = [], []
        for number in range(order["first"], order["first"] + order["runs"]):
            batch = batches[number % len(batches)]
            begin, begin_cpu = time.perf_counter(), time.process_time()
            run(batch)
            seconds.append(time.perf_counter() - begin)
            cpu.append(time.process_time() - begin_cpu)
        print(json.dumps({"seconds": seconds, "cpu": cpu}), flush=True)
