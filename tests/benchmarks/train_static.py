"""Our static program on a task of the benchmark; see measuring.py.

Arguments after the task's folder: `--bfloat16` for mixed precision, `--padded` to compute on padding too, `--weights`
to write the initial weights only, `--profile` to print operators instead.
"""

import argparse
import itertools
import json
from collections.abc import Callable
from typing import Any

from tests.benchmarks.measuring import Feed, Task, measure, task_of_command_line
from tests.benchmarks.processes import markdown

SEED = 12
LEAST_SHARE = 0.005  # of an update's time, in the profile


def objective_of(task: Task, padded: bool):
    from bert.config.architecture import FusedKernels
    from bert.config.training_settings import BertConfig
    from bert.model import objectives

    kinds = {
        "pretraining": objectives.PretrainingObjective,
        "question-answering": objectives.QuestionAnsweringObjective,
        "classification": objectives.SequenceClassificationObjective,
    }
    return kinds[task.objective](BertConfig(**task.model), fuse_mha=True, kernels=FusedKernels(unpad=not padded))


def main(task: Task, arguments: argparse.Namespace) -> None:
    import numpy as np

    from bert.config.optimizer_settings import OptimizerSettings, PrecisionSettings
    from bert.runtime.hardware import measured_gemm_tflops
    from bert.runtime.paddle_api import set_cpu_threads
    from bert.samples.packing import pack
    from program import build_evaluation_program
    from tests.support import tiny

    set_cpu_threads(task.threads)
    objective = objective_of(task, arguments.padded)
    optimizer = OptimizerSettings(
        optimizer="AdamW",
        learning_rate=task.learning_rate,
        epsilon=task.epsilon,
        weight_decay=task.weight_decay,
        max_grad_norm=task.max_grad_norm,
    )
    precision = PrecisionSettings(amp=arguments.bfloat16, amp_dtype="bfloat16")
    settings = {"objective": objective, "optimizer": optimizer, "precision": precision, "seed": SEED}
    session = tiny.Session(**settings, num_steps=1, warmup_steps=0)
    if arguments.weights:
        np.savez(task.folder / "weights.npz", **session.parameters())
        print(json.dumps({"parameters": len(session.program.parameters)}))
        return
    evaluation, packing, keys = build_evaluation_program(objective, precision), objective.packing(), itertools.count()

    def fed(batch: Feed) -> Feed:
        return batch if packing is None else pack(batch, packing)

    def train(batch: Feed) -> None:
        session.micro_step(fed(batch), next(keys))

    def evaluate(batch: Feed) -> float:
        fetched = {"fetch_list": [evaluation.metrics], "scope": session.scope}
        return float(session.executor.run(evaluation.main, feed=fed(batch), **fetched)[0][1])

    if arguments.profile:
        print_profile(train, task.batches, task.warmup_steps)
    else:
        measure(task, train, evaluate, measured_gemm_tflops(session.executor))


def print_profile(train: Callable[[Feed], Any], batches: list, warmup_steps: int, updates: int = 6) -> None:
    """Run some updates and print a table of the operators with at least `LEAST_SHARE` of their time."""
    from paddle.profiler import Profiler, ProfilerTarget
    from paddle.profiler.profiler_statistic import StatisticData

    for step in range(warmup_steps):
        train(batches[step % len(batches)])
    profiler = Profiler(targets=[ProfilerTarget.CPU], on_trace_ready=lambda profiler: None)
    profiler.start()
    for step in range(updates):
        train(batches[step % len(batches)])
        profiler.step()
    profiler.stop()
    result = profiler.profiler_result
    items = StatisticData(result.get_data(), result.get_extra_info()).event_summary.items
    print(table({name: (item.call / updates, item.cpu_time / updates / 1e6) for name, item in items.items()}))


def table(operators: dict[str, tuple[float, float]]) -> str:
    """Rows of kind, calls, milliseconds and share, slowest first.

    Args:
        operators: kind -> (calls, milliseconds) of an update.
    """
    calls, total = (sum(column) for column in zip(*operators.values(), strict=True))
    rows = [
        (name, f"{calls:.0f}", f"{milliseconds:.1f}", f"{milliseconds / total:.1%}")
        for name, (calls, milliseconds) in sorted(operators.items(), key=lambda item: -item[1][1])
        if milliseconds >= LEAST_SHARE * total
    ]
    rows.append(("all", f"{calls:.0f}", f"{total:.1f}", "100.0%"))
    return markdown(("operator", "calls", "ms an update", "share"), rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    for flag in ("bfloat16", "padded", "weights", "profile"):
        parser.add_argument(f"--{flag}", action="store_true")
    main(task_of_command_line(), parser.parse_args())
