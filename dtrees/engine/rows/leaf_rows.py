"""Values of leaves that are measured on rows spread over shards.

Means are sums of floats in row order, so each leaf must be summed in one place: every shard measures some of the leaves, and receives their
rows from all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.ending import measure_leaves
from dtrees.engine.plan.node_limits import criterion_of
from dtrees.engine.plan.plans import Rules
from dtrees.engine.protocol.messages import Measured
from dtrees.engine.rows.quantiles import Grouped
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import RowPartition

#: The number of rows of each leaf; then, leaf by leaf, the numbers of the rows in the table, their targets, and their weights if not all
#: are 1.
RowsOfLeaves = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float64], NDArray[np.int64]]


class LeafRows:
    """A shard's rows in sample, ordered by leaf.

    Parameters
    ----------
    node_of : ndarray of float64, shape (n_rows,)
        The leaf of each row, as a node number of the tree.
    leaves : ndarray of int64
        The node numbers of the tree's leaves, ascending.
    partition : RowPartition
        The partition of the rows in sample.
    """

    def __init__(self, node_of: NDArray[np.float64], leaves: NDArray[np.int64], partition: RowPartition) -> None:
        number = np.zeros(int(leaves[-1]) + 1, np.uint16 if leaves.shape[0] <= 2**16 else np.int64)
        number[leaves] = np.arange(leaves.shape[0])
        self._n, self._partition = leaves.shape[0], partition
        self._leaf_of = number[node_of.astype(np.int64)]
        self._order = np.argsort(self._leaf_of[partition.rows], kind="stable")  # places by leaf
        self._bounds = np.concatenate([[0], np.cumsum(np.bincount(self._leaf_of[partition.rows], minlength=self._n))])

    def grouped(self, residuals: NDArray[np.float64], weights: NDArray[np.int64]) -> Grouped:
        """Return the residuals of the rows, grouped by leaf; ``weights``, for all rows, is empty if all are 1."""
        rows = self._partition.rows[self._order]
        return Grouped(residuals[rows], weights[rows] if weights.shape[0] else weights, self._bounds)

    def rows_of(self, first: int, last: int, numbers: NDArray[np.uint32], target: NDArray[np.float64]) -> RowsOfLeaves:
        """Return the number of rows of each leaf in a range, and the numbers of these rows in the table, their targets, and their weights.

        ``numbers`` and ``target`` are for all rows of the shard.
        """
        places, h = self._order[self._bounds[first] : self._bounds[last]], self._partition.h
        rows = self._partition.rows[places]
        return np.diff(self._bounds[first : last + 1]), numbers[rows], target[rows], h[places] if h.shape[0] else h

    def weights(self, weights: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the total weight of the rows of each leaf."""
        return self._add_up(weights[self._partition.rows[self._order]]) if weights.shape[0] else np.diff(self._bounds)

    def sums(self, hessian: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of g and of a hessian, in fixed point, over the rows of each leaf, shape (n_leaves, 2)."""
        return np.stack([self._add_up(self._partition.g[self._order]), self._add_up(hessian[self._partition.rows[self._order]])], axis=1)

    def _add_up(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of values by leaf; the values are in the order of leaves."""
        total = np.append(0, np.cumsum(values))
        return total[self._bounds[1:]] - total[self._bounds[:-1]]

    def add_deviations(
        self,
        in_sample: NDArray[np.bool_] | None,
        residuals: NDArray[np.float64],
        weights: NDArray[np.int64],
        center: NDArray[np.float64],
        cut: float,
        totals: NDArray[np.float64],
        rows: slice,
    ) -> NDArray[np.float64]:
        """Add the clipped deviations of residuals from the centers of their leaves to the totals of leaves, row by row.

        ``rows`` selects some of the shard's rows; the other arrays have all of its rows.
        """
        totals, some = totals.copy(), slice(None) if in_sample is None else in_sample[rows]
        leaf = self._leaf_of[rows][some].astype(np.int64)
        deviations = np.minimum(np.maximum(residuals[rows][some] - center[leaf], -cut), cut)
        if weights.shape[0]:
            deviations *= weights[rows][some]
        np.add.at(totals, leaf, deviations)
        return totals


def share_leaves(n_samples: NDArray[np.int64], n_shards: int) -> NDArray[np.int64]:
    """Divide leaves among shards so that each measures about the same number of rows; return the bounds of each shard's range of leaves.

    Examples
    --------
    >>> share_leaves(np.array([3, 1, 1, 1, 4]), 2).tolist()
    [0, 3, 5]
    """
    ends = np.cumsum(n_samples)
    wanted = ends[-1] * np.arange(1, n_shards) // n_shards
    return np.concatenate([[0], np.searchsorted(ends - n_samples // 2, wanted, side="right"), [n_samples.shape[0]]]).astype(np.int64)


def measure_means(rules: Rules, sent: Sequence[tuple[NDArray[Any], ...]], threads: Threads) -> Measured:
    """Return the means and spreads of leaves, given their rows on each shard."""
    counts = np.stack([one[0] for one in sent])
    numbers, target, weight = (np.concatenate([one[i] for one in sent]) for i in range(1, 4))
    leaf = np.concatenate([np.repeat(np.arange(counts.shape[1]), own) for own in counts])
    order = np.lexsort((numbers, leaf))
    stop = np.cumsum(counts.sum(axis=0))
    h = weight[order] if weight.shape[0] else weight
    rows = RowPartition(np.arange(order.shape[0], dtype=np.uint32), h, h)
    return measure_leaves(rows, np.asfortranarray(target[order]), criterion_of(rules), stop - counts.sum(axis=0), stop, threads)
