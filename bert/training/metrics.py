"""Metrics of a training: counts and times of a rank's updates, and log lines over all ranks."""

import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from bert.checkpoints.progress import Totals
from bert.config.architecture import BertConfig
from bert.model.optimization import CONSECUTIVE_SKIPPED_UPDATES, GRADIENT_NORM, LEARNING_RATE, SKIPPED_UPDATES
from bert.planning.estimates import training_flops_per_sequence
from bert.runtime.distributed import Collective
from bert.runtime.paddle_api import read_variable, write_variable
from bert.training.devices import Device
from program import TRAINING_METRICS, TrainingProgram

_MOST_MFU = 1.2
_MOST_INTERVALS = 1000  # kept for the recent speed


@dataclasses.dataclass
class Counts:
    """Work of one rank; `seconds` excludes evaluations and checkpoints."""

    updates: int = 0
    sequences: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0


class Throughput:
    """Clock and counts of one start. The clock runs while batches are read and updates made."""

    def __init__(self, model: BertConfig, before: Totals, clock: Callable[[], float] = time.perf_counter) -> None:
        self._model, self._before, self._clock = model, before, clock
        self.interval, self._leg = Counts(), Counts()  # since the last `end_interval`, and before it
        self._ends = deque([(0.0, 0)], maxlen=_MOST_INTERVALS)  # of the last intervals: seconds and updates of the leg
        self._begin = clock()
        self._started: float | None = None

    def start(self) -> None:
        self._started = self._clock()

    def pause(self) -> None:
        self.interval.seconds, self._started = self._elapsed(), None

    def add_micro_batch(self, batch) -> None:
        counts = self.interval
        counts.sequences += batch.num_sequences
        counts.tokens += batch.num_tokens
        counts.padded_tokens += batch.num_padded_tokens
        number = batch.num_documents or batch.num_sequences
        length, predictions = batch.num_padded_tokens // number, round(batch.num_masked / number)
        counts.flops += number * training_flops_per_sequence(self._model, length, predictions)

    def end_interval(self) -> Counts:
        """Counts of the interval that ends now, after waiting for the device."""
        self.pause()
        counts, self.interval = self.interval, Counts()
        self._leg = _sum(self._leg, counts)
        self._ends.append((self._leg.seconds, self._leg.updates))
        self.start()
        return counts

    def forget(self) -> None:
        """Reset all counts at the end of a benchmark's warm-up."""
        self._leg = Counts()

    def seconds_left(self, updates: int) -> float:
        """Time of `updates` more updates at this start's mean speed; infinite before the first update."""
        done = self._leg.updates + self.interval.updates
        return updates * (self._leg.seconds + self._elapsed()) / done if done else float("inf")

    def seconds_per_update(self, window: float) -> float | None:
        """Mean over the intervals of the last `window` seconds, at least one; None before an update."""
        seconds, updates = self._ends[-1]
        earlier = [end for end in self._ends if end[1] < updates]
        if not earlier:
            return None
        first, before = next((end for end in earlier if end[0] >= seconds - window), earlier[-1])
        return (seconds - first) / (updates - before)

    def seconds_of_run(self) -> float:
        """Time since the start of the run, summed over its starts."""
        return self._before.total_seconds + self._clock() - self._begin

    def totals(self, collective: Collective, world_size: int) -> Totals:
        """Totals of the run including this start. Every rank must call it."""
        leg = self._leg
        sums = collective.sum(np.array([leg.sequences, leg.tokens, leg.flops], "float64")).tolist()
        times = [leg.seconds, leg.seconds * world_size, self._clock() - self._begin]
        return _sum(self._before, Totals(*sums, *times))

    def _elapsed(self) -> float:
        running = self._clock() - self._started if self._started is not None else 0.0
        return self.interval.seconds + running


Sums = TypeVar("Sums", Counts, Totals)


def _sum(first: Sums, second: Sums) -> Sums:
    return type(first)(*map(sum, zip(dataclasses.astuple(first), dataclasses.astuple(second), strict=True)))


def collect(
    program: TrainingProgram, device: Device, throughput: Throughput, batch_size: int
) -> tuple[dict[str, float], float, float]:
    """End the interval: sum over ranks, read device counters, compute rates. Every rank must call it.

    Args:
        batch_size: sequences of the last update, all ranks.
    Returns:
        The metrics by the names that are logged, NaN where nothing was measured; numerator and denominator of the mean
        loss.
    """
    counts = throughput.interval
    local = read_variable(device.scope, TRAINING_METRICS)
    write_variable(device.scope, TRAINING_METRICS, np.zeros_like(local), device.place)
    work = np.array([counts.tokens, counts.padded_tokens, counts.flops], "float64")
    sums = device.collective.sum(np.concatenate([local, work]))
    counts = throughput.end_interval()
    names = program.objective.metric_names
    tokens, padded_tokens, flops = sums[len(names) :]
    seconds = max(counts.seconds, 1e-9)
    measured = seconds if counts.updates else math.nan  # a guard skipped every batch of the interval
    metrics = {
        **program.objective.summarise(dict(zip(names, sums[: len(names)].tolist(), strict=True))),
        "learning_rate": _read(device, LEARNING_RATE),
        # Scaling down the loss clears the gradients of an update that overflowed: their norm would be 0.
        "gradient_norm": math.nan if _read(device, CONSECUTIVE_SKIPPED_UPDATES) else _read(device, GRADIENT_NORM),
        "skipped_steps": _read(device, SKIPPED_UPDATES),
        "step_cost": measured / max(counts.updates, 1),
        "step_samples": batch_size,
        "seqs_per_sec": counts.sequences * device.group.world_size / measured,
        "tokens_per_sec": tokens / measured,
        "padded_tokens_per_sec": padded_tokens / measured,
    }
    mfu = plausible_mfu(flops, seconds * device.group.world_size, device.peak_tflops)
    if mfu is not None:
        metrics["mfu"] = mfu
    if program.loss_scale:
        metrics["loss_scale"] = _read(device, program.loss_scale)
    micro_steps, loss_sum = sums[:2].tolist()  # of every objective
    return metrics, loss_sum, micro_steps


def plausible_mfu(flops: float, rank_seconds: float, peak_tflops: float) -> float | None:
    """Model FLOPs utilisation; None if unmeasured or implausibly high, which means that the peak is wrong.

    It may exceed 1 by a little: of the model's operations the last layer is spared some (`BertModel.at`), a tenth of
    BERT-mini's.
    """
    capacity = peak_tflops * 1e12 * rank_seconds
    return flops / capacity if 0 < flops <= _MOST_MFU * capacity else None


def _read(device: Device, name: str) -> float:
    return float(read_variable(device.scope, name).reshape(-1)[0])
