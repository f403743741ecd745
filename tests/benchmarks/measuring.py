"""What each competitor's process does alike: read the task, train in rounds, measure. Needs numpy only.

The task is a folder: task.json (model, training, threads), batches.npz ("<batch>/<input>" as a padded training program
is fed) and weights.npz (initial weights by our names). A competitor stays alive between rounds, so that those of all
competitors can take turns: it prints one line of JSON when it is ready, and one for each round it is asked for.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Feed = dict[str, np.ndarray]


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
    batches: dict[int, Feed] = {}
    with np.load(folder / "batches.npz") as file:
        for key in file.files:
            number, name = key.split("/")
            batches.setdefault(int(number), {})[name] = file[key]
    return Task(**values, batches=[batches[number] for number in sorted(batches)], folder=folder)


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


def _print(**values: float) -> None:
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
    """Bytes of this process's largest resident set (VmHWM)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def task_of_command_line() -> Task:
    """Argument 1 is the task's folder; threads of OpenMP are set before any library is loaded."""
    task = read_task(Path(sys.argv[1]))
    os.environ["OMP_NUM_THREADS"] = str(task.threads)
    return task
