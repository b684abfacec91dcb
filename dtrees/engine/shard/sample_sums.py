"""What the rows in sample of a new tree add up to: the sums of its root."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import SumsKept
from dtrees.engine.threads import Threads
from dtrees.split.criteria.several import add_up_amounts, add_up_classes
from dtrees.split.node.partition import RowPartition, gather
from dtrees.split.numbers.fixed_point import add_up
from dtrees.split.policy import GATHERED_ROWS


def add_up_sample(
    threads: Threads, rows: RowPartition, n_in: int, a: NDArray[np.int64], b: NDArray[np.int64], in_order: bool
) -> tuple[int, int, int, float]:
    """Put what rows in sample add to sums in their order, if it is not, and add it up; see :func:`~dtrees.split.node.partition.gather`."""

    def take(some: slice) -> tuple[int, int, int, float]:
        found: tuple[int, int, int, float]
        found = add_up(a[some], b[some]) if in_order else gather(rows, some.start, some.stop, a, b)
        return found

    total_a, total_b, size, slope = zip(*threads.map_stretches(take, n_in, GATHERED_ROWS), strict=True)
    return sum(total_a), sum(total_b), sum(size), max(slope)


def many_sums(kept: SumsKept, rows: RowPartition, n_in: int, targets: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Return the sums of the rows in sample where these are not moments: of each class, or of each of several targets and of weights.

    ``targets`` are what rows add to the sums of several targets.
    """
    if not kept.n_numbers:
        return None
    sums, h = np.zeros(kept.n_sums, np.int64), rows.h[:n_in]
    if not kept.targets:
        np.add.at(sums, rows.g[:n_in], h if h.shape[0] else 1)
        return sums
    assert targets is not None
    if kept.n_classes:
        add_up_classes(targets, rows.rows[:n_in], h, sums[:-1])
    else:
        add_up_amounts(targets, rows.rows[:n_in], sums[:-1])
    sums[-1] = h.sum() if h.shape[0] else n_in
    return sums
