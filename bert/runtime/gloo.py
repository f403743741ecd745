"""Gloo, the communication of ranks on CPU: the rendezvous, and changes to Fleet's programs.

Paddle 2.6 has one Gloo context for the process, which waits without a limit. Paddle 3 has one for each ring, whose
operators fail when they have waited 30 seconds for another rank, which saves a checkpoint or has a slower processor:
there the ranks meet at a barrier before they communicate.
"""

import json
import logging
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, chdir, contextmanager, redirect_stderr
from io import StringIO
from typing import Any

import psutil

from bert.runtime.paddle_api import IS_PADDLE_3, core, paddle, static


class RankBarrier:
    """A barrier of a group's ranks; each rank is connected to rank 0.

    Args:
        store: `set` and `get` of a key, the same for all ranks; tells them rank 0's port.
        host: rank 0's address.
    """

    def __init__(self, store: Any, rank: int, world_size: int, host: str):
        self._is_main = rank == 0
        if self._is_main:
            self._peers = _accept_all(store, world_size - 1, host)
        else:
            port, token = json.loads(store.get("rank_barrier"))
            self._peers = [socket.create_connection((host, port))]
            self._peers[0].sendall(bytes.fromhex(token))
        for peer in self._peers:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def wait(self) -> None:
        """Wait until all ranks have called this equally often.

        Raises:
            ConnectionError: another rank has ended.
        """
        for receive in (True, False) if self._is_main else (False, True):
            for peer in self._peers:
                if not receive:
                    peer.sendall(_ARRIVED)
                elif peer.recv(1) != _ARRIVED:
                    logger.warning("another rank has ended")  # Paddle drops the text of an error in an operator
                    raise ConnectionError("another rank has ended")

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


# Operators that synchronise CUDA streams; they have no CPU kernel, and a CPU has nothing to synchronise.
_STREAM_OPERATORS = ("c_sync_calc_stream", "c_sync_comm_stream", "c_wait_compute", "c_wait_comm")
_COLLECTIVES = ("all_reduce", "broadcast", "c_allreduce_sum")  # collective operators of Paddle 3

_LONGEST_TMPDIR = 107 - len("/pymp-abcdefgh/listener-abcdefgh")  # bytes; multiprocessing's names of a socket

_barrier: RankBarrier | None = None
_barrier_operator: int | None = None  # Paddle's number of the function that `py_func` operators call


def join(rank: int, endpoints: Sequence[str]) -> None:
    """Connect to the other ranks by a rendezvous at rank 0's endpoint."""
    interface = interface_of(endpoints, rank)
    if IS_PADDLE_3:
        _join_ring(rank, endpoints, interface)
        return
    folder = tempfile.gettempdir()
    if (length := len(os.fsencode(folder))) > _LONGEST_TMPDIR:
        raise ValueError(
            f"TMPDIR={folder} has {length} bytes; the ranks meet by a socket in it, whose path may have 107, so it may "
            f"have {_LONGEST_TMPDIR}; set TMPDIR to a shorter folder"
        )
    # The rendezvous server writes http.log into the current folder, and its clients print while they wait.
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stderr(StringIO()), _bound_to(interface):
        paddle.distributed.gloo_init_parallel_env(rank, len(endpoints), endpoints[0])


def _join_ring(rank: int, endpoints: Sequence[str], interface: str) -> None:
    """Join communication ring 0 of Paddle 3, which its operators use, and make the barrier."""
    global _barrier, _barrier_operator
    store = core.create_or_get_global_tcp_store()
    _barrier = RankBarrier(store, rank, len(endpoints), endpoints[0].rsplit(":", 1)[0])
    _barrier_operator = static.nn.common.PyFuncRegistry(lambda *gradients: _barrier.wait()).id
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    core.CommContextManager.create_gloo_comm_context(store, "0", rank, len(endpoints))


def leave() -> None:
    """Leave the group once all ranks have called this."""
    if _barrier is not None:
        _barrier.wait()
        _barrier.close()
    else:
        paddle.distributed.gloo_barrier()
        paddle.distributed.gloo_release()


def interface_of(endpoints: Sequence[str], rank: int) -> str:
    """Name of the network interface with the rank's address; `lo` if all ranks are on one host."""
    addresses = [endpoint.rsplit(":", 1)[0] for endpoint in endpoints]
    if len(set(addresses)) == 1:
        return "lo"
    interface_of = {
        address.address: name
        for name, listed in psutil.net_if_addrs().items()
        for address in listed
        if address.family == socket.AF_INET
    }
    if addresses[rank] in interface_of:
        return interface_of[addresses[rank]]
    has = ", ".join(f"{address} on {name}" for address, name in interface_of.items())
    raise ValueError(
        f"rank {rank} should be at {addresses[rank]}, which is not an address of this host ({has}); "
        "pass one of these to paddle.distributed.launch with --host"
    )


def _bound_to(interface: str) -> AbstractContextManager[None]:
    """Context manager: Gloo of Paddle 2.6 uses this network interface instead of loopback."""
    original = core.GlooParallelStrategy

    def strategy():
        made = original()
        made.iface = interface
        return made

    return replaced(core, "GlooParallelStrategy", strategy)


@contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, original)


def fit_program(program: static.Program) -> None:
    """Remove operators of CUDA streams; with Paddle 3, insert barriers before communication."""
    for block in program.blocks:
        for index in reversed(range(len(block.ops))):
            if block.ops[index].type in _STREAM_OPERATORS:
                block._remove_op(index, sync=False)
        if _barrier_operator is not None:
            _insert_barriers(block)
        block._sync_with_cpp()


def _insert_barriers(block) -> None:
    """Insert a barrier before each group of collective operators; it reads their variables to keep the order."""
    end = len(block.ops)
    while end > 0:
        start = end
        while start > 0 and block.ops[start - 1].type in _COLLECTIVES:
            start -= 1
        if start < end:
            names = [name for operator in block.ops[start:end] for name in operator.output_arg_names]
            block._insert_op_without_sync(
                start,
                type="py_func",
                inputs={"X": [block._var_recursive(name) for name in names]},
                outputs={"Out": []},
                attrs={"forward_callable_id": _barrier_operator, "backward_callable_id": -1, "backward_skip_vars": []},
            )
        end = min(start, end - 1)


logger = logging.getLogger(__name__)
_TOKEN_BYTES = 16
_ARRIVED = b"a"


def _accept_all(store: Any, num_peers: int, host: str) -> list[socket.socket]:
    """Accept the other ranks' connections; close a connection that does not send the store's token."""
    token, peers = secrets.token_bytes(_TOKEN_BYTES), list[socket.socket]()
    with socket.create_server((host, 0), backlog=num_peers) as server:
        store.set("rank_barrier", json.dumps([server.getsockname()[1], token.hex()]))
        while len(peers) < num_peers:
            peer, _ = server.accept()
            peer.settimeout(10.0)
            if _read(peer, len(token)) == token:
                peer.settimeout(None)
                peers.append(peer)
            else:
                peer.close()
    return peers


def _read(peer: socket.socket, size: int) -> bytes:
    """Read `size` bytes from a connection; fewer if it closes early."""
    received = b""
    try:
        while len(received) < size and (part := peer.recv(size - len(received))):
            received += part
    except OSError:
        pass
    return received
