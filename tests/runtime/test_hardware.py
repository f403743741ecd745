"""CPU threads and affinity follow the rank's share of cores; the peak rate is known or measured."""

import itertools
import os
import time

import pytest

from bert.runtime import hardware
from bert.runtime.hardware import measured_gemm_tflops, peak_tflops, use_cores
from bert.runtime.paddle_api import paddle, static
from bert.runtime.topology import Core


@pytest.fixture
def four_cores(monkeypatch):
    """Make a fake machine of four cores without hyper-threads or limits; record calls to Paddle and the kernel."""
    told = {"threads": [], "bound": []}
    monkeypatch.setattr(hardware, "set_cpu_threads", told["threads"].append)
    monkeypatch.setattr(hardware, "allowed_processors", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(hardware, "usable_cores", lambda allowed: [Core((number,), 0) for number in allowed])
    monkeypatch.setattr(hardware, "cpu_quota", lambda: None)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: told["bound"].append(list(cores)))
    return told


def test_threads_are_the_ranks_cores_unless_given_and_binding_is_asked_for(four_cores):
    assert use_cores(0, False, 1, 2) == 2
    assert use_cores(3, True, 1, 2) == 3
    assert four_cores == {"threads": [2, 3], "bound": [[2, 3]]}


def test_ranks_bind_near_the_gpu_the_launcher_gave_them(four_cores, monkeypatch):
    monkeypatch.setattr(hardware, "gpu_local_processors", lambda visible: [[2, 3], [0, 1]])
    monkeypatch.setenv("FLAGS_selected_gpus", "0")
    use_cores(0, True, 0, 2)
    monkeypatch.setenv("FLAGS_selected_gpus", "5")  # some other assignment: nothing is known, so plain shares
    use_cores(0, True, 0, 2)
    assert four_cores["bound"] == [[2, 3], [0, 1]]


def test_a_refused_binding_is_told_and_training_goes_on(four_cores, monkeypatch):
    def refuse(*_):
        raise PermissionError("not in this sandbox")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with pytest.warns(UserWarning, match="enable_cpu_affinity has no effect here: not in this sandbox"):
        assert use_cores(0, True, 0, 1) == 4


def test_a_busy_machine_does_not_lower_the_measured_peak(monkeypatch):
    """A CPU's rate is one thread's rate by processor time, times the threads, whatever the wall clock says."""
    executor, threads, milliseconds, wall = static.Executor(paddle.CPUPlace()), [], itertools.count(), time.perf_counter
    monkeypatch.setattr(hardware, "set_cpu_threads", threads.append)
    monkeypatch.setattr(hardware.time, "process_time", lambda: next(milliseconds) / 1e3)
    rates = []
    for speed in (1, 6):
        monkeypatch.setattr(hardware.time, "perf_counter", lambda speed=speed: speed * wall())
        rates.append(measured_gemm_tflops(executor, size=256, seconds=0.1, num_threads=2))
    assert rates == pytest.approx([2 * 8 * 2 * 256**3 / 1e-3 / 1e12] * 2) and threads == [1, 2, 1, 2]


@pytest.mark.parametrize(
    "name,short,tf32",
    [
        ("NVIDIA A100-SXM4-80GB", 312, 156),
        ("NVIDIA A10", 125, 62.5),
        ("NVIDIA H100 80GB HBM3", 989, 494),
        ("Tesla V100-SXM2-32GB", 125, 15.7),
        ("Tesla T4", 65, 8.1),
    ],
)
def test_known_parts_have_their_data_sheets_figure(monkeypatch, name, short, tf32):
    monkeypatch.setattr(paddle.device.cuda, "get_device_name", lambda: name)
    assert peak_tflops(None, "gpu", "short") == short
    assert peak_tflops(None, "gpu", "tf32") == tf32
