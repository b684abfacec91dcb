"""What the rows of a tree are to be split on.

A target belongs to a shard and prepares each tree: which rows are in sample, and the two integers a row that are summed (see
:mod:`dtrees.split.criteria.statistics` for what they are). Everything here is a function of the plan, the table's own rows and the identity
of the tree, so each shard computes it for itself and no vector travels.

The number of classes decides the layout: none and two are moments (two classes are one, "is it class 1?"), three and more are kept by
class.
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import Parts, add_up_losses
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan, Loss
from dtrees.engine.protocol.messages import Finish, Losses
from dtrees.engine.shard.places import places_of
from dtrees.engine.threads import Threads
from dtrees.split.compile.work_queue import make_queue
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.node.partition import add_by_leaf
from dtrees.split.node.records import add_values
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import exponent_for, fix_and_add_up, scale_into, to_fixed
from dtrees.split.policy import ADDITION_ROWS, LOGARITHM_ROWS
from dtrees.split.search.deviations import levels_of, weights_in_bits
from dtrees.split.table.columns import presort_column

_NONE = np.empty(0, np.int64)
_NO_TARGET = np.empty(0, np.float64)
_NO_LIMIT = 2**31


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
        For absolute error, where ``g`` are the numbers of targets: the targets in fixed point (:mod:`dtrees.split.search.deviations`).
    spent : bool
        Whether ``g`` and ``h`` were made for this tree, which may overwrite them, until the next tree.
    totals : tuple or None
        What all rows add up to (:func:`~dtrees.split.numbers.fixed_point.add_up`), if that is known already.
    """

    in_sample: NDArray[np.bool_] | None
    g: NDArray[np.int64]
    h: NDArray[np.int64]
    exponents: tuple[int, int]
    pure_by: NDArray[np.float64]
    levels: NDArray[np.int64] = _NONE
    spent: bool = False
    totals: tuple[int, int, int, float] | None = None


class Target(Protocol):
    """The targets of a fit: what each tree is to learn, and what the finished trees left behind."""

    keeps_out_of_sample: bool  # rows out of sample are routed through the tree

    def start(self, tree: int, output: int) -> Prepared:
        """Prepare a tree that is to improve one of the raw predictions."""

    def state(self) -> list[NDArray[Any]]:
        """Return what the finished trees left behind: arrays, to be read or written, whose last axis are the rows."""

    def finish(self, output: int, rows: NDArray[np.uint32], leaves: Finish) -> None:
        """Take the leaf values of the tree, whose row partition is ``rows``."""


def combine_weights(
    weight: NDArray[np.float64] | None, class_weight: tuple[float, ...] | None, target: NDArray[Any]
) -> NDArray[np.float64] | None:
    """Multiply the rows' weights by the weights of their classes."""
    if class_weight is None:
        return weight
    by_class = np.asarray(class_weight, np.float64)[target]
    return by_class if weight is None else weight * by_class


class ForestTarget:
    """Targets of independent trees: the table's own, on rows drawn for each tree."""

    def __init__(self, plan: ForestPlan, target: NDArray[Any], weight: NDArray[np.float64] | None) -> None:
        self.plan = plan
        self.seed = hashing.as_seed(plan.seed)
        self.n_rows = target.shape[0]
        self.weight = combine_weights(weight, plan.class_weight, target)
        self.out_of_bag = OutOfBag(plan, target) if plan.out_of_bag else None
        self.keeps_out_of_sample = plan.out_of_bag
        self._levels = _NONE
        criterion = criterion_named(plan.rules.criterion)
        self.target = np.ascontiguousarray(target, np.float64)
        if plan.n_classes:
            self.codes = np.ascontiguousarray(target, np.int64)
            self.exponent = 0
        elif criterion.row_statistic == "rank":
            self._prepare_levels()
        else:
            criterion.check(self.target if self.weight is None else self.target[self.weight > 0])
            centred = criterion.row_statistic == "target" and np.isfinite(self.target.sum())
            self.center = float(self.target.mean()) if centred else 0.0
            largest = max(float(self.target.max()) - self.center, self.center - float(self.target.min()))
            # Weights are counts here (or 1): the sum of drawn targets is below draws * max.
            bound = max(plan.n_draws or 0, self.n_rows) * largest
            self.exponent = 0 if bound == 0.0 else 61 - math.frexp(bound)[1]
            if not math.isfinite(bound):
                self.exponent = exponent_for(self.target - self.center)
        self._cumulative = _NONE
        self._fixed: Prepared | None = None
        if plan.n_draws is None and (self.weight is not None or self._keeps_codes):
            self._fixed = self._weighted(self.weight)
        elif self.weight is not None:
            self._cumulative = np.cumsum(to_fixed(self.weight)[0])

    def _prepare_levels(self) -> None:
        """Number the distinct targets, and put them in fixed point."""
        codes, distinct = presort_column(self.target)
        self.codes = codes.astype(np.int64)
        total_weight = self.plan.n_draws or self.n_rows
        if self.plan.n_draws is None and self.weight is not None:
            total_weight = int(weights_in_bits(self.weight)[0].sum())
        self._levels, self.exponent = levels_of(distinct, total_weight)

    @property
    def _keeps_codes(self) -> bool:
        """Whether ``codes`` are kept: classes, or the numbers of targets; otherwise targets are put in fixed point for each tree."""
        return self.plan.n_classes > 0 or self._levels.shape[0] > 0

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
        if self.plan.n_draws is None:
            return Prepared(None, self._in_fixed_point(), _NONE, (self.exponent, 0), self.target, spent=True)
        counts = np.zeros(self.n_rows, np.int64)
        hashing.bootstrap_counts(self.seed, tree, self.plan.n_draws, self._cumulative, counts)
        if self.plan.balanced_subsample:
            drawn = np.bincount(self.codes, weights=counts, minlength=self.plan.n_classes)
            present = np.maximum(drawn, 1)
            factor = np.where(drawn > 0, drawn.sum() / (np.count_nonzero(drawn) * present), 0.0)
            return self._weighted((counts * factor[self.codes]).astype(np.float64))
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
            b, exponent = weights_in_bits(weight)
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


class OutOfBag:
    """Sums, for each row, of the predictions of the trees that did not draw it.

    In fixed point, so that threads and workers may add them up in any order. May be shared by threads.
    """

    def __init__(self, plan: ForestPlan, target: NDArray[Any]) -> None:
        n_values = max(plan.n_classes, 1)
        largest = 1.0 if plan.n_classes else float(np.abs(target).max(initial=0.0)) or 1.0
        self.exponent = 40 - math.frexp(largest)[1]  # for up to 2**22 trees
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


class BoostingTarget:
    """Targets of boosted trees: the gradients of a loss at the raw predictions so far.

    Attributes
    ----------
    raw : ndarray of float64, shape (K, n_rows)
    parts : Parts
        The rows trained on, and those held out for validation.
    """

    keeps_out_of_sample = True

    def __init__(
        self,
        plan: BoostingPlan,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        initial: NDArray[np.float64] | None,
        threads: Threads,
    ) -> None:
        self.plan = plan
        self.seed = hashing.as_seed(plan.seed)
        self.threads = threads
        self.target = target
        self.weight = combine_weights(weight, plan.class_weight, target)
        n = target.shape[0]
        held_out = self._hold_out() if plan.n_iter_no_change is not None else None
        train = None if held_out is None else ~held_out
        if self.weight is not None and not self.weight.all():
            train = self.weight > 0 if train is None else train & (self.weight > 0)
        which = slice(None) if train is None else train
        plan.loss.check(target[which])
        if initial is None:
            initial = plan.loss.initial(target[which], None if self.weight is None else self.weight[which])
        self.initial = np.asarray(initial, np.float64)
        self.raw = np.repeat(self.initial[:, None], n, axis=1)
        # A round's trees share rows, and gradients at the predictions at its beginning: what these follow from.
        self._opened = self.raw.copy() if plan.loss.n_outputs > 1 else self.raw
        self._drawn_for: int | None = None
        self._in_sample = train
        self.parts = Parts.of(n, self.weight, train, held_out)
        # Kept from tree to tree: memory that is in use already costs no page faults.
        self._g = np.empty(n)
        unit_hessian = self.weight is None and plan.loss.constant_hessian
        self._h = np.empty(0 if unit_hessian else n)
        self._fixed = self._g.view(np.int64), self._h.view(np.int64)
        # Past 120 bits the L2 penalty dwarfs every hessian; further bits could only overflow.
        penalty = plan.rules.reg_lambda
        self._most_bits = _NO_LIMIT, _NO_LIMIT if unit_hessian else 120 - (math.frexp(penalty)[1] if penalty > 0 else 0)
        self._loss_rows = ADDITION_ROWS if plan.loss.constant_hessian else LOGARITHM_ROWS
        self._loss: Loss = plan.loss  # of the round
        self._weight_in_bits = self._weigh(train) if plan.loss.measures_leaves else _NONE
        self._leaf_of = np.empty(0, np.uint8)

    def _weigh(self, train: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Return the weights of rows trained on in fixed point, empty where all are 1."""
        if self.weight is None:
            return _NONE if train is None else train.astype(np.int64)
        return weights_in_bits(self.weight if train is None else np.where(train, self.weight, 0.0))[0]

    def _hold_out(self) -> NDArray[np.bool_]:
        """Draw the rows kept for validation, a share of each class, but never all that it has."""
        n = self.target.shape[0]
        held_out = np.zeros(n, np.bool_)
        chosen = np.empty(n, np.bool_)
        for k in range(max(self.plan.n_classes, 1)):
            eligible = self.target == k if self.plan.n_classes else np.ones(n, np.bool_)
            if self.weight is not None:
                eligible &= self.weight > 0
            n_eligible = int(eligible.sum())
            n_wanted = max(0, min(math.ceil(self.plan.validation_fraction * n_eligible), n_eligible - 1))
            hashing.subsample(self.seed, hashing.STREAM_VALIDATION, k, n_wanted, eligible, chosen)
            held_out |= chosen
        if not held_out.any():
            raise ValueError(
                f"n_iter_no_change={self.plan.n_iter_no_change} holds out some rows{' of each class' * bool(self.plan.n_classes)}, but "
                f"never the last one with a weight above 0, and of {n} rows none can be; wants more rows, or n_iter_no_change=None"
            )
        return held_out

    def start(self, tree: int, output: int) -> Prepared:
        """Compute the gradients of one output at the predictions so far."""
        if output == 0:
            self.open_round()
        loss = self._loss
        self._draw_rows(tree - output)
        g, h = self._g, self._h
        self.threads.over_rows(
            lambda target, opened, g, h: loss.gradients(target, opened, output, g, h), (self.target, self._opened, g, h), self._loss_rows
        )
        if self.weight is not None:
            g *= self.weight
            h *= self.weight
        if self._in_sample is not None:
            g[~self._in_sample] = 0.0
            h[~self._in_sample[: h.shape[0]]] = 0.0
        a, b = self._fixed
        if g.shape[0] <= ADDITION_ROWS:
            exponents, totals = fix_and_add_up(g, h, *self._most_bits, a, b)
            return Prepared(self._in_sample, a, b, exponents, _NO_TARGET, _NONE, True, totals)
        exponents = self._fix(g, self._most_bits[0], a), self._fix(h, self._most_bits[1], b)
        return Prepared(self._in_sample, a, b, exponents, _NO_TARGET, spent=True)

    def open_round(self) -> None:
        """Note the predictions that the gradients of the next trees, one for each output, are taken at."""
        raw, opened = self.raw, self._opened
        self._loss = self.plan.loss.for_round(self.target, raw, self._weight_in_bits)
        if opened is not raw:
            self.threads.over_rows(self.plan.loss.open_round, (raw, opened), self._loss_rows)

    def _draw_rows(self, tree: int) -> None:
        if self.plan.subsample >= 1.0 or self._drawn_for == tree:
            return
        self._drawn_for = tree
        n = self.target.shape[0]
        eligible = np.ones(n, np.bool_) if self.parts.train is None else self.parts.train
        n_wanted = max(1, int(self.plan.subsample * np.count_nonzero(eligible)))
        chosen = np.empty(n, np.bool_)
        hashing.subsample(self.seed, hashing.STREAM_SUBSAMPLE, tree, n_wanted, eligible, chosen)
        self._in_sample = chosen

    def _fix(self, x: NDArray[np.float64], most: int, out: NDArray[np.int64]) -> int:
        """Put ``x`` in fixed point; return the power of two that it is multiplied by, which is not above ``most``."""
        exponent = min(exponent_for(x), most)
        self.threads.over_rows(lambda x, out: scale_into(x, exponent, out), (x, out), ADDITION_ROWS)
        return exponent

    def state(self) -> list[NDArray[Any]]:
        """Return the raw predictions, and what the gradients of the round follow from where that is something else."""
        return [self.raw] if self._opened is self.raw else [self.raw, self._opened]

    def finish(self, output: int, rows: NDArray[np.uint32], leaves: Finish) -> None:
        """Add the leaf values to the raw predictions."""
        self.add(output, rows, leaves.start, np.ascontiguousarray(leaves.value[:, 0]))

    def add_tree(self, output: int, rows: NDArray[np.uint32], records: NDArray[Any], value: NDArray[np.float64]) -> None:
        """Add the values of a tree's nodes (:data:`~dtrees.split.node.records.NODE`), shape (n, 1), to a raw prediction."""
        if rows.shape[0] <= ADDITION_ROWS:
            add_values(records, value, self.raw[output], rows)
            return
        leaf = records["column"] < 0
        self.add(output, rows, records["start"][leaf].astype(np.int64), value[leaf, 0])

    def measure_leaves(
        self, output: int, rows: NDArray[np.uint32], start: NDArray[np.int64], stop: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the best steps of leaves before shrinkage; see :meth:`~dtrees.engine.plan.plans.Loss.measure_leaves`."""
        steps, raw = np.empty(start.shape[0]), self.raw[output]
        # Leaves are as unequal as can be: of about as many rows each, a few stretches of them for each thread.
        n_stretches = 1 if rows.shape[0] <= LOGARITHM_ROWS else 4 * self.threads.n_threads
        ends = np.cumsum(stop - start)
        bounds = np.searchsorted(ends, np.linspace(0, ends[-1], n_stretches + 1)[1:-1])
        stretches = itertools.pairwise([0, *bounds.tolist(), start.shape[0]])

        def measure(some: tuple[int, int]) -> None:
            part = slice(*some)
            self._loss.measure_leaves(self.target, raw, self._weight_in_bits, rows, start[part], stop[part], steps[part])

        self.threads.map(measure, [stretch for stretch in stretches if stretch[0] < stretch[1]])
        return steps

    def add(self, output: int, rows: NDArray[np.uint32], start: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Add the values of leaves to a raw prediction; the places of their rows begin at ``start``, which ascends."""
        raw, leaf_of = self.raw[output], self._leaf_of
        n = rows.shape[0]
        if n <= ADDITION_ROWS:
            add_by_leaf(make_queue(), 1, raw, rows, start, value, leaf_of)
            return
        dtype = np.uint8 if start.shape[0] <= 2**8 else np.uint16 if start.shape[0] <= 2**16 else np.uint32
        if leaf_of.dtype != dtype or leaf_of.shape[0] != n:
            leaf_of = self._leaf_of = np.empty(n, dtype)
        n_pieces = min(4 * self.threads.n_threads, 1 + n // ADDITION_ROWS)
        self.threads.share(2 * n_pieces, lambda queue, _: add_by_leaf(queue, n_pieces, raw, rows, start, value, leaf_of), n_pieces)

    def losses(self, first: int, last: int) -> Losses:
        """Return the losses of some rows; see :func:`~dtrees.engine.outcome.scoring.add_up_losses`."""
        losses = self._g[first:last]  # which the next tree will write anew
        self.threads.over_rows(self._loss.pointwise, (self.target[first:last], self.raw[:, first:last], losses), self._loss_rows)
        return add_up_losses(losses, None if self.weight is None else self.weight[first:last], self.parts.share(first, last))
