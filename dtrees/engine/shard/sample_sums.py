"""What the rows in sample of a new tree add up to: the sums of its root."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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


def sums_of_classes(rows: RowPartition, n_in: int, n_classes: int) -> NDArray[np.int64]:
    """Return the weights of classes of the rows in sample."""
    a, b = rows.g[:n_in], rows.h[:n_in]
    sums = np.zeros(n_classes, np.int64)
    np.add.at(sums, a, b if b.shape[0] else 1)
    return sums


def sums_of_targets(
    rows: RowPartition, n_in: int, targets: NDArray[np.int64], have_classes: bool, n_sums: int, weight: int
) -> NDArray[np.int64]:
    """Return the sums of several targets of the rows in sample, or the weights of their classes, and the weight of all."""
    sums = np.zeros(n_sums, np.int64)
    if have_classes:
        add_up_classes(targets, rows.rows[:n_in], rows.h[:n_in], sums[:-1])
    else:
        add_up_amounts(targets, rows.rows[:n_in], sums[:-1])
    sums[-1] = weight
    return sums
