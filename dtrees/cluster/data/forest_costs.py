"""What a tree of a forest takes where the table fits no worker: what ``placement="auto"`` chooses by between columns and rows.

A tree that is grown to its end, from draws of as many rows as there are, with a third of the columns tried in a node; for classes, with
fewer columns tried, it takes about half as long by either placement. In nanoseconds of one thread, fitted to what the busiest shard and the
coordinator took of a processor, beside opening the fit, three trees side by side (one process, 8 to 30 others beside it; milliseconds):

=================  =======  ==========  ==========  ===========
rows x columns     workers  by rows     by columns  one process
=================  =======  ==========  ==========  ===========
100,000 x 28       2        132 + 45    91 + 40     143
100,000 x 28       4        83 + 50     66 + 55     146
200,000 x 28       2        249 + 74    195 + 71    324
200,000 x 8        2        141 + 87    93 + 70     147
40,000 x 100       2        95 + 21     408 + 56    136
40,000 x 100       4        57 + 29     65 + 21     155
=================  =======  ==========  ==========  ===========

Several targets take more for each that there is beyond the first, about as much by rows as by columns: both shards and the coordinator took
0.44, 0.55 and 0.84 s for a tree of 1, 3 and 10 targets that are numbers by rows, and 0.22, 0.34 and 0.60 s by columns (100,000 x 28).

Where there are more than 32 columns for each worker, nodes of few rows are not grown by one worker each, but by all together, to the end:
then columns take several times as long as otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dtrees.cluster.data.costs import EXCHANGES, EXCHANGES_WORKER, seconds_beside_rows
from dtrees.split.policy import DELEGATED_COLUMNS

#: Columns tried in a node, of all.
_TRIED = 1 / 3
#: A row in a column tried, each time that rows are halved: where small nodes are grown by one worker each, and by all together.
_CELL_TRIED, _CELL_TRIED_TOGETHER = 5.8, 36.0
#: The same for each target beyond the first.
_CELL_TRIED_FURTHER = 3.0
#: By rows: a cell of a worker's own, which is summed, sent, and sorted where it is sent; a row of its own; a row of all, as every worker
#: makes all draws (not fitted, but counted); and any tree.
_ROWS_CELL, _ROWS_ROW, _ROWS_DRAW, _ROWS_TREE = 5.0, 950.0, 10.0, 19e6
#: By columns: a cell of a worker's own, a row of all, and any tree.
_COLUMNS_CELL, _COLUMNS_ROW, _COLUMNS_TREE = 7.0, 200.0, 18e6
#: The coordinator: a row, as it puts the nodes together that workers have grown, and any tree.
_COORDINATOR_ROW, _COORDINATOR_TREE = 420.0, 5e6
#: Exchanges of a tree of three side by side: by columns, where small nodes are grown by one worker each, and by all together. One takes
#: what a level of a boosted tree does. By rows there are about half as many as a boosted tree has.
_EXCHANGES, _EXCHANGES_TOGETHER, _ROWS_EXCHANGES_SHARE = 8.0, 17.0, 0.5


def forest_by_columns(n_rows: int, n_columns: int, threads: Mapping[str, int], n_targets: int = 1) -> float:
    """Return the seconds of a tree where each worker has some columns; ``threads`` are those of each worker.

    Examples
    --------
    >>> two = {"a": 1, "b": 1}
    >>> round(forest_by_columns(100_000, 28, two), 3), round(forest_by_columns(40_000, 100, two), 3)
    (0.172, 0.496)
    >>> round(forest_by_columns(100_000, 28, two, n_targets=3), 3)
    0.218
    """
    together = n_columns > DELEGATED_COLUMNS * len(threads)
    each = _tried(n_rows, n_columns, n_targets, _CELL_TRIED_TOGETHER if together else _CELL_TRIED) + _COLUMNS_CELL * n_columns
    own = n_rows * (each / sum(threads.values()) + _COLUMNS_ROW / min(threads.values())) + _COLUMNS_TREE
    exchange = (EXCHANGES + EXCHANGES_WORKER * min(len(threads), n_columns)) / 6
    return 1e-9 * (own + (_EXCHANGES_TOGETHER if together else _EXCHANGES) * exchange + _coordinator(n_rows))


def forest_by_rows(rows: Mapping[str, int], n_columns: int, threads: Mapping[str, int], n_targets: int = 1) -> float:
    """Return the seconds of a tree where each worker keeps so many rows.

    Examples
    --------
    >>> two = {"a": 1, "b": 1}
    >>> round(forest_by_rows({"a": 50_000, "b": 50_000}, 28, two), 3), round(forest_by_rows({"a": 20_000, "b": 20_000}, 100, two), 3)
    (0.176, 0.139)
    >>> round(forest_by_rows({"a": 50_000, "b": 50_000}, 28, two, n_targets=3), 3)
    0.223
    """
    n_rows = sum(rows.values())
    each = _tried(n_rows, n_columns, n_targets, _CELL_TRIED) + _ROWS_CELL * n_columns + _ROWS_ROW
    own = max(each * n / threads[worker] for worker, n in rows.items()) + _ROWS_DRAW * n_rows + _ROWS_TREE
    return 1e-9 * (own + _coordinator(n_rows)) + _ROWS_EXCHANGES_SHARE * seconds_beside_rows(len(rows))


def _tried(n_rows: int, n_columns: int, n_targets: int, each: float) -> float:
    """Return what a row takes in the columns tried, down to the end."""
    return (each + _CELL_TRIED_FURTHER * (n_targets - 1)) * math.log2(max(2, n_rows)) * max(1.0, _TRIED * n_columns)


def _coordinator(n_rows: int) -> float:
    return _COORDINATOR_ROW * n_rows + _COORDINATOR_TREE
