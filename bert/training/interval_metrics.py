"""Collects the metrics of the updates since the last log line from the devices of all ranks."""

from dataclasses import dataclass

import numpy as np

from bert.model.optimization import GRADIENT_NORM, LEARNING_RATE, SKIPPED_UPDATES
from bert.runtime.paddle_api import read_variable, write_variable
from bert.training.devices import Device
from bert.training.throughput import Throughput
from program import TRAINING_METRICS, TrainingProgram

_MOST_MFU = 1.2


@dataclass(frozen=True)
class IntervalMetrics:
    """The metrics of one interval over all ranks.

    Attributes:
        metrics: by the names that are logged.
        loss_sum, micro_steps: numerator and denominator of the mean loss.
    """

    metrics: dict[str, float]
    loss_sum: float
    micro_steps: float


def collect(
    program: TrainingProgram, device: Device, throughput: Throughput, sequences_per_update: int
) -> IntervalMetrics:
    """End the interval and collect sums over the ranks, device counters and rates. Every rank must call it."""
    interval = throughput.interval()
    local = read_variable(device.scope, TRAINING_METRICS)
    write_variable(device.scope, TRAINING_METRICS, np.zeros_like(local), device.place)
    counts = np.array([interval.tokens, interval.padded_tokens, interval.flops], "float64")
    sums = device.collective.sum(np.concatenate([local, counts]))
    interval = throughput.end_interval()
    names = program.objective.metric_names
    tokens, padded_tokens, flops = sums[len(names) :]
    named = dict(zip(names, sums[: len(names)].tolist(), strict=True))
    seconds = max(interval.seconds, 1e-9)
    metrics = {
        **program.objective.summarise(named),
        "learning_rate": _read(device, LEARNING_RATE),
        "gradient_norm": _read(device, GRADIENT_NORM),
        "skipped_steps": _read(device, SKIPPED_UPDATES),
        "step_cost": seconds / max(interval.updates, 1),
        "step_samples": sequences_per_update,
        "seqs_per_sec": interval.updates * sequences_per_update / seconds,
        "tokens_per_sec": tokens / seconds,
        "padded_tokens_per_sec": padded_tokens / seconds,
    }
    mfu = plausible_mfu(flops, seconds * device.group.world_size, device.peak_tflops)
    if mfu is not None:
        metrics["mfu"] = mfu
    if program.loss_scale:
        metrics["loss_scale"] = _read(device, program.loss_scale)
    micro_steps, loss_sum = sums[:2].tolist()  # of every objective
    return IntervalMetrics(metrics, loss_sum, micro_steps)


def plausible_mfu(flops: float, rank_seconds: float, peak_tflops: float) -> float | None:
    """Model FLOPs utilisation; None where it cannot be so high, since the peak is then wrong, or nothing was measured.

    It may exceed 1 by a little: of the model's operations the last layer is spared some (`BertModel.at`), a tenth of
    BERT-mini's.
    """
    capacity = peak_tflops * 1e12 * rank_seconds
    return flops / capacity if 0 < flops <= _MOST_MFU * capacity else None


def _read(device: Device, name: str) -> float:
    return float(read_variable(device.scope, name).reshape(-1)[0])
