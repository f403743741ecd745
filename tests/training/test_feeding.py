"""Feeds of small types and in page-locked memory, tried on a CPU with the program that a GPU runs."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from bert.model.contrastive import BATCH_VECTORS
from bert.runtime.distributed import Collective, Group
from bert.runtime.paddle_api import core, place_of, static, unique_name
from bert.samples.collation import MicroBatch
from bert.training import feeding
from bert.training.devices import Device
from bert.training.feeding import MOST_IN_FLIGHT, Feeding
from tests.support import tiny

GPU = Group(0, 1, "gpu")
FEED = tiny.feeds(tiny.random_batch(0, 12))[0]


def opened(group: Group) -> tuple[tiny.Session, Feeding]:
    session = tiny.Session(group=group)
    return session, Feeding(session.program, session.device())


def run(session: tiny.Session, fed: Feeding, feed) -> None:
    """Run a micro-step as the trainer does."""
    device = session.device()
    device.executor.run(session.program.main, feed=fed.arrays(feed), scope=device.scope)


def on_host(array):
    """Stand in for page-locked memory."""
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
        run(large, feed_large, feed)
        run(small, feed_small, feed)
    assert tiny.relative_difference(small.parameters(), large.parameters()) < 1e-5  # a CPU may have its own kernels
    assert sorted(fed[: len(FEED)]) == ["float32"] * 2 + ["int32"] * 3 + ["uint8"] * 3


def test_batches_are_kept_until_the_device_has_read_them(monkeypatch):
    events = []
    _, fed = opened(GPU)
    monkeypatch.setattr(feeding, "page_locked", on_host)
    monkeypatch.setattr(feeding, "read_variable", lambda scope, name: events.append("wait"))
    for _ in range(2 * MOST_IN_FLIGHT + 1):
        fed.arrays(FEED)
        events.append("run")
        assert 1 <= len(fed._in_flight) <= MOST_IN_FLIGHT
    assert events == [*["run"] * MOST_IN_FLIGHT, "wait", *["run"] * MOST_IN_FLIGHT, "wait", "run"]


def test_without_page_locked_memory_training_goes_on_and_says_so_once(monkeypatch, caplog):
    def refuse(array):
        raise MemoryError("cudaHostAlloc: out of memory")

    monkeypatch.setattr(feeding, "page_locked", refuse)
    session, fed = opened(GPU)
    with caplog.at_level(logging.WARNING):
        run(session, fed, FEED)
        run(session, fed, FEED)
    assert session.value("applied_updates") == 2
    assert [record.getMessage() for record in caplog.records] == [
        "no page-locked memory (cudaHostAlloc: out of memory): batches are copied while the host waits"
    ]


class Doubled(Collective):
    """Stands in for two ranks with vectors at other places: the sum has this rank's, and ones at the place 4."""

    def sum(self, values):
        table = values.reshape(-1, 2).copy()
        table[4] += 1
        return table.reshape(-1)


def vectors_program(with_vectors: bool = True):
    """Return a program that makes vectors [n, 2] of twice its feed `x`, and then reads the batch's vectors."""
    main = static.Program()
    with static.program_guard(main, static.Program()), unique_name.guard():
        doubled = static.data("x", [-1, 2], "float32") * 2
        if with_vectors:
            static.data(BATCH_VECTORS, [-1, 2], "float32").sum()
    objective = SimpleNamespace(model=SimpleNamespace(hidden_size=2))
    return SimpleNamespace(main=main, objective=objective, outputs={"vectors": doubled.name}, accumulation_varies=False)


@pytest.mark.parametrize(("number", "world_size"), [(2, 1), (1, 1), (1, 2)])
def test_the_vectors_of_a_batch_are_computed_before_its_micro_steps(number, world_size):
    """The vectors are at their texts' places, with the dropout of their micro-step; a lone micro-batch needs none."""
    group, executor = Group(0, world_size, "cpu"), static.Executor(place_of("cpu"))
    collective = Collective(group, executor) if world_size == 1 else Doubled(group, executor)
    device = Device(executor, static.Scope(), place_of("cpu"), group, collective, 1.0)
    places, drawn = [np.array([0, 3]), np.array([2])][:number], []
    shared = {"not_negatives": np.zeros((2, 3), "float32")}  # of two pairs and one text more
    feeds = [{"x": np.full((len(at), 2), 5.0 + at[0], "float32"), "text_places": at, **shared} for at in places]
    batches = [MicroBatch(feed, len(feed["x"]), 1, 1, 0) for feed in feeds]
    found = Feeding(vectors_program(), device).with_batch_vectors(iter(batches), lambda *step: drawn.append(step[0]))
    expected = np.zeros((5, 2))
    if number * world_size > 1:
        expected[[0, 3]] = 10
        expected[2] = 14 if number == 2 else 0
        expected[4] = world_size - 1
    assert len(found) == number and drawn == list(range(number if number * world_size > 1 else 0))
    for batch, feed in zip(found, feeds, strict=True):
        assert batch.feed[BATCH_VECTORS].tolist() == expected.tolist() and batch.feed["x"] is feed["x"]
    plain = Feeding(vectors_program(with_vectors=False), device)
    assert plain.with_batch_vectors(batches, lambda *_: pytest.fail("no other objective has them")) is batches
