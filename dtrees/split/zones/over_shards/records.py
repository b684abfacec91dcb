"""What kernels of shards and searchers get.

Of one shard, its rows, which parts are wanted, and what is kept of these; of a searcher, what it wants to know of columns of nodes, and
what it knows already; of both, values of rows with the sums of the rows of each, as shards pick them, and as searchers merge them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, lean_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import SPLIT, Candidates, complete_but_threshold
from dtrees.split.table.columns import Columns
from dtrees.split.table.keyed_columns import PartLists
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones.over_shards.node_sums import add_row
from dtrees.split.zones.sums import Sums


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
class StoredRows(NamedTuple):
    """Rows that were summed by finer parts.

    Attributes
    ----------
    keys : ndarray of uint64
        ``code << 32 | place`` of the rows.
    finer : ndarray of uint16
        The finer part of each of these.
    offsets, counts : ndarray of int64, shape (n_tasks,)
        Where there is room for the rows of each task, and how many it has. Empty where no parts were cut.
    """

    keys: NDArray[np.uint64]
    finer: NDArray[np.uint16]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]


#: Codes of a part that has more than one value, in the zone map of a searcher.
CODES = 2**33
#: What a batch of rows has of a column of a node: the flagged parts ``first:last`` of all, which have ``n_rows`` rows. They are of the
#: parts ``first_part`` to ``stop_part - 1``: of all, unless rows of the column are sent in several batches.
CHUNK = np.dtype([(name, np.int64) for name in ("first", "last", "n_rows", "first_part", "stop_part")])
#: Of a chunk, the score of the best split found in batches before (-1.0: none), and what splits have to pass.
_SOUGHT = [*((name, np.int64) for name in CHUNK.names or ()), ("best", np.float64), ("bar", np.float64)]
#: A column of a node as its searcher left it: a chunk, the sums of missing rows, and the best split after a part of a single value, if its
#: score is not -1.
REQUEST = np.dtype(
    [
        *_SOUGHT,
        ("missing_g", np.int64),
        ("missing_h", np.int64),
        ("missing_n", np.int64),
        ("score", np.float64),
        ("code", np.int64),
        ("next_code", np.int64),
        ("n_left", np.int64),
        ("left_g", np.int64),
        ("left_h", np.int64),
        ("missing_left", np.bool_),
    ],
    align=True,
)
#: The same where many numbers are summed; ``looks`` says whether it is to be scanned.
MANY_REQUEST = np.dtype([*_SOUGHT, ("looks", np.bool_)], align=True)
#: After all parts of a column.
ALL_PARTS = 2**32
#: A flagged part: its number in the grain of its node, the sums before it, and its number of rows.
FLAGGED = np.dtype([("part", np.int64), ("g", np.int64), ("h", np.int64), ("before", np.int64), ("n", np.int64)], align=True)


@by_reference
class SearchedNodes(NamedTuple):
    """Nodes, and the columns that a searcher looks for their splits in.

    Attributes
    ----------
    column_ids : ndarray of int32, shape (k,)
        Numbers of the columns in the table.
    zone_map : ZoneMap
        Of these columns, of no rows.
    upper : ndarray of float64, shape (k, most parts)
        The highest value of each part.
    sums : Sums
        Of all shards: node i has slot i.
    n_rows : ndarray of int64, shape (n_nodes,)
    node_sums : ndarray of int64, shape (n_nodes, n_sums)
    bars : ndarray of float64, shape (n_nodes,)
        The best score known of each node, -1.0 if none is; raised as better ones are found.
    """

    column_ids: NDArray[np.int32]
    zone_map: ZoneMap
    upper: NDArray[np.float64]
    sums: Sums
    n_rows: NDArray[np.int64]
    node_sums: NDArray[np.int64]
    bars: NDArray[np.float64]


@by_reference
class Flags(NamedTuple):
    """What is flagged in nodes.

    Attributes
    ----------
    requests : ndarray of REQUEST, or of MANY_REQUEST, shape (n_nodes, k)
    parts : ndarray of FLAGGED, or of MANY_FLAGGED
        The flagged parts that requests are of.
    """

    requests: NDArray[Any]
    parts: NDArray[Any]


@by_reference
class ColumnSplits(NamedTuple):
    """The best split of each node in each column.

    Attributes
    ----------
    candidates : Candidates
        Of node i in column j at ``i * k + j``.
    above : ndarray of float64, shape (n_nodes * k,)
        The next value above each cut; infinite if there is none, NaN if it is not known.
    """

    candidates: Candidates
    above: NDArray[np.float64]


@lean_kernel
def note_split(nodes, i, column, limits, score, cut, above, has_missing, found, splits, t):
    """Make the split found the one at place ``t``, its threshold the value that it is after, and raise the bar of its node."""
    records = splits.candidates.records
    complete_but_threshold(ZERO(), column, nodes.n_rows[i], nodes.node_sums[i], limits, score, has_missing, found, splits.candidates, t)
    records[t].threshold, splits.above[t] = cut, above
    if records[t].status == SPLIT:
        nodes.bars[i] = max(nodes.bars[i], score)


@by_reference
class ValueSums(NamedTuple):
    """Values with moments.

    Attributes
    ----------
    values : ndarray of float64
    g, h : ndarray of int64
        ``h`` is empty where every weight is 1.
    n : ndarray of uint32
        Numbers of rows.
    """

    values: NDArray[np.float64]
    g: NDArray[np.int64]
    h: NDArray[np.int64]
    n: NDArray[np.uint32]


@by_reference
class ValueElements(NamedTuple):
    """Values where many numbers are summed.

    Attributes
    ----------
    values : ndarray of float64
    elements : ndarray of int64, shape (n_values, width)
        See :mod:`dtrees.split.zones.over_shards.node_sums`.
    """

    values: NDArray[np.float64]
    elements: NDArray[np.int64]


@specialised
def open_value(out: Any, at: Any, value: Any) -> Any:
    """Have the place ``at`` hold a value that has no rows yet."""


@open_value.of(ValueSums)
def _(out, at, value):
    out.values[at], out.g[at], out.n[at] = value, 0, 0
    if out.h.shape[0] > 0:
        out.h[at] = 0


@open_value.of(ValueElements)
def _(out, at, value):
    out.values[at] = value
    out.elements[at] = 0


@specialised
def add_shard_row(out: Any, at: Any, rows: Any, place: Any) -> Any:
    """Add the row of a place of a shard's partition to the value at ``at``."""


@add_shard_row.of(ValueSums)
def _(out, at, rows, place):
    out.g[at] += rows.partition.g[place]
    out.n[at] += np.uint32(1)
    if out.h.shape[0] > 0:
        out.h[at] += rows.partition.h[place]


@add_shard_row.of(ValueElements)
def _(out, at, rows, place):
    weighted = rows.partition.h.shape[0] > 0
    weight = rows.partition.h[place] if weighted else ZERO() + 1
    add_row(out.elements[at], rows.partition.g[place], weight, weighted, rows.targets, rows.n_classes)


@specialised
def add_value(out: Any, at: Any, runs: Any, i: Any) -> Any:
    """Add the rows of the i-th value of others to the value at ``at``."""


@add_value.of(ValueSums)
def _(out, at, runs, i):
    out.g[at] += runs.g[i]
    out.n[at] += runs.n[i]
    if out.h.shape[0] > 0:
        out.h[at] += runs.h[i]


@add_value.of(ValueElements)
def _(out, at, runs, i):
    for k in range(runs.elements.shape[1]):
        out.elements[at, k] += runs.elements[i, k]
