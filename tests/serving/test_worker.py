"""The supervisor of the model process: hangs, crashes in a row, the end."""

import asyncio
import sys
import time

import pytest

from bert.exit_codes import Failure
from bert.serving import worker as module
from bert.serving.protocol import DONE
from bert.serving.worker import ModelWorker, WorkerLost
from tests.serving.servers import FAKE

COMMAND = [sys.executable, str(FAKE), "encoder"]


def running(test, command=COMMAND) -> None:
    """Run `test(worker, task)` beside the supervisor."""

    async def run() -> None:
        worker = ModelWorker(command, lambda description: None)
        task = asyncio.create_task(worker.keep_running())
        try:
            await test(worker, task)
        finally:
            await worker.stop()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 90))


def batch(text: str) -> list[dict]:
    return [{"texts": [text], "top_k": 1}]


def test_a_process_that_hangs_is_replaced(monkeypatch):
    monkeypatch.setattr(module, "_GRACE_SECONDS", 0.5)

    async def test(worker, task):
        _, outcomes = await worker.run("predict", batch("four"), 8, time.monotonic() + 60)
        assert outcomes == [(DONE, b'{"vector": [4.0, 0.5]}')]
        first = worker.pid
        with pytest.raises(WorkerLost, match="hung"):
            await worker.run("predict", batch("hang"), 8, time.monotonic() + 0.2)
        _, outcomes = await worker.run("predict", batch("again"), 8, time.monotonic() + 60)
        assert outcomes[0][0] == DONE and worker.pid != first and worker.starts == 2

    running(test)


def test_failures_in_a_row_end_the_server(monkeypatch, tmp_path):
    """It starts once, then never again."""
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.001)
    mark = tmp_path / "started"
    script = f"test -e {mark} && exit 3; touch {mark}; exec {sys.executable} {FAKE} encoder"

    async def test(worker, task):
        with pytest.raises(WorkerLost):
            await worker.run("predict", batch("die"), 8, time.monotonic() + 60)
        with pytest.raises(Failure, match="ended with code 3 before the model was ready"):
            await task

    running(test, ["bash", "-c", script])
