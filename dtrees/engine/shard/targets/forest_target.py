"""The values on which the trees of a forest are split: the targets of a table, on rows drawn for each tree.

A target covers all rows of a table, or some row ranges on a shard of rows. Values that depend on all rows, such as the scales of fixed
point, are inputs (:mod:`dtrees.engine.shard.targets.scales`). A target prepares each tree: the rows in sample, and the two integers per row
that are summed (see :mod:`dtrees.split.criteria.statistics`). These are a function of the plan and of the tree's number, so each shard
computes them itself and no vector is sent.

The number of classes determines the layout: moments for none and two (the two classes are one indicator), weights by class for three and
more. For multi-output targets, rows carry their row numbers, and the summands are stored separately (:mod:`dtrees.split.criteria.several`):
for numeric targets, the distance of each target from its mean, times the row's weight; otherwise class numbers.
"""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan, Weights
from dtrees.engine.plan.row_draws import RowDraws, combine_weights
from dtrees.engine.shard.targets.places import places_of
from dtrees.engine.shard.targets.scales import Derived, ForestRows, Prepared, find_forest_rows, weight_exponent, without_absent
from dtrees.split.compile.kernels import plain
from dtrees.split.node.partition import RowPartition
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import scale_into
from dtrees.split.search.column import find_pure

_NONE = np.empty(0, np.int64)


class ForestTarget:
    """Targets of independent trees.

    Parameters
    ----------
    plan : ForestPlan
    known : ForestRows
        The results computed from all rows, and those for these rows.
    target : ndarray, shape (n_rows,) or (n_rows, n_targets)
        The targets of these rows: numbers, or class numbers, which start from 0 for each target.
    weight : ndarray of float64, shape (n_rows,), or None
    ranges : ndarray of int64, shape (n, 2)
        The first row of each range, and the row after its last.

    Attributes
    ----------
    pure_by : ndarray of float64, shape (n_rows,)
        Nodes in which it is constant are leaves: the target of the table or, if multi-output, numbers that identify distinct rows of
        targets.
    by_target : ndarray
        The target of the table.
    in_sample : ndarray of bool, shape (n_rows,), or None
        The rows from which the current tree learns; None for all.
    added : ndarray of int64, shape (n_rows, n_targets) or (0, 0)
        The summands of rows in the current tree, for multi-output targets.
    """

    def __init__(self, plan: ForestPlan, known: ForestRows, target: NDArray[Any], weight: Weights, ranges: NDArray[np.int64]) -> None:
        self.plan, self.scales, self.keeps_out_of_sample = plan, known._replace(numbers=_NONE, codes=_NONE), plan.out_of_bag
        self.seed = hashing.as_seed(plan.seed)
        self.weight = combine_weights(weight, plan.class_weight, target)
        if not plan.n_classes:  # rows of weight 0 may have targets beyond the scales
            target = without_absent(target, self.weight, self.scales.center)
        self.by_target = target if plan.targets else plain(target.astype(np.float64, copy=False))
        self.pure_by = known.numbers.astype(np.float64) if plan.targets else self.by_target
        self._codes = known.codes if plan.targets else known.codes.reshape(-1)
        if plan.targets and plan.n_classes:
            self._codes = np.ascontiguousarray(target + first_classes(plan.targets), np.int64)
        self._draws = None
        if self.scales.drawing is not None:
            self._draws = RowDraws(self.scales.drawing, plan.seed, ranges, known.before, target, self.weight)
        self.in_sample = self.weight > 0 if self._draws is None and self.weight is not None and not self.weight.all() else None
        self.added = np.empty((0, 0), np.int64)
        self._counts, self._drawn_for = _NONE, -1
        self._by_tree: NDArray[np.float64] | None = None  # weights of rows, if they depend on the tree
        self.out_of_bag = OutOfBag(target.shape[0], plan.n_values, self.scales.vote_exponent) if plan.out_of_bag else None

    @classmethod
    def of_table(cls, plan: ForestPlan, target: NDArray[Any], weight: Weights) -> ForestTarget:
        """Return the targets of all rows of a table."""
        known = find_forest_rows(plan, target, weight, np.zeros(1, np.int64))
        return cls(plan, known, target, weight, np.array([[0, target.shape[0]]]))

    def for_another_tree(self) -> ForestTarget:
        """Return a copy for a tree that grows side by side with this one; out-of-bag sums are shared."""
        other = copy.copy(self)
        other._drawn_for = -1
        return other

    @property
    def unit_hessian(self) -> bool:
        """Whether all rows count the same, in all trees."""
        return self._draws is None and self.weight is None

    def start(self, tree: int, output: int) -> Prepared:
        """Draw the rows of a tree, for all rows of a table; several trees may be drawn concurrently."""
        one, exponents, plan = self.for_another_tree(), self.scales.exponents, self.plan
        one.draw(tree)
        if plan.balanced_subsample:
            one.weigh(factors_of_targets(one.count_classes(), plan.targets or (plan.n_classes,)))
            assert one._by_tree is not None
            exponents = (weight_exponent(one._by_tree),) * 2
        g, h = one.fix(exponents)
        if plan.targets:
            return Prepared(one.in_sample, g, h, exponents, self.pure_by, self.scales.levels, targets=one.added)
        return Prepared(one.in_sample, g, h, exponents, self.pure_by, self.scales.levels, spent=not self.scales.levels.shape[0])

    def draw(self, tree: int) -> None:
        """Draw the rows of a tree, if they are not drawn yet."""
        if self._draws is not None and self._drawn_for != tree:
            self._counts, self._drawn_for = self._draws.counts(tree), tree
            self.in_sample = self._counts > 0

    @property
    def codes(self) -> NDArray[np.int64]:
        """The class numbers, or the ranks of targets, which are numbered consecutively over all outputs."""
        return self._codes if self.plan.targets or self._codes.shape[0] else self.pure_by.astype(np.int64)

    def count_classes(self) -> NDArray[np.int64]:
        """Return the number of draws of each class, for each target, in the current tree."""
        codes = self.codes.T
        counts = np.broadcast_to(self._counts, codes.shape)
        return np.bincount(codes.ravel(), counts.ravel(), self.plan.n_classes).astype(np.int64)

    def weigh(self, factor: NDArray[np.float64]) -> None:
        """Multiply the draws of each class in the current tree by a factor; for multi-output targets, by the product of the factors."""
        self._by_tree = self._counts * np.prod(factor[np.atleast_2d(self.codes.T)], axis=0)

    def derived(self) -> Derived:
        """Return the statistics of these rows that determine the scales of fixed point.

        That is the sum of absolute targets, times weights; for multi-output targets, the largest of the sums. If a tree weighs classes by
        its own rows, the weights are those of the tree.
        """
        n_in = self.pure_by.shape[0] if self.in_sample is None else int(np.count_nonzero(self.in_sample))
        weight = self._by_tree if self._by_tree is not None else self.weight if self._draws is None else self._counts
        size = 0.0
        if not (self.plan.targets and self.plan.n_classes):
            with np.errstate(over="ignore", invalid="ignore"):
                sizes = np.abs(self._centered())
                size = float(np.max(sizes.sum(axis=0) if weight is None else weight @ sizes))
        if self._by_tree is None:
            return Derived((size,), (), n_in)
        integral = bool((self._by_tree == np.rint(self._by_tree)).all())
        return Derived((size, float(self._by_tree.sum())), (1.0, float(self._by_tree.max(initial=0.0))), n_in, integral)

    def amounts(self, what: str, rows: slice) -> NDArray[np.float64]:
        """Return the weights of some rows that the current tree has of its own."""
        assert self._by_tree is not None
        return self._by_tree[rows]

    def _centered(self) -> NDArray[np.float64]:
        """Return a copy of the targets with their center subtracted, or the class numbers."""
        return np.subtract(self.by_target, self.scales.center, order="C")

    def fix(self, exponents: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return targets, times weights, and weights in fixed point; for multi-output targets, row numbers in place of targets."""
        h = self._fixed_weights(exponents[1])
        added = self._fixed_targets(h, exponents[0])
        if not self.plan.targets:
            return added, h
        self.added = added
        return np.arange(added.shape[0]), h

    def _fixed_weights(self, exponent: int) -> NDArray[np.int64]:
        """Return the weights of rows in the current tree in fixed point; empty if each is 1."""
        if self._draws is not None and self._by_tree is None:
            return self._counts
        weight = self.weight if self._by_tree is None else self._by_tree
        if weight is None:
            return _NONE
        h = np.empty(weight.shape[0], np.int64)
        scale_into(weight, exponent, h)
        if self.scales.levels.shape[0]:
            np.maximum(h, weight > 0, out=h)
        return h

    def _fixed_targets(self, h: NDArray[np.int64], exponent: int) -> NDArray[np.int64]:
        """Return the summands of rows in fixed point, given their weights."""
        if self.scales.levels.shape[0]:
            return self._codes
        if self.plan.n_classes:
            codes = self.codes
            return codes * h if h.shape[0] and self.plan.n_classes <= 2 and not self.plan.targets else codes
        centered = self._centered()
        if self._draws is None and self.weight is not None:
            np.multiply(centered.T, self.weight, out=centered.T)
        fixed = centered.view(np.int64)
        scale_into(centered.reshape(-1), exponent, fixed.reshape(-1))
        if self._draws is not None:
            np.multiply(fixed.T, self._counts, out=fixed.T)
        return fixed

    def find_pure(
        self, rows: RowPartition, start: NDArray[np.int64], stop: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return which nodes have a constant target over these rows, and the target of the first row of each node, NaN if it has none."""
        first, some = np.full(start.shape[0], np.nan), stop > start
        first[some] = self.pure_by[rows.rows[start[some]]]
        pure = np.ones(start.shape[0], np.bool_)
        pure[some] = find_pure(self.pure_by, rows.rows, start[some], stop[some])
        return pure, first

    def state(self) -> list[NDArray[Any]]:
        """Return the sums of out-of-bag predictions."""
        return [] if self.out_of_bag is None else [self.out_of_bag.sum.T, self.out_of_bag.count]

    def add_votes(self, rows: NDArray[np.uint32], in_stop: NDArray[np.int64], stop: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Add the values of leaves to the sums of their rows out of sample."""
        assert self.out_of_bag is not None
        sizes = stop - in_stop
        self.out_of_bag.add(rows[places_of(in_stop, sizes)], np.arange(sizes.shape[0]).repeat(sizes), value)


class OutOfBag:
    """Sums, for each row, of the predictions of the trees that did not draw it, and the numbers of these trees.

    In fixed point, so that threads and workers may add them up in any order. Thread-safe.
    """

    def __init__(self, n_rows: int, n_values: int, exponent: int) -> None:
        self.exponent = exponent
        self.sum, self.count = np.zeros((n_rows, n_values), np.int64), np.zeros(n_rows, np.int64)
        self._lock = threading.Lock()

    def add(self, rows: NDArray[np.integer[Any]], leaf: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Add the values of the leaves to which rows out of sample belong."""
        fixed = np.rint(np.ldexp(value, self.exponent)).astype(np.int64)
        with self._lock:
            self.sum[rows] += fixed[leaf]
            self.count[rows] += 1


def first_classes(targets: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the number of the first class of each target, with classes numbered consecutively over all targets.

    Examples
    --------
    >>> first_classes((2, 3, 1)).tolist()
    [0, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(targets)[:-1]]).astype(np.int64)


def factors_of_targets(drawn: NDArray[Any], targets: tuple[int, ...]) -> NDArray[np.float64]:
    """Return factors for the draws of each class, given their numbers, that give all classes of a target the same weight.

    ``targets`` has the number of classes of each target.

    Examples
    --------
    >>> factors_of_targets(np.array([6, 2, 8]), (2, 1)).tolist()
    [0.6666666666666666, 2.0, 1.0]
    """
    of_targets = np.split(drawn, np.cumsum(targets)[:-1])
    return np.concatenate([np.where(n > 0, n.sum() / (np.count_nonzero(n) * np.maximum(n, 1)), 0.0) for n in of_targets])
