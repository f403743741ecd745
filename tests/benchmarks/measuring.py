"""What each competitor's process does alike: read the task, train or predict when told to, measure. Needs numpy only.

The task of training is a folder: task.json (model, training, threads), batches.npz (as a padded training program is
fed) and weights.npz (initial weights by our names). A competitor stays alive between rounds, so that those of all
competitors can take turns: it prints one line of JSON when it is ready, and one for each order.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Feed = dict[str, np.ndarray]
Run = Callable[[Feed], np.ndarray]


@dataclass(frozen=True)
class Task:
    """The same for everybody.

    Attributes:
        objective: pretraining | question-answering | classification.
        model: BertConfig's fields, vocab_size already padded.
    """

    objective: str
    model: dict[str, Any]
    learning_rate: float
    weight_decay: float
    epsilon: float
    max_grad_norm: float
    warmup_steps: int
    threads: int
    batches: list[Feed]
    folder: Path

    def weights(self) -> dict[str, np.ndarray]:
        with np.load(self.folder / "weights.npz") as file:
            return dict(file)


def read_task(folder: Path) -> Task:
    values = json.loads((folder / "task.json").read_text())
    return Task(**values, batches=read_batches(folder / "batches.npz")[""], folder=folder)


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


def decays(name: str) -> bool:
    """Weight decay spares biases and LayerNorm, by the names of all three libraries."""
    return not (name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name or ".norm" in name)


def measure(task: Task, train: Callable[[Feed], Any], evaluate: Callable[[Feed], float], peak_tflops: float) -> None:
    """Warm up, then train as many updates as each line of standard input says; the batches come in turn.

    Args:
        train: one update on a batch.
        evaluate: loss on a batch, dropout off.
        peak_tflops: of this library's own float32 matrix product with these threads.
    """
    loss_before = evaluate(task.batches[0])
    for step in range(task.warmup_steps):
        train(task.batches[step % len(task.batches)])
    _print(loss_before=loss_before, peak_tflops=peak_tflops)
    step = task.warmup_steps
    for line in sys.stdin:
        numbers = range(json.loads(line)["updates"])
        batches = [task.batches[(step + number) % len(task.batches)] for number in numbers]
        step += len(batches)
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        for batch in batches:
            train(batch)
        after = resource.getrusage(resource.RUSAGE_SELF)
        _print(
            updates=len(batches),
            seconds=time.perf_counter() - start,
            cpu_seconds=after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
            system_seconds=after.ru_stime - before.ru_stime,
            tokens=sum(int(batch["attention_mask"].sum()) for batch in batches),
            padded_tokens=sum(batch["attention_mask"].size for batch in batches),
            sequences=sum(len(batch["attention_mask"]) for batch in batches),
        )
    _print(loss_after=evaluate(task.batches[0]), peak_memory=peak_memory())


def serve(variants: Mapping[str, Run], cases: Mapping[str, list[Feed]]) -> None:
    """Carry out the orders to predict on standard input, each a line of JSON, until it ends.

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


def best_rate(product: Callable[[], Any], flops: float, seconds: float = 0.6) -> float:
    """TFLOP/s of the fastest call of `product` within about `seconds`."""
    product()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        product()
        best = min(best, time.perf_counter() - start)
    return flops / best / 1e12


def peak_memory() -> int:
    """Bytes of this process's largest resident set; getrusage has that of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def task_of_command_line() -> Task:
    """Argument 1 is the task's folder; threads of OpenMP are set before any library is loaded."""
    task = read_task(Path(sys.argv[1]))
    os.environ["OMP_NUM_THREADS"] = str(task.threads)
    return task
