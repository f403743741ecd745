"""What each competitor's process does alike: read the task, run the steps, measure. Needs numpy only.

The task is a folder: task.json (model, training, threads), batches.npz ("<batch>/<input>" as the training program is
fed) and weights.npz (initial weights by our names). The result is one line of JSON.
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


@dataclass(frozen=True)
class Task:
    """The same for everybody."""

    model: dict[str, Any]  # BertConfig's fields, vocab_size already padded
    learning_rate: float
    weight_decay: float
    epsilon: float
    max_grad_norm: float
    warmup_steps: int
    steps: int
    threads: int
    batches: list[dict[str, np.ndarray]]
    folder: Path

    def weights(self) -> dict[str, np.ndarray]:
        with np.load(self.folder / "weights.npz") as file:
            return dict(file)


def read_task(folder: Path) -> Task:
    values = json.loads((folder / "task.json").read_text())
    batches: dict[int, dict[str, np.ndarray]] = {}
    with np.load(folder / "batches.npz") as file:
        for key in file.files:
            number, name = key.split("/")
            batches.setdefault(int(number), {})[name] = file[key]
    return Task(**values, batches=[batches[number] for number in sorted(batches)], folder=folder)


def decays(name: str) -> bool:
    """Weight decay spares biases and LayerNorm, by the names of all three libraries."""
    return not (name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name or ".norm" in name)


def measure(
    task: Task,
    train: Callable[[dict[str, np.ndarray]], float | None],
    evaluate: Callable[[dict], float],
    peak_tflops: float,
) -> None:
    """Run warm-up and timed steps over the batches in turn and print the result.

    Args:
        train: one update on a batch.
        evaluate: loss on a batch, dropout off.
        peak_tflops: of this library's own float32 matrix product with these threads.
    """
    first = task.batches[0]
    loss_before = evaluate(first)
    for step in range(task.warmup_steps):
        train(task.batches[step % len(task.batches)])
    tokens = padded = sequences = 0
    start, cpu = time.perf_counter(), time.process_time()
    for step in range(task.steps):
        batch = task.batches[(task.warmup_steps + step) % len(task.batches)]
        train(batch)
        tokens += int(batch["attention_mask"].sum())
        padded += batch["attention_mask"].size
        sequences += len(batch["attention_mask"])
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(
        json.dumps(
            {
                "updates": task.steps,
                "seconds": seconds,
                "cpu_seconds": cpu,
                "tokens": tokens,
                "padded_tokens": padded,
                "sequences": sequences,
                "loss_before": loss_before,
                "loss_after": evaluate(first),
                "peak_memory": peak_memory(),
                "peak_tflops": peak_tflops,
            }
        )
    )


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
