"""Rows that a boosting learns from, all of a table's or those of one shard: which these are, their derivatives, what leaves add to them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, Loss
from dtrees.engine.threads import Threads
from dtrees.split.compile.work_queue import make_queue
from dtrees.split.node.partition import add_by_leaf
from dtrees.split.numbers import hashing
from dtrees.split.policy import ADDITION_ROWS, LOGARITHM_ROWS

_NO_LEAVES = np.empty(0, np.uint8)


def rows_trained_on(held_out: NDArray[np.bool_] | None, weight: NDArray[np.float64] | None) -> NDArray[np.bool_] | None:
    """Return which rows are trained on, None for all: those that are not held out, and weigh more than nothing."""
    train = None if held_out is None else ~held_out
    if weight is not None and not weight.all():
        train = weight > 0 if train is None else train & (weight > 0)
    return train


def has_unit_hessian(plan: BoostingPlan, weight: NDArray[np.float64] | None) -> bool:
    """Tell whether trees are split with a hessian of 1 for every row."""
    return weight is None and (plan.loss.constant_hessian or plan.first_order)


def rows_at_once(loss: Loss, n_rows: int) -> int:
    """Return how many of ``n_rows`` rows a thread computes a loss, or its derivatives, of at a time."""
    if loss.takes_all_rows:
        return n_rows
    return ADDITION_ROWS if loss.constant_hessian else LOGARITHM_ROWS


def starts(initial: NDArray[np.float64], n_rows: int) -> NDArray[np.float64]:
    """Return a new array of what rows start from, shape (K, n_rows), where ``initial`` is of shape (K,) or (K, n_rows)."""
    raw = np.empty((initial.shape[0], n_rows))
    raw[:] = initial.reshape(initial.shape[0], -1)
    return raw


def draw_rows(plan: BoostingPlan, round_: int, eligible: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Draw the rows of a round from those of a table that are eligible."""
    chosen = np.empty(eligible.shape[0], np.bool_)
    n_wanted = max(1, int(plan.subsample * np.count_nonzero(eligible)))
    hashing.subsample(hashing.as_seed(plan.seed), hashing.STREAM_SUBSAMPLE, round_, n_wanted, eligible, chosen)
    return chosen


def rows_not_drawn(train: NDArray[np.bool_] | None, in_sample: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows are trained on, but not drawn for the round."""
    return ~in_sample if train is None else train & ~in_sample


def write_derivatives(
    threads: Threads,
    loss: Loss,
    output: int,
    target: NDArray[Any],
    raw: NDArray[np.float64],
    weight: NDArray[np.float64] | None,
    in_sample: NDArray[np.bool_] | None,
    g: NDArray[np.float64],
    h: NDArray[np.float64],
) -> None:
    """Write weighted derivatives of an output to ``g`` and ``h`` (which may be empty), zero for rows out of sample.

    Parameters
    ----------
    threads : Threads
    loss : Loss
    output : int
    target : ndarray
    raw : ndarray of float64, shape (K, n_rows)
        The predictions that they are taken at.
    weight : ndarray of float64, shape (n_rows,), or None
    in_sample : ndarray of bool, shape (n_rows,), or None
        None for all.
    """
    at_once = rows_at_once(loss, raw.shape[1])
    threads.over_rows(lambda target, raw, g, h: loss.gradients(target, raw, output, g, h), (target, raw, g, h), at_once)
    if weight is not None and not loss.takes_all_rows:
        g *= weight
        h *= weight
    if in_sample is not None:
        g[~in_sample] = 0.0
        h[~in_sample[: h.shape[0]]] = 0.0


class LeafAdder:
    """Adds the values of leaves to predictions of rows; its scratch space is kept from tree to tree."""

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
        n_pieces = min(4 * self._threads.n_threads, 1 + n // ADDITION_ROWS)
        n_tasks = 2 * n_pieces if leaf_of.shape[0] else n_pieces
        self._threads.share(n_tasks, lambda queue, _: add_by_leaf(queue, n_pieces, raw, rows, start, value, leaf_of), n_pieces)
