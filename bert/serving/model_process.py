"""The model process: loads the model and answers the batches of `bert.serving.worker`, until the pipe is closed."""

import json
import logging
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bert import __version__
from bert.files import sha256_of
from bert.inference.export_files import Arrays
from bert.inference.heads import load_from_settings, vector_results
from bert.inference.reranked import find_reranker
from bert.inference.rows import Request
from bert.inference.trained_model import MASK, Result, TrainedModel
from bert.model.head_specs import HEADS
from bert.search.segments import UnusableIndexError
from bert.serving.messages import (
    ADD,
    DELETE,
    DONE,
    FAILED,
    INDEX_KINDS,
    LATE,
    PREDICT,
    REFUSED,
    Batch,
    Description,
    Figures,
    Outcome,
)
from bert.serving.served_index import ServedIndex
from bert.serving.settings import ServerSettings
from bert.tokenization.text_process import UnreadableTextError

logger = logging.getLogger(__name__)


class Late(Exception):
    """Raised when the deadline of the batch has passed."""


class ModelServer:
    """Answers batches of inputs; an unusable input does not affect the others."""

    def __init__(self, model: TrainedModel, index: ServedIndex | None = None) -> None:
        self.model, self.index = model, index
        self._forward, model.forward = model.forward, self._metered
        self._tokens = self._padded_tokens = 0
        self._cut_requests = model.cut_requests = set[Request]()
        self._deadline = float("inf")

    def _metered(self, task: str, feed: Arrays) -> Arrays:
        """Run the network and count tokens. Raises Late if the deadline has passed."""
        if time.monotonic() > self._deadline:
            raise Late
        self._tokens += int(feed["attention_mask"].sum())
        self._padded_tokens += feed["attention_mask"].size
        return self._forward(task, feed)

    def warm_up(self) -> None:
        """Run every kind of input once, to build the programs and to find damaged weights."""
        text = f"a {MASK}" if self.model.task == "masked-lm" else "a"
        self.model.run([(text,) * max(self.model.num_texts)])
        if self.model.opened.can_encode():
            self.model.encode(["a"])

    def describe(self, name: str) -> Description:
        """Describe the model for the server; `name` is used if the training gave the model no name."""
        model, opened = self.model, self.model.opened
        deciding = [
            opened.fingerprint(),
            model.max_seq_length,
            str(opened.tokens.normalization.settings()),
            __version__,
        ]
        return Description(
            name=name if opened.usage.name in (None, "custom") else opened.usage.name,
            task=model.task,
            summary=HEADS[model.task].noun,
            labels=opened.labels,
            is_regression=getattr(model, "is_regression", False),
            num_texts=model.num_texts,
            max_seq_length=model.max_seq_length,
            top_k=model.top_k,
            can_encode=opened.can_encode(),
            version=__version__,
            fingerprint=sha256_of(json.dumps(deciding).encode()),
            columns=tuple(opened.usage.text_columns),
            gives_labels=opened.usage.label_separator is not None,
            hidden_size=opened.hidden_size,
            vectors=opened.usage.vectors,
            index=str(self.index.folder) if self.index else "",
            reranks=self.index is not None and self.index.reranks,
        )

    def answer(self, batch: Batch) -> tuple[Figures, list[Outcome]]:
        """Answer a batch; returns its figures, and its outcomes in the order of the inputs."""
        self._tokens = self._padded_tokens = 0
        self._cut_requests.clear()
        self._deadline, self.model.batch_size = batch.deadline, batch.rows
        start = time.monotonic()
        outcomes: dict[int, Outcome] = {}
        requests: dict[int, tuple[Request, Any]] = {}
        for number, (texts, options) in enumerate(batch.inputs):
            try:
                requests[number] = self.model.request(texts) if batch.kind == PREDICT else texts, options
            except ValueError as error:
                outcomes[number] = Outcome(REFUSED, _json(str(error)))
        if batch.kind in (ADD, DELETE):  # one at a time, as `_run` repeats inputs of a batch that failed
            outcomes |= {number: self._run(batch.kind, [request])[0] for number, request in requests.items()}
        else:
            outcomes |= zip(requests, self._run(batch.kind, list(requests.values())), strict=True)
        truncated, self.model.num_truncated = self.model.num_truncated, 0
        figures = Figures(self._tokens, self._padded_tokens, time.monotonic() - start, truncated)
        return figures, [outcomes[number] for number in range(len(batch.inputs))]

    def _run(self, kind: str, requests: list[tuple[Request, Any]]) -> list[Outcome]:
        """Run the requests together. If that fails, run each alone, so that only the faulty request fails."""
        if not requests:
            return []
        try:
            results = self._results(kind, requests)
            return [
                Outcome(DONE, _json(_best_candidates(result, options)), request in self._cut_requests)
                for result, (request, options) in zip(results, requests, strict=True)
            ]
        except Late:
            return [Outcome(LATE)] * len(requests)
        except Exception as error:
            if len(requests) > 1:
                return [self._run(kind, [request])[0] for request in requests]
            is_wrong = isinstance(error, ValueError) and not isinstance(error, UnusableIndexError)
            if isinstance(error, UnreadableTextError) or (kind in INDEX_KINDS and is_wrong):
                return [Outcome(REFUSED, _json(str(error)))]
            logger.error("an input failed: %s: %s", type(error).__name__, error)
            if kind in INDEX_KINDS:
                return [Outcome(FAILED, _json(f"the index failed: {str(error)[:500]}"))]
            text = f"the model failed at this input: {type(error).__name__}: {str(error)[:500]}"
            return [Outcome(FAILED, _json(text))]

    def _results(self, kind: str, requests: list[tuple[Request, Any]]) -> list[Result]:
        texts = [request for request, _ in requests]
        if kind == PREDICT:
            self.model.top_k = max(top_k for _, top_k in requests)
            return self.model.run(texts)
        if kind in INDEX_KINDS:
            assert self.index is not None
            return self.index.results(kind, requests)
        table = self.model.sequences([text for (text,) in texts], "")  # with their prefixes
        vectors = vector_results(self.model.vectors(table))
        return [{**vector, "tokens": tokens} for vector, tokens in zip(vectors, table.lengths().tolist(), strict=True)]


def _best_candidates(result: Result, top_k: Any) -> Result:
    """Cut the lists of candidates in a result, fills or answers, to the best `top_k`."""
    if "masks" in result:
        return {**result, "masks": [fills[:top_k] for fills in result["masks"]]}
    return {**result, "answers": result["answers"][:top_k]} if "answers" in result else result


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _open_index(settings: ServerSettings, model: TrainedModel) -> ServedIndex | None:
    """Open the index of --index with the model's reranker, if there is one; None without --index."""
    if settings.index is None:
        return None
    reranker = find_reranker(settings.model, settings.reranker, device=settings.device)
    return ServedIndex.of(settings.index, model, reranker)


def main(connection: Connection, settings: ServerSettings) -> None:
    from bert.runtime.cpu_kernels import keep_few_kernels  # here: it loads Paddle, which the server does without

    keep_few_kernels()
    try:
        model = load_from_settings(settings)
        print(model.opened.describe(), file=sys.stderr, flush=True)  # names the step, which may not be the newest
        server = ModelServer(model, _open_index(settings, model))
        server.warm_up()
    except (ValueError, OSError) as error:
        connection.send(str(error))
        return
    try:
        connection.send(server.describe(Path(settings.model).name))
        while (batch := connection.recv()) is not None:
            connection.send(server.answer(batch))
    except (EOFError, OSError):  # the server was killed
        pass
