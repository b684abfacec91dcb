"""The nodes of the tree under way, as a shard knows them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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

    def reserve(self, n: int) -> None:
        """Make room for ``n`` nodes."""
        size = self.start.shape[0]
        if n > size:
            for name, array in vars(self).items():
                larger = np.zeros((max(n, 2 * size), *array.shape[1:]), array.dtype)
                larger[:size] = array
                setattr(self, name, larger)
