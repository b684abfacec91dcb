"""The rows on which the trees of a forest are grown: a function of the plan, the row weights and the number of the tree.

A draw is a function of its number, and may select any row of the table. A shard that has some row ranges computes all draws of a tree, and
counts those that fall into its ranges. To do so it needs the total weight (or number) of the rows before each range.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan, Weights
from dtrees.split.compile.kernels import kernel
from dtrees.split.numbers import hashing
from dtrees.split.numbers.elementary import log
from dtrees.split.numbers.fixed_point import exponent_for, scale_into

_NONE = np.empty(0, np.int64)


class Drawing(NamedTuple):
    """How rows are drawn with replacement: from the rows of each class if draws are balanced, otherwise from all rows as one group.

    Attributes
    ----------
    n_draws : int
        Number of draws for each tree, from each group.
    exponent : int
        The exponent of the power of two that scales weights.
    points : ndarray of int64, shape (n_groups,)
        The total of the rows of each group from which draws are made: their number, or their weight in fixed point.
    classes : ndarray of int64, shape (n_groups,) or (0,)
        The class of each group; empty if draws are made from all rows.
    distinct : bool
        Whether each row is drawn at most once, with probability proportional to the weights of the remaining rows.
    """

    n_draws: int
    exponent: int
    points: NDArray[np.int64]
    classes: NDArray[np.int64]
    distinct: bool = False


def find_drawing(plan: ForestPlan, target: NDArray[Any], weight: Weights, starts: NDArray[np.int64]) -> tuple[Drawing, NDArray[np.int64]]:
    """Return how rows are drawn, and the total of the rows of each group before each of the rows ``starts``, shape (n_groups, n).

    Parameters
    ----------
    plan : ForestPlan
        A plan with ``n_draws``.
    target : ndarray, shape (n_rows,) or (n_rows, n_targets)
        Numbers of classes if draws are balanced, which multi-output targets do not allow; otherwise only its length is used.
    weight : ndarray of float64, shape (n_rows,), or None
        Rows are drawn in proportion to it; it includes the class weights.
    starts : ndarray of int64, shape (n,)
    """
    assert plan.n_draws is not None
    n_rows, n_draws, classes = target.shape[0], plan.n_draws, _NONE
    if weight is None and not plan.balanced_draws:
        return Drawing(n_draws, 0, np.array([n_rows]), classes, plan.distinct_draws), starts[np.newaxis]
    ordered = weight
    if plan.balanced_draws:
        rows = np.arange(n_rows) if weight is None else np.flatnonzero(weight)
        rows = rows[np.argsort(target[rows], kind="stable")]
        found, sizes = np.unique(target[rows], return_counts=True)
        classes, n_draws, ordered = found.astype(np.int64), int(sizes.min()), None if weight is None else weight[rows]
    fixed, exponent = np.ones(n_rows, np.int64), 0
    if weight is not None and ordered is not None:
        exponent = exponent_for(ordered)
        scale_into(weight, exponent, fixed)
    groups = [fixed] if not plan.balanced_draws else [np.where(target == k, fixed, 0) for k in classes]
    up_to = np.array([np.append(0, np.cumsum(group))[np.append(starts, n_rows)] for group in groups], np.int64)
    return Drawing(n_draws, exponent, up_to[:, -1].copy(), classes, plan.distinct_draws), up_to[:, :-1].copy()


class RowDraws:
    """The draws that fall on some ranges of rows.

    Parameters
    ----------
    drawing : Drawing
    seed : int
    ranges : ndarray of int64, shape (n, 2)
        The first row of each range, and the row after its last.
    before : ndarray of int64, shape (n_groups, n)
        The total of the rows before each range (:func:`find_drawing`).
    target : ndarray, shape (n_rows,)
        Numbers of classes, if draws are balanced; of these rows, like ``weight``.
    weight : ndarray of float64, shape (n_rows,), or None
        Includes the class weights.
    """

    def __init__(
        self, drawing: Drawing, seed: int, ranges: NDArray[np.int64], before: NDArray[np.int64], target: NDArray[Any], weight: Weights
    ) -> None:
        self._drawing, self._seed, self._n_rows = drawing, hashing.as_seed(seed), target.shape[0]
        self._ranges, self._weight = ranges, weight
        points = _NONE
        if weight is not None:
            points = np.empty(weight.shape[0], np.int64)
            scale_into(weight, drawing.exponent, points)
        ends, by_class = np.cumsum(ranges[:, 1] - ranges[:, 0]), drawing.classes.shape[0] > 0
        chunks, rows, segments, at = [_NONE], [_NONE], [], 0
        for k, of_group in enumerate(before):
            own = np.arange(self._n_rows)
            if by_class:
                own = np.flatnonzero((target == drawing.classes[k]) & (True if weight is None else weight > 0))
            bounds = np.searchsorted(own, np.append(0, ends))
            first, last = bounds[:-1], bounds[1:]
            sums = np.arange(own.shape[0] + 1) if weight is None else np.append(0, np.cumsum(points[own]))
            shift = of_group - sums[first]
            segments.append(np.stack([of_group, shift + sums[last], at + first, at + last], axis=1))
            chunks.append(_NONE if weight is None else np.repeat(shift, last - first) + sums[1:])
            rows.append(own if by_class else _NONE)
            at += own.shape[0]
        self._segments = np.stack(segments)
        self._ends, self._rows = np.concatenate(chunks), np.concatenate(rows)

    @classmethod
    def of_table(cls, plan: ForestPlan, target: NDArray[Any], weight: Weights) -> RowDraws:
        """Return the draws of all rows; parameters are those of :func:`find_drawing`."""
        drawing, before = find_drawing(plan, target, weight, np.zeros(1, np.int64))
        return cls(drawing, plan.seed, np.array([[0, target.shape[0]]]), before, target, weight)

    def counts(self, tree: int) -> NDArray[np.int64]:
        """Return how often a tree draws each row, shape (n_rows,)."""
        if self._drawing.distinct:
            return self._chosen(tree).astype(np.int64)
        counts, drawing = np.zeros(self._n_rows, np.int64), self._drawing
        key = np.uint64(hashing.stream_key(self._seed, hashing.STREAM_BOOTSTRAP, tree))
        _count(key, drawing.n_draws, drawing.points, self._segments, self._ends, self._rows, counts)
        return counts

    def _chosen(self, tree: int) -> NDArray[np.bool_]:
        """Return which rows a tree draws, each at most once. Weights must be those of all rows of the table.

        Each row is given an arrival time that is exponentially distributed, with the weight of the row as the rate; the first rows are
        drawn (Efraimidis and Spirakis, 2006, "Weighted random sampling with a reservoir").
        """
        n_draws, stream = self._drawing.n_draws, hashing.STREAM_SUBSAMPLE
        if self._weight is None:
            n_rows = int(self._drawing.points[0])
            chosen = np.empty(n_rows, np.bool_)
            hashing.subsample(self._seed, stream, tree, n_draws, np.ones(n_rows, np.bool_), chosen)
            return np.concatenate([chosen[first:last] for first, last in self._ranges])
        rows, chosen = np.flatnonzero(self._weight), np.zeros(self._n_rows, np.bool_)
        bits = hashing.mix_each(np.uint64(hashing.stream_key(self._seed, stream, tree)) ^ hashing.mix_each(rows))
        times = -log(1.0 - (bits >> np.uint64(11)) * 2.0**-53) / self._weight[rows]
        chosen[rows[np.argsort(times, kind="stable")[:n_draws]]] = True
        return chosen


@kernel
def _count(key, n_draws, points, segments, ends, rows, counts):  # type: ignore[no-untyped-def]
    """Count the draws of some rows.

    Parameters
    ----------
    key : uint64
    n_draws : int
        For each group.
    points : ndarray of int64, shape (n_groups,)
        The total of all rows of each group.
    segments : ndarray of int64, shape (n_groups, n, 4)
        The first point of a range of rows, the point after its last, and the places of its rows.
    ends : ndarray of int64, shape (n_rows,) or (0,)
        The point after the last of each row; empty if each row has one point.
    rows : ndarray of int64
        The row at each place; empty if all rows are in their own places.
    counts : ndarray of int64
        Zeros on entry; written.
    """
    weighted = ends.shape[0] > 0
    for k in range(points.shape[0]):
        own, total = segments[k], points[k]
        for i in range(k * n_draws, (k + 1) * n_draws):
            bits = hashing.draw(key, i)
            point = min(np.int64(hashing.uniform(bits) * np.float64(total)), total - 1) if weighted else hashing.below(bits, total)
            low, high = 0, own.shape[0]  # the first range that begins after the point
            while low < high:
                middle = (low + high) // 2
                if own[middle, 0] <= point:
                    low = middle + 1
                else:
                    high = middle
            if low == 0 or point >= own[low - 1, 1]:
                continue
            start, _, first, last = own[low - 1]
            place = first + (np.searchsorted(ends[first:last], point, side="right") if weighted else point - start)
            counts[rows[place] if rows.shape[0] > 0 else place] += 1


def combine_weights(weight: Weights, class_weight: tuple[Any, ...] | None, target: NDArray[Any]) -> Weights:
    """Multiply the row weights by the class weights, for each target if they are multi-output."""
    if class_weight is None:
        return weight
    if target.ndim == 2:
        for t, factors in enumerate(class_weight):
            weight = combine_weights(weight, factors, target[:, t])
        return weight
    by_class = np.asarray(class_weight, np.float64)[target]
    return by_class if weight is None else weight * by_class
