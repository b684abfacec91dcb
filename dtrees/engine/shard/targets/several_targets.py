"""What the rows of a tree are to be split on where there are several targets, which each tree learns together.

A row carries its number, and kernels find by it what it adds to the sums (:mod:`dtrees.split.criteria.several`): of numbers, each target's
distance from its mean, times the row's weight; of classes, the numbers of these. All targets have one scale, that of the widest, as their
gains are added up: a target whose values differ by a millionth of another's has 20 bits less.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import criterion_of
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.plan.row_draws import RowDraws, combine_weights
from dtrees.engine.shard.targets.forest_target import (
    ForestTarget,
    OutOfBag,
    Prepared,
    check_order,
    factors_of_classes,
    rows_that_count,
    without_absent,
)
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.criterion import Criterion
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import exponent_for, mean_of, scale_into, to_fixed
from dtrees.split.search.order_statistics.deviations import levels_of_several, weights_in_bits
from dtrees.split.table.columns import presort_column

_NONE = np.empty(0, np.int64)


class ForestTargets(ForestTarget):
    """Several targets of independent trees, of shape (n_rows, n_targets): numbers, or the numbers of classes, from 0 for each target."""

    def __init__(self, plan: ForestPlan, target: NDArray[Any], weight: NDArray[np.float64] | None) -> None:
        self.plan = plan
        self.seed = hashing.as_seed(plan.seed)
        self.n_rows = target.shape[0]
        self.weight = combine_weights(weight, plan.class_weight, target)
        if self.weight is not None and not self.weight.any():
            raise ValueError("class_weight leaves no row with a weight above 0; wants classes of all targets above 0 that some row has")
        if not plan.n_classes:
            target = without_absent(target, self.weight)
        self.out_of_bag = OutOfBag(plan, target) if plan.out_of_bag else None
        self.keeps_out_of_sample = plan.out_of_bag
        self.target = numbered(target)
        self._levels = _NONE
        self._numbers = np.arange(self.n_rows, dtype=np.int64)
        self.exponent = 0
        self.center: Any = 0.0
        self._factor = 1
        criterion = criterion_of(plan.rules)
        self.draws = None if plan.n_draws is None else RowDraws(plan, target, self.weight)
        if plan.n_classes:
            self.codes = np.ascontiguousarray(target + first_classes(plan.targets), np.int64)
        elif criterion.row_statistic == "rank":
            self._prepare_levels_of(target, criterion)
        else:
            counted = rows_that_count(target, self.weight)
            for t in range(target.shape[1]):
                criterion.check(counted[:, t])
            if criterion.row_statistic == "target":
                means = np.array([mean_of(counted[:, t]) for t in range(target.shape[1])])
                self.center = means if np.isfinite(means).all() else 0.0
            self._prepare_amounts(target, counted.shape[0])
        self._fixed = self._weighted(self.weight) if self.draws is None else None

    def _prepare_levels_of(self, target: NDArray[Any], criterion: Criterion) -> None:
        """Number the distinct values of all targets through, and put them in fixed point of one scale."""
        self._factor = cast(Deviations, criterion.for_targets()).largest
        presorted = [presort_column(np.ascontiguousarray(target[:, t])) for t in range(target.shape[1])]
        first = np.cumsum([0, *(distinct.shape[0] for _, distinct in presorted)])
        self.codes = np.stack([codes + first[t] for t, (codes, _) in enumerate(presorted)], axis=1).astype(np.int64)
        total_weight = self.plan.n_draws or self.n_rows
        if self.plan.n_draws is None and self.weight is not None:
            total_weight = int(weights_in_bits(self.weight, self._factor)[0].sum())
        check_order(self.plan, total_weight, self._factor)
        self._levels, self.exponent = levels_of_several([distinct for _, distinct in presorted], total_weight * self._factor)

    def _prepare_amounts(self, target: NDArray[Any], n_rows: int) -> None:
        """Centre the targets, of which so many count, and, unless their weights differ, put them in fixed point."""
        self._centred = np.ascontiguousarray(target - self.center)
        if self.draws is None and self.weight is not None:
            return
        bound = max(self.plan.n_draws or 0, n_rows) * float(np.abs(self._centred).max())
        self.exponent = 0 if bound == 0.0 else 61 - math.frexp(bound)[1]
        if not math.isfinite(bound):
            self.exponent = exponent_for(self._centred.ravel())
        self.codes = np.empty(self._centred.shape, np.int64)
        scale_into(self._centred.ravel(), self.exponent, self.codes.reshape(-1))

    @property
    def _keeps_codes(self) -> bool:
        return self.plan.n_classes > 0 or self._levels.shape[0] > 0

    def start(self, tree: int, output: int) -> Prepared:
        """Draw the rows of a tree."""
        if self.draws is None:
            assert self._fixed is not None
            return self._fixed
        counts = self.draws.counts(tree)
        if self.plan.balanced_subsample:
            return self._weighted(counts * self._balance(counts))
        rows = self.codes if self._keeps_codes else self.codes * counts[:, None]
        return self._prepared(counts > 0, counts, rows, (self.exponent, 0))

    def _balance(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the product over targets of what balances the classes of the rows of a tree."""
        drawn = np.bincount(self.codes.ravel(), np.repeat(counts, self.codes.shape[1]), self.plan.n_classes)
        return joint_factors(self.codes, self.plan.targets, factors_of_targets(drawn, self.plan.targets))

    def _weighted(self, weight: NDArray[np.float64] | None) -> Prepared:
        """Prepare all rows with given weights; those of weight zero are out of sample."""
        if weight is None:
            return self._prepared(None, _NONE, self.codes, (self.exponent, 0))
        in_sample = None if weight.all() else weight > 0
        if self._levels.shape[0]:
            b, exponent = weights_in_bits(weight, self._factor)
            return self._prepared(in_sample, b, self.codes, (self.exponent, exponent))
        b, exponent = to_fixed(weight, integral=bool((weight == np.rint(weight)).all()))
        if self.plan.n_classes:
            return self._prepared(in_sample, b, self.codes, (exponent, exponent))
        with np.errstate(over="ignore"):
            weighted = weight[:, None] * self._centred
        if not np.isfinite(weighted).all():
            raise ValueError("sample_weight times y is beyond the range of float64; divide sample_weight by a constant, it changes no tree")
        a, a_exponent = to_fixed(weighted.ravel())
        return self._prepared(in_sample, b, a.reshape(weighted.shape), (a_exponent, exponent))

    def _prepared(
        self, in_sample: NDArray[np.bool_] | None, h: NDArray[np.int64], rows: NDArray[np.int64], exponents: tuple[int, int]
    ) -> Prepared:
        return Prepared(in_sample, self._numbers, h, exponents, self.target, self._levels, targets=rows)


def first_classes(targets: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the number of the first class of each target, where those of all targets are numbered through.

    Examples
    --------
    >>> first_classes((2, 3, 1)).tolist()
    [0, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(targets)[:-1]]).astype(np.int64)


def factors_of_targets(drawn: NDArray[Any], targets: tuple[int, ...]) -> NDArray[np.float64]:
    """Return what :func:`factors_of_classes` does of the classes of each target, numbered through.

    Examples
    --------
    >>> factors_of_targets(np.array([6, 2, 8]), (2, 1)).tolist()
    [0.6666666666666666, 2.0, 1.0]
    """
    return np.concatenate([factors_of_classes(mine) for mine in np.split(drawn, np.cumsum(targets)[:-1])])


def joint_factors(codes: NDArray[np.int64], targets: tuple[int, ...], factor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each row the product, over targets, of the factor of its class; ``codes`` are numbered through."""
    factors = np.ones(codes.shape[0])
    for t in range(len(targets)):
        factors *= factor[codes[:, t]]
    return factors


def numbered(target: NDArray[Any]) -> NDArray[np.float64]:
    """Return the same number for rows that agree in all targets, and others for others."""
    order = np.lexsort(target.T)
    ordered = target[order]
    differs = np.any(ordered[1:] != ordered[:-1], axis=1)
    numbers = np.empty(target.shape[0])
    numbers[order] = np.concatenate([[0], np.cumsum(differs)])
    return numbers
