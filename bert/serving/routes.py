"""Defines the routes of the server with FastAPI; the model's routes are added when it is loaded."""

import asyncio
import base64
import contextlib
import hmac
import ipaddress
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from email.message import Message as Header
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi_offline import FastAPIOffline
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bert import __version__
from bert.serving import openai_form
from bert.serving.connections import HEADER_BYTES
from bert.serving.index_routes import INDEX_POSTS, add_index_routes
from bert.serving.messages import DONE, ENCODE, PREDICT, Description
from bert.serving.openai_form import EMBEDDINGS, MODELS
from bert.serving.request_handling import (
    LISTED,
    METRICS,
    MODEL_HEADER,
    REQUEST_SECONDS,
    REQUESTS,
    Service,
    not_ready,
    problem,
)
from bert.serving.schemas import Problem, embeddings_schema, request_schemas, text_fields

_PAGE = Path(__file__).with_name("page")
_PAGE_FILES = {"/": "index.html", "/page.js": "page.js", "/page.css": "page.css", "/search.js": "search.js"}
_ALWAYS = {"/health", "/ready", "/metrics", *_PAGE_FILES}  # answered without a model
_QUESTIONS = (f"/{PREDICT}", f"/{ENCODE}", EMBEDDINGS, *INDEX_POSTS)  # paths of POST requests with a JSON body
_PROBES = ("/health", "/ready")  # paths that need no key
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    413: {"model": Problem, "description": "The body is too large"},
    415: {"model": Problem, "description": "The header says that the body is not plain JSON"},
    429: {"model": Problem, "description": "Too many inputs wait; see Retry-After"},
    500: {"model": Problem, "description": "The model failed at an input"},
    503: {"model": Problem, "description": "The model is not ready; see Retry-After"},
    504: {"model": Problem, "description": "No answer in time"},
}
_POLICY = b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"
_POLICY_OF_DOCS = _POLICY + b"; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'"


def make_app(service: Service) -> ASGIApp:
    """Make the application. /predict, /encode, /model and others are added when the model is loaded."""
    app = FastAPIOffline(
        title="BERT on Paddle", version=__version__, redoc_url=None, separate_input_output_schemas=False
    )
    app.add_exception_handler(RequestValidationError, _refused)
    service.on_loaded.append(lambda description: _add_model_routes(app, service, description))

    @app.get("/health", summary="Whether the server runs")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready", summary="Whether requests can be answered", responses={503: _PROBLEMS[503]})
    async def ready() -> Response:
        reason = service.why_not_ready()
        return not_ready(reason) if reason else JSONResponse({"status": "ready"})

    @app.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(generate_latest(METRICS), headers={"content-type": CONTENT_TYPE_LATEST})

    for path, name in _PAGE_FILES.items():

        async def page(file: Path = _PAGE / name) -> FileResponse:
            return FileResponse(file, headers={"cache-control": "no-cache"})

        app.add_api_route(path, page, include_in_schema=False, response_class=FileResponse)
    guard, origins = Guard(app, service), service.settings.allow_origin.replace(",", " ").split()
    if not origins:
        return guard
    shown = [MODEL_HEADER, "retry-after"]  # outside of the guard: a browser's first question comes without the key
    return CORSMiddleware(guard, origins, ["GET", "POST"], allow_headers=["authorization"], expose_headers=shown)


def _add_model_routes(app: FastAPI, service: Service, description: Description) -> None:
    """Add the routes that depend on the model."""
    settings = service.settings

    @app.get("/model", summary="The model that is served")
    async def model() -> dict[str, Any]:
        limits = {name: getattr(settings, name) for name in ("max_inputs", "max_characters", "max_body_bytes")}
        own = {"inputs": text_fields(description, PREDICT), "fingerprint": service.fingerprint}
        return {**asdict(description), **own, **limits}

    def add_post(path: str, kind: str, schemas: Sequence[Any], summary: str) -> None:
        fields = text_fields(description, kind)

        async def handle(request: Request, body: Any) -> Response:
            prefix = getattr(description.vectors, f"{getattr(body, 'input_type', '')}_prefix", "")
            given = [[getattr(values, field) for field in fields] for values in body.inputs]
            inputs = [tuple(prefix + text for text in texts if text is not None) for texts in given]
            answer = await _answered(service, request, kind, inputs, getattr(body, "top_k", description.top_k))
            if path != EMBEDDINGS or answer.status_code != DONE:
                return answer
            content = openai_form.embeddings(json.loads(bytes(answer.body)), body, description.name)
            return JSONResponse(content, headers={MODEL_HEADER: answer.headers[MODEL_HEADER]})

        handle.__annotations__["body"] = schemas[0]
        answers: Any = {200: {"model": schema} for schema in schemas[1:]}  # noqa: B035 - at most one
        kinds: dict[str, Any] = {"methods": ["POST"], "operation_id": path[1:], "response_class": Response}
        app.add_api_route(path, handle, summary=summary, responses={**answers, **_PROBLEMS}, **kinds)

    add_post(
        f"/{PREDICT}", PREDICT, request_schemas(description, PREDICT, settings), f"Results of {description.summary}"
    )
    if description.can_encode:
        schemas = request_schemas(description, ENCODE, settings)
        add_post(f"/{ENCODE}", ENCODE, schemas, "Sentence vectors")
        add_post(EMBEDDINGS, ENCODE, [embeddings_schema(description, schemas[0])], "Vectors for OpenAI's clients")
        entry = openai_form.model(description.name, int(time.time()))

        @app.get(MODELS, summary="The model, for OpenAI's clients")
        async def models() -> dict[str, Any]:
            return {"object": "list", "data": [entry]}

        @app.get(f"{MODELS}/{{name:path}}", summary="The same, by its name", responses={404: {"model": Problem}})
        async def one_model(name: str) -> Response:
            if name != description.name:
                return problem(404, f"model={name} is not served here; it is {description.name}")
            return JSONResponse(entry)

    if description.index:

        async def ask(request: Request, kind: str, texts: tuple[str, ...], options: Any) -> Response:
            return await _answered(service, request, kind, [texts], options)

        add_index_routes(app, settings, ask, _PROBLEMS)

    app.openapi_schema = None  # made again at the next request for it


async def _answered(
    service: Service, request: Request, kind: str, inputs: Sequence[tuple[str, ...]], options: Any
) -> Response:
    """Answer a request, or stop early if its client closes the connection."""
    leaving = asyncio.create_task(_gone(request))
    try:
        return await service.answer(kind, inputs, options, request.client.host if request.client else "", leaving)
    finally:
        leaving.cancel()


def _other_than_json(headers: Mapping[bytes, bytes]) -> str:
    """The reason why a body cannot be JSON in UTF-8, by its headers; "" if it can be."""
    given = headers.get(b"content-type", b"").decode("latin-1")[:100]
    coding = headers.get(b"content-encoding", b"identity").decode("latin-1")[:100]
    header = Header()
    header["content-type"] = given
    kind, charset = header.get_content_type(), header.get_content_charset("utf-8")
    if coding.lower() != "identity":
        return f"content-encoding: {coding} is not read; send the JSON as it is, without that header"
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return f"content-type: {given or '(none)'} must be application/json; curl: -H 'content-type: application/json'"
    if charset not in ("utf-8", "utf8", "us-ascii"):
        return f"content-type: charset={charset} must be utf-8; send the JSON in UTF-8, and omit charset"
    return ""


async def _gone(request: Request) -> None:
    """Wait until the client closes the connection. The body of the request must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """Answer 422 with the first mistakes of a request, without repeating the input."""
    assert isinstance(error, RequestValidationError)
    listed = [{name: mistake[name] for name in ("type", "loc", "msg")} for mistake in error.errors()[:LISTED]]
    return JSONResponse({"detail": listed}, 422)


class Guard:
    """Middleware that checks headers, reads and limits bodies, adds security headers, and counts requests.

    FastAPI gets only complete bodies. If it read a body that breaks off, exceptions with reference cycles would keep
    the parts until the garbage collector runs, beyond the limit of `connections.py` on held bytes.
    """

    def __init__(self, app: FastAPI, service: Service) -> None:
        self._app, self._service = app, service
        self._key = os.environ.get("BERT_API_KEY", "").strip().encode()
        names = [service.settings.host, *service.settings.allowed_hosts.split(",")]
        self._names = {name.strip().lower().removesuffix(".") for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, status = time.perf_counter(), 499  # unless an answer begins
        if scope["path"].startswith(openai_form.PREFIX):
            send = openai_form.with_openais_errors(send)

        async def send_measured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                policy = _POLICY_OF_DOCS if scope["path"] == "/docs" else _POLICY
                own = [(b"x-content-type-options", b"nosniff"), (b"content-security-policy", policy)]
                if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
                    own.append((b"connection", b"close"))  # RFC 9112, 6.1: a proxy may see another end of the request
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # uvicorn leaves out the body
        try:
            body = self._refusal(scope) or await self._read(scope, receive)
            if isinstance(body, Response):
                await body(scope, receive, send_measured)
            elif body is not None:
                unread = [{"type": "http.request", "body": body, "more_body": False}]
                del body

                async def receive_whole() -> Message:
                    return unread.pop() if unread else await receive()

                await self._app(scope, receive_whole, send_measured)
        except BaseException:
            status = 500
            raise
        finally:
            route = getattr(scope.get("route"), "path", "other")
            REQUESTS.labels(route, status).inc()
            REQUEST_SECONDS.labels(route).observe(time.perf_counter() - start)

    def _refusal(self, scope: Scope) -> Response | None:
        """The refusal of a request by its headers (431, 421, 401 or 415); None if it is accepted."""
        headers = dict(scope["headers"])
        size = sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope["raw_path"])
        if size + len(scope["query_string"]) > HEADER_BYTES:
            return problem(431, f"the header must have at most {HEADER_BYTES:,} bytes")
        if not self._is_ours(headers.get(b"host", b"").decode("latin-1")):
            return problem(421, "the server has another name: start it with --allowed-hosts NAME")
        if self._key and scope["path"] not in _PROBES and not self._has_key(headers.get(b"authorization", b"")):
            refusal = problem(401, "the key of this server (BERT_API_KEY) is missing or wrong")
            refusal.headers["www-authenticate"] = "Basic realm=bert"  # browsers then ask for it
            return refusal
        is_question = scope["method"] == "POST" and scope["path"] in _QUESTIONS
        if is_question and (reason := _other_than_json(headers)):
            return problem(415, reason)
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether a Host is an IP address or a name of this server; DNS rebinding attacks use other names."""
        try:
            name = (urlsplit(f"//{host}").hostname or "localhost").removesuffix(".")
            with contextlib.suppress(ValueError):
                return bool(ipaddress.ip_address(name))
            return name in self._names or "*" in self._names
        except ValueError:
            return False

    def _has_key(self, authorization: bytes) -> bool:
        """Whether the header is `Bearer KEY`, or `Basic` with the key as the password."""
        kind, _, value = authorization.partition(b" ")
        with contextlib.suppress(ValueError):
            key = base64.b64decode(value).partition(b":")[2] if kind.lower() == b"basic" else value
            return kind.lower() in (b"bearer", b"basic") and hmac.compare_digest(key, self._key)
        return False

    async def _read(self, scope: Scope, receive: Receive) -> bytes | Response | None:
        """Read the body; returns it, or the answer that refuses it, or None if the client has left."""
        length, most = dict(scope["headers"]).get(b"content-length", b"0"), self._service.settings.max_body_bytes
        size = int(length) if length.isdigit() else 0
        if size <= most and scope["path"] not in _ALWAYS and not self._service.worker.is_ready:
            return not_ready(self._service.why_not_ready() or "")
        body, is_whole = bytearray(), False
        while size <= most and not is_whole:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            size, is_whole = max(size, len(body)), not message.get("more_body", False)
        return bytes(body) if size <= most else problem(413, f"the body must have at most {most:,} bytes")
