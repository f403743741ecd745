"""The learning rate of every update, by the settings of the optimizer. This module loads no Paddle."""

from dataclasses import dataclass

import numpy as np

from bert.config.optimizer_settings import OptimizerSettings


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up to the peak, then one of these to the end, by --lr-schedule:

    - polynomial: power 1.0 is linear; NVIDIA's PyTorch code uses 0.5. With --lr-decay-from start the decay is that of
      all updates and warm-up hides its beginning: the rate falls below the peak at the first update after warm-up.
    - linear; cosine: half a cosine (Loshchilov & Hutter, 2017), without restarts; constant.
    - inverse-sqrt: with the root of the update (Vaswani et al., 2017), which no length decides; falls towards the end.
    - wsd: warm-up, stable, decay (Hu et al., 2024): the peak up to `decay_start`, then linear. Haegele et al. (2024)
      measured 1 - sqrt slightly better; only a line can be replanned at any update and remain one.
    """

    settings: OptimizerSettings
    warmup_steps: int
    total_steps: int

    @property
    def decay_start(self) -> int:
        """First update of the decay of wsd, which has at least one update."""
        decay_steps = max(1, round(self.settings.lr_decay_share * self.total_steps))
        return max(min(self.warmup_steps, self.total_steps - 1), self.total_steps - decay_steps)

    def learning_rate_at(self, step: int) -> float:
        """The learning rate of the update with index `step`, from 0."""
        return float(self._rates(np.array([step]))[0])

    def table(self) -> np.ndarray:
        """The learning rate of every update, float32 [total_steps]; millions of entries if time decides the end."""
        return self._rates(np.arange(self.total_steps)).astype("float32")

    def _rates(self, steps: np.ndarray) -> np.ndarray:
        """Learning rates (float64) of update indices (int64).

        The last update of the warm-up and the first one after it have the peak's rate. The update after the last would
        have that of the end, so that no update has a rate of 0.
        """
        peak, start, end = self.settings.learning_rate, self.settings.warmup_start_lr, self.settings.end_learning_rate
        warmup = start + (peak - start) * (steps + 1) / max(1, self.warmup_steps)
        return np.where(steps < self.warmup_steps, warmup, end + (peak - end) * self._shares_of_peak(steps))

    def _shares_of_peak(self, steps: np.ndarray) -> np.ndarray:
        """Learning rates as a fraction of the peak, from 1 down to 0."""
        kind = self.settings.lr_schedule
        if kind == "constant":
            return np.ones(len(steps))
        if kind == "inverse-sqrt":
            root = max(1, self.warmup_steps)
            return (root / np.maximum(root, root + steps - self.warmup_steps)) ** 0.5
        first = self._first_decaying_step()
        remaining = np.clip((self.total_steps - steps) / max(1, self.total_steps - first), 0.0, 1.0)
        if kind == "cosine":
            return 0.5 * (1 - np.cos(np.pi * remaining))
        return remaining**self.settings.lr_decay_power

    def _first_decaying_step(self) -> int:
        if self.settings.lr_schedule == "wsd":
            return self.decay_start
        return 0 if self.settings.lr_decay_from == "start" else self.warmup_steps
