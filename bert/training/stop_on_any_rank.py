"""Ranks that stop together: a request to one of them is known to all after the same update."""

import numpy as np

from bert.runtime.distributed import Collective, Group
from bert.training.interruption import StopRequest

SECONDS_BETWEEN_LOOKS = 1.0  # of ranks on GPUs


class StopOnAnyRank:
    """A stop request to any rank, which all ranks learn of after the same update.

    Ranks on GPUs look about once a second only: each look makes the host wait for the device, which then idles until it
    has new operators.
    """

    def __init__(self, stop: StopRequest, group: Group, collective: Collective) -> None:
        self._stop, self._group, self._collective = stop, group, collective
        self._updates_between_looks = 1

    def after(self, step: int, waits: bool) -> bool:
        """Whether a stop was asked for, as far as is known after update `step`.

        Args:
            waits: whether the host waits for the device at this update in any case, so that a look costs nothing.
        """
        if step % self._updates_between_looks and not waits:
            return False
        return self._collective.any(bool(self._stop))

    def measured(self, seconds_per_update: float) -> None:
        """Look as often as these updates need. Every rank must call it; that of rank 0 counts."""
        if self._group.device == "cpu" or self._group.world_size == 1:  # the host waits for every update, or for none
            return
        wanted = max(1, int(SECONDS_BETWEEN_LOOKS / max(seconds_per_update, 1e-6)))
        self._updates_between_looks = int(self._collective.sum(np.array([wanted if self._group.is_main else 0]))[0])
