"""How often ranks look for a request to stop. That they stop together: tests/runtime/test_distributed.py."""

import numpy as np
import pytest

from bert.runtime.distributed import Group
from bert.training.interruption import StopRequest
from bert.training.stop_on_any_rank import StopOnAnyRank


class Sums:
    """The other ranks add nothing. Counts what makes the host wait for the device."""

    waits = 0

    def sum(self, values):
        self.waits += 1
        return np.asarray(values)

    def any(self, flag):
        return bool(self.sum([int(flag)])[0])


def ranks(device: str, world_size: int = 8) -> tuple[StopOnAnyRank, StopRequest, Sums]:
    stop, sums = StopRequest(), Sums()
    return StopOnAnyRank(stop, Group(0, world_size, device), sums), stop, sums


@pytest.mark.parametrize(("seconds_per_update", "looks"), [(15.0, 100), (0.5, 50), (0.1, 10), (0.004, 0), (0.0, 0)])
def test_the_host_waits_about_once_a_second(seconds_per_update, looks):
    shared, _, sums = ranks("gpu")
    shared.measured(seconds_per_update)
    sums.waits = 0
    assert not any(shared.after(step, waits=False) for step in range(1, 101))
    assert sums.waits == looks


def test_a_request_is_known_at_the_next_look():
    shared, stop, _ = ranks("gpu")
    shared.measured(0.1)
    stop.signal_name = "SIGTERM"
    assert [step for step in range(1, 31) if shared.after(step, waits=step == 25)] == [10, 20, 25, 30]


def test_before_anything_is_measured_and_on_a_cpu_each_update_is_followed_by_a_look():
    for device in ("gpu", "cpu"):
        shared, _, sums = ranks(device)
        if device == "cpu":
            shared.measured(0.001)
        assert not any(shared.after(step, waits=False) for step in range(1, 11))
        assert sums.waits == 10
