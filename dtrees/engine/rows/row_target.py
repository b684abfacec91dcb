"""The targets of the rows of one shard: gradients of a loss at the predictions so far, and what these lose.

What a shard's rows have in common with those of others, such as the first prediction, it is told.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import BLOCK_ROWS, Parts, sums_by_block
from dtrees.engine.plan.plans import BoostingPlan, Loss
from dtrees.engine.plan.row_draws import combine_weights
from dtrees.engine.rows.all_rows import Torn
from dtrees.engine.rows.steps import BlockLosses, Derived
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
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import RowPartition
from dtrees.split.numbers.fixed_point import absolute_sum, scale_into
from dtrees.split.policy import ADDITION_ROWS

_NONE = np.empty(0, np.int64)
_ONE_TARGET = np.empty((0, 0), np.int64)


class AddsByLeaf(ABC):
    """The targets of rows of a shard, of boosting or of a forest: adds what leaves say to what is known of rows, by threads.

    Attributes
    ----------
    unit_hessian : bool
        Whether the hessian, or weight, of every row is 1.
    in_sample : ndarray of bool, shape (n,), or None
        Which rows the tree under way learns from; None for all.
    added : ndarray of int64, shape (n, n_targets) or (0, 0)
        What rows add to the sums of several targets in the tree under way, which g are numbers of rows of then.
    """

    unit_hessian: bool
    in_sample: NDArray[np.bool_] | None
    added: NDArray[np.int64] = _ONE_TARGET

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._adder = LeafAdder(threads)

    @abstractmethod
    def fix(self, exponents: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what rows of the tree under way add to sums, in fixed point."""

    def many_sums(self, rows: RowPartition) -> NDArray[np.int64] | None:
        """Return what the rows of a tree add up to, where these are not moments; None where they are."""
        return None

    @abstractmethod
    def amounts(self, what: str, rows: slice) -> NDArray[np.float64]:
        """Return g, h, "step" or "weight" of some rows; see :meth:`~dtrees.engine.rows.rows_in_tree.RowsInTree.add_in_order`."""

    def add(self, raw: NDArray[np.float64], rows: NDArray[np.uint32], start: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Add the values of leaves to a raw prediction; the places of their rows begin at ``start``, which ascends from 0."""
        self._adder.add(raw, rows, start, value)


class RowTarget(AddsByLeaf):
    """The targets of a shard's rows.

    Parameters
    ----------
    plan : BoostingPlan
    target, weight : ndarray
        Of the shard's rows.
    initial : ndarray of float64, shape (K,) or (K, n)
    held_out : ndarray of bool, shape (n,), or None
        Which rows are only validated on.
    weights : ndarray of float64, shape (2,)
        What all rows trained on, and all held out, weigh.
    eligible : ndarray of uint8
        A bit for each row of the table, whether it may be drawn; empty if all may.
    n_rows_total : int
    threads : Threads
    weight_exponent : int
        See :class:`~dtrees.engine.rows.messages.Prepared`.

    Attributes
    ----------
    raw : ndarray of float64, shape (K, n)
    g, h : ndarray of float64, shape (n,)
        Gradients and hessians of the tree under way; ``h`` is empty where each is 1.
    step_hessian : ndarray of float64, shape (n,) or (0,)
        The hessians of Newton steps, where splits are found by gradients alone.
    weights : ndarray of int64
        Of rows, in fixed point, where these decide about quantiles; empty where all are 1.
    unit_hessian : bool
        Whether it is.
    """

    def __init__(
        self,
        plan: BoostingPlan,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        initial: NDArray[np.float64],
        held_out: NDArray[np.bool_] | None,
        weights: NDArray[np.float64],
        eligible: NDArray[np.uint8],
        n_rows_total: int,
        threads: Threads,
        weight_exponent: int = 0,
    ) -> None:
        super().__init__(threads)
        self.plan = plan
        self._target = target if target.ndim == 1 else np.ascontiguousarray(target.T)
        self._weight = combine_weights(weight, plan.class_weight, target)
        n = target.shape[0]
        train = rows_trained_on(held_out, self._weight)
        self._initial, self._eligible, self._n_rows_total = initial, eligible, n_rows_total
        self._drawn_for: int | None = None
        self._loss_of: int | None = None
        self._parts = Parts(train, held_out, weights)
        self.in_sample = train
        self.raw = starts(initial, n)
        self._opened = self.raw.copy() if plan.loss.n_outputs > 1 else self.raw
        self._loss: Loss = plan.loss
        self.unit_hessian = unit_hessian = has_unit_hessian(plan, self._weight)
        self.g, self.h, self.step_hessian = np.empty(n), np.empty(0 if unit_hessian else n), np.empty(n if plan.steps_apart else 0)
        self.weights = _NONE
        if self._weight is not None and plan.loss.measures_leaves:
            self.weights = np.empty(n, np.int64)
            scale_into(self._weight, weight_exponent, self.weights)
            np.maximum(self.weights, self._weight > 0, out=self.weights)
        self._loss_rows = rows_at_once(plan.loss, n)

    @property
    def scored(self) -> NDArray[np.bool_] | slice:
        """The rows that decide about early stopping."""
        return self._parts.scored

    def open_round(self) -> None:
        """Note the predictions that the gradients of a round's trees are taken at."""
        if self._opened is not self.raw:
            self._threads.over_rows(self.plan.loss.open_round, (self.raw, self._opened), self._loss_rows)

    def opened_for(self, round_: int) -> NDArray[np.float64] | None:
        """Return the raw predictions at the beginning of a round, shape (K, n); None if the loss of the round has been taken."""
        return None if self._loss_of == round_ else self._opened

    def take_loss(self, round_: int, loss: Loss) -> None:
        """Take the loss of a round."""
        self._loss, self._loss_of = loss, round_

    def draw(self, round_: int, stretches: NDArray[np.int64]) -> None:
        """Draw the rows of a round, if rows are drawn: every shard draws for all, as each draw follows from those before."""
        plan = self.plan
        if plan.subsample >= 1.0 or self._drawn_for == round_:
            return
        self._drawn_for = round_
        n = self._n_rows_total
        eligible = np.unpackbits(self._eligible, count=n).astype(np.bool_) if self._eligible.shape[0] else np.ones(n, np.bool_)
        chosen = draw_rows(plan, round_, eligible)
        self.in_sample = np.concatenate([chosen[:0], *(chosen[first:last] for first, last in stretches.tolist())])

    def _undrawn(self) -> NDArray[np.bool_]:
        """Return which rows are trained on, but not drawn for the round."""
        assert self.in_sample is not None
        return rows_not_drawn(self._parts.train, self.in_sample)

    def amounts(self, what: str, rows: slice) -> NDArray[np.float64]:
        """Return gradients, hessians, or the weights of rows that are not drawn, of a stretch."""
        if what == "weight":
            assert self._weight is not None
            return self._weight[rows][self._undrawn()[rows]]
        return {"g": self.g, "h": self.h, "step": self.step_hessian}[what][rows]

    def residuals(self, output: int, opened: bool = False) -> NDArray[np.float64]:
        """Return targets less predictions of an output, or less those at the beginning of the round."""
        target = self._target if self._target.ndim == 1 else self._target[output]
        found: NDArray[np.float64] = target - (self._opened if opened else self.raw)[output]
        return found

    def sizes(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the sizes of residuals of rows trained on, at the beginning of the round, their weights, and where each output begins."""
        some = slice(None) if self._parts.train is None else self._parts.train
        sizes = [np.abs(self.residuals(k, opened=True)[some]) for k in range(self.raw.shape[0])]
        weights = self.weights[some] if self.weights.shape[0] else self.weights
        return np.concatenate(sizes), np.tile(weights, len(sizes)), sizes[0].shape[0] * np.arange(len(sizes) + 1)

    def derive(self, output: int, cuts: tuple[float, ...] | None = None) -> Derived:
        """Compute the gradients of one output at the predictions so far.

        ``cuts`` are where the loss of the round cuts off residuals, of each output, if it does.
        """
        if output == 0:
            self.open_round()
        if cuts is not None:
            self._loss = self.plan.loss.cut_at(cuts)
        apart = self.plan.steps_apart
        g, h = self.g, self.step_hessian if apart else self.h
        write_derivatives(self._threads, self._loss, output, self._target, self._opened, self._weight, self.in_sample, g, h)
        if apart and self._weight is not None:
            np.copyto(self.h, self._weight if self.in_sample is None else np.where(self.in_sample, self._weight, 0.0))
        n_in = g.shape[0] if self.in_sample is None else int(np.count_nonzero(self.in_sample))
        with np.errstate(over="ignore", invalid="ignore"):
            all_h = (self.h, self.step_hessian) if apart else (self.h,)
            unit = (self.unit_hessian, False)
            sums = float(absolute_sum(g)), *(math.nan if one else float(absolute_sum(h)) for h, one in zip(all_h, unit, strict=False))
        largest = max(float(g.max(initial=0.0)), -float(g.min(initial=0.0))), *(float(h.max(initial=0.0)) for h in all_h)
        return Derived(sums, largest, n_in)

    def fix(self, exponents: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Put gradients and hessians in fixed point, where they are, and return them."""
        fixed = []
        for values, exponent in zip((self.g, self.h), exponents, strict=True):
            out = values.view(np.int64)
            self._threads.over_rows(lambda x, out, exponent=exponent: scale_into(x, exponent, out), (values, out), ADDITION_ROWS)
            fixed.append(out)
        return fixed[0], fixed[1]

    def losses(self, stretches: NDArray[np.int64], n_rows: int) -> tuple[BlockLosses, Torn]:
        """Return the losses of the shard's rows, which are some stretches of a table of ``n_rows`` rows, in whole blocks and others."""
        losses = self.g
        self._threads.over_rows(self._loss.pointwise, (self._target, self.raw, losses), self._loss_rows)
        train, held_out = self._parts.train, self._parts.held_out
        with np.errstate(over="ignore", invalid="ignore"):
            if self._weight is not None:
                losses *= self._weight
        by_part: list[NDArray[np.float64] | None] = [losses if train is None else np.where(train, losses, 0.0)]
        by_part.append(None if held_out is None else np.where(held_out, losses, 0.0))
        n_undrawn = np.empty(0, np.int64)
        if self._drawn_for is not None:
            undrawn = self._undrawn()
            ends = np.cumsum(stretches[:, 1] - stretches[:, 0])
            n_undrawn = np.array([int(np.count_nonzero(some)) for some in np.split(undrawn, ends)[:-1]], np.int64)
            by_part.append(np.where(undrawn, losses, 0.0))
            if self._drawn_for == 0:
                losses = np.empty_like(losses)
                self._loss.pointwise(self._target, starts(self._initial, losses.shape[0]), losses)
                if self._weight is not None:
                    losses *= self._weight
                by_part.append(np.where(undrawn, losses, 0.0))
        return self._by_block(by_part, stretches, n_rows, n_undrawn)

    def _by_block(
        self, by_part: list[NDArray[np.float64] | None], stretches: NDArray[np.int64], n_rows: int, n_undrawn: NDArray[np.int64]
    ) -> tuple[BlockLosses, Torn]:
        """Add up losses by part (None: all 0) in whole blocks."""
        blocks, sums, at = [], [], 0
        there = {number: part for number, part in enumerate(by_part) if part is not None}
        torn = Torn(list(there), [])
        for first, last in stretches.tolist():
            begin = min(-(-first // BLOCK_ROWS) * BLOCK_ROWS, last)
            end = last if last == n_rows else max(begin, last // BLOCK_ROWS * BLOCK_ROWS)
            if begin == last:  # within a block
                end = begin
            for one, other in ((first, begin), (end, last)):
                if one < other:
                    rows = slice(at + one - first, at + other - first)
                    torn.pieces.append((one, np.stack([part[rows] for part in there.values()])))
            if begin < end:
                rows = slice(at + begin - first, at + end - first)
                block = np.arange(begin // BLOCK_ROWS, -(-end // BLOCK_ROWS))
                own = [np.zeros(block.shape[0]) if part is None else sums_by_block(part[rows], None) for part in by_part]
                sums.append(np.column_stack(own))
                blocks.append(block)
            at += last - first
        block, by_block = np.concatenate([_NONE, *blocks]), np.concatenate([np.empty((0, len(by_part))), *sums])
        return BlockLosses(block, by_block, self._parts.weights, n_undrawn, self._weight is not None), torn
