"""What a tree of boosting takes on a cluster: what ``placement="auto"`` chooses by, and :mod:`benchmarks.model` predicts with.

A tree of depth 6, in nanoseconds of one thread. ``python -m benchmarks model`` measures all of it anew and prints it; what is here was
measured on two cores of an AMD EPYC, what is of rows on a busy day.

by one worker       every row, and every cell
by columns          every row, whatever the columns of a worker; its cells; exchanges
by rows             a worker's own rows and their cells; what it searches and is sent for that, by columns; more exchanges

Threads of a worker are taken to share all that. Networks are taken to be no limit, which holds for 10 Gbit/s and a hundred columns: a
worker sends well under a megabyte for a column.
"""

from __future__ import annotations

from collections.abc import Mapping

#: A cell, and a row besides, where a worker has all columns and where it has some: boosting of 1M x 28, 1M x 80 and 300k x 28.
CELL, ROW_ALONE, ROW_TOGETHER = 2.0, 35.0, 65.0
#: The exchanges of a tree by columns.
EXCHANGES = 30e6
#: By rows: a cell and a row of a worker's own; a column of sums that a worker makes and sends, or is sent and searches. Measured by the
#: time of a processor that fits of 75k to 300k x 28 and 150k x 84 took over 1, 2 and 4 shards in one process, beside fits without shards.
ROWS_CELL, ROWS_ROW, ROWS_COLUMN = 2.3, 67.0, 0.1e6
#: What else a tree by rows takes: in any case (8 ms of it is work of each worker), and for each worker. Not measured as well as the others:
#: a share of what was left of a tree on two workers of processes, when it had three times as many exchanges.
ROWS_EXCHANGES, ROWS_EXCHANGES_WORKER = 45e6, 2e6


def seconds_alone(n_rows: int, n_columns: int, threads: int) -> float:
    """Return the seconds of a tree on a worker that has all columns.

    Examples
    --------
    >>> seconds_alone(1_000_000, 28, threads=1)
    0.091
    """
    return 1e-9 * n_rows * (ROW_ALONE + CELL * n_columns) / threads


def seconds_by_columns(n_rows: int, n_columns: int, threads: Mapping[str, int]) -> float:
    """Return the seconds of a tree where each worker has some columns; ``threads`` are those of each worker.

    Examples
    --------
    >>> round(seconds_by_columns(1_000_000, 28, {"a": 1, "b": 1}), 4)
    0.123
    """
    return 1e-9 * (n_rows * (ROW_TOGETHER / min(threads.values()) + CELL * n_columns / sum(threads.values())) + EXCHANGES)


def seconds_by_rows(rows: Mapping[str, int], n_columns: int, threads: Mapping[str, int]) -> float:
    """Return the seconds of a tree where each worker keeps so many rows.

    Examples
    --------
    >>> round(seconds_by_rows({"a": 500_000, "b": 500_000}, 28, {"a": 1, "b": 1}), 4)
    0.1175
    """
    own = max(n * (ROWS_ROW + ROWS_CELL * n_columns) / threads[worker] for worker, n in rows.items())
    searched = len(rows) * -(-n_columns // min(len(rows), n_columns))
    search = ROWS_COLUMN * (n_columns + searched) / 2 / min(threads[worker] for worker in rows)
    return 1e-9 * (own + search + ROWS_EXCHANGES + ROWS_EXCHANGES_WORKER * len(rows))
