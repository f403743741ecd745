"""Turns a classifier's logits into probabilities and classes, with a threshold and, in training, a temperature."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

from bert.conversion.usage import Usage


@dataclass(frozen=True)
class Decision:
    """The rule that turns logits into probabilities and classes.

    Attributes:
        several: whether a text may have several labels, each with a probability of its own.
        temperature: divisor of the logits. It is fitted at the end of a training and then becomes part of the weights
            (`bert.model.head_specs.with_temperature`), so it is 1 wherever the weights are used.
        positive: index of the class that is predicted if its probability is at least `threshold`; None: the most
            probable class is predicted.
    """

    several: bool = False
    temperature: float = 1.0
    positive: int | None = None
    threshold: float = 0.5

    @classmethod
    def of(cls, usage: Usage, labels: Sequence[str]) -> "Decision":
        """The decision that trained weights use."""
        positive = labels.index(usage.positive_label) if usage.positive_label in labels else None
        return cls(usage.label_separator is not None, 1.0, positive, usage.threshold)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Probabilities of the classes, float64 [n, classes]."""
        scaled = logits.astype(np.float64) / self.temperature
        return expit(scaled) if self.several else softmax(scaled, axis=-1)

    def classes(self, likely: np.ndarray) -> np.ndarray:
        """Classes by their probabilities, int64 [n]; with several labels, 0 and 1 [n, classes]."""
        if self.several:
            return (likely >= self.threshold).astype(np.int64)
        if self.positive is None:
            return likely.argmax(-1)
        others = likely.copy()
        others[:, self.positive] = -1.0
        return np.where(likely[:, self.positive] >= self.threshold, self.positive, others.argmax(-1))
