"""Move thresholds for tools that round to float32.

dtrees compares a value x with a threshold t in float64. A tool that casts to float32 compares f(x) with t, where f rounds to the nearest
float32. Both send a float32 the same way. Other values may be rounded across a threshold: for the values of a given table, the threshold
is moved between float32(a) and float32(b), where a and b are its values on both sides. If these are the same float32, no threshold
separates them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.interop.description import PlainModel, to_numbers
from dtrees.split.numbers.ordered import rounded_down
from dtrees.tree.tree import Tree


def last_rounded_below(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest float64 values that, rounded to float32, are not above thresholds, to compare unrounded values with.

    Examples
    --------
    >>> t = last_rounded_below(np.array([0.1]))
    >>> float(np.float32(t[0])) <= 0.1, float(np.float32(np.nextafter(t[0], 1))) <= 0.1
    (True, False)
    """
    low = rounded_down(threshold)
    high = np.nextafter(low, np.float32(np.inf))
    with np.errstate(invalid="ignore"):
        middle = (low.astype(np.float64) + high.astype(np.float64)) / 2  # exact: the two are neighbours
    # The midpoint is rounded to the even neighbour.
    moved = np.where(middle.astype(np.float32) <= low, middle, np.nextafter(middle, -np.inf))
    return np.where(np.isinf(high), np.inf, moved)


def thresholds_for(model: PlainModel, estimator: Any, X: Any, target: str) -> Callable[[Tree], NDArray[np.float64]]:
    """Return a function from a tree to its thresholds, moved such that a tool sends the rows of ``X``, if given, as dtrees does."""
    return (lambda tree: tree.threshold) if X is None else _Float32Table(model, to_numbers(estimator, X), target).thresholds


class _Float32Table:
    """A table whose rows a tool that rounds to float32 has to send as dtrees does.

    Parameters
    ----------
    model : PlainModel
    matrix : ndarray of float64 of shape (n, n_features)
        The table as numbers, as trees read them.
    target : str
        The tool, for messages.
    """

    def __init__(self, model: PlainModel, matrix: NDArray[np.float64], target: str) -> None:
        self._model, self._matrix, self._target = model, matrix, target
        self._values: dict[int, NDArray[np.float64]] = {}

    def _sorted(self, column: int) -> NDArray[np.float64]:
        """Return the distinct values of a column, ascending, without missing ones."""
        if column not in self._values:
            values = np.unique(self._matrix[:, column])
            self._values[column] = values[~np.isnan(values)]
        return self._values[column]

    def thresholds(self, tree: Tree) -> NDArray[np.float64]:
        """Return the thresholds of a tree, moved if rounded values would go to the wrong side.

        Raises
        ------
        ValueError
            If values on both sides of a threshold become the same float32; the message names the column.
        """
        moved = tree.threshold.copy()
        colliding: list[int] = []
        with np.errstate(over="ignore"):
            for column in np.unique(tree.feature[tree.feature >= 0]).tolist():
                values = self._sorted(column)
                nodes = np.flatnonzero((tree.feature == column) & np.isfinite(tree.threshold))
                place = np.searchsorted(values, tree.threshold[nodes], side="right")
                between = (place > 0) & (place < values.shape[0])
                nodes, place = nodes[between], place[between]
                low, high = (values[place - 1].astype(np.float32), values[place].astype(np.float32))
                moved[nodes] = _between(tree.threshold[nodes], low, high)
                colliding += nodes[low == high].tolist()
            if colliding:
                from dtrees.tree.predict import apply, packed_for

                leaves = apply(packed_for([tree], self._matrix.dtype), self._matrix)[:, 0]
                for node in colliding:
                    moved[node] = self._by_rows(tree, node, leaves)
        return moved

    def _by_rows(self, tree: Tree, node: int, leaves: NDArray[np.int32]) -> float:
        """Return the threshold of a node for its own rows only: equal rounded values may belong to other nodes."""
        column, threshold = int(tree.feature[node]), float(tree.threshold[node])
        values = self._matrix[:, column]
        end = node  # end of the subtree: nodes are in preorder
        while tree.children_left[end] >= 0:
            end = int(tree.children_right[end])
        here = (leaves >= node) & (leaves <= end) & ~np.isnan(values)
        left, right = values[here & (values <= threshold)], values[here & (values > threshold)]
        if not left.size or not right.size:
            lowest = np.float32(right.min(initial=np.inf))
            return float(np.float32(left.max())) if left.size else float(np.nextafter(lowest, np.float32(-np.inf)))
        a, b = float(left.max()), float(right.min())
        low, high = np.array([a], np.float32), np.array([b], np.float32)
        if low[0] == high[0]:
            raise ValueError(
                f"{self._model.column(column)} has the values {a!r} and {b!r} on both sides of a threshold, and {self._target} rounds both "
                f"to the float32 {low[0]!s}; scale or shift the column so that they differ, or use dtrees.to_onnx, dtrees.to_treelite or "
                "dtrees.to_jax, which compare in float64"
            )
        return float(_between(np.array([threshold]), low, high)[0])


def _between(threshold: NDArray[np.float64], low: NDArray[np.float32], high: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return thresholds t with low <= t < high, unchanged if they satisfy this."""
    below = np.nextafter(high, np.float32(-np.inf)).astype(np.float64)
    return np.where(low > threshold, low.astype(np.float64), np.where(high <= threshold, below, threshold))
