"""The rows of one shard, as kernels get them: what there is, which parts are wanted, and what is kept of these."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.node.partition import RowPartition
from dtrees.split.table.columns import Columns
from dtrees.split.table.part_lists import PartLists
from dtrees.split.table.zone_map import ZoneMap


@by_reference
class ShardRows(NamedTuple):
    """The rows of a shard in a tree under way.

    Attributes
    ----------
    columns : Columns
    zone_map : ZoneMap
        Of these rows.
    lists : PartLists
        Of these, or none.
    partition : RowPartition
    targets : ndarray of int64, shape (n_rows, n_targets)
        Of several targets, the amounts of rows, or their classes, numbered through; of one, shape (0, 0).
    n_classes : int
        Of all targets, where weights of classes are summed; else 0.
    """

    columns: Columns
    zone_map: ZoneMap
    lists: PartLists
    partition: RowPartition
    targets: NDArray[np.int64]
    n_classes: int


@by_reference
class PartTasks(NamedTuple):
    """Parts of columns that the rows of nodes are wanted in.

    Attributes
    ----------
    tasks : ndarray of int64, shape (n, 5)
        First and last place of a node, a column of the zone map, by how much parts are shifted, and into how many finer ones each is cut,
        or has been; 0 if they are not.
    begins : ndarray of int64, shape (n + 1,)
    parts : ndarray of int64
        The parts of task k are ``parts[begins[k]:begins[k + 1]]``, ascending. The i-th finer part of the p-th of these has the number
        ``p * cut + i``; where parts have been cut, these are the numbers.
    """

    tasks: NDArray[np.int64]
    begins: NDArray[np.int64]
    parts: NDArray[np.int64]


@by_reference
class KeptRows(NamedTuple):
    """Rows that were summed by finer parts.

    Attributes
    ----------
    keys : ndarray of uint64
        ``code << 32 | place`` of the rows.
    finer : ndarray of uint16
        The finer part of each of these.
    rooms, counts : ndarray of int64, shape (n_tasks,)
        Where there is room for the rows of each task, and how many it has. Empty where no parts were cut.
    """

    keys: NDArray[np.uint64]
    finer: NDArray[np.uint16]
    rooms: NDArray[np.int64]
    counts: NDArray[np.int64]
