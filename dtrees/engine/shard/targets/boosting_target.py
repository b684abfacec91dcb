"""What the trees of a boosting are split on: the gradients of a loss at the predictions so far."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import Parts, add_up_losses, sums_by_block, weight_of, with_part
from dtrees.engine.plan.plans import BoostingPlan, Loss
from dtrees.engine.plan.row_draws import combine_weights
from dtrees.engine.protocol.messages import Finish, Losses
from dtrees.engine.shard.targets.boosted_rows import (
    LeafAdder,
    draw_rows,
    has_unit_hessian,
    rows_at_once,
    rows_not_drawn,
    rows_trained_on,
    starts,
    write_derivatives,
)
from dtrees.engine.shard.targets.forest_target import Prepared
from dtrees.engine.threads import Threads
from dtrees.split.node.records import add_values
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import exponent_for, fix_and_add_up, scale_into
from dtrees.split.policy import ADDITION_ROWS, LOGARITHM_ROWS
from dtrees.split.search.order_statistics.deviations import weights_in_bits

_NONE = np.empty(0, np.int64)
_NO_TARGET = np.empty(0, np.float64)
_NO_LIMIT = 2**31


def rows_held_out(plan: BoostingPlan, target: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.bool_] | None:
    """Draw the rows held out for validation, a share of each class, but never all that it has; None if the plan holds out none.

    ``weight`` includes the weights of classes.
    """
    if not plan.holds_out:
        return None
    assert plan.validation_fraction is not None
    n, seed = target.shape[0], hashing.as_seed(plan.seed)
    held_out = np.zeros(n, np.bool_)
    chosen = np.empty(n, np.bool_)
    for k in range(max(plan.n_classes, 1)):
        eligible = target == k if plan.n_classes else np.ones(n, np.bool_)
        if weight is not None:
            eligible &= weight > 0
        n_eligible = int(eligible.sum())
        n_wanted = max(0, min(math.ceil(plan.validation_fraction * n_eligible), n_eligible - 1))
        hashing.subsample(seed, hashing.STREAM_VALIDATION, k, n_wanted, eligible, chosen)
        held_out |= chosen
    if not held_out.any():
        raise ValueError(
            f"n_iter_no_change={plan.n_iter_no_change} holds out some rows{' of each class' * bool(plan.n_classes)}, but "
            f"never the last one with a weight above 0, and of {n} rows none can be; wants more rows, or n_iter_no_change=None"
        )
    return held_out


class BoostingTarget:
    """Targets of boosted trees: the gradients of a loss at the raw predictions so far.

    Attributes
    ----------
    raw : ndarray of float64, shape (K, n_rows)
    parts : Parts
        The rows trained on, and those held out for validation.
    measures_leaves : bool
        As of the plan.
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
        # Of several targets, each as raw predictions lie: all rows of one side by side.
        self.target = target if target.ndim == 1 else np.ascontiguousarray(target.T)
        self.weight = combine_weights(weight, plan.class_weight, target)
        n = target.shape[0]
        held_out = rows_held_out(plan, target, self.weight)
        train = rows_trained_on(held_out, self.weight)
        which = slice(None) if train is None else train
        plan.loss.check(self.target[..., which])
        if initial is None:
            initial = plan.loss.initial(self.target[..., which], None if self.weight is None else self.weight[which])
        self._start = np.array(initial, np.float64)
        self.initial = self._start if self._start.ndim == 1 else np.zeros(self._start.shape[0])
        self.raw = starts(self._start, n)
        # A round's trees share rows, and gradients at the predictions at its beginning: what these follow from.
        self._opened = self.raw.copy() if plan.loss.n_outputs > 1 else self.raw
        self._drawn_for: int | None = None
        self._round: int | None = None
        self._in_sample = train
        self.parts = Parts.of(n, self.weight, train, held_out)
        # Kept from tree to tree: memory that is in use already costs no page faults.
        self._g = np.empty(n)
        unit_hessian = has_unit_hessian(plan, self.weight)
        self._h = np.empty(0 if unit_hessian else n)
        self._fixed = self._g.view(np.int64), self._h.view(np.int64)
        # Past 120 bits the L2 penalty dwarfs every hessian; further bits could only overflow.
        penalty = plan.rules.reg_lambda
        self._most_bits = _NO_LIMIT, _NO_LIMIT if unit_hessian else 120 - (math.frexp(penalty)[1] if penalty > 0 else 0)
        self._loss_rows = rows_at_once(plan.loss, n)
        self._loss: Loss = plan.loss  # of the round
        self._weight_in_bits = self._weigh(train) if plan.loss.measures_leaves else _NONE
        self._adder = LeafAdder(threads)
        self._steps = _Steps(n, plan.rules.reg_lambda, plan.rules.reg_alpha) if plan.steps_apart else None
        self.measures_leaves = plan.measures_leaves

    def _weigh(self, train: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Return the weights of rows trained on in fixed point, empty where all are 1."""
        if self.weight is None:
            return _NONE if train is None else train.astype(np.int64)
        return weights_in_bits(self.weight if train is None else np.where(train, self.weight, 0.0))[0]

    def start(self, tree: int, output: int) -> Prepared:
        """Compute the gradients of one output at the predictions so far."""
        round_ = tree - output
        if output == 0:
            self.open_round()
        elif self._round != round_:  # a shard that took another's place within the round
            self._loss = self._loss_at(self._opened)
        self._round = round_
        self._draw_rows(round_)
        g, h = self._g, self._h
        if self._steps is not None:
            return self._start_first_order(output, self._steps)
        self._derive(output, g, h)
        a, b = self._fixed
        if g.shape[0] <= ADDITION_ROWS:
            exponents, totals = fix_and_add_up(g, h, *self._most_bits, a, b)
            return Prepared(self._in_sample, a, b, exponents, _NO_TARGET, _NONE, True, totals)
        exponents = self._fix(g, self._most_bits[0], a), self._fix(h, self._most_bits[1], b)
        return Prepared(self._in_sample, a, b, exponents, _NO_TARGET, spent=True)

    def _derive(self, output: int, g: NDArray[np.float64], h: NDArray[np.float64]) -> None:
        """Write weighted derivatives, zero for rows out of sample."""
        write_derivatives(self.threads, self._loss, output, self.target, self._opened, self.weight, self._in_sample, g, h)

    def _start_first_order(self, output: int, steps: _Steps) -> Prepared:
        """Prepare a tree that is split by gradients and weights, whose leaves are to hold Newton steps."""
        g, h = self._g, self._h
        self._derive(output, g, steps.hessian)
        if self.weight is not None:
            np.copyto(h, self.weight)
            if self._in_sample is not None:
                h[~self._in_sample] = 0.0
        (a, b), most = self._fixed, self._most_bits
        exponents = self._fix(g, most[0], a), self._fix(h, most[1], b)
        steps.take(a, exponents[0], self._fix(steps.hessian, _NO_LIMIT, steps.fixed_hessian))
        return Prepared(self._in_sample, a, b, exponents, _NO_TARGET)

    def open_round(self) -> None:
        """Note the predictions that the gradients of the next trees, one for each output, are taken at."""
        raw, opened = self.raw, self._opened
        self._loss = self._loss_at(raw)
        if opened is not raw:
            self.threads.over_rows(self.plan.loss.open_round, (raw, opened), self._loss_rows)

    def _loss_at(self, raw: NDArray[np.float64]) -> Loss:
        """Return the loss of the round that starts from these predictions."""
        loss = self.plan.loss
        return loss.for_round(self.target, raw, self.weight if loss.takes_all_rows else self._weight_in_bits)

    def _draw_rows(self, tree: int) -> None:
        if self.plan.subsample >= 1.0 or self._drawn_for == tree:
            return
        self._drawn_for = tree
        eligible = np.ones(self.raw.shape[1], np.bool_) if self.parts.train is None else self.parts.train
        self._in_sample = draw_rows(self.plan, tree, eligible)

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
        self._adder.add(self.raw[output], rows, leaves.start, np.ascontiguousarray(leaves.value[:, 0]))

    def add_tree(self, output: int, rows: NDArray[np.uint32], records: NDArray[Any], value: NDArray[np.float64]) -> None:
        """Add the values of a tree's nodes (:data:`~dtrees.split.node.records.NODE`), shape (n, 1), to a raw prediction."""
        if rows.shape[0] <= ADDITION_ROWS:
            add_values(records, value, self.raw[output], rows)
            return
        leaf = records["column"] < 0
        self._adder.add(self.raw[output], rows, records["start"][leaf].astype(np.int64), value[leaf, 0])

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
            if self._steps is not None:
                self._steps.measure(rows, start[part], stop[part], steps[part])
                return
            self._loss.measure_leaves(self.target, raw, output, self._weight_in_bits, rows, start[part], stop[part], steps[part])

        self.threads.map(measure, [stretch for stretch in stretches if stretch[0] < stretch[1]])
        return steps

    def losses(self, first: int, last: int) -> Losses:
        """Return the losses of some rows; see :func:`~dtrees.engine.outcome.scoring.add_up_losses`."""
        losses = self._g[first:last]  # which the next tree will write anew
        weight, target = None if self.weight is None else self.weight[first:last], self.target[..., first:last]
        self.threads.over_rows(self._loss.pointwise, (target, self.raw[:, first:last], losses), self._loss_rows)
        found = add_up_losses(losses, weight, self.parts.share(first, last))
        if self._drawn_for is not None:
            found = self._with_out_of_bag(found, losses, first, last)
        if self.plan.scoring is not None and last == self.raw.shape[1]:
            scored = self.parts.scored
            weight = None if self.weight is None else self.weight[scored]
            found = found._replace(score=self.plan.scoring.score(self.target[..., scored], self.raw[:, scored], weight))
        return found

    def _with_out_of_bag(self, found: Losses, losses: NDArray[np.float64], first: int, last: int) -> Losses:
        """Add the (weighted) losses of rows that were not drawn, and, in the first round, those at what they started from."""
        assert self._in_sample is not None
        rows = rows_not_drawn(self.parts.train, self._in_sample)
        n_weight, rows = weight_of(rows.shape[0], self.weight, rows), rows[first:last]
        found = with_part(found, sums_by_block(losses, rows), n_weight)
        if self._drawn_for == 0:
            self._loss.pointwise(self.target[..., first:last], starts(self._start, self.raw.shape[1])[:, first:last].copy(), losses)
            if self.weight is not None:
                losses *= self.weight[first:last]
            found = with_part(found, sums_by_block(losses, rows), n_weight)
        return found


class _Steps:
    """Newton steps of leaves, by derivatives in fixed point: their sums are the same in any order.

    Parameters
    ----------
    n_rows : int
    l2, l1 : float
        The penalties on squares of values, and on their sizes.
    """

    def __init__(self, n_rows: int, l2: float, l1: float) -> None:
        self.hessian = np.empty(n_rows)
        self.fixed_hessian = self.hessian.view(np.int64)
        self._l2, self._l1 = l2, l1

    def take(self, gradient: NDArray[np.int64], g_exponent: int, h_exponent: int) -> None:
        """Note the gradients of a tree, and the powers of two that they and the hessians were multiplied by."""
        self._gradient, self._exponents = gradient, (g_exponent, h_exponent)

    def measure(self, rows: NDArray[np.uint32], start: NDArray[np.int64], stop: NDArray[np.int64], out: NDArray[np.float64]) -> None:
        """Write the steps of leaves, 0 where there is no hessian."""
        g_exponent, h_exponent = self._exponents
        for i, (first, last) in enumerate(zip(start.tolist(), stop.tolist(), strict=True)):
            mine = rows[first:last]
            g = math.ldexp(float(self._gradient[mine].sum()), -g_exponent)
            h = math.ldexp(float(self.fixed_hessian[mine].sum()), -h_exponent) + self._l2
            out[i] = -math.copysign(max(abs(g) - self._l1, 0.0), g) / h if h > 0.0 else 0.0
