"""What leaves hold that are measured on their rows: a shard's share of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.rows.by_order.quantiles import Grouped
from dtrees.split.node.partition import RowPartition


class LeafRows:
    """The rows in sample of a shard by the leaf that they are in.

    Parameters
    ----------
    node_of : ndarray of float64, shape (n_rows,)
        The number of the leaf of each row, among the nodes of a tree.
    leaves : ndarray of int64
        The numbers of the tree's leaves, ascending.
    partition : RowPartition
        Of the rows in sample.
    """

    def __init__(self, node_of: NDArray[np.float64], leaves: NDArray[np.int64], partition: RowPartition) -> None:
        number = np.zeros(int(leaves[-1]) + 1, np.uint16 if leaves.shape[0] <= 2**16 else np.int64)
        number[leaves] = np.arange(leaves.shape[0])
        self._n, self._partition = leaves.shape[0], partition
        self._leaf_of = number[node_of.astype(np.int64)]
        self._order = np.argsort(self._leaf_of[partition.rows], kind="stable")  # places by leaf
        self._bounds = np.concatenate([[0], np.cumsum(np.bincount(self._leaf_of[partition.rows], minlength=self._n))])

    def grouped(self, residuals: NDArray[np.float64], weights: NDArray[np.int64]) -> Grouped:
        """Return residuals of the rows of each leaf; ``weights``, of all rows too, are empty where all are 1."""
        rows = self._partition.rows[self._order]
        return Grouped(residuals[rows], weights[rows] if weights.shape[0] else weights, self._bounds)

    def rows_of(
        self, first: int, last: int, numbers: NDArray[np.uint32], target: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float64], NDArray[np.int64]]:
        """Return how many rows some leaves have, and of these their numbers in the table, their targets, and their h.

        ``numbers`` and ``target`` are of all rows of the shard.
        """
        places, h = self._order[self._bounds[first] : self._bounds[last]], self._partition.h
        rows = self._partition.rows[places]
        return np.diff(self._bounds[first : last + 1]), numbers[rows], target[rows], h[places] if h.shape[0] else h

    def weights(self, weights: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what the rows of each leaf weigh."""
        if not weights.shape[0]:
            return np.diff(self._bounds)
        total = np.append(0, np.cumsum(weights[self._partition.rows[self._order]]))
        return total[self._bounds[1:]] - total[self._bounds[:-1]]

    def sums(self, hessian: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of g and of a hessian, in fixed point, of the rows of each leaf, shape (n_leaves, 2)."""
        g, h = self._partition.g[self._order], hessian[self._partition.rows[self._order]]
        total = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(np.stack([g, h], axis=1), axis=0)])
        return total[self._bounds[1:]] - total[self._bounds[:-1]]

    def add_deviations(
        self,
        rows: slice,
        in_sample: NDArray[np.bool_] | None,
        residuals: NDArray[np.float64],
        weights: NDArray[np.int64],
        center: NDArray[np.float64],
        cut: float,
        totals: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Add to the totals of leaves how far residuals are from their centers, cut off, row by row in their order.

        ``rows`` are some of the shard's; other arrays are of all of its rows.
        """
        totals, some = totals.copy(), slice(None) if in_sample is None else in_sample[rows]
        leaf = self._leaf_of[rows][some].astype(np.int64)
        deviations = np.minimum(np.maximum(residuals[rows][some] - center[leaf], -cut), cut)
        if weights.shape[0]:
            deviations *= weights[rows][some]
        np.add.at(totals, leaf, deviations)
        return totals
