"""Two "hosts" on this machine: network namespaces with addresses of their own, joined by a virtual cable.

Each sees only its own interfaces, so what works across them does not lean on loopback or on sharing a host's ports.
Needs root and iproute2.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    name: str
    address: str

    def command(self, words: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]


def why_not() -> str | None:
    """What this machine lacks; None if nothing."""
    if shutil.which("ip") is None:
        return "ip not found: apt-get install iproute2"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    name = f"bert-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"network namespaces are forbidden here: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return None


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Hosts 10.231.0.1 and 10.231.0.2, of names that no other run uses."""
    hosts = tuple(Host(f"bert-{os.getpid()}-{number}", f"10.231.0.{number}") for number in (1, 2))
    try:
        for host in hosts:
            _ip("netns", "add", host.name)
        ends = [f"bv{os.getpid()}-{number}" for number in (1, 2)]  # at most 15 characters
        _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for host, end in zip(hosts, ends, strict=True):
            _ip("link", "set", end, "netns", host.name)
            _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", end)
            _ip("-n", host.name, "link", "set", end, "up")
            _ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts[0], hosts[1]
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
