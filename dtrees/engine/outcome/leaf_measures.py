"""Values of nodes that their sums do not give: means, quantiles and spreads, measured on the targets of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Measured
from dtrees.engine.threads import Threads
from dtrees.split.criteria.criterion import Criterion
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import leaf_means
from dtrees.split.search.deviations import node_quantiles


def measure_leaves(
    rows: RowPartition, labels: NDArray[Any], criterion: Criterion, start: NDArray[np.int64], stop: NDArray[np.int64], threads: Threads
) -> Measured:
    """Return the mean targets of leaves, and their impurities by the criterion, times their weights: means over several targets.

    Of ``rows``, g is not looked at; leaf i has those at the places ``start[i]:stop[i]``.
    """
    if labels.ndim == 2:
        return _together([measure_leaves(rows, labels[:, t], criterion, start, stop, threads) for t in range(labels.shape[1])])
    n, value = start.shape[0], criterion.for_kernels(0, 0.0)
    mean, spread = np.empty(n), np.empty(n)
    bounds = np.linspace(0, n, min(n, 4 * threads.n_threads) + 1).astype(np.int64)

    def measure(i: int) -> None:
        s = slice(bounds[i], bounds[i + 1])
        leaf_means(value, rows.rows, rows.h, labels, start[s], stop[s], mean[s], spread[s])

    threads.map(measure, range(bounds.shape[0] - 1))
    return Measured(mean, spread)


def measure_nodes(
    rows: RowPartition,
    labels: NDArray[Any],
    targets: NDArray[np.int64] | None,
    criterion: Criterion,
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    start: NDArray[np.int64],
    in_stop: NDArray[np.int64],
) -> Measured:
    """Return the quantiles of the targets of all nodes of a tree in preorder, and the weighted sums of deviations from these.

    ``left`` and ``right`` are the numbers of the children, -1 for leaves; only leaves need ``start`` and ``in_stop``.
    ``targets`` are the numbers of several targets among all, shape (n_rows, n_targets); the sums are means over these then.
    """
    if targets is not None:
        by_target = []
        for t in range(targets.shape[1]):
            numbered = rows._replace(g=np.ascontiguousarray(targets[rows.rows, t]))
            by_target.append(measure_nodes(numbered, labels[:, t], None, criterion, left, right, start, in_stop))
        return _together(by_target)
    n, value = start.shape[0], criterion.for_kernels(0, 0.0)
    quantile, spread = np.empty(n), np.empty(n)
    node_quantiles(value, rows, labels, left, right, start, in_stop, quantile, spread)
    return Measured(quantile, spread)


def _together(by_target: list[Measured]) -> Measured:
    """Return what was measured of each target, side by side, and the mean of their spreads."""
    centers, spreads = zip(*by_target, strict=True)
    return Measured(np.stack(centers, axis=1), np.sum(spreads, axis=0) / len(spreads))
