"""What stops a run: signals and a file. They set a flag and change nothing else.

That ranks stop together: tests/runtime/test_distributed.py.
"""

import os
import signal
import time

import pytest

from bert.runtime.distributed import Collective, Group
from bert.training.interruption import SIGNALS, STOP_FILE, StopOnAnyRank, StopRequest
from tests.support.messages import messages


@pytest.fixture
def handlers():
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def watching(folder):
    clock = Clock()
    stop = StopRequest(clock)
    with messages() as said:
        stop.watch(folder)
    return stop, clock, said


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
def test_a_signal_sets_the_flag_and_the_ones_after_it_change_nothing_else(handlers, name):
    stop = StopRequest().install()
    assert not stop
    os.kill(os.getpid(), signal.Signals[name])
    assert stop and stop.signal_name == name
    for number in SIGNALS:
        os.kill(os.getpid(), number)
    assert stop


def test_a_file_stops_the_run_and_is_taken_away(tmp_path):
    stop, clock, said = watching(tmp_path)
    assert not stop
    (tmp_path / STOP_FILE).touch()
    clock.now += 0.9
    assert not stop, "looked again within a second"
    clock.now += 0.2
    assert stop and stop.signal_name == str(tmp_path / "STOP")
    assert list(tmp_path.iterdir()) == [] and said == []
    assert stop


def test_a_file_that_was_left_does_not_stop_the_next_run(tmp_path):
    (tmp_path / STOP_FILE).touch()
    os.utime(tmp_path / STOP_FILE, (time.time() - 1,) * 2)
    stop, clock, said = watching(tmp_path)
    clock.now += 5
    assert not stop and list(tmp_path.iterdir()) == []
    assert said == [f"{tmp_path / 'STOP'} was left from an earlier run; removed"]


def test_a_file_made_while_the_run_starts_stops_it(tmp_path):
    stop = StopRequest()
    (tmp_path / STOP_FILE).touch()
    os.utime(tmp_path / STOP_FILE, (time.time() + 1,) * 2)
    with messages() as said:
        stop.watch(tmp_path)
    assert stop and said == [] and list(tmp_path.iterdir()) == []


def test_a_folder_of_that_name_asks_too_and_a_missing_one_does_not(tmp_path):
    stop, clock, _ = watching(tmp_path)
    (tmp_path / STOP_FILE).mkdir()
    clock.now += 2
    assert stop
    stop, clock, _ = watching(tmp_path / "nowhere")
    clock.now += 2
    assert not stop


class Sums(Collective):
    """The other ranks add nothing. Counts what makes the host wait for the device."""

    waits = 0

    def sum(self, values):
        self.waits += 1
        return values


def ranks(device: str, world_size: int = 8) -> tuple[StopOnAnyRank, StopRequest, Sums]:
    stop, sums = StopRequest(), Sums(Group(0, world_size, device), None)
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
