"""Limits that uvicorn lacks: the time to send a request, the number of connections, and the bytes held for them.

uvicorn waits without a limit for the first request's header and for a body, and beyond its `limit_concurrency` it
refuses honest clients too. Here the connections that have waited longest without a whole request are closed, so that a
client that sends its request at once is served.
"""

import asyncio
import contextlib
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from bert.serving.settings import Limits

_MOST_HELD_BYTES = 64 << 20  # most bytes of incomplete requests, over all connections
HEADER_BYTES = 16 << 10  # most bytes of a request's header
_SPARE_FILES = 64  # file descriptors that connections may not use
_TIMED_OUT = b'{"detail":"the request did not arrive in time"}'
_TIMED_OUT_HEADER = (
    "HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\n"
    f"content-length: {len(_TIMED_OUT)}\r\n\r\n"
).encode()


class Connections:
    """All open connections, and the limits on them.

    Attributes:
        waiting: connections whose request is incomplete, with the bytes held for it; the longest wait is first.
    """

    def __init__(self, limits: Limits) -> None:
        self.read_seconds = limits.read_seconds
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        self._most = min(limits.max_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FILES)
        self.open: set[LimitedProtocol] = set()
        self.waiting: dict[LimitedProtocol, int] = {}
        self.num_closed = 0  # connections that were closed before their request was complete

    def make_room(self) -> None:
        """Close the connections that have waited longest, as long as there are too many connections or bytes."""
        while self.waiting and (len(self.open) > self._most or sum(self.waiting.values()) > _MOST_HELD_BYTES):
            next(iter(self.waiting)).refuse()


class LimitedProtocol(H11Protocol):
    """uvicorn's connection, with a time limit for each request to arrive."""

    def __init__(self, connections: Connections, **settings: Any) -> None:
        super().__init__(**settings)
        self._all = connections
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.open.add(self)
        self._wait(0)
        self._all.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.open.discard(self)
        self._end_wait()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_idle():
            self._end_wait()  # its next request begins
        super().data_received(data)
        self._after_event(len(data))

    def send_400_response(self, msg: str) -> None:
        """Answer 400 to data that is not HTTP, unless an answer has begun, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._after_event(0)

    def refuse(self) -> None:
        """Close the connection; answer 408 first if a part of a request has arrived."""
        if self._all.waiting[self] and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_TIMED_OUT_HEADER + _TIMED_OUT)
        self._all.num_closed += not self._is_idle()
        self._all.open.discard(self)
        self._end_wait()
        self.transport.close()

    def _after_event(self, num_bytes: int) -> None:
        """Start or stop the time limit, by the state of the parser."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._end_wait()
        else:
            self._wait(0 if self.conn.our_state is h11.DONE else num_bytes)  # what follows an early answer is dropped
            self._all.make_room()

    def _wait(self, num_bytes: int) -> None:
        self._all.waiting[self] = self._all.waiting.get(self, 0) + num_bytes
        if self._deadline is None and not self._is_idle():
            self._deadline = self.loop.call_later(self._all.read_seconds, self.refuse)

    def _end_wait(self) -> None:
        self._all.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_idle(self) -> bool:
        """Whether the connection is kept open after an answer, without a new request; uvicorn limits this time."""
        return self.timeout_keep_alive_task is not None and self.conn.their_state is h11.IDLE
