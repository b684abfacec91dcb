"""Columns of categories that are joined: a row has one number in place of its codes in two or more of them, its *element*.

A node's sums by pairs of categories of two columns tell its sums by category of both. So a row is added up once for all columns of a
*table*, by its element in there, and the sums of each column are added up from these (:mod:`dtrees.split.zones.accumulate`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import kernel
from dtrees.split.policy import ALL_JOINED, JOINED_SAVES, MOST_JOINED, ROWS_PER_JOINED, SAVES_PASS


@by_reference
class JoinedColumns(NamedTuple):
    """The first columns of a zone map, as they are joined.

    Attributes
    ----------
    table_of, stride : ndarray of int64, shape (n,)
        The table that each is in, and what its codes are multiplied by, to be added up to elements.
    begins : ndarray of int64, shape (n_tables + 1,)
        Where the elements of each table begin, and the last ones end.
    elements : ndarray of uint16, shape (n_rows, n_tables)
        Of each row, one in each table, numbered among those of all.
    """

    table_of: NDArray[np.int64]
    stride: NDArray[np.int64]
    begins: NDArray[np.int64]
    elements: NDArray[np.uint16]

    @property
    def n_elements(self) -> int:
        """How many elements all tables have."""
        return int(self.begins[-1])

    def take(self, places: NDArray[np.int64], n_others: int) -> JoinedColumns:
        """Return those of some of the columns, or none, if that saves no time beside ``n_others`` more; others may be joined with them."""
        if not _is_worth_it(self.table_of[places], n_others):
            return not_joined(self.elements.shape[0])
        tables, table_of = np.unique(self.table_of[places], return_inverse=True)
        begins = _begins_of(np.diff(self.begins)[tables])
        elements = np.ascontiguousarray(self.elements[:, tables])
        elements -= (self.begins[tables] - begins[:-1]).astype(np.uint16)
        return JoinedColumns(table_of, self.stride[places], begins, elements)


def not_joined(n_rows: int) -> JoinedColumns:
    """Return what there is of a table of so many rows where no columns are joined."""
    none = np.empty(0, np.int64)
    return JoinedColumns(none, none, np.zeros(1, np.int64), np.empty((n_rows, 0), np.uint16))


def join(n_codes: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Join columns next to each other in tables of up to ``most`` elements, or of one column, given how many codes each has.

    Returns
    -------
    table_of, stride : ndarray of int64, shape (n,)
    sizes : ndarray of int64, shape (n_tables,)
        How many elements each table has.

    Examples
    --------
    >>> table_of, stride, sizes = join(np.array([3, 5, 20, 30]), 300)
    >>> table_of.tolist(), stride.tolist(), sizes.tolist()
    ([0, 0, 0, 1], [1, 3, 15, 1], [300, 30])
    """
    table_of, stride, sizes = np.zeros(n_codes.shape[0], np.int64), np.ones(n_codes.shape[0], np.int64), list[int]()
    for place, n in enumerate(n_codes.tolist()):
        if not sizes or sizes[-1] * n > most:
            sizes.append(1)
        table_of[place], stride[place] = len(sizes) - 1, sizes[-1]
        sizes[-1] *= n
    return table_of, stride, np.array(sizes, np.int64)


def join_columns(n_codes: NDArray[np.int64], n_rows: int, n_others: int) -> JoinedColumns:
    """Return columns of so many codes, ascending, as they are joined if that saves time beside ``n_others`` more.

    With too many elements for the rows of the table, fewer columns are joined with each other. Elements are to be written.
    """
    for most in MOST_JOINED:
        table_of, stride, sizes = join(n_codes, most)
        if int(sizes.sum()) <= min(ALL_JOINED, n_rows // ROWS_PER_JOINED):
            if not _is_worth_it(table_of, n_others):
                break
            return JoinedColumns(table_of, stride, _begins_of(sizes), np.empty((n_rows, sizes.shape[0]), np.uint16))
    return not_joined(n_rows)


def _begins_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _is_worth_it(table_of: NDArray[np.int64], n_others: int) -> bool:
    """Tell whether to join columns saves time; where there are others, rows are gone through once more for them."""
    saved = table_of.shape[0] - np.unique(table_of).shape[0]
    return bool(saved >= max(JOINED_SAVES * table_of.shape[0], SAVES_PASS if n_others else 1))


@kernel
def write_elements(part, joined, first, last):
    """Write the elements of the rows ``first`` to ``last``, of whose codes ``part`` has those of the columns first."""
    elements = joined.elements
    for block in range(first, last, 512):
        end = min(block + 512, last)
        for i in range(block, end):
            for table in range(elements.shape[1]):
                elements[i, table] = joined.begins[table]
        for j in range(joined.stride.shape[0]):
            table, factor = joined.table_of[j], joined.stride[j]
            for i in range(block, end):
                elements[i, table] += factor * np.int64(part[i, j])
