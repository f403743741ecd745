"""Feeds of small types and in page-locked memory, tried on a CPU with the program that a GPU runs."""

import dataclasses
import logging

import pytest

from bert.runtime.distributed import Group
from bert.runtime.paddle_api import core, place_of
from bert.training import feeding
from bert.training.feeding import MOST_IN_FLIGHT, Feeding
from tests.support import tiny

GPU = Group(0, 1, "gpu")
FEED = tiny.feeds(tiny.random_batch(0, 12))[0]


def opened(group: Group) -> tuple[tiny.Session, Feeding]:
    session = tiny.Session(group=group)
    return session, Feeding(session.program, session.device())


def on_host(array):
    """In the place of page-locked memory."""
    tensor = core.LoDTensor()
    tensor.set(array, place_of("cpu"))
    return tensor


@pytest.mark.long
def test_a_program_for_gpus_takes_small_integers_and_computes_the_same(monkeypatch):
    fed = []
    monkeypatch.setattr(feeding, "page_locked", lambda array: fed.append(array.dtype.name) or on_host(array))
    (large, feed_large), (small, feed_small) = opened(tiny.ONE_RANK), opened(GPU)
    for step in range(2):
        (feed,) = tiny.feeds(tiny.random_batch(step, 12))
        feed_large.run(feed)
        feed_small.run(feed)
    assert tiny.relative_difference(small.parameters(), large.parameters()) < 1e-5  # a CPU may have its own kernels
    assert sorted(fed[: len(FEED)]) == ["float32"] * 2 + ["int32"] * 3 + ["uint8"] * 3


def test_batches_are_kept_until_the_device_has_read_them(monkeypatch):
    events = []
    session, fed = opened(GPU)

    class Executor:
        def run(self, main, feed, scope):
            events.append("run")

    monkeypatch.setattr(feeding, "page_locked", on_host)
    monkeypatch.setattr(feeding, "read_variable", lambda scope, name: events.append("wait"))
    fed = Feeding(session.program, dataclasses.replace(session.device(), executor=Executor()))
    for _ in range(2 * MOST_IN_FLIGHT + 1):
        fed.run(FEED)
        assert 1 <= len(fed._in_flight) <= MOST_IN_FLIGHT
    assert events == [*["run"] * MOST_IN_FLIGHT, "wait", *["run"] * MOST_IN_FLIGHT, "wait", "run"]


def test_without_page_locked_memory_training_goes_on_and_says_so_once(monkeypatch, caplog):
    def refuse(array):
        raise MemoryError("cudaHostAlloc: out of memory")

    monkeypatch.setattr(feeding, "page_locked", refuse)
    session, fed = opened(GPU)
    with caplog.at_level(logging.WARNING):
        fed.run(FEED)
        fed.run(FEED)
    assert session.value("applied_updates") == 2
    assert [record.getMessage() for record in caplog.records] == [
        "no page-locked memory (cudaHostAlloc: out of memory): batches are copied while the host waits"
    ]
