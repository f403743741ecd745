"""Cores are shared out whatever their number; the peak is known or measured."""

import os

import pytest

from bert import hardware
from bert.framework import paddle, static
from bert.hardware import KNOWN_PEAKS, cores_of_rank, measured_gemm_tflops, peak_tflops, use_cores


@pytest.mark.parametrize("cores,ranks,expected", [
    ([0, 1, 2, 3], 1, [[0, 1, 2, 3]]),
    ([0, 1, 2, 3], 2, [[0, 1], [2, 3]]),
    ([4, 5, 9], 2, [[4], [5, 9]]),
    ([0, 1], 4, [[0], [1], [0], [1]]),
    ([7], 3, [[7], [7], [7]]),
])  # fmt: skip
def test_every_rank_has_cores_and_none_shares_without_need(cores, ranks, expected):
    assert [cores_of_rank(cores, rank, ranks) for rank in range(ranks)] == expected


@pytest.mark.parametrize("rank,ranks", [(2, 2), (-1, 2)])
def test_a_rank_outside_its_host_is_refused(rank, ranks):
    with pytest.raises(ValueError, match=f"local_rank={rank} must be below local_world_size={ranks}"):
        cores_of_rank([0, 1], rank, ranks)


def test_threads_are_the_ranks_cores_unless_given_and_binding_is_asked_for(monkeypatch):
    threads, bound = [], []
    monkeypatch.setattr(hardware, "set_cpu_threads", threads.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: bound.append(list(cores)))
    assert use_cores(0, False, 1, 2) == 2
    assert use_cores(3, True, 1, 2) == 3
    assert threads == [2, 3]
    assert bound == [[2, 3]]


def test_binding_works_on_one_core(monkeypatch):
    """Affinity is put back: the other tests want all cores."""
    before = os.sched_getaffinity(0)
    monkeypatch.setattr(hardware, "set_cpu_threads", lambda _: None)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert use_cores(0, True, 0, 1) == 1
        assert use_cores(0, True, 1, 2) == 1
    finally:
        os.sched_setaffinity(0, before)


def test_a_measured_peak_is_a_plausible_rate():
    executor = static.Executor(paddle.CPUPlace())
    rate = measured_gemm_tflops(executor, size=256, seconds=0.05)
    assert 1e-4 < rate < 100
    rate, source = peak_tflops(executor, "cpu", "float32")
    assert 1e-4 < rate < 100 and source.startswith("measured")


@pytest.mark.parametrize("name,part", [
    ("NVIDIA A100-SXM4-80GB", "A100"),
    ("NVIDIA A10", "A10"),
    ("NVIDIA H100 80GB HBM3", "H100"),
    ("Tesla V100-SXM2-32GB", "V100"),
])  # fmt: skip
def test_known_parts_have_their_data_sheets_figure(monkeypatch, name, part):
    monkeypatch.setattr(paddle.device.cuda, "get_device_name", lambda: name)
    assert peak_tflops(None, "gpu", "short") == (KNOWN_PEAKS[part]["short"], f"data sheet of {part}")
