"""The nodes of the tree under way, as a shard knows them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.split.numbers.hashing import child_paths
from dtrees.split.search.categories.marking import NodesByCategory


class NodeTable:
    """Where the nodes of the tree under way lie, and what is known of them. Grows as nodes are added."""

    def __init__(self, n_sums: int) -> None:
        self.start = np.zeros(64, np.int64)
        self.in_stop = np.zeros(64, np.int64)
        self.stop = np.zeros(64, np.int64)
        self.depth = np.zeros(64, np.int64)
        self.path = np.zeros(64, np.uint64)
        self.sums = np.zeros((64, n_sums), np.int64)

    def open(self, n_in: int, n_rows: int, path: np.uint64, sums: NDArray[np.int64]) -> None:
        """Begin another tree, whose root has all rows."""
        self.start[0], self.in_stop[0], self.stop[0], self.depth[0] = 0, n_in, n_rows, 0
        self.path[0], self.sums[0] = path, sums

    def divide(
        self,
        nodes: NDArray[np.int64],
        left: NDArray[np.int64],
        left_in_stop: NDArray[np.int64],
        left_stop: NDArray[np.int64],
        by_level: bool,
    ) -> None:
        """Add the children of nodes, but for their sums: ``left``, which end at these places, and right ones that come next to them.

        ``by_level`` is as of :class:`~dtrees.engine.plan.plans.Rules`.
        """
        right, n = left + 1, nodes.shape[0]
        self.reserve(int(right.max(initial=0)) + 1)
        start, in_stop, stop, path = self.start[nodes], self.in_stop[nodes], self.stop[nodes], self.path[nodes]
        self.start[left], self.in_stop[left], self.stop[left] = start, left_in_stop, left_stop
        self.start[right], self.in_stop[right], self.stop[right] = left_stop, left_stop + (in_stop - left_in_stop), stop
        self.depth[left] = self.depth[right] = self.depth[nodes] + 1
        self.path[left] = child_paths(path, np.zeros(n, np.int64))
        self.path[right] = child_paths(path, np.full(n, not by_level, np.int64))

    def apart(self, nodes: NDArray[np.int64]) -> tuple[NodeTable, NDArray[np.int64]]:
        """Return a table of some nodes alone, whose rows lie one node after the other there, and by how much each node's places grow.

        Node 0 of that table are all rows, whichever nodes they are of; the nodes come after it.
        """
        one, mine = NodeTable(self.sums.shape[1]), slice(1, nodes.shape[0] + 1)
        one.reserve(nodes.shape[0] + 1)
        stop = np.cumsum(self.stop[nodes] - self.start[nodes])
        moved = stop - self.stop[nodes]
        one.in_stop[0] = one.stop[0] = (self.stop[nodes] - self.start[nodes]).sum()
        one.start[mine], one.in_stop[mine], one.stop[mine] = self.start[nodes] + moved, self.in_stop[nodes] + moved, stop
        for name in ("depth", "path", "sums"):
            getattr(one, name)[mine] = getattr(self, name)[nodes]
        return one, moved

    def by_category(self, nodes: NDArray[np.int64], which: NDArray[np.int64], columns: NDArray[np.int32]) -> NodesByCategory:
        """Return what is to be known of nodes that are split by columns, some of them by categories."""
        return NodesByCategory(which, np.ascontiguousarray(columns), self.in_stop[nodes], self.sums[nodes], self.path[nodes])

    def reserve(self, n: int) -> None:
        """Make room for ``n`` nodes."""
        size = self.start.shape[0]
        if n > size:
            for name, array in vars(self).items():
                larger = np.zeros((max(n, 2 * size), *array.shape[1:]), array.dtype)
                larger[:size] = array
                setattr(self, name, larger)
