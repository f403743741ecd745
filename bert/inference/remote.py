"""A model behind a server of `bert.serving`, used as if it were loaded here: texts go there, many in a request."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import requests

from bert.conversion.model_description import Usage
from bert.inference.command_line import MODEL_HEADER
from bert.inference.lines import PAIR_KEYS, QUESTION_KEYS, SINGLE_KEYS, RawRequest
from bert.inference.trained_model import Request, Result, TrainedModel

_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_PATIENCE_SECONDS = 300.0  # for a server that loads its model or has a full queue
_OF_AN_INPUT = (413, 422, 500, 504)  # too large, refused, failed, too late
_HEADERS = {"content-type": "application/json"}


def is_address(source: str | Path) -> bool:
    return str(source).startswith(("http://", "https://"))


class RemoteModel(TrainedModel):
    """The model of a server.

    Args:
        url: of the server, as it prints it when it starts.
        task: "encoder" asks for vectors; None: what the model's head is for.
    """

    def __init__(self, url: str, task: str | None = None, top_k: int = 5) -> None:
        self._url, self._session = url.rstrip("/"), requests.Session()
        self._session.trust_env = urlsplit(url).hostname not in _THIS_MACHINE  # no proxy on the way to this machine
        if key := os.environ.get("BERT_API_KEY", "").strip():
            self._session.headers["authorization"] = f"Bearer {key}".encode()
        served = self._json(self._ask("model"))
        self.task, self.top_k = task or served["task"], top_k
        self._most, self._most_bytes, self._most_characters = (
            served[f"max_{name}"] for name in ("inputs", "body_bytes", "characters")
        )
        if self.task not in (served["task"], "encoder") or (self.task == "encoder" and not served["can_encode"]):
            raise ValueError(f"{self._url} serves {served['summary']}, which task={task} does not fit; omit the task")
        self._kind, columns = "predict", tuple(served["columns"])
        self._fields, self.num_texts = tuple(served["inputs"]), tuple(served["num_texts"])
        if self.task != served["task"]:
            self._kind, self._fields, self.num_texts, columns = "encode", ("text",), (1,), columns[:1]
        self.keys = SINGLE_KEYS if self.num_texts == (1,) else (*PAIR_KEYS, *SINGLE_KEYS)
        self.keys = QUESTION_KEYS if self.task == "question-answering" else self.keys
        self.splits_tabs = 2 in self.num_texts
        self._options = {"top_k": top_k} if self.task in ("masked-lm", "question-answering") else {}
        words = f"{self._url}: {served['summary']}, {served['name']}"
        self.opened: Any = SimpleNamespace(
            path=Path(self._url),
            usage=Usage(text_columns=columns),
            describe=lambda: words,
            fingerprint=served.get("fingerprint", ""),
        )

    def check(self, texts: Request) -> None:
        super().check(texts)
        if (longest := max(map(len, texts))) > self._most_characters:
            raise ValueError(f"the text has {longest:,} characters; the server takes {self._most_characters:,}")

    def run(self, requests: Sequence[Request]) -> list[Result]:
        """The results; of an input that the server cannot answer, its error."""
        results: list[Result] = []
        for start in range(0, len(requests), self._most):
            results += self._run(requests[start : start + self._most])
        return results

    def _run(self, texts: Sequence[Request]) -> list[Result]:
        """The results of one request; if it fails, of each half of it, down to the input at fault."""
        inputs = [dict(zip(self._fields, each, strict=False)) for each in texts]
        body = json.dumps({"inputs": inputs, **self._options}, ensure_ascii=False).encode()
        if len(body) <= self._most_bytes or len(texts) == 1:
            answer = self._ask(self._kind, body)
            mine = self.opened.fingerprint
            if answer.headers.get(MODEL_HEADER, "" if answer.status_code == 200 else mine) != mine:
                raise ConnectionError(f"{self._url} serves another model than before; start again, with that model")
            if answer.status_code not in _OF_AN_INPUT:
                return self._json(answer)["results"]
            if len(texts) == 1:
                return [{"error": _reason(answer)}]
        half = len(texts) // 2
        return self._run(texts[:half]) + self._run(texts[half:])

    def predict(self, requests: Sequence[RawRequest]) -> list[Result]:
        results = super().predict(requests)
        if error := next((result["error"] for result in results if "error" in result), None):
            raise ValueError(error)
        return results

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([result["vector"] for result in self.predict(texts)], "float32")

    def _lacks(self, method: str, task: str) -> ValueError:
        return ValueError(f"{self._url} is a server, which {method} cannot use; use predict")

    def _ask(self, path: str, body: bytes | None = None) -> requests.Response:
        """The answer, whatever its status, once the server is ready and has room."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                method, address = "GET" if body is None else "POST", f"{self._url}/{path}"
                answer = self._session.request(method, address, None, body, _HEADERS, timeout=_PATIENCE_SECONDS)
            except (requests.RequestException, ValueError) as error:
                raise ConnectionError(
                    f"{self._url} does not answer ({error}); start the server, or check its address"
                ) from None
            if answer.status_code not in (429, 503):
                return answer
            if time.monotonic() > end:
                raise ConnectionError(f"{self._url}: {_reason(answer)}, for {_PATIENCE_SECONDS:g} s; try again later")
            time.sleep(min(60.0, float(answer.headers.get("retry-after", 2))))

    def _json(self, answer: requests.Response) -> Any:
        if answer.status_code == 200 and answer.headers.get("content-type") == "application/json":
            return answer.json()
        raise ConnectionError(
            f"{answer.url}: {answer.status_code} {_reason(answer)}; is it the address of bert.serving?"
        )


def _reason(answer: requests.Response) -> str:
    """The mistakes that an answer names."""
    try:
        detail = answer.json()["detail"]
    except (ValueError, LookupError, TypeError):
        return answer.reason
    return detail if isinstance(detail, str) else "; ".join(str(mistake["msg"]) for mistake in detail)
