"""Which of a shard's rows the trees of a forest draw.

A draw is a function of its number, and may fall on any row of the table. So each shard makes all draws of a tree, and counts those that
fall on its own rows. It has to know for that what the rows before each of its stretches come to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.rows.forests.messages import ForestScales
from dtrees.split.compile.kernels import kernel
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import scale_into

_NONE = np.empty(0, np.int64)


class OwnDraws:
    """The draws that fall on the rows of a shard.

    Parameters
    ----------
    scales : ForestScales
    seed : uint64
    stretches : ndarray of int64, shape (n, 2)
        Of the shard's rows.
    before : ndarray of int64, shape (n_groups, n)
        What rows before each stretch come to (:meth:`~dtrees.engine.plan.row_draws.RowDraws.points_before`).
    target : ndarray, shape (n_rows,)
        Numbers of classes, if draws are balanced.
    weight : ndarray of float64, shape (n_rows,), or None
        Of the shard's rows, multiplied by those of classes.
    """

    def __init__(
        self,
        scales: ForestScales,
        seed: np.uint64,
        stretches: NDArray[np.int64],
        before: NDArray[np.int64],
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
    ) -> None:
        self._scales, self._seed, self._n_rows = scales, seed, target.shape[0]
        points = _NONE
        if weight is not None:
            points = np.empty(weight.shape[0], np.int64)
            scale_into(weight, scales.draw_exponent, points)
        ends = np.cumsum(stretches[:, 1] - stretches[:, 0])
        pieces, rows, segments = [_NONE], [_NONE], []
        at = 0
        for k in range(before.shape[0]):
            for s, (first, last) in enumerate(zip((ends - (stretches[:, 1] - stretches[:, 0])).tolist(), ends.tolist(), strict=True)):
                own = np.arange(first, last)
                if scales.classes.shape[0]:
                    own = own[(target[first:last] == scales.classes[k]) & (True if weight is None else weight[first:last] > 0)]
                sums = np.cumsum(points[own]) if weight is not None else _NONE
                start = int(before[k, s])
                total = own.shape[0] if weight is None else int(sums[-1]) if own.shape[0] else 0
                segments.append((start, start + total, at, at + own.shape[0]))
                pieces.append(start + sums)
                rows.append(own)
                at += own.shape[0]
        self._segments = np.array(segments, np.int64).reshape(before.shape[0], -1, 4)
        self._ends = np.concatenate(pieces)
        self._rows = np.concatenate(rows)

    def counts(self, tree: int) -> NDArray[np.int64]:
        """Return how often a tree draws each row."""
        counts, scales = np.zeros(self._n_rows, np.int64), self._scales
        key = np.uint64(hashing.stream_key(self._seed, hashing.STREAM_BOOTSTRAP, tree))
        _count(key, scales.n_draws, scales.points, self._segments, self._ends, self._rows, counts)
        return counts


@kernel
def _count(key, n_draws, points, segments, ends, rows, counts):  # type: ignore[no-untyped-def]
    """Count the draws of some rows, as ``bootstrap_counts`` and ``balanced_bootstrap_counts`` make them.

    Parameters
    ----------
    key : uint64
    n_draws : int
        For each group.
    points : ndarray of int64, shape (n_groups,)
        What all rows of each group come to.
    segments : ndarray of int64, shape (n_groups, n, 4)
        The first point of a stretch of rows and the one after its last, and where its rows begin and end in ``rows``.
    ends : ndarray of int64, shape (n_rows,) or (0,)
        The point after the last of each row; empty where each row has one.
    rows : ndarray of int64
    counts : ndarray of int64
        Zeros; written.
    """
    weighted = ends.shape[0] > 0
    for k in range(points.shape[0]):
        own, total = segments[k], points[k]
        for i in range(k * n_draws, (k + 1) * n_draws):
            bits = hashing.draw(key, i)
            point = min(np.int64(hashing.uniform(bits) * np.float64(total)), total - 1) if weighted else hashing.below(bits, total)
            low, high = 0, own.shape[0]  # the first stretch that begins after the point
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
            counts[rows[place]] += 1
