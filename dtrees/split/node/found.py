"""The best split of a node found so far in one column, as codes; it becomes a candidate when the column is searched."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import inlined_kernel, lean_kernel
from dtrees.split.criteria.statistics import write_sums

#: In place of the code after a cut: no row of the node has a higher value; it is not known yet; the threshold is known instead.
NONE_HIGHER, UNKNOWN, HAS_THRESHOLD = np.int64(-1), np.int64(-2), np.int64(-3)

#: Rows with codes up to ``code`` go left, of which ``next_code`` is the next higher one in the node.
FOUND = np.dtype(
    [("code", np.int64), ("next_code", np.int64), ("n_left", np.int64), ("threshold", np.float64), ("missing_left", np.bool_)], align=True
)


@by_reference
class Found(NamedTuple):
    """A split.

    Attributes
    ----------
    record : ndarray of FOUND, shape (1,)
    left : ndarray of int64, shape (n_sums,)
        Sums of the rows going left.
    """

    record: NDArray[Any]
    left: NDArray[np.int64]


def no_split_found(n_sums: int) -> Found:
    """Return room for a split."""
    return Found(np.zeros(1, FOUND), np.zeros(n_sums, np.int64))


@inlined_kernel
def note_found(found, code, next_code, missing_left, left):
    """Write a split; ``left`` is the statistic of the rows going left."""
    record = found.record[0]
    record.code = code
    record.next_code = next_code
    record.missing_left = missing_left
    record.n_left = left.n
    write_sums(left, found.left)


@lean_kernel
def copy_found(one, other):
    """Write one split over another."""
    other.record[0] = one.record[0]
    for k in range(one.left.shape[0]):
        other.left[k] = one.left[k]
