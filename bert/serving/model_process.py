"""The process that holds the model: reads batches from standard input, runs them, writes the results.

`bert.serving.worker` starts it as `python -m bert.serving.model_process SETTINGS`; the form of the lines is in
`bert.serving.protocol`. It ends when its input ends, so it never outlives the server.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np

from bert import __version__
from bert.inference.classification import Classifier
from bert.inference.loading import load_model
from bert.inference.masked_words import MASK
from bert.inference.model_folder import HEADS, Runner
from bert.inference.serving import DESCRIPTION_FILE
from bert.inference.trained_model import Request, Result, TrainedModel
from bert.runtime.hardware import use_cores
from bert.serving.protocol import DONE, ENCODE, FAILED, LATE, PREDICT, REFUSED, Description, Outcome
from bert.serving.settings import ModelSettings

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

    def warm_up(self) -> None:
        """Run every kind of input once, which builds the programs and finds damaged weights.

        Raises:
            ValueError: the outputs are not finite.
        """
        text = f"a {MASK}" if self.model.task == "masked-lm" else "a"
        self.model.run([(text,) * max(self.model.num_texts)])
        if can_encode(self.model):
            self.model.encode(["a"])

    def answer(self, batch: Mapping[str, Any]) -> tuple[dict[str, Any], list[Outcome]]:
        """The figures and the outcomes of a batch, in the order of its inputs."""
        self.meter.tokens = self.meter.padded_tokens = 0
        self.meter.deadline, self.model.batch_size = batch["deadline"], batch["rows"]
        start, kind, inputs = time.monotonic(), batch["kind"], batch["inputs"]
        outcomes: list[Outcome] = [(LATE, b'""')] * len(inputs)
        good: dict[int, Request] = {}
        for number, given in enumerate(inputs):
            try:
                good[number] = self._request(kind, given["texts"])
            except ValueError as error:
                outcomes[number] = REFUSED, _json(str(error))
        top_k = [inputs[number]["top_k"] for number in good]
        for number, outcome in zip(good, self._run(kind, list(good.values()), top_k), strict=True):
            outcomes[number] = outcome
        figures = {
            "tokens": self.meter.tokens,
            "padded_tokens": self.meter.padded_tokens,
            "seconds": time.monotonic() - start,
        }
        return figures, outcomes

    def _request(self, kind: str, texts: Sequence[str]) -> Request:
        return self.model.request(texts) if kind == PREDICT else tuple(texts)

    def _run(self, kind: str, requests: list[Request], top_k: list[int]) -> list[Outcome]:
        """The requests together; if that fails, each alone, so that the one at fault is the only one that fails."""
        if not requests:
            return []
        try:
            results = self._results(kind, requests, max(top_k))
            return [(DONE, _json(_cut(result, most))) for result, most in zip(results, top_k, strict=True)]
        except Late:
            return [(LATE, b'""')] * len(requests)
        except Exception as error:
            if len(requests) > 1:
                alone = [self._run(kind, [request], [most]) for request, most in zip(requests, top_k, strict=True)]
                return [outcome for (outcome,) in alone]
            logger.error("an input failed: %s: %s", type(error).__name__, error)
            return [(FAILED, _json(f"the model failed at this input: {type(error).__name__}: {str(error)[:500]}"))]

    def _results(self, kind: str, requests: list[Request], top_k: int) -> list[Result]:
        if kind == ENCODE:
            vectors = self.model.encode([text for (text,) in requests])
            return [{"vector": [float(f"{value:.7g}") for value in vector.tolist()]} for vector in vectors]
        self.model.top_k = top_k
        return self.model.run(requests)


def can_encode(model: TrainedModel) -> bool:
    """Every checkpoint has an encoder; an export has the outputs of one task."""
    return model.task == "encoder" or not (model.opened.path / DESCRIPTION_FILE).is_file()


def describe(model: TrainedModel) -> Description:
    return Description(
        name=model.opened.usage.name or model.opened.path.name,
        task=model.task,
        summary=HEADS[model.task],
        labels=model.opened.labels,
        is_regression=isinstance(model, Classifier) and model.is_regression,
        num_texts=model.num_texts,
        max_seq_length=model.max_seq_length,
        top_k=model.top_k,
        can_encode=can_encode(model),
        version=__version__,
    )


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
    threads = use_cores(settings.cpu_threads, "off", 0, 1)
    model = load_model(
        settings.model,
        settings.task,
        max_seq_length=settings.max_seq_length,
        top_k=settings.top_k,
        device=settings.device,
        cpu_threads=threads,
        vocab_file=Path(settings.vocab_file) if settings.vocab_file else None,
        do_lower_case=settings.do_lower_case,
    )
    server = ModelServer(model)
    server.warm_up()
    return server


@contextmanager
def own_output() -> Iterator[IO[bytes]]:
    """The process's output for the server alone; whatever a library prints goes to standard error."""
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        yield out


def main(argv: Sequence[str]) -> int:
    with own_output() as out:
        try:
            server = open_server(ModelSettings(**json.loads(argv[0])))
        except (ValueError, OSError) as error:
            out.write(_json({"error": str(error)}) + b"\n")
            return 2
        out.write(_json(asdict(describe(server.model))) + b"\n")
        out.flush()
        for line in sys.stdin.buffer:
            figures, outcomes = server.answer(json.loads(line))
            out.write(b"\n".join([_json(figures), *(mark + text for mark, text in outcomes), b""]))
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
