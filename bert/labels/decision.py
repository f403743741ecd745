"""How a classifier decides from its logits: a threshold for one class, and in its training a temperature."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

from bert.conversion.usage import Usage


@dataclass(frozen=True)
class Decision:
    """From logits to probabilities and classes.

    Attributes:
        several: whether a text may have several labels, each with a probability of its own.
        temperature: logits are divided by it. It is fitted at the end of a training and then becomes part of the
            weights (`bert.model.head_specs.with_temperature`), so it is 1 wherever the weights are used.
        positive: the index of the class that is predicted from the probability `threshold` on; None: the likeliest is.
    """

    several: bool = False
    temperature: float = 1.0
    positive: int | None = None
    threshold: float = 0.5

    @classmethod
    def of(cls, usage: Usage, labels: Sequence[str]) -> "Decision":
        """The decision of trained weights."""
        positive = labels.index(usage.positive_label) if usage.positive_label in labels else None
        return cls(usage.label_separator is not None, 1.0, positive, usage.threshold)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """float64 [n, classes]."""
        scaled = logits.astype(np.float64) / self.temperature
        return expit(scaled) if self.several else softmax(scaled, axis=-1)

    def classes(self, likely: np.ndarray) -> np.ndarray:
        """int64 [n] of probabilities; with several labels, 0 and 1 [n, classes]."""
        if self.several:
            return (likely >= self.threshold).astype(np.int64)
        if self.positive is None:
            return likely.argmax(-1)
        others = likely.copy()
        others[:, self.positive] = -1.0
        return np.where(likely[:, self.positive] >= self.threshold, self.positive, others.argmax(-1))
