"""The time of each kind of operator in our training program, by Paddle's profiler."""

from collections.abc import Callable
from typing import Any

import numpy as np

LEAST_SHARE = 0.005


def print_profile(train: Callable[[dict[str, np.ndarray]], Any], batches: list, warmup_steps: int, updates: int = 6):
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
    total = sum(milliseconds for _, milliseconds in operators.values())
    lines = ["| operator | calls | ms an update | share |", "| --- | --- | --- | --- |"]
    for name, (calls, milliseconds) in sorted(operators.items(), key=lambda item: -item[1][1]):
        if milliseconds >= LEAST_SHARE * total:
            lines.append(f"| {name} | {calls:.0f} | {milliseconds:.1f} | {milliseconds / total:.1%} |")
    calls = sum(calls for calls, _ in operators.values())
    return "\n".join([*lines, f"| all | {calls:.0f} | {total:.1f} | 100.0% |"])
