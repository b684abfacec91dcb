"""What a searcher wants to know of a column of a node, and what it knows already."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import ZERO, lean_kernel
from dtrees.split.node.candidate import complete_but_threshold

#: Codes of a part that has more than one value, in the zone map of a searcher.
CODES = 2**33
#: A column of a node as its searcher left it: its flagged parts are ``first:last`` of all, and have ``n_rows`` rows; ``top`` is which of
#: them has the column's highest values in the node (-1: none). Then follow the sums of missing rows, and the best split after a part of a
#: single value, if its score is not -1.
REQUEST = np.dtype(
    [
        ("first", np.int64),
        ("last", np.int64),
        ("n_rows", np.int64),
        ("top", np.int64),
        ("missing_g", np.int64),
        ("missing_h", np.int64),
        ("missing_n", np.int64),
        ("bar", np.float64),
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
#: A flagged part: its number in the grain of its node, the sums before it, and its number of rows.
FLAGGED = np.dtype([("part", np.int64), ("g", np.int64), ("h", np.int64), ("before", np.int64), ("n", np.int64)], align=True)


@lean_kernel
def note_candidate(column, cut, node, node_sums, limits, score, has_missing, scratch, out, t):
    """Make the split found the candidate at place ``t``; its threshold is the value that it is after."""
    complete_but_threshold(ZERO(), column, node.n, node_sums, limits, score, has_missing, scratch.found, out, t)
    out.records[t].threshold = cut
