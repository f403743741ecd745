"""Resolves the addresses at which the nodes of a run meet, in the form that Paddle's launcher needs.

Paddle's launcher serves the meeting point only where the text of --master's host equals the node's own address, which
it takes from the node's name (127.0.1.1 on Debian); otherwise every node waits for ever, silently. So this module
resolves names to addresses and gives each node its own address.
"""

import ipaddress
import socket
import time
from collections.abc import Callable, Mapping

Resolve = Callable[[str], str]


def launcher_addresses(master: str, resolve: Resolve = socket.gethostbyname) -> tuple[str, str]:
    """(`IP:PORT` of the meeting point, IPv4 address of this node on the way to it)."""
    host, _, port = master.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"master={master} must be HOST:PORT, such as 10.0.0.1:6070; change --master")
    try:
        address = resolve(host)
    except OSError as error:
        raise ValueError(f"master={master} cannot be resolved ({error}); pass the first node's IPv4 address") from None
    if ipaddress.ip_address(address).is_loopback and not _is_loopback_name(host):
        raise ValueError(
            f"master={master} is {address} on this node, where no other node finds it (see /etc/hosts); "
            "pass the first node's address in the network of the nodes"
        )
    return f"{address}:{port}", address_towards(address)


def address_towards(address: str) -> str:
    """This node's address in the network through which it reaches `address`; nothing is sent."""
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


def without_proxy(environment: Mapping[str, str], master: str) -> dict[str, str]:
    """Variables that keep Paddle's launcher, which asks the first node over HTTP, from asking a proxy instead."""
    known = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    hosts = ",".join(filter(None, [known, master.rpartition(":")[0]]))
    return {"no_proxy": hosts, "NO_PROXY": hosts}


def _is_loopback_name(host: str) -> bool:
    return host == "localhost" or host.startswith("127.")
