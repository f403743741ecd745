"""The nodes of a training: the address of the first node, and waiting for its launcher."""

import ipaddress
import socket
import time
from collections.abc import Callable

from bert.launching.ranks import Ranks

MASTER_TIMEOUT_SECONDS = 600.0  # the nodes of a queue may start minutes apart


def launcher_addresses(master: str, resolve: Callable[[str], str] = socket.gethostbyname) -> tuple[str, str]:
    """(`IP:PORT` of the first node's launcher, IPv4 address by which this node reaches it)."""
    host, _, port = master.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"master={master} must be HOST:PORT, such as 10.0.0.1:6070; change --master")
    try:
        address = resolve(host)
    except OSError as error:
        raise ValueError(f"master={master} cannot be resolved ({error}); pass the first node's IPv4 address") from None
    if ipaddress.ip_address(address).is_loopback and host != "localhost" and not host.startswith("127."):
        raise ValueError(
            f"master={master} is {address} on this node, where no other node finds it (see /etc/hosts); "
            "pass the first node's address in the network of the nodes"
        )
    return f"{address}:{port}", address_towards(address)


def address_towards(address: str) -> str:
    """This node's address in the network through which it reaches `address`; sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError as error:
            raise ValueError(
                f"master={address} cannot be reached from this node ({error}); check the network, or pass "
                "an address that all nodes reach"
            ) from None
        return probe.getsockname()[0]


def wait_for_master(
    master: str, timeout_seconds: float, *, stopped: Callable[[], bool] = lambda: False, every_seconds: float = 0.5
) -> None:
    """Wait until the first node's launcher listens at `IP:PORT`, or `stopped()`."""
    host, _, port = master.rpartition(":")
    deadline, is_first = time.monotonic() + timeout_seconds, True
    while not stopped():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"master={master} did not answer within {timeout_seconds:.0f} s ({error}); start the same "
                    "command on the first node (--node-rank 0), and let its port through the firewall"
                ) from None
            if is_first:
                print(f"waiting for the first node at {master}", flush=True)
            is_first = False
            time.sleep(every_seconds)


def node_options(ranks: Ranks, stopped: Callable[[], bool]) -> list[str]:
    """Options for the nodes of Paddle's launcher, once the first node answers; empty for a single node.

    Paddle's launcher would wait for the first node for ever, without a message.

    Args:
        stopped: whether the command is asked to stop, which ends the waiting.
    """
    if ranks.num_nodes == 1:
        return []
    master, own_address = launcher_addresses(str(ranks.master))
    if ranks.node_rank:
        wait_for_master(master, MASTER_TIMEOUT_SECONDS, stopped=stopped)
    rank = [] if ranks.node_rank is None else ["--rank", str(ranks.node_rank)]
    return ["--nnodes", str(ranks.num_nodes), "--master", master, "--host", own_address, *rank]
