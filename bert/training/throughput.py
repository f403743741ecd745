"""Counts and times of updates: of the interval since the last log line, of this leg, and of the whole run."""

import dataclasses
import time

import numpy as np

from bert.config.architecture import BertConfig
from bert.planning.estimates import training_flops_per_sequence
from bert.runtime.distributed import Collective


@dataclasses.dataclass
class Counts:
    """Work of one rank; `seconds` exclude evaluations and checkpoints."""

    updates: int = 0
    sequences: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: "Counts") -> "Counts":
        ours, theirs = dataclasses.astuple(self), dataclasses.astuple(other)
        return Counts(*(first + second for first, second in zip(ours, theirs, strict=True)))


@dataclasses.dataclass(frozen=True)
class Totals:
    """Sums over all ranks and all legs of a run; checkpoints carry them from leg to leg."""

    sequences: float = 0.0
    tokens: float = 0.0
    flops: float = 0.0
    seconds: float = 0.0  # of training, without evaluations and checkpoints
    rank_seconds: float = 0.0  # `seconds` times the ranks of each leg
    total_seconds: float = 0.0


class Throughput:
    """The clock and the counts of one leg. The clock runs while batches are read and updates made."""

    def __init__(self, model: BertConfig, before: Totals | None = None) -> None:
        self._model, self._before = model, before or Totals()
        self._interval, self._leg = Counts(), Counts()
        self._begin = time.perf_counter()
        self._started: float | None = None

    def start(self) -> None:
        self._started = time.perf_counter()

    def pause(self) -> None:
        self._interval.seconds, self._started = self._elapsed(), None

    def add_micro_batch(self, batch) -> None:
        counts = self._interval
        counts.sequences += batch.num_sequences
        counts.tokens += batch.num_tokens
        counts.padded_tokens += batch.num_padded_tokens
        length = batch.num_padded_tokens // batch.num_sequences
        predictions = round(batch.num_masked / batch.num_sequences)
        counts.flops += batch.num_sequences * training_flops_per_sequence(self._model, length, predictions)

    def add_update(self) -> None:
        self._interval.updates += 1

    def interval(self) -> Counts:
        """Counts since the last `end_interval`."""
        return self._interval

    def end_interval(self) -> Counts:
        """Counts of the interval that ends now, after the wait for the device."""
        self.pause()
        counts, self._interval = self._interval, Counts()
        self._leg += counts
        self.start()
        return counts

    def forget(self) -> None:
        """Reset all counts at the end of a benchmark's warm-up."""
        self._leg = Counts()

    def seconds_left(self, updates: int) -> float:
        """Time for `updates` more updates at the mean speed of this leg; infinite before the first update."""
        done = self._leg.updates + self._interval.updates
        return updates * (self._leg.seconds + self._elapsed()) / done if done else float("inf")

    def totals(self, collective: Collective, world_size: int) -> Totals:
        """Totals of the run including this leg. Every rank must call it."""
        leg, before = self._leg, self._before
        sums = collective.sum(np.array([leg.sequences, leg.tokens, leg.flops], "float64"))
        times = [leg.seconds, leg.seconds * world_size, time.perf_counter() - self._begin]
        return Totals(
            *(old + new for old, new in zip(dataclasses.astuple(before), [*sums.tolist(), *times], strict=True))
        )

    def _elapsed(self) -> float:
        running = time.perf_counter() - self._started if self._started is not None else 0.0
        return self._interval.seconds + running
