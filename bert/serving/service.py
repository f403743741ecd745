"""The running server: the model process, the queue, the metrics, and what becomes of a request."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bert.serving.batching import Batcher, Item, LengthEstimate, Overloaded
from bert.serving.metrics import Metrics
from bert.serving.protocol import DONE, FAILED, LATE, LOST, REFUSED, Description, Outcome
from bert.serving.settings import Limits
from bert.serving.worker import ModelWorker

_LISTED = 10  # refused inputs that an answer names
_RETRY_SECONDS = 2  # after a 503


@dataclass(frozen=True)
class Reply:
    """An HTTP answer: status and JSON; `retry_seconds` for the header Retry-After."""

    status: int
    body: bytes
    retry_seconds: int | None = None


class Service:
    """Takes inputs to the model process and brings the results back.

    Args:
        worker_command: of the model process.
    Attributes:
        description: of the model; None until it was loaded.
        on_loaded: called then, before a request can be taken.
        is_stopping: whether a signal has asked for the end.
    """

    def __init__(self, worker_command: Sequence[str], limits: Limits) -> None:
        self.limits, self.metrics = limits, Metrics()
        self.worker = ModelWorker(worker_command, self._on_start)
        self.description: Description | None = None
        self.on_loaded: list[Callable[[Description], None]] = []
        self.is_stopping = False
        self._batcher: Batcher | None = None
        self._batches: asyncio.Task[None] | None = None
        watch = self.metrics.watch
        watch("bert_ready", "Whether the model can be used", lambda: self.why_not_ready() is None)
        watch("bert_queue_inputs", "Inputs that wait", lambda: self._batcher.num_waiting if self._batcher else 0)
        watch("bert_model_starts", "How often the model process became ready", lambda: self.worker.starts)

    def _on_start(self, description: Description) -> None:
        if self.description is None:
            self.description = description
            self._estimate = LengthEstimate(description.max_seq_length)
            self._batcher = Batcher(self.worker.run, self.limits, self._estimate, self.metrics.on_batch)
            self._batches = asyncio.create_task(self._batcher.work())
            for tell in self.on_loaded:
                tell(description)

    def why_not_ready(self) -> str | None:
        """Why no request can be answered now; None if it can."""
        if self.is_stopping:
            return "the server is stopping"
        if self.worker.is_ready:
            return None
        return "the model process is started again" if self.worker.starts else "the model is being loaded"

    async def answer(
        self, kind: str, inputs: Sequence[tuple[str, ...]], top_k: int, leaving: "asyncio.Task[None]"
    ) -> Reply:
        """The answer to a request; `leaving` ends when its client goes away."""
        items = [self._item(kind, texts, top_k) for texts in inputs]
        assert self._batcher is not None
        try:
            self._batcher.submit(items)
        except Overloaded as error:
            return problem(429, str(error), error.retry_seconds)
        outcomes = asyncio.gather(*(item.outcome for item in items))
        try:
            either: set[asyncio.Future[Any]] = {outcomes, leaving}
            await asyncio.wait(either, timeout=self.limits.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
            if outcomes.done():
                return reply_of(outcomes.result(), self.limits)
            if leaving.done():
                return problem(499, "the client closed the connection")
            return _late(self.limits)
        finally:
            self._batcher.withdraw(items)

    def _item(self, kind: str, texts: tuple[str, ...], top_k: int) -> Item:
        assert self.description is not None
        windows = self.description.task == "question-answering"
        tokens, length, rows, size = self._estimate(texts, windows)
        deadline = time.monotonic() + self.limits.timeout_seconds
        return Item(kind, texts, top_k, tokens, length, rows, deadline, size)

    def begin_to_stop(self) -> None:
        """No longer be ready; requests that have come are answered."""
        self.is_stopping = True

    async def stop(self) -> None:
        """End the model process."""
        if self._batches is not None:
            self._batches.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._batches
        await self.worker.stop()


def reply_of(outcomes: Sequence[Outcome], limits: Limits) -> Reply:
    """The answer made of the outcomes of all inputs."""
    marks = {mark for mark, _ in outcomes}
    if marks == {DONE}:
        return Reply(200, b'{"results":[' + b",".join(text for _, text in outcomes) + b"]}")
    if LOST in marks:
        return problem(503, "the model process ended; it is started again", _RETRY_SECONDS)
    if LATE in marks:
        return _late(limits)
    if FAILED in marks:
        return Reply(500, b'{"detail":' + next(text for mark, text in outcomes if mark == FAILED) + b"}")
    refused = [(number, text) for number, (mark, text) in enumerate(outcomes) if mark == REFUSED]
    details = [
        b'{"type":"value_error","loc":["body","inputs",%d],"msg":%s}' % (number, text)
        for number, text in refused[:_LISTED]
    ]
    return Reply(422, b'{"detail":[' + b",".join(details) + b"]}")


def problem(status: int, detail: str, retry_seconds: int | None = None) -> Reply:
    assert '"' not in detail and "\\" not in detail, detail
    return Reply(status, b'{"detail":"%s"}' % detail.encode(), retry_seconds)


def not_ready(reason: str) -> Reply:
    return problem(503, reason, _RETRY_SECONDS)


def _late(limits: Limits) -> Reply:
    return problem(504, f"no answer within {limits.timeout_seconds:g} s")
