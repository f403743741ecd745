"""Decoded shards in memory, and samples picked from several of them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future

import numpy as np

from bert.samples.sample_table import SampleTable, concatenate


class TableCache:
    """Caches decoded groups of shards and drops the least recently used; thread-safe.

    Args:
        load_shard: reads and decodes one shard.
        capacity: groups to keep.
    """

    def __init__(self, load_shard: Callable[[int], SampleTable], capacity: int) -> None:
        self._load_shard = load_shard
        self._capacity = capacity
        self._groups: OrderedDict[tuple[int, ...], Future[SampleTable]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, shards: tuple[int, ...]) -> SampleTable:
        """The rows of the given shards, one after the other."""
        future, mine = self._future(shards)
        if mine:
            self._fill(future, shards)
        return future.result()

    def prepare(self, shards: tuple[int, ...]) -> None:
        """Start to read shards in a thread before `get` asks for them; `get` raises its errors."""
        future, mine = self._future(shards)
        if mine:
            threading.Thread(target=self._fill, args=(future, shards), name="shards", daemon=True).start()

    def _future(self, shards: tuple[int, ...]) -> tuple[Future[SampleTable], bool]:
        """The future of a group, and whether the caller must fill it."""
        with self._lock:
            mine = shards not in self._groups
            if mine:
                while len(self._groups) >= self._capacity:
                    self._groups.popitem(last=False)
                self._groups[shards] = Future()
            self._groups.move_to_end(shards)
            return self._groups[shards], mine

    def _fill(self, future: Future[SampleTable], shards: tuple[int, ...]) -> None:
        try:
            future.set_result(concatenate([self._load_shard(shard) for shard in shards]))
        except BaseException as error:
            with self._lock:
                self._groups.pop(shards, None)
            future.set_exception(error)


def gather(
    groups: Iterable[tuple[SampleTable, np.ndarray, np.ndarray]], start: int, stop: int
) -> tuple[SampleTable, np.ndarray]:
    """The table and rows of the samples at positions start..stop-1; positions ascend within each group."""
    tables, places_of, rows_of = [], [], []
    for table, places, rows in groups:
        low, high = np.searchsorted(places, (start, stop))
        if low < high:
            tables.append(table)
            places_of.append(places[low:high] - start)
            rows_of.append(rows[low:high])
    if len(tables) == 1:
        return tables[0], rows_of[0]
    table = concatenate([table.take(rows) for table, rows in zip(tables, rows_of, strict=True)])
    order = np.empty(stop - start, np.int64)
    order[np.concatenate(places_of)] = np.arange(stop - start)
    return table, order
