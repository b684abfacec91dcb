"""The values on which boosted trees are split: the gradients of a loss at the predictions so far.

A target covers all rows of a table, or some row ranges on a shard of rows. Values that depend on all rows, such as the initial prediction,
are inputs (:mod:`dtrees.engine.shard.targets.scales`).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import sums_by_block
from dtrees.engine.outcome.values import newton_steps
from dtrees.engine.plan.plans import BoostingPlan, Loss, Weights
from dtrees.engine.plan.row_draws import combine_weights
from dtrees.engine.protocol.messages import Losses
from dtrees.engine.shard.targets import scales
from dtrees.engine.shard.targets.dropout import Put, RememberedTrees
from dtrees.engine.shard.targets.scales import BoostedRows
from dtrees.engine.threads import Threads
from dtrees.split.compile.work_queue import make_queue
from dtrees.split.node.partition import add_by_leaf
from dtrees.split.node.records import add_values
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import absolute_sum, exponent_for, fix_and_add_up, scale_into
from dtrees.split.numbers.gradient_draws import count_sizes, draw_by_size, in_bins, probabilities
from dtrees.split.policy import ADDITION_ROWS, LOGARITHM_ROWS

_NONE = np.empty(0, np.int64)
_NO_TARGET, _NO_LEAVES, _ALL = np.empty(0, np.float64), np.empty(0, np.uint8), np.empty(0, np.bool_)


class BoostingTarget:
    """Targets of boosted trees.

    Parameters
    ----------
    plan : BoostingPlan
    known : BoostedRows
        The results computed from all rows; ``held_out``, and ``initial`` if it is by row, are restricted to these rows.
    target, weight : ndarray
        For these rows.
    ranges : ndarray of int64, shape (n, 2)
        The first row of each range, and the row after its last.
    threads : Threads

    Attributes
    ----------
    raw : ndarray of float64, shape (K, n_rows)
    g, h : ndarray of float64, shape (n_rows,)
        Gradients and hessians of the current tree; ``h`` is empty if each is 1.
    step_hessian : ndarray of float64, shape (n_rows,) or (0,)
        The hessians of Newton steps, if splits are found by gradients alone.
    weights : ndarray of int64
        Weights of rows in fixed point, 0 for rows not trained on, if quantiles depend on them; empty if all rows count the same.
    in_sample : ndarray of bool, shape (n_rows,), or None
        The rows from which the current tree learns; None for all.
    """

    keeps_out_of_sample = True
    added, pure_by = np.empty((0, 0), np.int64), np.empty(0)  # there is one target, and it is not compared

    def __init__(
        self, plan: BoostingPlan, known: BoostedRows, target: NDArray[Any], weight: Weights, ranges: NDArray[np.int64], threads: Threads
    ) -> None:
        n = target.shape[0]
        self.plan, self.scales, self._ranges, self._threads = plan, known, ranges, threads
        self.seed = hashing.as_seed(plan.seed)
        self.target, self.weight = scales.by_output(target), combine_weights(weight, plan.class_weight, target)
        self.held_out, self._eligible = known.held_out, known.eligible
        self.train = self.in_sample = scales.rows_trained_on(self.held_out, self.weight)
        self.raw = self._starts(slice(0, n))
        # A round's trees share rows and the predictions at its beginning, from which gradients follow.
        self._per_round = plan.trees_per_round
        self._opened = self.raw.copy() if self._per_round > 1 else self.raw
        self._drawn_for = self._loss_of = -1
        self._loss: Loss = plan.loss  # of the round
        self._takes_all_rows, self._separate_steps = plan.loss.takes_all_rows, plan.separate_steps
        # Reused for all trees, as memory that is already in use causes no page faults.
        self.unit_hessian = self.weight is None and (plan.loss.constant_hessian or plan.first_order) and not plan.draws_by_gradient
        self.g, self.h, self.step_hessian = np.empty(n), np.empty(0 if self.unit_hessian else n), np.empty(n if self._separate_steps else 0)
        self._fixed = self.g.view(np.int64), self.h.view(np.int64)
        n_drawn = n if plan.draws_by_gradient else 0
        self._bins, self._factors = np.empty(n_drawn, np.uint16), np.empty(n_drawn)
        self._weighed = -1  # the output whose derivatives, for all rows, are in g and h
        self._exponents = 0, 0  # of g and of the hessians of Newton steps
        most = scales.most_bits(plan.rules)
        self._most_bits = most[0], scales.NO_LIMIT if self.unit_hessian else most[1]
        self._loss_rows = n if self._takes_all_rows else ADDITION_ROWS if plan.loss.constant_hessian else LOGARITHM_ROWS
        self.weights = self._weigh() if plan.loss.measures_leaves else _NONE
        self._adder = LeafAdder(threads)
        self._remembered = None if plan.dropout is None else RememberedTrees(plan, self.raw, threads)

    @classmethod
    def of_table(
        cls, plan: BoostingPlan, target: NDArray[Any], weight: Weights, initial: NDArray[np.float64] | None, threads: Threads
    ) -> BoostingTarget:
        """Return the targets of all rows of a table; ``initial`` is as for :func:`find_boosted_rows`."""
        known = scales.find_boosted_rows(plan, target, weight, initial)
        return cls(plan, known, target, weight, np.array([[0, known.n_rows]]), threads)

    @property
    def initial(self) -> NDArray[np.float64]:
        """The initial raw prediction, shape (K,); zeros if each row has its own."""
        start = self.scales.initial
        return start if start.ndim == 1 else np.zeros(start.shape[0])

    def _starts(self, rows: slice) -> NDArray[np.float64]:
        """Return a new array with the initial raw predictions of some rows, shape (K, n)."""
        initial = self.scales.initial
        raw = np.empty((initial.shape[0], rows.stop - rows.start))
        raw[:] = initial[:, np.newaxis] if initial.ndim == 1 else initial[:, rows]
        return raw

    def _weigh(self) -> NDArray[np.int64]:
        if self.weight is None:
            return _NONE if self.train is None else self.train.astype(np.int64)
        weights = np.empty(self.weight.shape[0], np.int64)
        scale_into(self.weight, self.scales.weight_exponent, weights)
        np.maximum(weights, self.weight > 0, out=weights)
        if self.train is not None:
            weights[~self.train] = 0
        return weights

    @property
    def scored(self) -> NDArray[np.bool_] | slice:
        """The rows that decide about early stopping: held-out rows or, if there are none, training rows."""
        part = self.train if self.held_out is None else self.held_out
        return slice(None) if part is None else part

    def open_round(self) -> None:
        """Begin a round: store the predictions, without dropped rounds, at which its gradients are taken."""
        if self._remembered is not None:
            self._remembered.drop()
        if self._opened is not self.raw:
            self._threads.over_rows(self.plan.loss.open_round, (self.raw, self._opened), self._loss_rows)

    def round_of(self, tree: int) -> int:
        """Return the number of the first tree of its round."""
        return tree - tree % self._per_round

    def opened_for(self, round_: int) -> NDArray[np.float64] | None:
        """Return the raw predictions at the beginning of a round, shape (K, n_rows); None if the loss of the round is set already."""
        return None if self._loss_of == round_ else self._opened

    def take_loss(self, round_: int, loss: Loss) -> None:
        """Set the loss of a round."""
        self._loss, self._loss_of = loss, round_

    def start(self, tree: int, output: int) -> scales.Prepared:
        """Compute the gradients of one output at the predictions so far, for all rows of a table."""
        round_ = self.round_of(tree)
        if tree == round_:
            self.open_round()
        if tree == round_ or self._loss_of != round_:  # a replacement shard within a round has no loss yet
            weights = scales.weights_trained_on(self.g.shape[0], self.weight, self.held_out) if self._takes_all_rows else self.weights
            self.take_loss(round_, self.plan.loss.for_round(self.target, self._opened, weights))
        first = tree - output
        found = self.draw(first)
        if found is not None:
            self.draw_by_gradient(first, found)
        self.derive(output)
        separate, (a, b) = self._separate_steps, self._fixed
        if not separate and a.shape[0] <= ADDITION_ROWS:
            exponents, totals = fix_and_add_up(self.g, self.h, *self._most_bits, a, b)
            return scales.Prepared(self.in_sample, a, b, exponents, _NO_TARGET, _NONE, True, totals)
        exponents = min(exponent_for(self.g), self._most_bits[0]), min(exponent_for(self.h), self._most_bits[1])
        self.fix(exponents)
        if separate:
            self.fix_steps(exponents[0], exponent_for(self.step_hessian))
        return scales.Prepared(self.in_sample, a, b, exponents, _NO_TARGET, spent=not separate)

    def draw(self, first: int) -> NDArray[np.int64] | None:
        """Draw the rows for the trees of all outputs from number ``first`` on, if rows are drawn.

        Every shard draws all rows, as each draw depends on the previous ones. If rows are drawn by their gradients, return the number of
        this shard's rows by size of gradient (:func:`~dtrees.split.numbers.gradient_draws.in_bins`), for :meth:`draw_by_gradient`.
        """
        plan, n = self.plan, self.scales.n_rows
        if plan.subsample >= 1.0 or self._drawn_for == first:
            return None
        self._drawn_for = first
        if plan.draws_by_gradient:
            return self._count_sizes()
        eligible = np.unpackbits(self._eligible, count=n).astype(np.bool_) if self._eligible.shape[0] else np.ones(n, np.bool_)
        chosen = np.empty(n, np.bool_)
        n_wanted = max(1, int(plan.subsample * np.count_nonzero(eligible)))
        hashing.subsample(self.seed, hashing.STREAM_SUBSAMPLE, first, n_wanted, eligible, chosen)
        self.in_sample = np.concatenate([chosen[:0], *(chosen[first:last] for first, last in self._ranges.tolist())])
        return None

    def _count_sizes(self) -> NDArray[np.int64]:
        sizes, bins, eligible = np.zeros(self.g.shape[0]), self._bins, _ALL if self.train is None else self.train
        for output in reversed(range(self.raw.shape[0])):
            self._differentiate(output)
            sizes += np.abs(self.g)

        def count(some: slice) -> NDArray[np.int64]:
            found: NDArray[np.int64] = count_sizes(sizes[some], eligible[some], bins[some])
            return found

        self._weighed = 0
        return in_bins(np.sum(self._threads.map_ranges(count, sizes.shape[0], ADDITION_ROWS), axis=0))

    def draw_by_gradient(self, first: int, found: NDArray[np.int64]) -> None:
        """Draw the rows for the trees from number ``first`` on, given the number of rows, over all shards, by size of gradient."""
        probability, at = probabilities(found, self.plan.subsample), 0
        key = np.uint64(hashing.stream_key(self.seed, hashing.STREAM_SUBSAMPLE, first))
        for begin, end in self._ranges.tolist():
            bins, factors = (array[at : at + end - begin] for array in (self._bins, self._factors))

            def draw(some: slice, begin: int = begin, bins: NDArray[Any] = bins, factors: NDArray[Any] = factors) -> None:
                draw_by_size(key, begin + some.start, bins[some], probability, factors[some])

            self._threads.map_ranges(draw, end - begin, ADDITION_ROWS)
            at += end - begin
        self.in_sample = self._factors > 0.0

    @property
    def draws(self) -> bool:
        """Whether rows have been drawn for a round, and the undrawn rows are scored."""
        return self._drawn_for >= 0 and self.plan.scores_undrawn

    @property
    def undrawn(self) -> NDArray[np.bool_]:
        """The training rows that are not drawn for the round."""
        assert self.in_sample is not None
        return ~self.in_sample if self.train is None else self.train & ~self.in_sample

    def undrawn_by_range(self) -> NDArray[np.int64]:
        """Return the number of training rows of each range that are not drawn for the round."""
        ends = np.cumsum(self._ranges[:, 1] - self._ranges[:, 0])
        return np.array([np.count_nonzero(some) for some in np.split(self.undrawn, ends)[:-1]], np.int64)

    def derive(self, output: int) -> None:
        """Write the weighted derivatives of an output at the predictions at the beginning of the round, 0 for rows out of sample."""
        if self._weighed != output:
            self._differentiate(output)
        self._weighed = -1
        if self.in_sample is None:
            return
        out = ~self.in_sample
        for values in (self.g, self.h, self.step_hessian):
            some = slice(values.shape[0])
            if self._factors.shape[0]:
                np.multiply(values, self._factors[some], out=values, where=self.in_sample[some])
            values[out[some]] = 0.0

    def _differentiate(self, output: int) -> None:
        """Write the weighted derivatives of an output at the predictions at the beginning of the round."""
        loss, weight, separate = self._loss, self.weight, self._separate_steps
        g, h = self.g, self.step_hessian if separate else self.h
        self._threads.over_rows(
            lambda target, raw, g, h: loss.gradients(target, raw, output, g, h), (self.target, self._opened, g, h), self._loss_rows
        )
        if weight is not None and not self._takes_all_rows:
            g *= weight
            h *= weight
        if separate and self.h.shape[0]:
            self.h[:] = 1.0 if weight is None else weight

    def derived(self) -> scales.Derived:
        """Return the statistics of these rows' derivatives that determine the scales of fixed point."""
        n_in = self.g.shape[0] if self.in_sample is None else int(np.count_nonzero(self.in_sample))
        hessians = (self.h, self.step_hessian) if self._separate_steps else (self.h,)
        with np.errstate(over="ignore", invalid="ignore"):
            of_h = [math.nan if h is self.h and self.unit_hessian else float(absolute_sum(h)) for h in hessians]
            sums = float(absolute_sum(self.g)), *of_h
        largest = max(float(self.g.max(initial=0.0)), -float(self.g.min(initial=0.0))), *(float(h.max(initial=0.0)) for h in hessians)
        return scales.Derived(sums, largest, n_in)

    def fix(self, exponents: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Convert gradients and hessians to fixed point in place, and return them."""
        for values, exponent, out in zip((self.g, self.h), exponents, self._fixed, strict=True):
            self._scale(values, exponent, out)
        return self._fixed

    def fix_steps(self, g_exponent: int, h_exponent: int) -> NDArray[np.int64]:
        """Convert hessians of Newton steps to fixed point in place, and return them; ``g_exponent`` is the exponent of the gradients."""
        self._exponents, fixed = (g_exponent, h_exponent), self.step_hessian.view(np.int64)
        self._scale(self.step_hessian, h_exponent, fixed)
        return fixed

    def _scale(self, values: NDArray[np.float64], exponent: int, out: NDArray[np.int64]) -> None:
        self._threads.over_rows(lambda x, out: scale_into(x, exponent, out), (values, out), ADDITION_ROWS)

    def find_pure(self, *rows_and_places: Any) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return no nodes, as targets are not compared; see :meth:`.ForestTarget.find_pure`."""
        return _ALL, _NO_TARGET

    def amounts(self, what: str, rows: slice) -> NDArray[np.float64]:
        """Return "g", "h", "step" or "weight" of some rows; see :meth:`~dtrees.engine.rows.rows_in_tree.RowsInTree.add_in_order`."""
        if what == "weight":
            assert self.weight is not None
            return self.weight[rows][self.undrawn[rows]]
        return {"g": self.g, "h": self.h, "step": self.step_hessian}[what][rows]

    def residuals(self, output: int) -> NDArray[np.float64]:
        """Return targets less predictions of an output at the beginning of the round."""
        target = self.target if self.target.ndim == 1 else self.target[output]
        found: NDArray[np.float64] = target - self._opened[output]
        return found

    def sizes(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the absolute residuals of training rows at the beginning of the round, their weights, and the bounds of the outputs."""
        some = slice(None) if self.train is None else self.train
        sizes = [np.abs(self.residuals(k)[some]) for k in range(self.raw.shape[0])]
        weights = self.weights[some] if self.weights.shape[0] else self.weights
        return np.concatenate(sizes), np.tile(weights, len(sizes)), sizes[0].shape[0] * np.arange(len(sizes) + 1)

    def state(self) -> list[NDArray[Any]]:
        """Return the raw predictions and, if they differ, the predictions from which the gradients of the round follow."""
        return [self.raw] if self._opened is self.raw else [self.raw, self._opened]

    def add(self, output: int, value: NDArray[np.float64], put: Put) -> None:
        """Add the values of a tree to a raw prediction; ``put`` adds values of nodes or leaves to totals of rows."""
        if self._remembered is None:
            put(value, self.raw[output])
        else:
            self._remembered.add(value, put)

    def add_leaves(self, output: int, rows: NDArray[np.uint32], start: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Add the values of leaves, whose rows start at these places, to a raw prediction."""
        self.add(output, value, lambda values, total: self._adder.add(total, rows, start, values))

    def add_tree(self, output: int, rows: NDArray[np.uint32], records: NDArray[Any], value: NDArray[np.float64]) -> None:
        """Add the values of a tree's nodes (:data:`~dtrees.split.node.records.NODE`), shape (n, 1), to a raw prediction."""
        if rows.shape[0] <= ADDITION_ROWS:
            self.add(output, value, lambda values, total: add_values(records, values, total, rows))
            return
        leaf = records["column"] < 0
        self.add_leaves(output, rows, records["start"][leaf].astype(np.int64), value[leaf, 0])

    def measure_leaves(
        self, output: int, rows: NDArray[np.uint32], start: NDArray[np.int64], stop: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the best steps of leaves before shrinkage; see :meth:`~dtrees.engine.plan.plans.Loss.measure_leaves`."""
        steps, raw = np.empty(start.shape[0]), self._opened[output]
        # Leaves differ much in size: each thread gets a few ranges of leaves with similar numbers of rows.
        n_ranges = 1 if rows.shape[0] <= LOGARITHM_ROWS else 4 * self._threads.n_threads
        ends = np.cumsum(stop - start)
        bounds = np.searchsorted(ends, np.linspace(0, ends[-1], n_ranges + 1)[1:-1])
        ranges = itertools.pairwise([0, *bounds.tolist(), start.shape[0]])

        def measure(some: tuple[int, int]) -> None:
            first, last, out = start[slice(*some)], stop[slice(*some)], steps[slice(*some)]
            if self._separate_steps:
                out[:] = newton_steps(self._sum_leaves(rows, first, last), self._exponents, self.plan.rules)
            else:
                self._loss.measure_leaves(self.target, raw, output, self.weights, rows, first, last, out)

        self._threads.map(measure, [span for span in ranges if span[0] < span[1]])
        return steps

    def _sum_leaves(self, rows: NDArray[np.uint32], start: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of gradients and of hessians of Newton steps, in fixed point, of leaves, shape (n_leaves, 2)."""
        sums, fixed = np.empty((start.shape[0], 2), np.int64), (self._fixed[0], self.step_hessian.view(np.int64))
        for i, (first, last) in enumerate(zip(start.tolist(), stop.tolist(), strict=True)):
            sums[i] = [values[rows[first:last]].sum() for values in fixed]
        return sums

    def losses(self, first: int, last: int) -> Losses:
        """Return the losses of some rows of a table, by blocks (:func:`~dtrees.engine.outcome.scoring.shares_of`)."""
        by_part, weights = self.losses_by_part(slice(first, last)), self.scales.weights
        if self.draws:
            undrawn = scales.weight_of(self.raw.shape[1], self.weight, self.undrawn)
            weights = np.append(weights, np.full(len(by_part) - 2, undrawn))
        score = None
        if self.plan.scoring is not None and first == 0:
            weight = None if self.weight is None else self.weight[self.scored]
            score = self.plan.scoring.score(self.target[..., self.scored], self.raw[:, self.scored], weight)
        return Losses(sums_by_block(by_part), weights, score)

    def losses_by_part(self, rows: slice) -> list[NDArray[np.float64] | None]:
        """Return the losses of some rows, times their weights, for each part of the scores, 0 for other rows; None for empty parts.

        The parts are the training rows and the held-out rows; if rows are drawn, also the undrawn rows and, in the first round, the latter
        with their losses at the initial prediction.
        """
        losses = self._losses_at(self.raw[:, rows], rows, self.g[rows])  # overwritten for the next tree
        parts: list[NDArray[np.float64] | None] = [losses if self.train is None else np.where(self.train[rows], losses, 0.0)]
        parts.append(None if self.held_out is None else np.where(self.held_out[rows], losses, 0.0))
        if self.draws:
            undrawn = self.undrawn[rows]
            parts.append(np.where(undrawn, losses, 0.0))
            if self._drawn_for == 0:
                parts.append(np.where(undrawn, self._losses_at(self._starts(rows), rows, np.empty_like(losses)), 0.0))
        return parts

    def _losses_at(self, raw: NDArray[np.float64], rows: slice, out: NDArray[np.float64]) -> NDArray[np.float64]:
        """Write the losses of some rows at raw predictions, times their weights."""
        self._threads.over_rows(self._loss.pointwise, (self.target[..., rows], raw, out), self._loss_rows)
        if self.weight is not None:
            # A mean that is not finite ends the fit. Rows of weight 0 do not count and may have any loss.
            with np.errstate(over="ignore", invalid="ignore"):
                out *= self.weight[rows]
        return out


class LeafAdder:
    """Adds the values of leaves to predictions of rows; reuses its scratch space."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._leaf_of: NDArray[Any] = _NO_LEAVES

    def add(self, raw: NDArray[np.float64], rows: NDArray[np.uint32], start: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Add the values of leaves to a raw prediction; the places of their rows begin at ``start``, which ascends from 0."""
        n = rows.shape[0]
        if n <= ADDITION_ROWS:
            if n:
                add_by_leaf(make_queue(), 1, raw, rows, start, value, _NO_LEAVES)
            return
        leaf_of: NDArray[Any] = _NO_LEAVES
        if n == raw.shape[0]:
            dtype = np.uint8 if start.shape[0] <= 2**8 else np.uint16 if start.shape[0] <= 2**16 else np.uint32
            if self._leaf_of.dtype != dtype or self._leaf_of.shape[0] != n:
                self._leaf_of = np.empty(n, dtype)
            leaf_of = self._leaf_of
        n_chunks = min(4 * self._threads.n_threads, 1 + n // ADDITION_ROWS)
        n_tasks = 2 * n_chunks if leaf_of.shape[0] else n_chunks
        self._threads.share(n_tasks, lambda queue, _: add_by_leaf(queue, n_chunks, raw, rows, start, value, leaf_of), n_chunks)
