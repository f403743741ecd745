"""The process that holds the model: answers the batches that `bert.serving.worker` sends, until the pipe is closed."""

import json
import logging
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from bert import __version__
from bert.inference.command_line import ModelSettings
from bert.inference.export_files import DESCRIPTION_FILE
from bert.inference.heads import MASK, Classifier, load_from_settings, vector_results
from bert.inference.model_folder import HEADS, Runner
from bert.inference.trained_model import Request, Result, TrainedModel
from bert.serving.worker import DONE, FAILED, LATE, PREDICT, REFUSED, Batch, Description, Figures, Outcome

logger = logging.getLogger(__name__)


class Late(Exception):
    """The deadline of the batch passed."""


class MeteredRunner:
    """A runner that counts tokens, and stops between two runs of the network when the deadline has passed."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.tokens = self.padded_tokens = 0
        self.deadline = float("inf")

    def run(self, task: str, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if time.monotonic() > self.deadline:
            raise Late
        self.tokens += int(feed["attention_mask"].sum())
        self.padded_tokens += feed["attention_mask"].size
        return self._runner.run(task, feed)


class ModelServer:
    """Answers batches of inputs; an input that cannot be used costs the others nothing."""

    def __init__(self, model: TrainedModel) -> None:
        self.model = model
        self.meter = model.network = MeteredRunner(model.network)
        # Every checkpoint has an encoder; an export has the outputs of one task.
        self.can_encode = model.task == "encoder" or not (model.opened.path / DESCRIPTION_FILE).is_file()

    def warm_up(self) -> None:
        """Run every kind of input once, which builds the programs and finds damaged weights."""
        text = f"a {MASK}" if self.model.task == "masked-lm" else "a"
        self.model.run([(text,) * max(self.model.num_texts)])
        if self.can_encode:
            self.model.encode(["a"])

    def describe(self) -> Description:
        model = self.model
        return Description(
            name=model.opened.usage.name or model.opened.path.name,
            task=model.task,
            summary=HEADS[model.task],
            labels=model.opened.labels,
            is_regression=isinstance(model, Classifier) and model.is_regression,
            num_texts=model.num_texts,
            max_seq_length=model.max_seq_length,
            top_k=model.top_k,
            can_encode=self.can_encode,
            version=__version__,
        )

    def answer(self, batch: Batch) -> tuple[Figures, list[Outcome]]:
        """The figures and the outcomes of a batch, in the order of its inputs."""
        self.meter.tokens = self.meter.padded_tokens = 0
        self.meter.deadline, self.model.batch_size = batch.deadline, batch.rows
        start = time.monotonic()
        refused: dict[int, Outcome] = {}
        requests: dict[int, tuple[Request, int]] = {}
        for number, (texts, top_k) in enumerate(batch.inputs):
            try:
                requests[number] = self.model.request(texts) if batch.kind == PREDICT else texts, top_k
            except ValueError as error:
                refused[number] = Outcome(REFUSED, _json(str(error)))
        outcomes = dict(zip(requests, self._run(batch.kind, list(requests.values())), strict=True)) | refused
        figures = Figures(self.meter.tokens, self.meter.padded_tokens, time.monotonic() - start)
        return figures, [outcomes[number] for number in range(len(batch.inputs))]

    def _run(self, kind: str, requests: list[tuple[Request, int]]) -> list[Outcome]:
        """The requests together; if that fails, each alone, so that the one at fault is the only one that fails."""
        if not requests:
            return []
        try:
            results = self._results(kind, requests)
            return [Outcome(DONE, _json(_cut(result, k))) for result, (_, k) in zip(results, requests, strict=True)]
        except Late:
            return [Outcome(LATE)] * len(requests)
        except Exception as error:
            if len(requests) > 1:
                return [self._run(kind, [request])[0] for request in requests]
            logger.error("an input failed: %s: %s", type(error).__name__, error)
            text = f"the model failed at this input: {type(error).__name__}: {str(error)[:500]}"
            return [Outcome(FAILED, _json(text))]

    def _results(self, kind: str, requests: list[tuple[Request, int]]) -> list[Result]:
        texts = [request for request, _ in requests]
        if kind == PREDICT:
            self.model.top_k = max(top_k for _, top_k in requests)
            return self.model.run(texts)
        return vector_results(self.model.encode([text for (text,) in texts]))


def _cut(result: Result, top_k: int) -> Result:
    """The best `top_k` of the lists that have one for each candidate."""
    if "masks" in result:
        return {**result, "masks": [fills[:top_k] for fills in result["masks"]]}
    return {**result, "answers": result["answers"][:top_k]} if "answers" in result else result


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def open_server(settings: ModelSettings) -> ModelServer:
    """Load the model and try it.

    Raises:
        ValueError, OSError: it cannot be used.
    """
    server = ModelServer(load_from_settings(settings))
    server.warm_up()
    return server


def main(connection: Connection, settings: ModelSettings) -> None:
    try:
        server = open_server(settings)
    except (ValueError, OSError) as error:
        connection.send(str(error))
        return
    try:
        connection.send(server.describe())
        while (batch := connection.recv()) is not None:
            connection.send(server.answer(batch))
    except (EOFError, OSError):  # the server was killed
        pass
