"""A plain full scan of presorted columns: the baseline of the worst cases, exact trees without pruned searches.

Every column is sorted once. A node's rows are stored in the order of every column, all of them are scanned for the best split by squared
error, and all are divided, stably, among its children (SPRINT: Shafer, Agrawal and Mehta, 1996). One thread; no missing values.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dtrees.split.numbers.fixed_point import exponent_for, scale_into

_ROW = np.uint64(0xFFFFFFFF)
_CODE = np.uint64(32)


def to_fixed(x: NDArray[np.float64], integral: bool = False) -> tuple[NDArray[np.int64], int]:
    """Return ``x`` in fixed point, and the exponent of the power of two that it was multiplied by."""
    exponent, out = exponent_for(x, integral), np.empty(x.shape[0], np.int64)
    scale_into(x, exponent, out)
    return out, exponent


def presort(X: NDArray[Any]) -> NDArray[np.uint64]:
    """Return, for each column, ``rank of the value << 32 | row`` in ascending order, shape (n_columns, n_rows)."""
    keys = np.empty(X.shape[::-1], np.uint64)
    for j in range(X.shape[1]):
        order = np.argsort(X[:, j])
        values = X[order, j]
        rank = np.concatenate([[0], np.cumsum(values[1:] != values[:-1])])
        keys[j] = rank.astype(np.uint64) << _CODE | order.astype(np.uint64)
    return keys


@njit(nogil=True, cache=True, error_model="numpy")
def best_split(keys, first, last, g, total, penalty):
    """Scan a node in all columns; return the column and the last place on the left of the best split, or -1, and its score.

    The score is that of :mod:`dtrees.split.criteria.squares`.
    """
    top = -1.0
    column = place = -1
    for j in range(keys.shape[0]):
        left = np.int64(0)
        for i in range(first, last - 1):
            left += g[keys[j, i] & _ROW]
            if keys[j, i] >> _CODE != keys[j, i + 1] >> _CODE:
                a = i + 1 - first + penalty
                b = last - 1 - i + penalty
                d = float(left) * b - float(total - left) * a
                score = d * d / (a * b)
                if score > top:
                    top, column, place = score, j, i
    return column, place, top


@njit(nogil=True, cache=True, error_model="numpy")
def divide(keys, first, last, column, place, goes_left, spare):
    """Divide a node's rows, in the order of every column."""
    for i in range(first, last):
        goes_left[keys[column, i] & _ROW] = i <= place
    for j in range(keys.shape[0]):
        left, right = first, 0
        for i in range(first, last):
            key = keys[j, i]
            side = goes_left[key & _ROW]
            keys[j, left] = key
            spare[right] = key
            left += side
            right += 1 - side
        for i in range(right):
            keys[j, left + i] = spare[i]


@njit(nogil=True, cache=True, error_model="numpy")
def grow(keys, g, y, max_depth, penalty, values):
    """Grow a tree on presorted keys, which are rearranged; write each row's leaf value, and return the number of leaves.

    ``g`` are numbers in fixed point. With a penalty a split must have a positive gain; otherwise nodes are split until pure in ``y``.
    """
    n = g.shape[0]
    goes_left = np.zeros(n, np.uint8)
    spare = np.empty(n, np.uint64)
    stack = [(0, n, 0)]
    n_leaves = 0
    while len(stack) > 0:
        first, last, depth = stack.pop()
        total = np.int64(0)
        value = y[keys[0, first] & _ROW]
        pure = True
        for i in range(first, last):
            total += g[keys[0, i] & _ROW]
            pure &= y[keys[0, i] & _ROW] == value
        size = float(last - first)
        column = -1
        if depth < max_depth and not pure:
            column, place, score = best_split(keys, first, last, g, total, penalty)
            node = float(total) * float(total)
            if penalty > 0.0 and score / (size + 2 * penalty) + node / (size + 2 * penalty) - node / (size + penalty) <= 0.0:
                column = -1
        if column < 0:
            n_leaves += 1
            for i in range(first, last):
                values[keys[0, i] & _ROW] = float(total) / (size + penalty)
            continue
        divide(keys, first, last, column, place, goes_left, spare)
        stack.append((place + 1, last, depth + 1))
        stack.append((first, place + 1, depth + 1))
    return n_leaves


class PlainTree:
    """A regression tree.

    Attributes
    ----------
    fitted_ : ndarray of float64, shape (n,)
        The value of each training row.
    n_leaves_ : int
    """

    def __init__(self, max_depth: int | None = None) -> None:
        self.max_depth = max_depth

    def fit(self, X: NDArray[Any], y: NDArray[np.float64]) -> Self:
        """Grow the tree."""
        self.fitted_ = np.empty(y.shape[0])
        mean = y.mean()
        g, exponent = to_fixed(y - mean)
        self.n_leaves_ = int(grow(presort(X), g, y, self.max_depth or y.shape[0], 0.0, self.fitted_))
        self.fitted_ = np.ldexp(self.fitted_, -exponent) + mean
        return self


class PlainBoosting:
    """Boosting of squared error; ``fitted_`` holds the predictions of the training rows."""

    def __init__(self, n_trees: int, max_depth: int = 6) -> None:
        self.n_trees, self.max_depth = n_trees, max_depth

    def fit(self, X: NDArray[Any], y: NDArray[np.float64]) -> Self:
        """Boost."""
        keys = presort(X)
        self.fitted_ = np.full(y.shape[0], y.mean())
        step = np.empty(y.shape[0])
        for _ in range(self.n_trees):
            residuals = y - self.fitted_
            g, exponent = to_fixed(residuals)
            grow(keys.copy(), g, residuals, self.max_depth, 1.0, step)
            self.fitted_ += 0.1 * np.ldexp(step, -exponent)
        return self
