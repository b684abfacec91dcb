"""The steps on a large node of a sparse table that threads share: to search some of its columns, and to divide its rows."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import lean_entry
from dtrees.split.grow.column_by_column import conclude
from dtrees.split.grow.sparse_subtree import divide_sparse, search_listed
from dtrees.split.node.candidate import bar_for
from dtrees.split.node.status import CONSTANT, SPLIT
from dtrees.split.search.sparse.stored_cells import find_cells


@lean_entry
def search_some(columns, task, first, last, path, sums, low, high):
    """Find the best split of the node at places first..last in the columns ``low:high`` of the tree's; it goes to ``task.best``.

    Parameters
    ----------
    columns : SparseColumns
    task : SparseTask
        Of this thread; ``task.room.place_of`` is shared, and says where the rows lie.
    """
    room, rows = task.room, task.partition.rows[first:last]
    status, score, has_missing, winner = CONSTANT, -1.0, False, np.int64(-1)
    for k in range(low, high):
        column = np.int64(task.pool[k])
        m = find_cells(columns, column, rows, first, room)
        if m == 0:
            continue
        found = search_listed(columns, task, column, task.room.keys[:m], first, last, sums, path, bar_for(column, winner, score))
        status = max(status, found[0])
        if found[0] == SPLIT:
            _, score, has_missing = found
            winner = column
    task.best.records[0].column = -1
    conclude(columns, task, last - first, sums, status, score, has_missing, winner)


@lean_entry
def divide_shared(columns, task, start, in_stop, stop, depth):
    """Apply the split in ``task.best`` to the rows of a node; return how many go left, in sample and out of sample."""
    return divide_sparse(columns, task, start, in_stop, stop, depth)
