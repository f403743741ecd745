"""Converts answers and errors of /v1/... to the form of OpenAI's API, so that its clients show results and reasons.

The form follows the client `openai` 3.57, which shows only `error.message` of a refusal.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.types import Message, Send

from bert.arrays.vectors import unit

PREFIX = "/v1/"
EMBEDDINGS = "/v1/embeddings"
MODELS = "/v1/models"
MOST_INPUTS = 2048  # most inputs of a request, as OpenAI allows
_ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def embeddings(encoded: Mapping[str, Any], asked: Any, name: str) -> dict[str, Any]:
    """Make the answer of POST /v1/embeddings; it has one key that OpenAI does not know, `truncated`.

    Args:
        encoded: the answer of POST /encode, with `vector` and `tokens` of each text.
        asked: the request of POST /v1/embeddings, with `dimensions` and `encoding_format`.
    """
    data, tokens = [], 0
    for index, result in enumerate(encoded["results"]):
        vector = np.array(result["vector"], "<f4")
        if asked.dimensions:
            vector = unit(vector, asked.dimensions)
        is_base64 = asked.encoding_format == "base64"
        embedding = base64.b64encode(vector.tobytes()).decode() if is_base64 else vector.tolist()
        data.append({"object": "embedding", "index": index, "embedding": embedding})
        tokens += result["tokens"]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage, "truncated": encoded["truncated"]}


def model(name: str, created: int) -> dict[str, Any]:
    """Make one entry of GET /v1/models; `created` is in seconds since 1970."""
    return {"id": name, "object": "model", "created": created, "owned_by": "bert-on-paddle"}


def error(status: int, body: bytes) -> dict[str, Any]:
    """Convert the body of a refusal, whose `detail` is a sentence or a list of mistakes, to OpenAI's form."""
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError):
        detail = body.decode("utf-8", "replace")
    message, param = str(detail), None
    if isinstance(detail, list):
        message = "; ".join(map(_sentence, detail))
        places = [mistake["loc"][1] for mistake in detail if len(mistake["loc"]) > 1]
        param = str(places[0]) if places else None
    kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": None}}


def _sentence(mistake: Mapping[str, Any]) -> str:
    """Format a mistake in FastAPI's form as a sentence: its place in the body, and the reason."""
    place = ".".join(map(str, mistake["loc"][1:]))
    reason = mistake["msg"].removeprefix("Value error, ")
    return f"{place}: {reason}" if place else reason


def with_openais_errors(send: Send) -> Send:
    """Wrap an ASGI `send` so that refusals (status 400 and above) have OpenAI's form."""
    start: Message | None = None
    body = bytearray()

    async def converted(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start" and message["status"] >= 400:
            start = message
            return
        if start is None:
            await send(message)
            return
        body.extend(message.get("body", b""))
        if message.get("more_body"):
            return
        content = json.dumps(error(start["status"], bytes(body))).encode()
        kept = [
            pair for pair in start.get("headers", ()) if pair[0].lower() not in (b"content-length", b"content-type")
        ]
        own = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({**start, "headers": [*kept, *own]})
        await send({"type": "http.response.body", "body": content})

    return converted
