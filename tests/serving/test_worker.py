"""Tests of the supervisor of the model process: hangs, repeated crashes and the shutdown."""

import asyncio
import time

import pytest

from bert.exit_codes import Failure
from bert.serving import worker as module
from bert.serving.messages import DONE, PREDICT, Batch, Outcome
from bert.serving.settings import ServerSettings
from bert.serving.worker import ModelWorker, WorkerLost
from tests.serving import fake_model


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    monkeypatch.setattr(module, "run_child", fake_model.run_child)


def running(test) -> None:
    """Run `test(worker, task)` beside the supervisor."""

    async def run() -> None:
        worker = ModelWorker(ServerSettings(model="encoder"), lambda description: None)
        task = asyncio.create_task(worker.keep_running())
        try:
            await test(worker, task)
        finally:
            await worker.stop()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 90))


def batch(text: str, seconds: float = 60) -> Batch:
    return Batch(PREDICT, time.monotonic() + seconds, 8, [((text,), 1)])


def test_a_process_that_hangs_is_replaced(monkeypatch):
    monkeypatch.setattr(module, "_GRACE_SECONDS", 0.5)

    async def test(worker, task):
        _, outcomes = await worker.run(batch("four"))
        assert outcomes == [Outcome(DONE, b'{"vector": [4.0, 0.5], "tokens": 4}')]
        first = worker.process.pid
        with pytest.raises(WorkerLost, match="hung"):
            await worker.run(batch("hang", 0.2))
        _, outcomes = await worker.run(batch("again"))
        assert outcomes[0].status == DONE and worker.process.pid != first and worker.starts == 2

    running(test)


def test_failures_in_a_row_end_the_server(monkeypatch, tmp_path):
    """The model process starts again once, then never."""
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setenv("FAKE_START", str(tmp_path / "started"))

    async def test(worker, task):
        with pytest.raises(WorkerLost):
            await worker.run(batch("die"))
        with pytest.raises(Failure, match="ended with code 7 before the model was ready"):
            await task

    running(test)
