"""What the rows of a tree are to be split on.

A target belongs to a shard and prepares each tree: which rows are in sample, and the two integers a row that are summed (see
:mod:`dtrees.split.criteria.statistics` for what they are). Everything here is a function of the plan, the table's own rows and the identity
of the tree, so each shard computes it for itself and no vector travels.

The number of classes decides the layout: none and two are moments (two classes are one, "is it class 1?"), three and more are kept by
class. Of several targets, rows carry their numbers, and what they add to the sums is kept beside (:mod:`dtrees.split.criteria.several`).
"""

from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import criterion_of
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.plan.row_draws import RowDraws, combine_weights
from dtrees.engine.protocol.messages import Finish
from dtrees.engine.shard.targets.places import places_of
from dtrees.split.compile.kernels import plain
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.criterion import Criterion
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import exponent_for, mean_of, scale_into, to_fixed
from dtrees.split.search.order_statistics.deviations import MOST_WEIGHT, levels_of, weights_in_bits
from dtrees.split.table.columns import presort_column

_NONE = np.empty(0, np.int64)
_NO_TARGET = np.empty(0, np.float64)


class Prepared(NamedTuple):
    """What one tree is grown on, by row number.

    Attributes
    ----------
    in_sample : ndarray of bool, shape (n_rows,), or None
        None: all rows.
    g, h : ndarray of int64, shape (n_rows,)
        ``h`` is empty where every weight is 1.
    exponents : tuple of int
        The powers of two that ``g`` and ``h`` were multiplied by.
    pure_by : ndarray of float64, shape (n_rows,) or (0,)
        Nodes in which this is constant are leaves.
    levels : ndarray of int64, shape (n_targets,) or (0,)
        For absolute error and quantiles, where ``g`` are the numbers of targets: the targets in fixed point
        (:mod:`dtrees.split.search.order_statistics.deviations`).
    spent : bool
        Whether ``g`` and ``h`` were made for this tree, which may overwrite them, until the next tree.
    totals : tuple or None
        What all rows add up to (:func:`~dtrees.split.numbers.fixed_point.add_up`), if that is known already.
    targets : ndarray of int64, shape (n_rows, n_targets), or None
        Several targets (:class:`~dtrees.engine.plan.node_limits.Targets`); then ``g`` are the numbers of the rows.
    """

    in_sample: NDArray[np.bool_] | None
    g: NDArray[np.int64]
    h: NDArray[np.int64]
    exponents: tuple[int, int]
    pure_by: NDArray[np.float64]
    levels: NDArray[np.int64] = _NONE
    spent: bool = False
    totals: tuple[int, int, int, float] | None = None
    targets: NDArray[np.int64] | None = None


class Target(Protocol):
    """The targets of a fit: what each tree is to learn, and what the finished trees left behind."""

    keeps_out_of_sample: bool  # rows out of sample are routed through the tree

    def start(self, tree: int, output: int) -> Prepared:
        """Prepare a tree that is to improve one of the raw predictions."""

    def state(self) -> list[NDArray[Any]]:
        """Return what the finished trees left behind: arrays, to be read or written, whose last axis are the rows."""

    def finish(self, output: int, rows: NDArray[np.uint32], leaves: Finish) -> None:
        """Take the leaf values of the tree, whose row partition is ``rows``."""


class ForestTarget:
    """Targets of independent trees: the table's own, on rows drawn for each tree."""

    def __init__(self, plan: ForestPlan, target: NDArray[Any], weight: NDArray[np.float64] | None) -> None:
        self.plan = plan
        self.seed = hashing.as_seed(plan.seed)
        self.n_rows = target.shape[0]
        self.weight = combine_weights(weight, plan.class_weight, target)
        if not plan.n_classes:
            target = without_absent(target, self.weight)
        self.out_of_bag = OutOfBag(plan, target) if plan.out_of_bag else None
        self.keeps_out_of_sample = plan.out_of_bag
        self._levels = _NONE
        self._factor = 1
        self.center = 0.0
        criterion = criterion_of(plan.rules)
        self.target = plain(target.astype(np.float64, copy=False))
        if plan.n_classes:
            self.codes = np.ascontiguousarray(target, np.int64)
            self.exponent = 0
        elif criterion.row_statistic == "rank":
            self._prepare_levels(criterion)
        else:
            counted = rows_that_count(self.target, self.weight)
            criterion.check(counted)
            mean = mean_of(counted)
            self.center = mean if criterion.row_statistic == "target" and math.isfinite(mean) else 0.0
            largest = max(float(self.target.max()) - self.center, self.center - float(self.target.min()))
            # Weights are counts here (or 1): the sum of drawn targets is below draws * max.
            bound = max(plan.n_draws or 0, counted.shape[0]) * largest
            self.exponent = 0 if bound == 0.0 else 61 - math.frexp(bound)[1]
            if not math.isfinite(bound):
                self.exponent = exponent_for(self.target - self.center)
        self.draws = None if plan.n_draws is None else RowDraws(plan, target, self.weight)
        self._fixed: Prepared | None = None
        if plan.n_draws is None and (self.weight is not None or self._keeps_codes):
            self._fixed = self._weighted(self.weight)

    def _prepare_levels(self, criterion: Criterion) -> None:
        """Number the distinct targets, and put them in fixed point."""
        self._factor = cast(Deviations, criterion.for_kernels(0, 0.0)).largest
        codes, distinct = presort_column(self.target)
        self.codes = codes.astype(np.int64)
        total_weight = self.plan.n_draws or self.n_rows
        if self.plan.n_draws is None and self.weight is not None:
            total_weight = int(weights_in_bits(self.weight, self._factor)[0].sum())
        check_order(self.plan, total_weight, self._factor)
        self._levels, self.exponent = levels_of(distinct, total_weight * self._factor)

    @property
    def _keeps_codes(self) -> bool:
        """Whether ``codes`` are kept: classes, or the numbers of targets; otherwise targets are put in fixed point for each tree."""
        return self.plan.n_classes > 0 or self._levels.shape[0] > 0

    @property
    def exponents(self) -> tuple[int, int]:
        """The powers of two that ``g`` and ``h`` of every tree are multiplied by, unless classes are weighed for each tree."""
        return (self.exponent, 0) if self._fixed is None else self._fixed.exponents

    def _in_fixed_point(self) -> NDArray[np.int64]:
        """Return the centred targets in fixed point, in new memory."""
        centered = self.target - self.center
        fixed = centered.view(np.int64)
        scale_into(centered, self.exponent, fixed)
        return fixed

    def start(self, tree: int, output: int) -> Prepared:
        """Draw the rows of a tree."""
        if self._fixed is not None:
            return self._fixed
        if self.draws is None:
            return Prepared(None, self._in_fixed_point(), _NONE, (self.exponent, 0), self.target, spent=True)
        counts = self.draws.counts(tree)
        if self.plan.balanced_subsample:
            factor = factors_of_classes(np.bincount(self.codes, weights=counts, minlength=self.plan.n_classes))
            return self._weighted(counts * factor[self.codes])
        in_sample = counts > 0
        if self.plan.n_classes > 2:
            return Prepared(in_sample, self.codes, counts, (0, 0), self.target)
        if self._levels.shape[0]:
            return Prepared(in_sample, self.codes, counts, (self.exponent, 0), self.target, self._levels)
        a = self.codes * counts if self._keeps_codes else self._in_fixed_point()
        if not self._keeps_codes:
            a *= counts
        return Prepared(in_sample, a, counts, (self.exponent, 0), self.target, spent=True)

    def _weighted(self, weight: NDArray[np.float64] | None) -> Prepared:
        """Prepare all rows with given weights; those of weight zero are out of sample."""
        if weight is None:
            return Prepared(None, self.codes, _NONE, (self.exponent, 0), self.target, self._levels)
        in_sample = None if weight.all() else weight > 0
        if self._levels.shape[0]:
            b, exponent = weights_in_bits(weight, self._factor)
            return Prepared(in_sample, self.codes, b, (self.exponent, exponent), self.target, self._levels)
        b, exponent = to_fixed(weight, integral=bool((weight == np.rint(weight)).all()))
        if self.plan.n_classes > 2:
            return Prepared(in_sample, self.codes, b, (0, exponent), self.target)
        if self.plan.n_classes:
            return Prepared(in_sample, self.codes * b, b, (exponent, exponent), self.target)
        with np.errstate(over="ignore"):
            weighted = weight * (self.target - self.center)
        if not np.isfinite(weighted).all():
            raise ValueError("sample_weight times y is beyond the range of float64; divide sample_weight by a constant, it changes no tree")
        a, a_exponent = to_fixed(weighted)
        return Prepared(in_sample, a, b, (a_exponent, exponent), self.target)

    def state(self) -> list[NDArray[Any]]:
        """Return the sums of out-of-bag predictions."""
        return [] if self.out_of_bag is None else [self.out_of_bag.sum.T, self.out_of_bag.count]

    def finish(self, output: int, rows: NDArray[np.uint32], leaves: Finish) -> None:
        """Add the tree's predictions to the sums of the rows it did not draw."""
        if self.out_of_bag is not None:
            self.out_of_bag.add(rows, leaves)


def rows_that_count(target: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[Any]:
    """Return the targets of the rows of a weight above 0."""
    return target if weight is None or weight.all() else target[weight > 0]


def without_absent(target: NDArray[Any], weight: NDArray[np.float64] | None, instead: Any = None) -> NDArray[Any]:
    """Return targets of which those of rows of weight 0 are replaced, by default by the first that counts: no scale depends on them."""
    if weight is None or weight.all():
        return target
    instead = target[np.argmax(weight > 0)] if instead is None else instead
    return np.where((weight > 0)[(...,) + (None,) * (target.ndim - 1)], target, instead)


def factors_of_classes(drawn: NDArray[Any]) -> NDArray[np.float64]:
    """Return by what to multiply the draws of each class, of which there are so many, for all classes to weigh the same.

    Examples
    --------
    >>> factors_of_classes(np.array([6, 0, 2])).tolist()
    [0.6666666666666666, 0.0, 2.0]
    """
    found: NDArray[np.float64] = np.where(drawn > 0, drawn.sum() / (np.count_nonzero(drawn) * np.maximum(drawn, 1)), 0.0)
    return found


def check_order(plan: ForestPlan, total_weight: int, factor: int) -> None:
    """Raise ValueError if deviations that count up to ``factor`` times are too many to be added up exactly."""
    if total_weight * factor > MOST_WEIGHT:
        raise ValueError(
            f"{total_weight:,} rows are too many for criterion={plan.rules.criterion!r} with alpha={plan.rules.alpha}, whose "
            f"deviations count up to {factor} times; wants a fraction of a smaller denominator, such as alpha=0.9"
        )


def largest_vote(plan: ForestPlan, target: NDArray[Any]) -> float:
    """Return what no leaf says more than, in size."""
    return 1.0 if plan.n_classes else float(np.abs(target).max(initial=0.0)) or 1.0


def exponent_of_votes(largest: float) -> int:
    """Return the power of two that what leaves say of rows out of bag is multiplied by, given the largest."""
    return 40 - math.frexp(largest)[1]  # for up to 2**22 trees


class OutOfBag:
    """Sums, for each row, of the predictions of the trees that did not draw it.

    In fixed point, so that threads and workers may add them up in any order. May be shared by threads.
    """

    def __init__(self, plan: ForestPlan, target: NDArray[Any]) -> None:
        n_values = plan.n_values
        self.exponent = exponent_of_votes(largest_vote(plan, target))
        self.sum = np.zeros((target.shape[0], n_values), np.int64)
        self.count = np.zeros(target.shape[0], np.int64)
        self._lock = threading.Lock()

    def add(self, rows: NDArray[np.uint32], leaves: Finish) -> None:
        """Add the leaf values of one tree to the sums of its rows out of sample."""
        fixed = np.rint(np.ldexp(leaves.value, self.exponent)).astype(np.int64)
        sizes = leaves.stop - leaves.in_stop
        places = places_of(leaves.in_stop, sizes)
        with self._lock:
            self.sum[rows[places]] += np.repeat(fixed, sizes, axis=0)
            self.count[rows[places]] += 1
