"""What a searcher wants to know of columns of nodes, and what it knows already."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, lean_kernel
from dtrees.split.node.candidate import Candidates, complete_but_threshold
from dtrees.split.node.status import SPLIT
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones.sums import Sums

#: Codes of a part that has more than one value, in the zone map of a searcher.
CODES = 2**33
#: What a batch of rows has of a column of a node: the flagged parts ``first:last`` of all, which have ``n_rows`` rows. They are of the
#: parts ``first_part`` to ``stop_part - 1``: of all, unless rows of the column are sent in several batches.
PIECE = np.dtype([(name, np.int64) for name in ("first", "last", "n_rows", "first_part", "stop_part")])
#: Of a piece, the score of the best split found in batches before (-1.0: none), and what splits have to pass.
_SOUGHT = [*((name, np.int64) for name in PIECE.names or ()), ("best", np.float64), ("bar", np.float64)]
#: A column of a node as its searcher left it: a piece, the sums of missing rows, and the best split after a part of a single value, if its
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
