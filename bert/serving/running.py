"""Runs the server together with the model process, from the start to the last answer."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from functools import partial

import uvicorn

from bert import MESSAGES, exit_codes
from bert.printable import printable
from bert.serving.connections import HEADER_BYTES, Connections, LimitedProtocol
from bert.serving.request_handling import Service, watch
from bert.serving.routes import make_app
from bert.serving.settings import ServerSettings

_SEND_BUFFER = 1 << 18  # bytes of answers that the system keeps for one slow client; by default it takes megabytes


def run(settings: ServerSettings) -> int:
    """Serve until a signal; returns the exit code."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_PrintableFormatter("%(asctime)s %(message)s"))
    # Only uvicorn's errors are logged, because it warns of each malformed request.
    levels = {MESSAGES.name: logging.INFO, "uvicorn.error": logging.ERROR}
    if settings.access_log:
        levels["uvicorn.access"] = logging.INFO
    for name, level in levels.items():
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(level)
    try:
        with listen(settings) as door:
            asyncio.run(_serve(settings, door))
    finally:
        for name in levels:
            logging.getLogger(name).removeHandler(handler)
    return exit_codes.OK


class _PrintableFormatter(logging.Formatter):
    """Formats each message as one printable line, whatever a client sent."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def listen(settings: ServerSettings) -> socket.socket:
    """Open the socket on the server's address; connections inherit its options."""
    host, port = settings.host, settings.port
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        door = socket.create_server(address[:2], family=family)
    except OSError as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise ValueError(
            f"--host {host} --port {port} cannot be listened on ({reason}); choose another port or address"
        ) from None
    door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    # The system closes the connection of a client that does not take its answer.
    door.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * settings.read_seconds))
    # Otherwise the body of an answer waits up to 40 ms for the client to confirm the head; asyncio sets it for its own.
    door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return door


async def _serve(settings: ServerSettings, door: socket.socket) -> None:
    """Serve on an open socket until a signal arrives; open requests are answered first."""
    service, connections = Service(settings), Connections(settings)
    watch("bert_connections", "Open connections", lambda: len(connections.open))
    watch("bert_closed_connections", "Closed before their request was whole", lambda: connections.num_closed)
    server = Server(
        uvicorn.Config(
            make_app(service),
            http=partial(LimitedProtocol, connections),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            server_header=False,
            proxy_headers=False,
            backlog=256,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=int(settings.timeout_seconds + settings.read_seconds) + 1,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
    )
    server.service = service
    host = f"[{settings.host}]" if ":" in settings.host else settings.host  # IPv6
    address = f"http://{host}:{door.getsockname()[1]}"
    print(f"{address} loads {settings.model}", file=sys.stderr, flush=True)
    service.on_loaded.append(
        lambda model: print(
            printable(f"{address} is ready: {model.name}, {model.summary}"), file=sys.stderr, flush=True
        )
    )
    model = asyncio.create_task(service.worker.keep_running())
    serving = asyncio.create_task(server.serve(sockets=[door]))
    try:
        await asyncio.wait({serving, model}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():  # the model cannot be used
            server.should_exit = server.force_exit = True
        await serving
    finally:
        await service.stop()
        model.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await model


class Server(uvicorn.Server):
    """uvicorn's server. A signal stops it, with exit code 0, after open requests; a second signal stops it at once."""

    service: Service

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again at the end, which uvicorn would do."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = self.service.is_stopping = True
