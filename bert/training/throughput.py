"""What a rank did between two log lines, and in a whole run. No Paddle inside."""

import time
from typing import Any

from bert.planning.estimates import training_flops_per_sequence

COUNTS = ("updates", "sequences", "tokens", "padded_tokens", "flops", "seconds")


class Interval:
    """This rank's counts between two log lines."""

    def __init__(self) -> None:
        self.updates = self.sequences = self.tokens = self.padded_tokens = 0
        self.flops = self.seconds = 0.0
        self._started: float | None = None

    def start(self) -> None:
        """The clock runs: reading, updates and waiting for the device count; evaluation and saving do not."""
        self._started = time.perf_counter()

    def pause(self) -> None:
        self.seconds, self._started = self.elapsed(), None

    def elapsed(self) -> float:
        return self.seconds + (time.perf_counter() - self._started if self._started is not None else 0.0)

    def add(self, batch, model) -> None:
        self.sequences += batch.num_sequences
        self.tokens += batch.num_tokens
        self.padded_tokens += batch.num_padded_tokens
        length = batch.num_padded_tokens // batch.num_sequences
        predictions = round(batch.num_masked / batch.num_sequences)
        self.flops += batch.num_sequences * training_flops_per_sequence(model, length, predictions)

    def extend(self, other: "Interval") -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def counts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COUNTS}

    @classmethod
    def of(cls, counts: dict[str, Any]) -> "Interval":
        """From `counts()`; what is not there is 0."""
        interval = cls()
        for name in COUNTS:
            setattr(interval, name, counts.get(name, 0))
        return interval
