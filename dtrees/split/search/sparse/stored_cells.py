"""The stored cells of a node of a sparse table, as keys: column by column, or of all columns at once.

To find those of one column, its cells are gone through, or each row of the node is looked for among them. To find those of all columns,
the rows of the node are gone through. What takes less time is done (:func:`lists_all`), so that a node takes time in proportion to
what is stored in its rows, or in the columns drawn for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, lean_kernel
from dtrees.split.policy import LISTED_CELL, LISTED_SHARE
from dtrees.split.table.keys import code_in, key_of
from dtrees.split.table.mmap_arrays import mapped
from dtrees.split.table.sparse_columns import SparseColumns, find_row, n_steps


@by_reference
class CellRoom(NamedTuple):
    """What a thread finds the stored cells of nodes with.

    Attributes
    ----------
    place_of : ndarray of uint32, shape (n_rows,)
        Where each row lies in the row partition.
    keys : ndarray of uint64
        Keys of stored cells, with places from the node's first one on.
    n_listed : ndarray of int32, shape (n_columns,)
        How many cells of each column are listed, 0 between two nodes; -1 for columns that the tree may not use.
    end : ndarray of int64, shape (n_columns,)
        Where the listed cells of a column end in ``keys``.
    present : ndarray of int32, shape (n_columns,)
        The columns that have listed cells come first.
    dense : ndarray of uint32, shape (n_rows,) or (0,)
        Room for the codes of a whole column, for criteria that need them.
    """

    place_of: NDArray[np.uint32]
    keys: NDArray[np.uint64]
    n_listed: NDArray[np.int32]
    end: NDArray[np.int64]
    present: NDArray[np.int32]
    dense: NDArray[np.uint32]


def make_cell_room(columns: SparseColumns, dense: bool, place_of: NDArray[np.uint32] | None = None) -> CellRoom:
    """Return room for the cells of the nodes of one tree at a time.

    ``dense``: with room for a whole column; ``place_of``: that of other threads at the same tree.
    """
    n_rows, n_columns = columns.n_rows, columns.n_columns
    longest = int(np.diff(columns.starts).max(initial=0))
    return CellRoom(
        mapped(n_rows, np.uint32) if place_of is None else place_of,
        mapped(max(columns.rows.shape[0] // LISTED_SHARE, longest) + 1, np.uint64),
        np.zeros(n_columns, np.int32),
        np.empty(n_columns, np.int64),
        np.empty(n_columns, np.int32),
        mapped(n_rows if dense else 0, np.uint32),
    )


@lean_kernel
def lists_all(columns, rows, n_drawn, room):
    """Tell whether to list a node's cells of all columns costs less than to find those of ``n_drawn`` of them.

    There is no room to list more than a share of the table.
    """
    n_columns = columns.starts.shape[0] - 1
    in_column = columns.rows.shape[0] // n_columns + 1
    by_columns = n_drawn * (1 + min(in_column, rows.shape[0] * n_steps(in_column)))
    return _has_at_most(columns, rows, min(by_columns // LISTED_CELL, room.keys.shape[0]))


@lean_kernel
def may_list_all(columns, rows, room):
    """Tell whether there is room to list a node's cells of all columns."""
    return _has_at_most(columns, rows, room.keys.shape[0])


@lean_kernel
def _has_at_most(columns, rows, most):
    total, starts = ZERO(), columns.row_starts
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        total += starts[row + 1] - starts[row]
        if total > most:
            return False
    return True


@lean_kernel
def list_cells(columns, rows, room):
    """List the cells of some rows in all columns that the tree may use; return how many columns have any."""
    starts, column_of, codes = columns.row_starts, columns.row_columns, columns.row_codes
    n_listed, end, present, keys = room.n_listed, room.end, room.present, room.keys
    n_present = ZERO()
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        for k in range(starts[row], starts[row + 1]):
            column = np.int64(column_of[k])
            n = n_listed[column]
            if n == 0:
                present[n_present] = column
                n_present += 1
            if n >= 0:
                n_listed[column] = n + 1
    total = ZERO()
    for k in range(n_present):
        column = np.int64(present[k])
        end[column] = total
        total += n_listed[column]
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        for k in range(starts[row], starts[row + 1]):
            column = np.int64(column_of[k])
            if n_listed[column] > 0:
                at = end[column]
                keys[at] = key_of(codes[k], i)
                end[column] = at + 1
    return n_present


@lean_kernel
def forget_cells(room, n_present):
    """Forget the cells listed, of so many columns."""
    for k in range(n_present):
        room.n_listed[np.int64(room.present[k])] = 0


@lean_kernel
def any_varies(room, n_present, n_rows):
    """Tell whether one of the columns listed takes more than one value in the node, which has ``n_rows`` rows."""
    for k in range(n_present):
        column = np.int64(room.present[k])
        m, end = np.int64(room.n_listed[column]), room.end[column]
        if m < n_rows:
            return True
        first = code_in(room.keys[end - m])
        for i in range(end - m + 1, end):
            if code_in(room.keys[i]) != first:
                return True
    return False


@lean_kernel
def find_cells(columns, column, rows, first, room):
    """Write the keys of the cells of some rows in one column to the front of ``room.keys``; return how many there are.

    The rows lie at the places from ``first`` on, and ascend.
    """
    start, stop = columns.starts[column], columns.starts[column + 1]
    keys, codes, place_of, n = room.keys, columns.codes, room.place_of, rows.shape[0]
    m = ZERO()
    if n * n_steps(stop - start) < stop - start:
        for i in range(n):
            start = find_row(columns, start, stop, rows[i])
            if start < stop and columns.rows[start] == rows[i]:
                keys[m] = key_of(codes[start], i)
                m += 1
        return m
    for k in range(start, stop):
        place = np.int64(place_of[columns.rows[k]]) - first
        keys[m] = key_of(codes[k], place & 0xFFFFFFFF)
        m += (place >= 0) & (place < n)
    return m
