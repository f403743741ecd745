"""Decoded shards in memory, and samples picked from several of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable

import numpy as np

from bert.samples import SampleTable, concatenate


class TableCache:
    """Decoded groups of shards, the least recently used given up; safe to use from several threads."""

    def __init__(self, load_shard: Callable[[int], SampleTable], capacity: int) -> None:
        self._load_shard = load_shard
        self._capacity = capacity
        self._groups: OrderedDict[tuple[int, ...], SampleTable] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, shards: tuple[int, ...]) -> SampleTable:
        """The rows of the given shards, one after the other."""
        with self._lock:
            if shards not in self._groups:
                while len(self._groups) >= self._capacity:
                    self._groups.popitem(last=False)
                self._groups[shards] = concatenate([self._load_shard(shard) for shard in shards])
            self._groups.move_to_end(shards)
            return self._groups[shards]


def gather(groups: Iterable[tuple[SampleTable, np.ndarray, np.ndarray]], start: int,
           stop: int) -> tuple[SampleTable, np.ndarray]:
    """The table and rows of the samples at places start..stop-1; places rise within each group."""
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
