"""Tests with slow, silent, many and greedy clients: honest requests are answered, and memory does not grow."""

import contextlib
import json
import socket
import time

import pytest
import requests

from tests.serving.servers import serving

pytestmark = pytest.mark.long
PATIENCE = 20  # seconds; a request that hostile clients keep out is not answered at all
_HEAD = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    flags = ("--read-seconds", 2, "--max-connections", 300, "--max-characters", 200_000)
    with serving(tmp_path_factory.mktemp("hostile"), "token-classification", *flags, fake=True) as found:
        found.post({"text": "warm"})
        yield found


@contextlib.contextmanager
def clients(server, number: int, first: bytes = b""):
    """Open connections that have sent `first`."""
    opened = []
    try:
        for _ in range(number):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            opened.append(client)
            with contextlib.suppress(OSError):
                client.sendall(first)
        yield opened
    finally:
        for client in opened:
            client.close()


def honest_seconds(server, times: int = 20) -> float:
    """Return the slowest of some honest requests, each with a connection of its own."""
    slowest = 0.0
    for _ in range(times):
        start = time.monotonic()
        answer = requests.post(f"{server.url}/predict", json={"inputs": [{"text": "Anna"}]}, timeout=60)
        slowest = max(slowest, time.monotonic() - start)
        assert answer.status_code == 200 and answer.json()["results"][0]["entities"][0]["type"] == "PER"
    return slowest


def answer_of(client: socket.socket, seconds: float = 60) -> bytes:
    """Return all that the server sends until it closes."""
    client.settimeout(seconds)
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def test_clients_that_send_slowly_are_closed_in_time(server):
    body = _HEAD + b"content-length: 100\r\n\r\n{"
    with clients(server, 20, _HEAD) as headers, clients(server, 20, body) as bodies, clients(server, 20) as silent:
        start = time.monotonic()
        while time.monotonic() - start < 1.5:
            for client in (*headers, *bodies):
                client.sendall(b"a")
            time.sleep(0.1)
        assert honest_seconds(server, 5) < PATIENCE
        assert {answer_of(client)[:12] for client in (*headers, *bodies)} == {b"HTTP/1.1 408"}
        assert {answer_of(client) for client in silent} == {b""}
        assert time.monotonic() - start < 40


def test_thousands_of_connections_do_not_keep_others_out(server):
    before = server.memory()
    with clients(server, 3000, _HEAD):
        assert honest_seconds(server) < PATIENCE
        assert server.metric("bert_connections") <= 301
    assert server.memory() - before < 60 << 20
    assert server.metric("bert_closed_connections") >= 2600


def test_half_bodies_are_held_only_up_to_a_limit(server):
    """750 MB are sent; 64 MiB are held, and 250 reads of 256 KiB, and the allocator's reserve for both."""
    before = server.memory()
    part = _HEAD + b"content-length: 1048000\r\n\r\n" + b" " * 1_000_000
    for _ in range(3):
        with clients(server, 250, part):
            assert honest_seconds(server, 5) < PATIENCE
            grown = server.memory() - before
    assert grown < 2 * (64 + 250 / 4) * (1 << 20), grown
    assert 'route="other",status="499"' in server.get("/metrics").text  # FastAPI did not see them: it would keep parts


def test_clients_that_do_not_take_their_answer_are_closed(server):
    with clients(server, 20) as greedy:
        for client in greedy:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.setblocking(False)
            for _ in range(200):
                with contextlib.suppress(OSError):
                    client.send(b"GET /static-offline-docs/swagger-ui.css HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert honest_seconds(server, 5) < PATIENCE
        end = time.monotonic() + 60
        while server.metric("bert_connections") > 3:
            assert time.monotonic() < end, server.metric("bert_connections")
            time.sleep(0.2)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 5000,
        b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 5000,  # the header has no end
        b"GET /" + b"a" * 30_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_not_http_is_refused(server, data):
    with clients(server, 1, data) as (client,):
        answer = answer_of(client)
    assert answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 408", b""), answer[:100]
    assert honest_seconds(server, 1) < PATIENCE


def test_many_mistakes_cost_no_memory(server):
    """A body of the largest size has a million wrong inputs: pydantic would otherwise keep an error for each."""
    before = server.memory()
    many = b'{"inputs": [' + b"1," * 500_000 + b"1]}"
    keys = json.dumps({f"k{number}": number for number in range(60_000)}).encode()
    for body in (many, keys, b'{"inputs": [{"text": "a", "t": ' + b"[" * 400 + b"]" * 400 + b"}]}"):
        for _ in range(3):
            answer = requests.post(
                f"{server.url}/predict", data=body, headers={"content-type": "application/json"}, timeout=30
            )
            assert answer.status_code in (413, 422) and len(answer.content) < 3000
    assert server.memory() - before < 100 << 20
