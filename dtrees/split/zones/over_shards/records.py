"""Data structures of kernels of shards and searchers.

For a shard: its rows, the requested parts, and the rows stored for these. For a searcher: the columns of nodes that it searches, and the
results so far. For both: values of rows with the sums of the rows of each, as shards pick them and searchers merge them.
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
    """The rows of a shard in a growing tree.

    Attributes
    ----------
    columns : Columns
    zone_map : ZoneMap
        Zone map of these rows.
    lists : PartLists
        Lists of these rows, or empty.
    partition : RowPartition
    targets : ndarray of int64, shape (n_rows, n_targets)
        For several targets, the amounts of rows, or their classes in a common numbering; for one target, shape (0, 0).
    n_classes : int
        Over all targets, if weights of classes are summed; otherwise 0.
    """

    columns: Columns
    zone_map: ZoneMap
    lists: PartLists
    partition: RowPartition
    targets: NDArray[np.int64]
    n_classes: int


@by_reference
class PartTasks(NamedTuple):
    """Parts of columns in which the rows of nodes are requested.

    Attributes
    ----------
    tasks : ndarray of int64, shape (n, 5)
        First and last place of a node, a column of the zone map, the shift of parts, and the number of finer parts that each part is
        divided into; 0 if it is not.
    begins : ndarray of int64, shape (n + 1,)
    parts : ndarray of int64
        The parts of task k are ``parts[begins[k]:begins[k + 1]]``, ascending. The i-th finer part of the p-th of these has the number
        ``p * cut + i``; if parts have been divided, ``parts`` has these numbers.
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
        ``code << 32 | place`` for each row.
    finer : ndarray of uint16
        The finer part of each row.
    offsets, counts : ndarray of int64, shape (n_tasks,)
        Start of the buffer of each task, and its number of rows. Empty if no parts were divided.
    """

    keys: NDArray[np.uint64]
    finer: NDArray[np.uint16]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]


#: Number of codes of a part that has more than one value, in the zone map of a searcher.
CODES = 2**33
#: The rows of a column of a node in a batch: the flagged parts ``first:last`` of all, which have ``n_rows`` rows. They belong to the
#: parts ``first_part`` to ``stop_part - 1``, which are all parts, unless rows of the column are sent in several batches.
CHUNK = np.dtype([(name, np.int64) for name in ("first", "last", "n_rows", "first_part", "stop_part")])
#: A searcher's state of a column of a node: a chunk, the score of the best split found in batches before (-1.0: none), and the bar. For
#: moments, the sums of missing rows, and the best split after a part of a single value, if its score is not -1. For other statistics,
#: ``looks`` says whether the column has to be scanned.
REQUEST = np.dtype(
    [
        *((name, np.int64) for name in CHUNK.names or ()),
        *((name, np.float64) for name in ("best", "bar", "score")),
        *((name, np.int64) for name in ("missing_g", "missing_h", "missing_n", "code", "next_code", "n_left", "left_g", "left_h")),
        *((name, np.bool_) for name in ("missing_left", "looks")),
    ],
    align=True,
)
#: A number greater than that of any part.
ALL_PARTS = 2**32
#: A flagged part: its number in the grain of its node, the sums before it (of moments only), and its number of rows.
FLAGGED = np.dtype([(name, np.int64) for name in ("part", "g_before", "h_before", "n_before", "n")], align=True)


@by_reference
class SearchedNodes(NamedTuple):
    """Nodes, and the columns in which a searcher searches them.

    Attributes
    ----------
    column_ids : ndarray of int32, shape (k,)
        Numbers of the columns in the table.
    zone_map : ZoneMap
        Zone map of these columns, without rows.
    upper : ndarray of float64, shape (k, most parts)
        The highest value of each part.
    sums : Sums
        Sums over all shards: node i has slot i.
    n_rows : ndarray of int64, shape (n_nodes,)
    node_sums : ndarray of int64, shape (n_nodes, n_sums)
    bars : ndarray of float64, shape (n_nodes,)
        The best known score of each node, -1.0 if there is none; raised as better ones are found.
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
    """The flagged parts of nodes.

    Attributes
    ----------
    requests : ndarray of REQUEST, shape (n_nodes, k)
    parts : ndarray of FLAGGED
        The flagged parts that requests refer to.
    """

    requests: NDArray[Any]
    parts: NDArray[Any]


@by_reference
class ColumnSplits(NamedTuple):
    """The best split of each node in each column.

    Attributes
    ----------
    candidates : Candidates
        The candidate of node i in column j is at ``i * k + j``.
    above : ndarray of float64, shape (n_nodes * k,)
        The next value above each cut; infinite if there is none, NaN if it is unknown.
    """

    candidates: Candidates
    above: NDArray[np.float64]


@lean_kernel
def note_split(nodes, i, column, limits, score, cut, above, has_missing, found, splits, t):
    """Store the split found at index ``t``, with the value before it as its threshold, and raise the bar of its node."""
    records = splits.candidates.records
    complete_but_threshold(ZERO(), column, nodes.n_rows[i], nodes.node_sums[i], limits, score, has_missing, found, splits.candidates, t)
    records[t].threshold, splits.above[t] = cut, above
    if records[t].status == SPLIT:
        nodes.bars[i] = max(nodes.bars[i], score)


@by_reference
class ValueSums(NamedTuple):
    """Values, with the moments of their rows.

    Attributes
    ----------
    values : ndarray of float64
    g, h : ndarray of int64
        ``h`` is empty if every weight is 1.
    n : ndarray of uint32
        Numbers of rows.
    """

    values: NDArray[np.float64]
    g: NDArray[np.int64]
    h: NDArray[np.int64]
    n: NDArray[np.uint32]


@by_reference
class ValueElements(NamedTuple):
    """Values, with elements of several numbers for their rows.

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
    """Initialize index ``at`` for a value without rows."""


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
    """Add the row at a place of a shard's partition to the value at ``at``."""


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
    """Add the rows of the i-th value of ``runs`` to the value at ``at``."""


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
