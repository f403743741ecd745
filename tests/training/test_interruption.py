"""What stops a run: signals and a file. They set a flag and change nothing else."""

import os
import signal
import time

import pytest

from bert.training.interruption import SIGNALS, STOP_FILE, StopRequest
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
