"""The command line of the server, and its run. Paddle is loaded by the model process only."""

import argparse
import asyncio
import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from bert import exit_codes
from bert.config.flags import Formatter, Parser
from bert.serving.settings import Limits, ModelSettings, ServerSettings

PACKAGES = {  # module -> package, of requirements-serve.txt
    "fastapi": "fastapi",
    "fastapi_offline": "fastapi-offline",
    "uvicorn": "uvicorn",
    "prometheus_client": "prometheus-client",
}
_SEND_BUFFER = 1 << 18  # bytes of answers that the system keeps for one slow client; by default it takes megabytes
_TASKS = ("masked-lm", "encoder", "question-answering", "sequence-classification", "token-classification")
_DESCRIPTION = (
    "Serve a trained model: JSON over HTTP, and a page to try it in a browser. Inputs of concurrent requests run "
    "together. There is no authentication and no encryption: put a proxy that has them before it, and leave --host as "
    "it is, unless all who can reach the port may use the model."
)
_LIMITS = {
    "max_body_bytes": ("N", "largest body of a request; beyond it 413"),
    "max_inputs": ("N", "inputs of one request"),
    "max_characters": ("N", "of one text; beyond it 422"),
    "max_queue": ("N", "inputs that may wait; beyond it 429"),
    "timeout_seconds": ("S", "for an answer; then 504"),
    "read_seconds": ("S", "for a request to arrive; then 408"),
    "max_connections": ("N", "open at a time"),
    "max_batch_size": ("N", "inputs that run together; 1: one at a time"),
    "max_batch_tokens": ("N", "tokens that run together, with padding"),
    "max_wait_ms": ("MS", "how long an idle model waits for further inputs"),
}


def parse_settings(argv: Sequence[str] | None) -> ServerSettings:
    """Read and check the command line.

    Raises:
        ValueError: the flag, the rule and the remedy.
    """
    values = vars(_parser().parse_args(argv))

    def of(kind: Any) -> dict[str, Any]:
        return {field.name: values[field.name] for field in fields(kind)}

    settings = ServerSettings(
        ModelSettings(**of(ModelSettings)), Limits(**of(Limits)), values["host"], values["port"], values["access_log"]
    )
    settings.check()
    return settings


def _parser() -> Parser:
    parser = Parser(description=_DESCRIPTION, formatter_class=Formatter, allow_abbrev=False)
    add = parser.add_argument
    add("model", metavar="MODEL", help="what run_predict.py takes: the output folder of a run, a checkpoint, an export")
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    add("--port", type=int, default=8000, metavar="N", help="default: 8000; 0: any that is free")
    add("--task", choices=_TASKS, help="what to use the model for (default: its head)")
    add("--top-k", type=int, default=5, metavar="N", help="fills or answers unless a request says (default: 5)")
    add("--max-seq-length", type=int, metavar="N", help="longest sequence in tokens (default: that of the training)")
    add("--device", choices=("auto", "cpu", "gpu"), default="auto", help="default: a GPU if there is one")
    add("--cpu-threads", type=int, default=0, metavar="N", help="default: one for each core")
    add("--vocab-file", metavar="FILE", help="vocab.txt or tokenizer.json, if none is beside the weights")
    add(
        "--do-lower-case",
        action=argparse.BooleanOptionalAction,
        help="whether text is lower-cased (default: as the model's files say)",
    )
    add("--access-log", action="store_true", help="log each request on standard error")
    group = parser.add_argument_group("limits")
    for field in fields(Limits):
        metavar, text = _LIMITS[field.name]
        flag, default = f"--{field.name.replace('_', '-')}", field.default
        shown = f"{default:,}" if isinstance(default, int) else f"{default:g}"
        group.add_argument(
            flag, type=type(default), default=default, metavar=metavar, help=f"{text} (default: {shown})"
        )
    return parser


def check_packages() -> None:
    """Raise ValueError if a package of the server is missing."""
    missing = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ValueError(
            f"the server needs {', '.join(missing)}, not installed here; pip install -r requirements-serve.txt"
        )


def listen(host: str, port: int) -> socket.socket:
    """A socket on that address.

    Raises:
        ValueError: the address cannot be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        door = socket.create_server(address[:2], family=family)
    except OSError as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise ValueError(
            f"--host {host} --port {port} cannot be listened on ({reason}); choose another port or address"
        ) from None
    door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    # Otherwise the body of an answer waits up to 40 ms for the client to confirm the head; asyncio sets it for its own.
    door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return door


def _log_to_standard_error(access_log: bool) -> None:
    names = ["bert.serving", "uvicorn.error", *(["uvicorn.access"] if access_log else [])]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    for name in names:  # of uvicorn's, errors only: it warns of each malformed request
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.INFO if name != "uvicorn.error" else logging.ERROR)


def run(settings: ServerSettings) -> int:
    """Serve until a signal; returns the exit code."""
    check_packages()
    _log_to_standard_error(settings.access_log)
    with listen(settings.host, settings.port) as door:
        from bert.serving.running import serve

        asyncio.run(serve(settings, door))
    return exit_codes.OK
