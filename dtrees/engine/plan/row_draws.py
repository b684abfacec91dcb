"""Which rows the trees of a forest are grown on, as a function of the plan, the weights of the rows and the number of the tree."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import to_fixed

_NONE = np.empty(0, np.int64)


class RowDraws:
    """The rows that trees draw with replacement.

    Parameters
    ----------
    plan : ForestPlan
        One that has ``n_draws``.
    target : ndarray, shape (n_rows,) or (n_rows, n_targets)
        Numbers of classes if draws are balanced, which several targets do not allow; otherwise only its length counts.
    weight : ndarray of float64, shape (n_rows,), or None
        Rows are drawn in proportion to it; those of classes are multiplied by the classes' weights already.

    Attributes
    ----------
    exponent : int
        Of the power of two that weights are multiplied by.
    """

    def __init__(self, plan: ForestPlan, target: NDArray[Any], weight: NDArray[np.float64] | None) -> None:
        assert plan.n_draws is not None
        self._plan, self._n_rows = plan, target.shape[0]
        self._seed = hashing.as_seed(plan.seed)
        self._rows, self._first = _NONE, _NONE
        if plan.balanced_draws:
            rows = np.arange(self._n_rows) if weight is None else np.flatnonzero(weight)
            self._rows = rows[np.argsort(target[rows], kind="stable")]
            codes = target[self._rows]
            self._first = np.append(np.searchsorted(codes, np.unique(codes)), codes.shape[0])
            weight = None if weight is None else weight[self._rows]
        fixed, self.exponent = (_NONE, 0) if weight is None else to_fixed(weight)
        self._cumulative = np.cumsum(fixed)

    @property
    def n_each(self) -> int:
        """How often rows are drawn: of all, or of each class where draws are balanced."""
        assert self._plan.n_draws is not None
        return int(np.diff(self._first).min()) if self._plan.balanced_draws else self._plan.n_draws

    def points_before(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what rows before each of some come to, shape (n_groups, n): their number, or their weight in fixed point.

        It is those of a group that count, of which draws are made: of a class where these are balanced, else of all rows. A row number may
        be that after the last.
        """
        groups = [(0, self._n_rows)] if not self._plan.balanced_draws else pairwise(self._first.tolist())
        found = []
        for first, last in groups:
            place = rows if not self._plan.balanced_draws else np.searchsorted(self._rows[first:last], rows)
            if self._cumulative.shape[0]:
                sums = np.where(first + place > 0, self._cumulative[first + place - 1], 0)
                place = sums - (self._cumulative[first - 1] if first > 0 else 0)
            found.append(place)
        return np.array(found, np.int64)

    def counts(self, tree: int) -> NDArray[np.int64]:
        """Return how often a tree draws each row, shape (n_rows,)."""
        counts = np.zeros(self._n_rows, np.int64)
        if self._plan.balanced_draws:
            hashing.balanced_bootstrap_counts(self._seed, tree, self.n_each, self._rows, self._first, self._cumulative, counts)
        else:
            hashing.bootstrap_counts(self._seed, tree, self._plan.n_draws, self._cumulative, counts)
        return counts


def combine_weights(
    weight: NDArray[np.float64] | None, class_weight: tuple[Any, ...] | None, target: NDArray[Any]
) -> NDArray[np.float64] | None:
    """Multiply the rows' weights by the weights of their classes, of each target where there are several."""
    if class_weight is None:
        return weight
    if target.ndim == 2:
        for t, factors in enumerate(class_weight):
            weight = combine_weights(weight, factors, target[:, t])
        return weight
    by_class = np.asarray(class_weight, np.float64)[target]
    return by_class if weight is None else weight * by_class
