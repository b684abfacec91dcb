"""What a tree of boosting takes on a cluster: what ``placement="auto"`` chooses by, and :mod:`benchmarks.model` predicts with.

A tree of depth 6, in nanoseconds of one thread, as ``python -m benchmarks model`` measures and prints them. Measured on a machine of two
hyperthreads of one core, with nothing else to do. For 1M x 28, 100 trees, two workers of a thread, they give 14.6 s by rows, 11.7 by
columns and 6.8 on one worker of two threads; such fits took 18.0, 13.2 and 7.5 s with loading.

by one worker       every row, and every cell
by columns          every row, whatever the columns of a worker; its cells; exchanges
by rows             a worker's own rows and their cells; what it searches and is sent for that, by columns; more exchanges

Threads of a worker are taken to share all that. Networks are taken to be no limit, which holds for 10 Gbit/s and a hundred columns: a
worker sends well under a megabyte for a column.
"""

from __future__ import annotations

from collections.abc import Mapping

#: A cell, and a row besides where a worker has all columns, and where it has some. The first and the last were measured by columns; a row
#: alone is an earlier figure, with which the whole fit on one worker comes out as above.
CELL, ROW_ALONE, ROW_TOGETHER = 3.6, 35.0, 43.0
#: The exchanges of a tree by columns: six levels, in any case, and for each worker.
EXCHANGES, EXCHANGES_WORKER = 6 * 1.84e6, 6 * 1.07e6
#: By rows: a cell and a row of a worker's own (fitted: rows cost nothing that cells do not tell of); a column of sums that a worker makes
#: and sends, or is sent and searches. Of the first trees a column takes 0.5e6; here it is what the slowest of 2, 4 and 8 shards took over
#: trees after a hundred, which have most of a fit's time.
ROWS_CELL, ROWS_ROW, ROWS_COLUMN = 3.93, 0.0, 1.0e6
#: What else a tree by rows takes: in any case, and for each worker. Workers of that machine wait for its processor as well as for one
#: another, which makes the second larger than it would be on machines of their own.
ROWS_EXCHANGES, ROWS_EXCHANGES_WORKER = 19.5e6, 21.8e6


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
    0.1461
    """
    own = max(n * (ROWS_ROW + ROWS_CELL * n_columns) / threads[worker] for worker, n in rows.items())
    searched = len(rows) * -(-n_columns // min(len(rows), n_columns))
    search = ROWS_COLUMN * (n_columns + searched) / 2 / min(threads[worker] for worker in rows)
    return 1e-9 * (own + search + ROWS_EXCHANGES + ROWS_EXCHANGES_WORKER * len(rows))
