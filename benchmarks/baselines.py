"""The small baselines of the three published claims, written plainly: a tree in NumPy, a quadratic search, running medians."""

from __future__ import annotations

import heapq
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class NumpyTree:
    """A regression tree by array operations alone, all nodes of a level at once.

    Each column is sorted once; the order is then kept within nodes by a stable sort by node. ``fitted_`` holds the value of each
    training row.
    """

    def __init__(self, max_depth: int | None = None) -> None:
        self.max_depth = max_depth

    def fit(self, X: NDArray[Any], y: Floats) -> Self:
        """Grow the tree."""
        n = y.shape[0]
        orders = np.argsort(X, axis=0, kind="stable").T
        node = np.zeros(n, np.int64)
        n_nodes, depth = 1, 0
        self.fitted_ = np.empty(n)
        while n_nodes and orders.shape[1]:
            sizes = np.bincount(node[orders[0]], minlength=n_nodes)
            starts = np.cumsum(sizes) - sizes
            means = np.bincount(node[orders[0]], y[orders[0]], n_nodes) / sizes
            self.fitted_[orders[0]] = means[node[orders[0]]]
            if depth == self.max_depth:
                break
            column, place = _best_splits(X, y, orders, starts, sizes, means)
            # Dense numbers for the children; rows of nodes that stay leaves leave the orders.
            goes_right = np.zeros(n, np.bool_)
            for j in np.unique(column[column >= 0]):
                right = np.arange(orders.shape[1]) > np.repeat(place, sizes)
                right &= np.repeat(column == j, sizes)
                goes_right[orders[j][right]] = True
            split = column >= 0
            kept = orders[0][np.repeat(split, sizes)]
            number = np.cumsum(split) - 1
            stays = np.zeros(n, np.bool_)
            stays[kept] = True
            node[kept] = 2 * number[node[kept]] + goes_right[kept]
            n_nodes = 2 * int(split.sum())
            orders = np.array([order[stays[order]] for order in orders])
            orders = np.array([order[np.argsort(node[order], kind="stable")] for order in orders])
            depth += 1
        return self


def _best_splits(X: NDArray[Any], y: Floats, orders: NDArray[Any], starts: NDArray[Any], sizes: NDArray[Any], means: Floats) -> tuple:
    """Return, for each node, the column of its best split, -1 if it has none, and the place of the last row on its left."""
    m = orders.shape[1]
    best = np.zeros(sizes.shape[0])
    column = np.full(sizes.shape[0], -1)
    place = np.zeros(sizes.shape[0], np.int64)
    n_left = np.arange(1, m + 1) - np.repeat(starts, sizes)
    n_right = np.repeat(sizes, sizes) - n_left
    for j, order in enumerate(orders):
        total = np.cumsum(y[order] - np.repeat(means, sizes))  # centred in each node: sums begin and end at zero
        with np.errstate(divide="ignore", invalid="ignore"):
            score = total * total * (1.0 / n_left + 1.0 / n_right)
        x = X[order, j]
        allowed = n_right > 0
        allowed[:-1] &= x[1:] != x[:-1]
        score[~allowed] = -1.0
        top = np.maximum.reduceat(score, starts)
        better = top > np.maximum(best, 1e-12)
        at = np.flatnonzero(score == np.repeat(top, sizes))[::-1]
        first = np.zeros_like(place)
        first[np.repeat(np.arange(sizes.shape[0]), sizes)[at]] = at  # the last one written is the first in order
        best, column, place = np.where(better, top, best), np.where(better, j, column), np.where(better, first, place)
    return column, place


def quadratic_stump(X: NDArray[Any], y: Floats) -> tuple[int, float]:
    """Return column and threshold of the best split, with both sides summed anew for each row's value: O(n^2) a column."""
    best, found = np.inf, (-1, 0.0)
    for j in range(X.shape[1]):
        x = X[:, j]
        for value in x:
            goes_left = x <= value
            left, right = y[goes_left], y[~goes_left]
            if right.shape[0]:
                error = float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum())
                if error < best * (1 - 1e-12):
                    best, found = error, (j, float(value))
    return found


def sorted_stump(X: NDArray[Any], y: Floats) -> tuple[int, float]:
    """Return the same by sorting and running sums: O(n log n) a column."""
    n = y.shape[0]
    centred = y - y.mean()
    best, found = -1.0, (-1, 0.0)
    n_left = np.arange(1, n)
    for j in range(X.shape[1]):
        order = np.argsort(X[:, j])
        x = X[order, j]
        total = np.cumsum(centred[order])[:-1]
        score = np.where(x[1:] != x[:-1], total * total * (1.0 / n_left + 1.0 / (n - n_left)), -1.0)
        i = int(np.argmax(score))
        if score[i] > best * (1 + 1e-12):
            best, found = float(score[i]), (j, float(x[i]))
    return found


def medians_by_sorting(y: Floats) -> Floats:
    """Return the median of every prefix, each sorted anew."""
    return np.array([np.median(np.sort(y[:k])) for k in range(1, y.shape[0] + 1)])


def medians_by_heaps(y: Floats) -> Floats:
    """Return the same by two heaps: the lower half, largest first, and the upper half, smallest first."""
    lower: list[float] = []
    upper: list[float] = []
    medians = np.empty(y.shape[0])
    for k, value in enumerate(y.tolist()):
        heapq.heappush(lower, -heapq.heappushpop(upper, value))
        if len(lower) > len(upper):
            heapq.heappush(upper, -heapq.heappop(lower))
        medians[k] = upper[0] if len(upper) > len(lower) else (upper[0] - lower[0]) / 2
    return medians
