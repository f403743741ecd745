"""Runs the server and the model process together, from the start to the last answer."""

import asyncio
import socket
import sys

from bert.serving.app import make_app
from bert.serving.connections import Connections, Server
from bert.serving.service import Service
from bert.serving.settings import ServerSettings
from bert.serving.worker import model_command


async def serve(settings: ServerSettings, door: socket.socket) -> None:
    """Serve on an open socket until a signal; requests that have come are answered first.

    Raises:
        ValueError: the model cannot be used.
        Failure: the model process fails again and again.
    """
    service = Service(model_command(settings.model), settings.limits)
    app, connections = make_app(service), Connections(settings.limits)
    service.metrics.watch("bert_connections", "Open connections", lambda: len(connections.open))
    service.metrics.watch(
        "bert_closed_connections", "Closed before their request was whole", lambda: connections.num_closed
    )

    server = Server(app, connections, settings.limits, service.begin_to_stop)
    address = f"http://{settings.host}:{door.getsockname()[1]}"
    print(f"{address} loads {settings.model.model}", file=sys.stderr, flush=True)
    service.on_loaded.append(
        lambda model: print(f"{address} is ready: {model.name}, {model.summary}", file=sys.stderr, flush=True)
    )
    model = asyncio.create_task(service.worker.keep_running())
    sweeping = asyncio.create_task(connections.keep_sweeping())
    serving = asyncio.create_task(server.serve(sockets=[door]))
    try:
        await asyncio.wait({serving, model}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():  # the model cannot be used
            server.should_exit = server.force_exit = True
        await serving
        await service.stop()
        if model.done():
            model.result()
    finally:
        sweeping.cancel()
        model.cancel()
        await asyncio.gather(sweeping, model, return_exceptions=True)
