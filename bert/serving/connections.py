"""Limits on connections that uvicorn has none for: time to send a request and to take the answer, number, bytes held.

Slow and idle clients therefore cost others nothing: beyond the limits, the connections that have waited longest without
a whole request are closed, and a client that sends its request at once is served.
"""

import asyncio
import contextlib
import resource
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bert.serving.settings import Limits

_MOST_HELD_BYTES = 64 << 20  # of requests that are not whole yet, over all connections
_MOST_HEADER_BYTES = 16 << 10
_KEEP_ALIVE_SECONDS = 75
_SWEEP_SECONDS = 0.5
_SPARE_FILES = 64  # descriptors that are not connections
_BACKLOG = 256
_TIMED_OUT = b'{"detail":"the request did not arrive in time"}'
_TIMED_OUT_HEADER = (
    "HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\n"
    f"content-length: {len(_TIMED_OUT)}\r\n\r\n"
).encode()


class Connections:
    """The connections that have no whole request, in the order in which they began to wait."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.most = min(limits.max_connections, _allowed_files() - _SPARE_FILES)
        self.open: set[LimitedProtocol] = set()
        self.waiting: dict[LimitedProtocol, float] = {}
        self.held_bytes = 0
        self.num_closed = 0  # by us, before their request was whole

    def protocol(self, **settings: Any) -> "LimitedProtocol":
        """For uvicorn's setting `http`."""
        return LimitedProtocol(self, **settings)

    def begin(self, connection: "LimitedProtocol") -> None:
        """A connection waits for a request from now on."""
        self.waiting.setdefault(connection, time.monotonic())

    def end(self, connection: "LimitedProtocol") -> None:
        """Its request is whole, or it is closed."""
        self.waiting.pop(connection, None)
        self.held_bytes -= connection.held_bytes
        connection.held_bytes = 0

    def hold(self, connection: "LimitedProtocol", num_bytes: int) -> None:
        connection.held_bytes += num_bytes
        self.held_bytes += num_bytes

        while self.held_bytes > _MOST_HELD_BYTES:
            self._close(next(iter(self.waiting)))

    def add(self, connection: "LimitedProtocol") -> None:
        """A new connection; if it is one too many, the one that has waited longest is closed."""
        self.open.add(connection)
        self.begin(connection)
        if len(self.open) > self.most:
            self._close(next(iter(self.waiting)))

    def sweep(self) -> None:
        """Close connections that are too slow."""
        now = time.monotonic()
        for connection, since in list(self.waiting.items()):
            if now - since > self._limits.read_seconds and not connection.is_idle():
                self._close(connection)
        for connection in list(self.open):
            if connection.unsent_seconds(now) > self._limits.read_seconds:
                connection.transport.abort()

    def _close(self, connection: "LimitedProtocol") -> None:
        self.num_closed += not connection.is_idle()
        connection.refuse()
        self.end(connection)

    async def keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.sweep()


class LimitedProtocol(H11Protocol):
    """uvicorn's connection, which `Connections` keeps an eye on."""

    def __init__(self, registry: Connections, **settings: Any) -> None:
        super().__init__(**settings)
        self._registry = registry
        self._unsent_since: float | None = None
        self.held_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._registry.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.open.discard(self)
        self._registry.end(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.is_idle():
            self._registry.end(self)  # its next request begins
        super().data_received(data)
        self._note(len(data))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note(0)

    def _note(self, num_bytes: int) -> None:
        """Begin or end to wait, by what the parser has now."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._registry.end(self)
            return
        self._registry.begin(self)
        if num_bytes and self.conn.our_state is not h11.DONE:  # what follows an early answer is not kept
            self._registry.hold(self, num_bytes)

    def is_idle(self) -> bool:
        """Whether it is kept open after an answer and nothing has come since; uvicorn has a time for that."""
        return self.timeout_keep_alive_task is not None and self.conn.their_state is h11.IDLE

    def unsent_seconds(self, now: float) -> float:
        """For how long the client has not taken all of an answer."""
        if not self.transport.get_write_buffer_size():
            self._unsent_since = None
            return 0.0
        self._unsent_since = self._unsent_since or now
        return now - self._unsent_since

    def refuse(self) -> None:
        """Close it, with 408 if a part of a request has come."""
        if self.held_bytes and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_TIMED_OUT_HEADER + _TIMED_OUT)
        self.transport.close()


def _allowed_files() -> int:
    """File descriptors that this process may have, after raising its own limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Server(uvicorn.Server):
    """uvicorn's server, which a signal stops after the answers that are due; a second signal stops it at once.

    Args:
        app: the ASGI application.
        connections: whose protocol is used.
        on_stop: called at the first signal.
    """

    def __init__(self, app: Any, connections: Connections, limits: Limits, on_stop: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=connections.protocol,  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(limits.timeout_seconds + limits.read_seconds) + 1,
            h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        )
        super().__init__(config)
        self._on_stop = on_stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Without raising the signals again at the end, as uvicorn does: a stop that was asked for is a success."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        if not self.should_exit:
            self._on_stop()
        self.should_exit = True
