"""A barrier of ranks over TCP that waits without a time limit and notices at once when a rank ends."""

import json
import logging
import secrets
import socket
from typing import Any

logger = logging.getLogger(__name__)
_TOKEN_BYTES = 16
_ARRIVED = b"a"


class RankBarrier:
    """All ranks of a group, each connected to rank 0.

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
        """Return when all ranks have called this as often as this rank has.

        Raises:
            ConnectionError: another rank has ended.
        """
        for receive in (True, False) if self._is_main else (False, True):
            for peer in self._peers:
                if not receive:
                    peer.sendall(_ARRIVED)
                elif peer.recv(1) != _ARRIVED:
                    logger.error("another rank has ended")  # Paddle drops the text of an error in an operator
                    raise ConnectionError("another rank has ended")

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


def _accept_all(store: Any, num_peers: int, host: str) -> list[socket.socket]:
    """The connections of the other ranks; one that does not send the store's token is none of theirs."""
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
    """The next `size` bytes; fewer if the peer does not send them."""
    received = b""
    try:
        while len(received) < size and (part := peer.recv(size - len(received))):
            received += part
    except OSError:
        pass
    return received
