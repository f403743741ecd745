"""Connected components: examples that are linked, directly or through others, get one number."""

import numpy as np


class Components:
    """The connected components of n numbered nodes; links are added one array at a time."""

    def __init__(self, num_nodes: int) -> None:
        self._parents = np.arange(num_nodes)

    def link(self, firsts: np.ndarray, seconds: np.ndarray) -> None:
        """Join the components of the pairs (first[i], second[i]); both arrays are int64 [m]."""
        for first, second in zip(firsts.tolist(), seconds.tolist(), strict=True):
            one, other = self._root(first), self._root(second)
            self._parents[max(one, other)] = min(one, other)

    def link_equal(self, values: np.ndarray) -> None:
        """Join all nodes that have the same value; `values` has an integer or string for each node [n]."""
        _, firsts, numbers = np.unique(values, return_index=True, return_inverse=True)
        self.link(np.arange(len(values)), firsts[numbers])

    def _root(self, node: int) -> int:
        parents = self._parents
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = int(parents[node])
        return node

    def numbers(self) -> np.ndarray:
        """Component of each node, int64 [n]: the smallest node number in it."""
        roots = self._parents
        while (roots[roots] != roots).any():
            roots = roots[roots]
        self._parents = roots
        return roots.copy()
