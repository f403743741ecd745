"""The running server: the model process, the queue, the metrics, and what becomes of a request."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from fastapi.responses import JSONResponse, Response
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from bert.serving.batching import Batcher, LengthEstimate, Overloaded
from bert.serving.settings import ServerSettings
from bert.serving.worker import DONE, FAILED, LATE, LOST, REFUSED, Description, Figures, ModelWorker, Outcome

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters and histograms in a registry of their own, named bert_...

    Attributes:
        seconds: from the arrival of a request's header to the end of its answer.
    """

    def __init__(self) -> None:
        disable_created_metrics()
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("bert_requests", "Requests answered", ["route", "status"], registry=registry)
        self.seconds = Histogram(
            "bert_request_seconds", "Time to answer", ["route"], buckets=_SECONDS, registry=registry
        )
        self._batch_inputs = Histogram("bert_batch_inputs", "Inputs of a batch", buckets=_SIZES, registry=registry)
        self._batch_seconds = Histogram(
            "bert_batch_seconds", "Time of the model process for a batch", buckets=_SECONDS, registry=registry
        )
        self._tokens = Counter("bert_tokens", "Tokens run, without padding", registry=registry)
        self._padding = Counter("bert_padding_tokens", "Padding run", registry=registry)

    def watch(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        """A gauge that is read when the metrics are."""
        Gauge(name, meaning, registry=self.registry).set_function(value)

    def on_batch(self, num_inputs: int, figures: Figures) -> None:
        self._batch_inputs.observe(num_inputs)
        self._batch_seconds.observe(figures.seconds)
        self._tokens.inc(figures.tokens)
        self._padding.inc(figures.padded_tokens - figures.tokens)

    def text(self) -> bytes:
        return generate_latest(self.registry)


_LISTED = 10  # refused inputs that an answer names
_RETRY_SECONDS = 2  # after a 503


class Service:
    """Takes inputs to the model process and brings the results back.

    Attributes:
        description: of the model; None until it was loaded.
        on_loaded: called then, before a request can be taken.
        is_stopping: whether a signal has asked for the end. Requests that have come are answered.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.limits, self.metrics = settings.limits, Metrics()
        self.worker = ModelWorker(settings.model, self._on_start)
        self.description: Description | None = None
        self.on_loaded: list[Callable[[Description], None]] = []
        self.is_stopping = False
        self._batcher: Batcher | None = None
        self._batches: asyncio.Task[None] | None = None
        watch = self.metrics.watch
        watch("bert_ready", "Whether the model can be used", lambda: self.why_not_ready() is None)
        watch("bert_queue_inputs", "Inputs that wait", lambda: len(self._batcher.waiting) if self._batcher else 0)
        watch("bert_model_starts", "How often the model process became ready", lambda: self.worker.starts)

    def _on_start(self, description: Description) -> None:
        if self.description is None:
            self.description = description
            estimate = LengthEstimate(description.max_seq_length, windows=description.task == "question-answering")
            self._batcher = Batcher(self.worker.run, self.limits, estimate, self.metrics.on_batch)
            self._batches = asyncio.create_task(self._batcher.work())
            for call in self.on_loaded:
                call(description)

    def why_not_ready(self) -> str | None:
        """Why no request can be answered now; None if it can."""
        if self.is_stopping:
            return "the server is stopping"
        if self.worker.is_ready:
            return None
        return "the model process is started again" if self.worker.starts else "the model is being loaded"

    async def answer(
        self, kind: str, inputs: Sequence[tuple[str, ...]], top_k: int, leaving: "asyncio.Task[None]"
    ) -> Response:
        """The answer to a request; `leaving` ends when its client goes away."""
        assert self._batcher is not None
        deadline = time.monotonic() + self.limits.timeout_seconds
        items = [self._batcher.estimate.item(kind, texts, top_k, deadline) for texts in inputs]
        try:
            self._batcher.submit(items)
        except Overloaded as error:
            return problem(429, str(error), error.retry_seconds)
        outcomes = asyncio.gather(*(item.outcome for item in items))
        try:
            either: set[asyncio.Future[Any]] = {outcomes, leaving}
            await asyncio.wait(either, timeout=self.limits.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
            if outcomes.done():
                return self._answer_of(outcomes.result())
            if leaving.done():
                return problem(499, "the client closed the connection")
            return self._late()
        finally:
            self._batcher.withdraw(items)

    def _answer_of(self, outcomes: Sequence[Outcome]) -> Response:
        """The answer made of the outcomes of all inputs."""
        kinds = {outcome.kind for outcome in outcomes}
        if kinds == {DONE}:
            return _json(200, b'{"results":[' + b",".join(outcome.json for outcome in outcomes) + b"]}")
        if LOST in kinds:
            return not_ready("the model process ended; it is started again")
        if LATE in kinds:
            return self._late()
        if FAILED in kinds:
            return _json(500, b'{"detail":' + next(text for kind, text in outcomes if kind == FAILED) + b"}")
        details = [
            b'{"type":"value_error","loc":["body","inputs",%d],"msg":%s}' % (number, text)
            for number, (kind, text) in enumerate(outcomes)
            if kind == REFUSED
        ]
        return _json(422, b'{"detail":[' + b",".join(details[:_LISTED]) + b"]}")

    def _late(self) -> Response:
        return problem(504, f"no answer within {self.limits.timeout_seconds:g} s")

    async def stop(self) -> None:
        """End the model process."""
        if self._batches is not None:
            self._batches.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._batches
        await self.worker.stop()


def _json(status: int, body: bytes) -> Response:
    return Response(body, status, media_type="application/json")


def problem(status: int, detail: str, retry_seconds: int | None = None) -> Response:
    headers = {} if retry_seconds is None else {"retry-after": str(retry_seconds)}
    return JSONResponse({"detail": detail}, status, headers)


def not_ready(reason: str) -> Response:
    return problem(503, reason, _RETRY_SECONDS)
