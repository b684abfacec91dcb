"""The means of leaves: floats, which are added up in the order of rows, so that each leaf's are put together in one place.

A shard measures some of the leaves, and all others send it their rows in these: a row's number, its target and its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import criterion_of
from dtrees.engine.plan.plans import Rules
from dtrees.split.node.records import leaf_means

#: Of each leaf how many rows, then of the rows, leaf by leaf: their numbers in the table, targets, and weights, if not all are 1.
RowsOfLeaves = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float64], NDArray[np.int64]]


class LeafMeans(NamedTuple):
    """Of each leaf that the shard has measured, in their order: the mean of each target, shape (n, n_targets), and the spread."""

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]


def share_leaves(n_samples: NDArray[np.int64], n_shards: int) -> NDArray[np.int64]:
    """Return which leaves each shard measures, so that each has about as many rows: where the leaves of each begin, and the last ones end.

    Examples
    --------
    >>> share_leaves(np.array([3, 1, 1, 1, 4]), 2).tolist()
    [0, 3, 5]
    """
    ends = np.cumsum(n_samples)
    wanted = ends[-1] * np.arange(1, n_shards) // n_shards
    return np.concatenate([[0], np.searchsorted(ends - n_samples // 2, wanted, side="right"), [n_samples.shape[0]]]).astype(np.int64)


def measure_means(rules: Rules, sent: Sequence[tuple[NDArray[Any], ...]]) -> LeafMeans:
    """Return the means of leaves, and their spreads, given the rows that each shard has in them; of several targets, means of these."""
    counts = np.stack([one[0] for one in sent])
    numbers, target, weight = (np.concatenate([one[i] for one in sent]) for i in range(1, 4))
    leaf = np.concatenate([np.repeat(np.arange(counts.shape[1]), own) for own in counts])
    order = np.lexsort((numbers, leaf))
    stop = np.cumsum(counts.sum(axis=0))
    start, places = stop - counts.sum(axis=0), np.arange(order.shape[0], dtype=np.uint32)
    value, h, target = criterion_of(rules).for_kernels(0, 0.0), weight[order] if weight.shape[0] else weight, target[order]
    means, spreads = [], []
    for y in [target] if target.ndim == 1 else np.ascontiguousarray(target.T):
        mean, spread = np.empty(stop.shape[0]), np.empty(stop.shape[0])
        leaf_means(value, places, h, y, start, stop, mean, spread)
        means.append(mean)
        spreads.append(spread)
    return LeafMeans(np.stack(means, axis=1), spreads[0] if len(spreads) == 1 else np.sum(spreads, axis=0) / len(spreads))
