"""What a tree takes on a cluster: what ``placement="auto"`` chooses by, and :mod:`benchmarks.model` predicts with.

A tree of boosting, of depth 6, in nanoseconds of one thread, as ``python -m benchmarks model`` measures and prints them; here on a machine
of two hyperthreads of one core. For 1M x 28, 100 trees of squared error, they give 12.1 s by rows on two workers of a thread, 11.7 by
columns, and 6.8 on one worker of two threads. Such fits took 14.8, 11.9 and 8.5 s with loading, with nothing else to do; of two classes
17.7, 14.9 and 11.7.

by one worker       every row, and every cell
by columns          every row, whatever the columns of a worker; its cells; exchanges
by rows             a worker's own rows and their cells; what it searches and is sent for that, by columns; what a tree takes of a shard
                    in any case; what all replies take, for each worker; a worker's messages to others, for each that it talks to

Threads of a worker are taken to share what it does with rows and columns. Networks are taken to be no limit, which holds for 10 Gbit/s and
a hundred columns: a worker sends well under a megabyte for a column.

A tree of a forest is grown to its end, from draws of as many rows as there are, with a third of the columns tried in a node. It takes a
cell tried each time that rows are halved, a cell and a row of a worker's own, and a row of all, where workers divide all rows or make all
draws, and where the coordinator puts the tree together. For classes, with fewer columns tried, it takes about half as long by either
placement. Trees took, in milliseconds of a processor, of the busiest shard and of the
coordinator, three trees side by side (one process, 8 to 30 others beside it):

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

from dtrees.split.policy import DELEGATED_COLUMNS

#: A cell, and a row besides where a worker has all columns, and where it has some. The first and the last were measured by columns; a row
#: alone is an earlier figure, with which the whole fit on one worker comes out as above.
CELL, ROW_ALONE, ROW_TOGETHER = 3.6, 35.0, 43.0
#: The exchanges of a tree by columns: six levels, in any case, and for each worker.
EXCHANGES, EXCHANGES_WORKER = 6 * 1.84e6, 6 * 1.07e6
#: By rows, a row and a cell of a worker's own; a column of sums that a worker makes and sends, or is sent and searches. Fitted to the
#: seconds of a processor that the slowest shards of each step took together, all shards in one process: medians of 60 trees of 100,000 to a
#: million rows, 28 or 84 columns and 2, 4 or 8 shards, which these costs meet within 8 %.
ROWS_ROW, ROWS_CELL, ROWS_COLUMN = 64.0, 4.4, 0.27e6
#: A tree in any case: 7.0e6 of them of a shard, in the same fit; 5.3e6 for the 47 steps in which shards wait for one another, measured with
#: shards in processes of their own (20,000 and 100,000 x 28; 2, 4 and 8 workers); and 3.4e6 to decide on splits, which each shard does.
ROWS_TREE = 15.7e6
#: The coordinator's message to a worker, and its reply: 0.12e6, measured likewise; and what each shard has to do with the replies of
#: another one, wherever they come from: 35 us each for eight of them.
ROWS_WORKER = 0.4e6
#: What a worker has to do with each other one that it sends to and hears of, 47 times in a tree: 1.6e6 to send and to receive, measured
#: likewise, and 1.4e6 to take in what comes, and to wait for the slowest of more workers, of the fit of all shards in one process.
ROWS_PEER = 3.0e6

#: Of a forest: columns tried in a node, of all; a row in a column tried, each time that rows are halved, where small nodes are grown by one
#: worker each, and by all together; and besides for each target beyond the first.
TRIED, CELL_TRIED, CELL_TRIED_TOGETHER, CELL_TRIED_FURTHER = 1 / 3, 5.8, 36.0, 3.0
#: A row of a worker's own by rows; a row of all by columns, whatever a worker's columns; a row of all, and a tree, by either.
FOREST_ROWS_ROW, FOREST_ROW_TOGETHER, FOREST_ROW, FOREST_TREE = 950.0, 200.0, 420.0, 24e6
#: Levels whose exchanges a tree takes, of three side by side, by columns: likewise. By rows it takes half of those of boosting.
FOREST_LEVELS, FOREST_LEVELS_TOGETHER = 8.0, 17.0


def seconds_alone(n_rows: int, n_columns: int, threads: int) -> float:
    """Return the seconds of a tree on a worker that has all columns.

    Examples
    --------
    >>> round(seconds_alone(1_000_000, 28, threads=1), 4)
    0.1358
    """
    return 1e-9 * n_rows * (ROW_ALONE + CELL * n_columns) / threads


def seconds_by_columns(n_rows: int, n_columns: int, threads: Mapping[str, int]) -> float:
    """Return the seconds of a tree where each worker has some columns; ``threads`` are those of each worker.

    Examples
    --------
    >>> round(seconds_by_columns(1_000_000, 28, {"a": 1, "b": 1}), 4)
    0.1173
    """
    exchanges = EXCHANGES + EXCHANGES_WORKER * min(len(threads), n_columns)
    return 1e-9 * (n_rows * (ROW_TOGETHER / min(threads.values()) + CELL * n_columns / sum(threads.values())) + exchanges)


def seconds_by_rows(rows: Mapping[str, int], n_columns: int, threads: Mapping[str, int]) -> float:
    """Return the seconds of a tree where each worker keeps so many rows.

    Examples
    --------
    >>> round(seconds_by_rows({"a": 500_000, "b": 500_000}, 28, {"a": 1, "b": 1}), 4)
    0.1207
    """
    own = max(n * (ROWS_ROW + ROWS_CELL * n_columns) / threads[worker] for worker, n in rows.items())
    search = ROWS_COLUMN * (n_columns + sums_received(len(rows), n_columns)) / 2 / min(threads[worker] for worker in rows)
    return 1e-9 * (own + search) + seconds_beside_rows(len(rows))


def seconds_beside_rows(n_workers: int) -> float:
    """Return the seconds of a tree by rows that go with the workers, whatever their rows and columns.

    Examples
    --------
    >>> [round(seconds_beside_rows(n), 3) for n in (2, 16, 400)]
    [0.019, 0.067, 1.373]
    """
    return 1e-9 * (ROWS_TREE + ROWS_WORKER * n_workers + ROWS_PEER * (n_workers - 1))


def sums_received(n_workers: int, n_columns: int) -> int:
    """Return how many sums of a column the worker is sent that is sent most, its own among them.

    Examples
    --------
    Of each of four workers, those of 25 columns.

    >>> sums_received(4, 100), sums_received(400, 100)
    (100, 400)
    """
    return n_workers * -(-n_columns // min(n_workers, n_columns))


def forest_by_columns(n_rows: int, n_columns: int, threads: Mapping[str, int], n_targets: int = 1) -> float:
    """Return the seconds of a forest's tree where each worker has some columns; see :func:`seconds_by_columns`.

    Examples
    --------
    >>> two = {"a": 1, "b": 1}
    >>> round(forest_by_columns(100_000, 28, two), 3), round(forest_by_columns(40_000, 100, two), 3)
    (0.168, 0.491)
    >>> round(forest_by_columns(100_000, 28, two, n_targets=3), 3)
    0.214
    """
    together = n_columns > DELEGATED_COLUMNS * len(threads)
    each = _tried(n_rows, n_columns, n_targets, CELL_TRIED_TOGETHER if together else CELL_TRIED) + CELL * n_columns
    own = n_rows * (each / sum(threads.values()) + FOREST_ROW_TOGETHER / min(threads.values()) + FOREST_ROW) + FOREST_TREE
    levels = FOREST_LEVELS_TOGETHER if together else FOREST_LEVELS
    return 1e-9 * (own + levels / 6 * (EXCHANGES + EXCHANGES_WORKER * min(len(threads), n_columns)))


def forest_by_rows(rows: Mapping[str, int], n_columns: int, threads: Mapping[str, int], n_targets: int = 1) -> float:
    """Return the seconds of a forest's tree where each worker keeps so many rows; see :func:`seconds_by_rows`.

    Examples
    --------
    >>> two = {"a": 1, "b": 1}
    >>> round(forest_by_rows({"a": 50_000, "b": 50_000}, 28, two), 3), round(forest_by_rows({"a": 20_000, "b": 20_000}, 100, two), 3)
    (0.174, 0.137)
    >>> round(forest_by_rows({"a": 50_000, "b": 50_000}, 28, two, n_targets=3), 3)
    0.221
    """
    n_rows = sum(rows.values())
    each = _tried(n_rows, n_columns, n_targets, CELL_TRIED) + ROWS_CELL * n_columns + FOREST_ROWS_ROW
    own = max(each * n / threads[worker] for worker, n in rows.items())
    return 1e-9 * (own + FOREST_ROW * n_rows + FOREST_TREE) + seconds_beside_rows(len(rows)) / 2


def _tried(n_rows: int, n_columns: int, n_targets: int, each: float) -> float:
    """Return what a row takes in the columns tried, down to the end."""
    return (each + CELL_TRIED_FURTHER * (n_targets - 1)) * math.log2(max(2, n_rows)) * max(1.0, TRIED * n_columns)
