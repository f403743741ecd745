"""An HTTP server on this machine that fails on request, in the ways of real servers."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock


@dataclass
class Served:
    """Holds a file and the faults of its next answers.

    Attributes:
        drops: after how many bytes of the body the connection breaks, one number for each of the first answers.
        ignore_range: sends all of it whatever is asked for.
        wrong_range: sends other bytes than asked for.
        extra_length: added to the announced Content-Length.
        statuses: sent instead of the file, one for each of the first answers, with `status_headers`.
        headers: added to the answers with content or a redirection.
        pause_seconds: before every 1,000 bytes.
        stalls: how many of the first answers stop in the middle without closing.
    """

    data: bytes
    drops: list[int] = field(default_factory=list)
    ignore_range: bool = False
    wrong_range: bool = False
    extra_length: int = 0
    chunked: bool = False
    statuses: list[int] = field(default_factory=list)
    status_headers: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    redirect: str | None = None
    pause_seconds: float = 0.0
    stalls: int = 0
    requests: list[dict[str, str]] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: dict[str, Served]
    timeout = 20

    def log_message(self, *_: object) -> None:
        """Write no log."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        served = self.files.get(self.path)
        self.close_connection = True
        if served is None:
            body = b"<html><body>404: there is nothing here</body></html>"
            self._head(404, {"Content-Type": "text/html", "Content-Length": str(len(body))})
            self.wfile.write(body)
            return
        if self.command == "GET":
            served.requests.append(dict(self.headers))
        if served.statuses:
            self._head(served.statuses.pop(0), {"Content-Length": "0", **served.status_headers})
        elif served.redirect is not None:
            here = f"http://{self.headers['Host']}" * served.redirect.startswith("/")
            self._head(302, {"Location": here + served.redirect, "Content-Length": "0", **served.headers})
        else:
            self._send(served)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, served: Served) -> None:
        start, size = self._start(served), len(served.data)
        headers = {"Content-Type": "application/octet-stream", **served.headers}
        if start is not None and start >= size:
            self._head(416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
            return
        body = served.data[start or 0 :]
        if served.chunked:
            headers["Transfer-Encoding"] = "chunked"
        else:
            headers["Content-Length"] = str(len(body) + served.extra_length)
        if start is not None:
            shown = start + 7 if served.wrong_range else start
            headers["Content-Range"] = f"bytes {shown}-{size - 1}/{size}"
        self._head(200 if start is None else 206, headers)
        if self.command == "GET":
            self._body(served, body)

    def _start(self, served: Served) -> int | None:
        """Return the first byte that is requested; None if all bytes are to be sent."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return None if not asked or served.ignore_range else int(asked[1])

    def _body(self, served: Served, body: bytes) -> None:
        limit = served.drops.pop(0) if served.drops else len(body)
        stalls, served.stalls = served.stalls > 0, max(0, served.stalls - 1)
        for place in range(0, min(limit, len(body)), 1000):
            time.sleep(served.pause_seconds)
            piece = body[place : min(place + 1000, limit)]
            try:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if served.chunked else piece)
                if stalls:
                    self.wfile.flush()
                    time.sleep(3)
                    return
            except OSError:
                return
        if served.chunked and limit >= len(body):
            self.wfile.write(b"0\r\n\r\n")


@contextmanager
def serving(files: dict[str, Served]) -> Iterator[str]:
    """Serve these files, by path; return the address, for which no proxy is asked."""
    handler = type("Handler", (_Handler,), {"files": files})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        with mock.patch.dict(os.environ, NO_PROXY="127.0.0.1,localhost"):
            yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
