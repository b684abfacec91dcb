"""What a tree of boosting would take where rows stay where they are, on clusters larger than ours; see :mod:`benchmarks.model`.

``python -m benchmarks.rows_model FILE`` draws it, with what LightGBM has published of clusters of its own. A tree over rows::

    work      a worker's rows * (row + cell * columns) / speed-up of its threads
    search    column * (columns + what a worker is sent of columns, from all workers) / 2 / speed-up
    latency   tree + worker * workers + peer * others that a worker sends to
    network   what a worker is sent: sums of the columns that it searches, from all workers, and a share of rows, over its link
    memory    a worker's rows * (bytes_cell * columns + bytes_row)

Not in it: loading, workers that differ, networks that others use too, large memory that is slower than small; as in all of this model, the
costs of a row and of a cell are those of tables of a million rows. Nor is the time in it that a message is on its way.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.model import MEASURED, MOST_ROWS, ROWS, Cluster, Prediction, boosting, short
from benchmarks.plots import draw_lines
from benchmarks.results import Point
from dtrees.cluster.data.memory import ROWS_CELL, ROWS_COLUMN, ROWS_PEER, ROWS_ROW, ROWS_TREE, ROWS_WORKER, sums_received

_WORKERS = (1, 2, 4, 8, 16, 40, 100, 200, 400)
#: Seconds a tree of 255 leaves, on 1.7G rows x 67 columns, by machines of 16 threads and links of 54 Gbit/s (its data-parallel learner):
#: "Parallel Experiment" of https://lightgbm.readthedocs.io/en/stable/Experiments.html
LIGHTGBM = {1: 627.8, 2: 311.0, 4: 156.0, 8: 80.0, 16: 42.0}


@dataclass(frozen=True)
class RowCosts:
    """Measured costs, in seconds, of one thread where threads matter, for a tree of depth 6.

    Attributes
    ----------
    row, cell : float
        Of a worker's own rows.
    column : float
        Of what a worker sums, sends, receives and searches for a column, whatever its rows.
    tree : float
        Of a tree in any case: of a worker, and of the coordinator.
    worker : float
        Of the coordinator, for its messages to a worker, and for the replies.
    peer : float
        Of a worker, for its messages to another one that it talks to, and for those from there.
    speed_up : float
        By the threads of a worker.
    bytes_column, bytes_cell : float
        What a worker sends for a column of sums, and for rows that are sent, for each of its cells.
    bytes_held, bytes_row : float
        Of a worker's memory: for a cell of float32, and for a row.
    """

    row: float
    cell: float
    column: float
    tree: float
    worker: float
    peer: float
    speed_up: float = 1.0
    bytes_column: float = 0.3e6
    bytes_cell: float = 0.08
    bytes_held: float = 6.0
    bytes_row: float = 80.0


def boosting_by_rows(costs: RowCosts, cluster: Cluster, n_rows: int, n_columns: int) -> Prediction:
    """Predict a tree of depth 6 over rows that stay where they are.

    Examples
    --------
    Two workers of 500,000 rows each: a second for rows, 4 for cells; 8 columns are summed, and 2 * 4 searched, for half a second each.

    >>> costs = RowCosts(2e-6, 1e-6, 0.5, tree=0.25, worker=0.125, peer=0.5, bytes_column=1e6, bytes_cell=0.0)
    >>> boosting_by_rows(costs, Cluster(2, threads=1, bandwidth=1e6), 1_000_000, 8)
    Prediction(work=9.0, latency=1.0, network=4.0, to_worker=4000000.0, memory=64000000.0, limits=())
    """
    workers = cluster.workers
    own, received = -(-n_rows // workers), sums_received(workers, n_columns)
    work = own * (costs.row + costs.cell * n_columns) + costs.column * (n_columns + received) / 2
    searched = -(-n_columns // min(workers, n_columns))
    sent = costs.bytes_column * (received - searched) + costs.bytes_cell * own * n_columns
    memory = own * (costs.bytes_held * n_columns + costs.bytes_row)
    limits = [*([f"more than {MOST_ROWS:,} rows of a worker"] if own > MOST_ROWS else [])]
    if memory > cluster.memory:
        limits.append("exceeds a worker's memory")
    latency = costs.tree + costs.worker * workers + costs.peer * (workers - 1)
    return Prediction(work / costs.speed_up, latency, sent / cluster.bandwidth, sent, memory, tuple(limits))


#: See :mod:`dtrees.cluster.data.memory`; the speed-up of 4 threads is that of :data:`benchmarks.model.MEASURED`.
ROWS_MEASURED = RowCosts(
    row=1e-9 * ROWS_ROW, cell=1e-9 * ROWS_CELL, column=1e-9 * ROWS_COLUMN, tree=1e-9 * ROWS_TREE, worker=1e-9 * ROWS_WORKER,
    peer=1e-9 * ROWS_PEER, speed_up=MEASURED.speed_up,
)  # fmt: skip


def points(n_columns: int = 100) -> Iterator[Point]:
    """Yield what is drawn: predictions for workers of 4 threads and 10 Gbit/s, and what is published."""
    title = f"A tree of boosting, {n_columns} columns, workers of 4 threads, 10 Gbit a second: predicted"
    for n_rows in ROWS:
        for workers in _WORKERS:
            seconds = boosting_by_rows(ROWS_MEASURED, Cluster(workers), n_rows, n_columns).seconds
            yield Point(title, f"dtrees, {short(n_rows)} rows, by rows", workers, seconds, "workers", "seconds a tree")
    for workers in _WORKERS:
        seconds = boosting(MEASURED, Cluster(workers), 10**9, n_columns).seconds
        yield Point(title, "1G rows, by columns", workers, seconds, "workers", "seconds a tree")
    for machines, seconds in LIGHTGBM.items():
        yield Point(title, "LightGBM, published: 1.7G x 67, 16 threads", machines, seconds, "workers", "seconds a tree")


def table(n_columns: int = 100) -> str:
    """Return a Markdown table of predictions."""
    lines = [("rows", "workers", "s a tree", "of it latency", "of it network", "sent to each a tree", "memory of each", "limits")]
    lines.append(("---",) * len(lines[0]))
    for n_rows in ROWS:
        for workers in (4, 40, 400):
            one = boosting_by_rows(ROWS_MEASURED, Cluster(workers), n_rows, n_columns)
            shares = (f"{part / one.seconds:.0%}" for part in (one.latency, one.network))
            sizes = (f"{one.to_worker / 1e6:,.0f} MB", f"{one.memory / 1e9:,.1f} GB")
            lines.append((short(n_rows), str(workers), f"{one.seconds:,.3g}", *shares, *sizes, "; ".join(one.limits)))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    print(table())
    for name in sys.argv[1:]:
        draw_lines(Path(name), list(points()))
