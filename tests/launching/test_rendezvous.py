"""Nodes agree on an address that Paddle's launcher serves, and none waits for ever."""

import socket
import threading
import time

import pytest

from bert.launching.start_training import address_towards, launcher_addresses, wait_for_master, without_proxy


def test_loopback_is_fine_when_it_is_said():
    assert launcher_addresses("127.0.0.1:6070") == ("127.0.0.1:6070", "127.0.0.1")
    assert launcher_addresses("localhost:6070", lambda name: "127.0.0.1") == ("127.0.0.1:6070", "127.0.0.1")


def test_a_name_becomes_the_address_and_the_node_learns_its_own():
    own = address_towards("192.0.2.77")  # documentation's network: nothing is sent, only routes are looked at
    assert launcher_addresses("first:6070", {"first": "192.0.2.77"}.get) == ("192.0.2.77:6070", own)


def test_a_name_that_every_node_takes_for_itself_is_refused():
    """Debian writes the host's own name beside 127.0.1.1 into /etc/hosts."""
    with pytest.raises(ValueError, match="master=node1:6070 is 127.0.1.1 on this node, where no other node finds it"):
        launcher_addresses("node1:6070", lambda name: "127.0.1.1")


def unknown(name):
    raise socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize("master", ["node1", "node1:", "node1:http", "node1:0", "node1:70000", ":6070"])
def test_what_is_not_host_and_port_is_refused(master):
    with pytest.raises(ValueError, match=f"master={master} must be HOST:PORT, such as"):
        launcher_addresses(master)


def test_a_name_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="master=nod1:6070 cannot be resolved .* pass the first node's IPv4 address"):
        launcher_addresses("nod1:6070", unknown)


def test_waiting_ends_when_the_first_node_listens(capsys):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        master = f"127.0.0.1:{listener.getsockname()[1]}"
        threading.Timer(0.3, listener.listen).start()
        wait_for_master(master, 30.0, every_seconds=0.05)
    assert capsys.readouterr().out == f"waiting for the first node at {master}\n"


def test_waiting_ends_with_advice_when_nobody_listens_and_at_once_when_stopped():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # taken, and never listened to
        master = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"master={master} did not answer within 0 s .*--node-rank 0"):
            wait_for_master(master, 0.2, every_seconds=0.05)
        start = time.monotonic()
        wait_for_master(master, 60.0, stopped=lambda: True)
        assert time.monotonic() - start < 30, "it waited"


def test_the_nodes_are_never_asked_for_through_a_proxy():
    """Paddle's launcher asks over HTTP, and a proxy would answer for a node it cannot reach."""
    added = without_proxy({"http_proxy": "http://proxy:3128", "no_proxy": "intranet"}, "10.0.0.1:6070")
    assert added == {"no_proxy": "intranet,10.0.0.1", "NO_PROXY": "intranet,10.0.0.1"}
    assert without_proxy({}, "10.0.0.1:6070")["no_proxy"] == "10.0.0.1"
