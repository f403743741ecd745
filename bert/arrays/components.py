"""Connected components: examples that are linked, directly or through others, get one number."""

import numpy as np


class Components:
    """The components of n numbered nodes, to which links are added."""

    def __init__(self, num_nodes: int) -> None:
        self._parents = np.arange(num_nodes)

    def link(self, firsts: np.ndarray, seconds: np.ndarray) -> None:
        """Join the components of each pair of nodes: int64 [m] and [m]."""
        for first, second in zip(firsts.tolist(), seconds.tolist(), strict=True):
            one, other = self._root(first), self._root(second)
            self._parents[max(one, other)] = min(one, other)

    def link_equal(self, values: np.ndarray) -> None:
        """Join all nodes with the same value: integers or strings [n], one for each node."""
        _, firsts, numbers = np.unique(values, return_index=True, return_inverse=True)
        self.link(np.arange(len(values)), firsts[numbers])

    def _root(self, node: int) -> int:
        parents = self._parents
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = int(parents[node])
        return node

    def numbers(self) -> np.ndarray:
        """int64 [n]: for each node the smallest node of its component."""
        roots = self._parents
        while (roots[roots] != roots).any():
            roots = roots[roots]
        self._parents = roots
        return roots.copy()
