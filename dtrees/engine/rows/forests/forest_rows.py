"""The targets of the rows of one shard, in the trees of a forest: which rows each tree draws, and what leaves say of the others."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.plan.row_draws import combine_weights
from dtrees.engine.rows.forests.drawn_rows import OwnDraws
from dtrees.engine.rows.forests.messages import Drawn, ForestScales, Votes
from dtrees.engine.rows.row_target import AddsByLeaf
from dtrees.engine.shard.sample_sums import sums_of_classes
from dtrees.engine.shard.targets.forest_target import exponent_of_votes, without_absent
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import RowPartition
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import scale_into
from dtrees.split.search.column import find_pure

_NONE = np.empty(0, np.int64)


class ForestRows(AddsByLeaf):
    """The targets of a shard's rows.

    Parameters
    ----------
    plan : ForestPlan
    scales : ForestScales
    target, weight : ndarray
        Of the shard's rows.
    stretches : ndarray of int64, shape (n, 2)
    before : ndarray of int64, shape (n_groups, n)
        See :class:`~dtrees.engine.rows.forests.drawn_rows.OwnDraws`.
    threads : Threads

    Attributes
    ----------
    target : ndarray of float64, shape (n,)
        Nodes in which it is constant are leaves.
    in_sample : ndarray of bool, shape (n,), or None
        Which rows the tree under way learns from; None for all.
    unit_hessian : bool
        Whether all rows count the same, in all trees.
    """

    def __init__(
        self,
        plan: ForestPlan,
        scales: ForestScales,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        stretches: NDArray[np.int64],
        before: NDArray[np.int64],
        threads: Threads,
    ) -> None:
        super().__init__(threads)
        self._plan, self._scales = plan, scales
        self._weight = combine_weights(weight, plan.class_weight, target)
        if not plan.n_classes:  # rows of weight 0 may have targets beyond the scales
            target = without_absent(target, self._weight, scales.center)
        self.target = np.ascontiguousarray(target, np.float64)
        self._draws = None
        if scales.n_draws:
            self._draws = OwnDraws(scales, hashing.as_seed(plan.seed), stretches, before, target, self._weight)
        self.unit_hessian = self._draws is None and self._weight is None
        self.in_sample = None
        if self._draws is None and self._weight is not None and not self._weight.all():
            self.in_sample = self._weight > 0
        self._counts: NDArray[np.int64] = _NONE
        self._drawn_for = -1
        self._by_tree: NDArray[np.float64] | None = None  # weights of rows in the tree under way, where it has its own
        self._votes = Votes(_NONE.reshape(0, plan.n_values), _NONE)
        if plan.out_of_bag:
            self._votes = Votes(np.zeros((target.shape[0], plan.n_values), np.int64), np.zeros(target.shape[0], np.int64))

    def for_another_tree(self) -> ForestRows:
        """Return the same for a tree that grows beside this one; sums for rows out of bag are those of all."""
        other = copy.copy(self)
        other._drawn_for = -1
        return other

    def _draw(self, tree: int) -> None:
        """Draw the rows of a tree, if they are not."""
        if self._draws is not None and self._drawn_for != tree:
            self._counts, self._drawn_for = self._draws.counts(tree), tree
            self.in_sample = self._counts > 0

    @property
    def measured(self) -> NDArray[np.float64]:
        """What leaves are measured on, row by row."""
        return self.target

    def count_classes(self, tree: int) -> NDArray[np.int64]:
        """Draw the rows of a tree; return how many draws are of each class."""
        self._draw(tree)
        return np.bincount(self.target.astype(np.int64), self._counts, self._plan.n_classes).astype(np.int64)

    def draw(self, tree: int, factor: NDArray[np.float64] | None = None) -> Drawn:
        """Draw the rows of a tree; return the sum of the sizes of their targets, times their weights, and how many they are.

        ``factor`` is by how much the draws of each class count, if a tree weighs the classes of its own rows; weights are then summed, too.
        """
        self._draw(tree)
        n_in = self.target.shape[0] if self.in_sample is None else int(np.count_nonzero(self.in_sample))
        if factor is not None:
            by_tree = self._by_tree = self._counts * factor[self.target.astype(np.int64)]
            sums, largest = (float((self._centered() * by_tree).sum()), float(by_tree.sum())), (1.0, float(by_tree.max(initial=0.0)))
            return Drawn(sums, largest, n_in, bool((by_tree == np.rint(by_tree)).all()))
        weight = self._counts if self._draws is not None else self._weight
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = np.abs(self._centered())
            size = float(sizes.sum() if weight is None else (sizes * weight).sum())
        return Drawn((size,), (), n_in)

    def amounts(self, what: str, rows: slice) -> NDArray[np.float64]:
        """Return the weights of a stretch that the tree under way has of its own."""
        assert self._by_tree is not None
        return self._by_tree[rows]

    def _centered(self) -> NDArray[np.float64]:
        """Return targets about the center, or which rows are of the second class."""
        return self.target - self._scales.center

    def fix(self, exponents: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return targets, times weights, and weights in fixed point, in new memory."""
        if self._by_tree is not None:
            h = np.empty(self._by_tree.shape[0], np.int64)
            scale_into(self._by_tree, exponents[1], h)
            return self._of_class(h), h
        if self._plan.n_classes > 2 and (self._draws is not None or self._weight is None):
            return self.target.astype(np.int64), self._counts
        centered = self._centered()
        fixed, h = centered.view(np.int64), _NONE
        if self._draws is not None:
            scale_into(centered, exponents[0], fixed)
            fixed *= self._counts
            return fixed, self._counts
        if self._weight is not None:
            h = np.empty(fixed.shape[0], np.int64)
            scale_into(self._weight, exponents[1], h)
            if self._plan.n_classes:
                return self._of_class(h), h
            centered *= self._weight
        scale_into(centered, exponents[0], fixed)
        return fixed, h

    def _of_class(self, h: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what rows of some weights add to sums: their classes, or, of two, the weights of those of the second."""
        of_class = self.target.astype(np.int64)
        return of_class if self._plan.n_classes > 2 else of_class * h

    def many_sums(self, rows: RowPartition) -> NDArray[np.int64] | None:
        """Return the weights of classes of some rows, where there are more than two."""
        n_classes = self._plan.n_classes
        return sums_of_classes(rows, rows.rows.shape[0], n_classes) if n_classes > 2 else None

    def find_pure(
        self, rows: RowPartition, start: NDArray[np.int64], stop: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Tell which nodes have one target in all of the shard's rows, and return the target of the first row of each, NaN without any."""
        first, some = np.full(start.shape[0], np.nan), stop > start
        first[some] = self.target[rows.rows[start[some]]]
        pure = np.ones(start.shape[0], np.bool_)
        pure[some] = find_pure(self.target, rows.rows, start[some], stop[some])
        return pure, first

    def add_votes(self, rows: NDArray[np.uint32], leaf: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Add what leaves say of rows, which are out of sample, to the sums of these."""
        fixed = np.rint(np.ldexp(value, exponent_of_votes(self._scales.largest))).astype(np.int64)
        self._votes.sums[rows] += fixed[leaf]
        self._votes.counts[rows] += 1

    @property
    def votes(self) -> Votes:
        """The sums so far."""
        return self._votes


def pure_in_all(pure: list[NDArray[np.bool_]], first: list[NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Return which nodes have one target in the rows of all shards, given what each found of its own.

    Examples
    --------
    >>> yes, nan = np.array([True, True, True]), np.nan
    >>> pure_in_all([yes, yes], [np.array([1.0, 1.0, nan]), np.array([1.0, 2.0, 3.0])]).tolist()
    [True, False, True]
    """
    low, high = np.fmin.reduce(first), np.fmax.reduce(first)
    found: NDArray[np.bool_] = np.all(pure, axis=0) & ~(low < high)
    return found
