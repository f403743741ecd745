"""Handles requests: sends inputs through the queue to the model process, makes answers, and counts metrics."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from bert.serving.batching import Batcher, LengthEstimate
from bert.serving.messages import DONE, FAILED, INDEX_KINDS, LATE, LOST, REFUSED, Description, Figures, Outcome
from bert.serving.settings import ServerSettings
from bert.serving.worker import ModelWorker

MODEL_HEADER = "x-bert-model"  # header of an answer with the fingerprint of the model
LISTED = 10  # most mistakes of a request, or refused inputs, that an answer lists
_RETRY_SECONDS = 2  # after which a client may retry a 503

METRICS = CollectorRegistry()
disable_created_metrics()
ProcessCollector(registry=METRICS)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
REQUESTS = Counter("bert_requests", "Requests answered", ["route", "status"], registry=METRICS)
REQUEST_SECONDS = Histogram(  # from the arrival of the header to the end of the answer
    "bert_request_seconds", "Time to answer", ["route"], buckets=_SECONDS, registry=METRICS
)
_BATCH_INPUTS = Histogram(
    "bert_batch_inputs", "Inputs of a batch", buckets=(1, 2, 4, 8, 16, 32, 64, 128), registry=METRICS
)
_BATCH_SECONDS = Histogram(
    "bert_batch_seconds", "Time of the model process for a batch", buckets=_SECONDS, registry=METRICS
)
_TOKENS = Counter("bert_tokens", "Tokens run, without padding", registry=METRICS)
_TRUNCATED = Counter(
    "bert_truncated_inputs", "Inputs longer than the model reads: their ends were left out", registry=METRICS
)
_PADDING = Counter("bert_padding_tokens", "Padding run", registry=METRICS)


def watch(name: str, meaning: str, value: Callable[[], float]) -> None:
    """Add a gauge whose value is computed whenever the metrics are read."""
    Gauge(name, meaning, registry=METRICS).set_function(value)


def _count_batch(num_inputs: int, figures: Figures) -> None:
    _BATCH_INPUTS.observe(num_inputs)
    _BATCH_SECONDS.observe(figures.seconds)
    _TOKENS.inc(figures.tokens)
    _PADDING.inc(figures.padded_tokens - figures.tokens)
    _TRUNCATED.inc(figures.truncated)


class Service:
    """Sends inputs to the model process and returns answers.

    Attributes:
        on_loaded: functions that are called with the model's description when it is loaded for the first time.
        fingerprint: fingerprint of the model at its latest start; "" before the first start.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.worker = ModelWorker(settings, self._on_start)
        self.on_loaded: list[Callable[[Description], None]] = []
        self.is_stopping = False
        self._batcher: Batcher | None = None
        self.fingerprint = ""
        self._batches: asyncio.Task[None] | None = None
        watch("bert_ready", "Whether the model can be used", lambda: self.why_not_ready() is None)
        watch("bert_queue_inputs", "Inputs that wait", lambda: len(self._batcher.waiting) if self._batcher else 0)
        watch("bert_model_starts", "How often the model process became ready", lambda: self.worker.starts)

    def _on_start(self, description: Description) -> None:
        self.fingerprint = description.fingerprint
        if self._batcher is None:
            estimate = LengthEstimate(description.max_seq_length, windows=description.task == "question-answering")
            self._batcher = Batcher(self.worker.run, self.settings, estimate, _count_batch)
            self._batches = asyncio.create_task(self._batcher.work())
            for call in self.on_loaded:
                call(description)

    def why_not_ready(self) -> str | None:
        """The reason why requests cannot be answered now; None if they can."""
        if self.is_stopping:
            return "the server is stopping"
        if self.worker.is_ready:
            return None
        return "the model process is started again" if self.worker.starts else "the model is being loaded"

    async def answer(
        self, kind: str, inputs: Sequence[tuple[str, ...]], options: Any, client: str, leaving: "asyncio.Task[None]"
    ) -> Response:
        """Answer a request. More inputs than --max-inputs, which /v1/embeddings accepts, are run in parts.

        Args:
            options: options of each input, as in `Batch.inputs`.
            client: address of the client.
            leaving: task that ends when the client closes the connection.
        """
        outcomes: list[Outcome] = []
        for first in range(0, len(inputs), self.settings.max_inputs):
            part = inputs[first : first + self.settings.max_inputs]
            found = await self._outcomes(kind, part, options, client, leaving)
            if isinstance(found, Response):
                return found
            outcomes += found
            if any(outcome.status != DONE for outcome in found):
                break
        answer = _answer_of(outcomes, self.settings.timeout_seconds, kind in INDEX_KINDS)
        answer.headers[MODEL_HEADER] = self.fingerprint
        return answer

    async def _outcomes(
        self, kind: str, inputs: Sequence[tuple[str, ...]], options: Any, client: str, leaving: "asyncio.Task[None]"
    ) -> list[Outcome] | Response:
        """Run inputs; returns their outcomes, or the answer if the queue is full or the client has left."""
        assert self._batcher is not None
        seconds = self.settings.timeout_seconds
        deadline = time.monotonic() + seconds
        items = [self._batcher.estimate.item(kind, texts, options, deadline) for texts in inputs]
        if retry_seconds := self._batcher.submit(items, client):
            detail = f"{len(self._batcher.waiting)} inputs wait for the model; try again in {retry_seconds} s"
            return problem(429, detail, retry_seconds)
        all_done = asyncio.create_task(asyncio.wait([item.outcome for item in items]))
        try:
            await asyncio.wait({all_done, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() and not all_done.done():
                return problem(499, "the client closed the connection")
            return [item.outcome.result() for item in items] if all_done.done() else [Outcome(LATE)]
        finally:
            self._batcher.withdraw(items)

    async def stop(self) -> None:
        if self._batches is not None:
            self._batches.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._batches
        await self.worker.stop()


def _answer_of(outcomes: Sequence[Outcome], timeout_seconds: float, of_index: bool = False) -> Response:
    """Make the answer from the outcomes of all inputs; the worst outcome decides its status."""
    status = max(outcome.status for outcome in outcomes)
    if status == LOST:
        return not_ready("the model process ended; it is started again")
    if status == LATE:
        return problem(504, f"no answer within {timeout_seconds:g} s")
    texts = [(number, outcome.json) for number, outcome in enumerate(outcomes) if outcome.status == status]
    if of_index and status in (DONE, REFUSED):
        refused = b'{"detail":[{"type":"value_error","loc":["body"],"msg":%s}]}'
        body = texts[0][1] if status == DONE else refused % texts[0][1]
    elif status == DONE:
        truncated = sum(outcome.truncated for outcome in outcomes)
        body = b'{"results":[' + b",".join(text for _, text in texts) + b'],"truncated":%d}' % truncated
    elif status == FAILED:
        body = b'{"detail":' + texts[0][1] + b"}"
    else:
        place = b'{"type":"value_error","loc":["body","inputs",%d],"msg":%s}'
        body = b'{"detail":[' + b",".join(place % (number, text) for number, text in texts[:LISTED]) + b"]}"
    return Response(body, status, media_type="application/json")


def problem(status: int, detail: str, retry_seconds: int | None = None) -> Response:
    headers = {} if retry_seconds is None else {"retry-after": str(retry_seconds)}
    return JSONResponse({"detail": detail}, status, headers)


def not_ready(reason: str) -> Response:
    return problem(503, reason, _RETRY_SECONDS)
