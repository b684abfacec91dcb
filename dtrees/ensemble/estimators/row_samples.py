"""The rows that trees of a forest were grown on, and what columns matter to the rows that they were not grown on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dtrees.engine.plan.plans import ForestPlan
from dtrees.ensemble.backend import Table
from dtrees.ensemble.prediction import AdditiveTrees
from dtrees.tree.tree import Tree


@dataclass(frozen=True, eq=False)
class SampleSource:
    """What the draws of a batch of trees follow from, besides its plan.

    Attributes
    ----------
    n_rows : int
    target : ndarray of shape (n_rows,) or (n_rows, n_targets), or None
        Numbers of classes, where rows are drawn by them.
    weight : ndarray of float64 of shape (n_rows,) or None
        The weights of rows, where they are drawn by them.
    """

    n_rows: int
    target: NDArray[Any] | None = None
    weight: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, table: Table, plan: ForestPlan) -> Self | None:
        """Return the source of a plan's draws from a table; None if it is not in this process."""
        if plan.n_draws is None:
            return cls(table.n_rows)
        by_class = plan.balanced_draws or plan.class_weight is not None
        target, weight = table.target if by_class else None, table.weight
        if any(part is not None and not isinstance(part, np.ndarray) for part in (target, weight)):
            return None
        return cls(table.n_rows, target, weight)

    def is_same(self, other: Self) -> bool:
        """Tell whether draws of the same plan are the same from another source."""
        return all(np.array_equal(mine, theirs) for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True))

    def rows(self, plan: ForestPlan, first: int, last: int) -> list[NDArray[np.integer]]:
        """Return the rows of trees, as often as they were drawn, ascending."""
        numbers: NDArray[np.integer] = np.arange(self.n_rows, dtype=np.int32 if self.n_rows < 2**31 else np.int64)
        if plan.n_draws is None:
            return [numbers] * (last - first)
        from dtrees.engine.plan.row_draws import RowDraws, combine_weights  # brings in the compiler

        target = numbers if self.target is None else self.target
        draws = RowDraws.of_table(plan, target, combine_weights(self.weight, plan.class_weight, target))
        return [np.repeat(numbers, draws.counts(tree)) for tree in range(first, last)]


def permutation_importances(
    trees: Sequence[Tree],
    samples: Sequence[NDArray[np.integer]],
    X: Any,
    y: NDArray[Any],
    n_jobs: int | None,
    seed: int,
    ends: NDArray[np.integer],
) -> NDArray[np.float64]:
    """Return how much worse trees predict rows that they did not draw, if the values of a column change places among these.

    Parameters
    ----------
    trees : sequence of Tree
    samples : sequence of ndarray of int
        The rows that each was grown on.
    X : ndarray or SparseRows of shape (n, n_features)
    y : ndarray of shape (n,) or (n, n_targets)
        Numbers of classes (of an integer type), or targets.
    n_jobs : int or None
    seed : int
        How values change places follows from it, the number of the tree and the column.
    ends : ndarray of int
        Where the classes of each of several targets but the last end, among those of all.

    Returns
    -------
    ndarray of float64 of shape (n_features,)
        The mean over trees that have rows out of bag of the increase of the error rate, or of the mean squared error.
    """
    total, n_trees = np.zeros(X.shape[1]), 0
    for number, (tree, drawn) in enumerate(zip(trees, samples, strict=True)):
        outside = np.setdiff1d(np.arange(X.shape[0]), drawn)
        if not outside.size:
            continue
        n_trees += 1
        columns = np.unique(tree.feature[tree.feature >= 0])
        if not columns.size:
            continue
        of_columns = replace(
            tree, feature=np.where(tree.feature < 0, tree.feature, np.searchsorted(columns, tree.feature)).astype(np.int32)
        )
        alone, rows, truth = AdditiveTrees([[of_columns]]), _cells(X, outside, columns), y[outside]
        error = _error(alone.raw(rows, n_jobs), truth, ends)
        for j, column in enumerate(columns):
            values = rows[:, j].copy()
            rows[:, j] = np.random.default_rng([seed, number, column]).permutation(values)
            total[column] += _error(alone.raw(rows, n_jobs), truth, ends) - error
            rows[:, j] = values
    return total / max(n_trees, 1)


def _cells(X: Any, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> NDArray[Any]:
    """Return some rows and columns of a table, dense."""
    if isinstance(X, np.ndarray):
        return X[np.ix_(rows, columns)]
    cells: NDArray[Any] = csr_array((X.data, X.columns, X.starts), X.shape)[rows][:, columns].toarray()
    return cells


def _error(predicted: NDArray[np.float64], truth: NDArray[Any], ends: NDArray[np.integer]) -> float:
    if truth.dtype.kind == "f":
        return float(np.mean((predicted - truth.reshape(predicted.shape)) ** 2))
    labels = np.stack([shares.argmax(axis=1) for shares in np.split(predicted, ends, axis=1)], axis=1)
    return float(np.mean(labels != truth.reshape(labels.shape)))
