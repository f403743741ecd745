"""The barrier of CPU ranks under Paddle 3: it waits for the slowest, and ends when a rank is gone."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bert.runtime.gloo import RankBarrier


class Store:
    """One key for all, as Paddle's: `get` waits for it."""

    def __init__(self):
        self._value, self._is_set = "", threading.Event()

    def set(self, key: str, value: str) -> None:
        self._value = value
        self._is_set.set()

    def get(self, key: str) -> bytes:
        assert self._is_set.wait(10)
        return self._value.encode()


@pytest.fixture
def barriers():
    """Of three ranks, which a stranger called first."""
    store = Store()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(RankBarrier, store, 0, 3, "127.0.0.1")
        with socket.create_connection(("127.0.0.1", json.loads(store.get("rank_barrier"))[0])) as stranger:
            stranger.sendall(b"no token of ours")
        others = [pool.submit(RankBarrier, store, rank, 3, "127.0.0.1") for rank in (1, 2)]
        made = [each.result(10) for each in (first, *others)]
    yield made
    for barrier in made:
        barrier.close()


def test_no_rank_passes_before_the_last_has_come(barriers):
    with ThreadPoolExecutor(2) as pool:
        early = [pool.submit(barrier.wait) for barrier in barriers[:2]]
        time.sleep(0.1)
        assert not any(each.done() for each in early)
        barriers[2].wait()
        assert [each.result(10) for each in early] == [None, None]


def test_the_others_notice_when_rank_0_ends(barriers):
    barriers[0].close()
    with pytest.raises(ConnectionError):
        barriers[1].wait()


def test_rank_0_notices_when_another_ends(barriers):
    barriers[2].close()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(barriers[1].wait)
        with pytest.raises(ConnectionError, match="another rank has ended"):
            barriers[0].wait()
        barriers[0].close()  # as its end would
        with pytest.raises(ConnectionError):
            other.result(10)
