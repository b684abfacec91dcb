"""What fits would take on clusters larger than ours: arithmetic on measured costs. ``python -m benchmarks.model`` prints it as a table.

Boosting, a tree over column shards: every worker divides all rows, and searches its own columns; a level is two exchanges, in which the
coordinator gets a bit for each row from the owners of the columns split on, and sends all bits to every worker::

    work      rows * (row + cell * columns of a worker) / speed-up of its threads
    latency   levels * (level + level_worker * workers)
    network   levels * rows / 8 * (workers + 1) / bandwidth of the coordinator's link
    memory    rows * (12 * columns of a worker + 64)

A forest from columns that every worker holds whole: each thread grows trees of its own::

    work      trees / (workers * threads), rounded up, * rows * log2(rows) * columns tried * forest_cell
    memory    rows * (12 * columns + 64 * threads)

Not in it: loading and presorting, workers that differ, networks that others use too, memory that becomes slower the more of it is used (the
costs of a row and of a cell are those of tables that caches help with, so predictions for very many rows are on the hopeful side).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dtrees.cluster.data.memory import CELL, EXCHANGES, EXCHANGES_WORKER, ROW_TOGETHER

#: Row numbers have 32 bits.
MOST_ROWS = 2**32 - 1
ROWS = (10**7, 10**8, 10**9, 10**10)
WORKERS = (4, 40, 400)


@dataclass(frozen=True)
class Costs:
    """Measured costs, in seconds, of one thread where threads matter.

    Attributes
    ----------
    row, cell : float
        Of a tree of depth 6 in boosting: for each row, whatever the columns, and for each row and column.
    level, level_worker : float
        Of a level beyond workers' own work: in any case, and for each worker.
    forest_cell : float
        Of a forest's tree of full depth: for each row, column tried in a node, and level of a balanced tree (the logarithm of the rows).
    speed_up : float
        By the threads of a worker, when all work on the same tree.
    bytes_cell, bytes_row : float
        Of a worker's memory, for what it holds of columns, and for rows.
    """

    row: float
    cell: float
    level: float
    level_worker: float
    forest_cell: float
    speed_up: float = 1.0
    bytes_cell: float = 12.0
    bytes_row: float = 64.0


@dataclass(frozen=True)
class Cluster:
    """Workers, all alike.

    Attributes
    ----------
    workers, threads : int
        Threads are those of a worker.
    memory : float
        Bytes of a worker.
    bandwidth : float
        Bytes a second of a worker's link, one way.
    """

    workers: int
    threads: int = 4
    memory: float = 64e9
    bandwidth: float = 1.25e9


class Shape(NamedTuple):
    """A table, and the workers that boost on it."""

    n_rows: int
    n_columns: int
    n_workers: int


@dataclass(frozen=True)
class Prediction:
    """What a fit would take.

    Attributes
    ----------
    work, latency, network : float
        Parts of the seconds of a tree (boosting) or of the whole forest.
    to_worker : float
        Bytes that the coordinator sends each worker in a level.
    memory : float
        Bytes of a worker.
    limits : tuple of str
        What does not fit, or does not help.
    """

    work: float
    latency: float
    network: float
    to_worker: float
    memory: float
    limits: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """All parts together."""
        return self.work + self.latency + self.network


def boosting(costs: Costs, cluster: Cluster, n_rows: int, n_columns: int, depth: int = 6) -> Prediction:
    """Predict a tree of boosting over column shards.

    Examples
    --------
    A million rows and 8 columns on 2 workers: a second for the rows and 4 for the cells, a second for the latency of 5 levels, and for
    each of them 3 times a million bits.

    >>> costs = Costs(row=1e-6, cell=1e-6, level=0.1, level_worker=0.05, forest_cell=0.0)
    >>> boosting(costs, Cluster(2, threads=1, bandwidth=1_250_000), 1_000_000, 8, depth=5)
    Prediction(work=5.0, latency=1.0, network=1.5, to_worker=125000.0, memory=112000000.0, limits=())
    """
    used = min(cluster.workers, n_columns)
    columns = -(-n_columns // used)
    # A tree of another depth divides and searches all rows as many times more or less.
    work = n_rows * (costs.row + costs.cell * columns) * (depth / 6 if depth > 6 else 1.0) / costs.speed_up
    latency = depth * (costs.level + costs.level_worker * used)
    network = depth * n_rows / 8 * (used + 1) / cluster.bandwidth
    memory = n_rows * (costs.bytes_cell * columns + costs.bytes_row)
    limits = [*_limits(n_rows, memory, cluster, n_rows * costs.bytes_row)]
    if used < cluster.workers:
        limits.append(f"{cluster.workers - used} workers have no column")
    if network > work + latency:
        limits.append("the coordinator's link takes most of the time")
    return Prediction(work, latency, network, n_rows / 8, memory, tuple(limits))


def forest(costs: Costs, cluster: Cluster, n_rows: int, n_columns: int, n_trees: int = 100, tried: float = 1 / 3) -> Prediction:
    """Predict a forest of full depth from columns that every worker holds whole; ``tried`` is the share of columns tried in a node.

    Examples
    --------
    >>> costs = Costs(row=0.0, cell=0.0, level=0.0, level_worker=0.0, forest_cell=1e-6)
    >>> forest(costs, Cluster(2, threads=2), 1024, 10, n_trees=10, tried=0.5).work  # three trees in turn for each thread
    0.1536
    """
    in_turn = math.ceil(n_trees / (cluster.workers * cluster.threads))
    work = in_turn * n_rows * math.log2(max(n_rows, 2)) * tried * n_columns * costs.forest_cell
    state = n_rows * costs.bytes_row * cluster.threads
    memory = n_rows * costs.bytes_cell * n_columns + state
    limits = [*_limits(n_rows, memory, cluster, state)]
    if cluster.workers * cluster.threads > n_trees:
        limits.append("more threads than trees")
    return Prediction(work, 0.0, 0.0, 0.0, memory, tuple(limits))


def _limits(n_rows: int, memory: float, cluster: Cluster, state: float) -> Iterator[str]:
    if n_rows > MOST_ROWS:
        yield f"more than {MOST_ROWS:,} rows"
    if state > cluster.memory:
        yield f"the rows' state alone ({_size(state)}) exceeds a worker's memory"
    elif memory > cluster.memory:
        yield "exceeds a worker's memory"


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:,.0f} GB" if n_bytes >= 9.5e9 else f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"


def short(n: int) -> str:
    """Return a number of rows in few letters.

    Examples
    --------
    >>> short(10**7), short(10**9)
    ('10M', '1G')
    """
    return f"{n / 1e9:g}G" if n >= 1e9 else f"{n / 1e6:g}M"


def table(costs: Costs, n_columns: int = 100, rows: Iterable[int] = ROWS, workers: Iterable[int] = WORKERS) -> str:
    """Return a Markdown table of predictions for boosting and forests."""
    heading = (
        "rows",
        "workers",
        "boosting: s a tree",
        "of it network",
        "bits to each a level",
        "memory of each",
        "forest of 100: s",
        "limits",
    )
    lines = [heading, ("---",) * len(heading)]
    workers = list(workers)
    for n_rows in rows:
        for n_workers in workers:
            boosted, grown = (predict(costs, Cluster(n_workers), n_rows, n_columns) for predict in (boosting, forest))
            whole = any("memory" in limit or "rows" in limit for limit in grown.limits)
            lines.append(
                (
                    short(n_rows), str(n_workers), f"{boosted.seconds:,.3g}", f"{boosted.network / boosted.seconds:.0%}",
                    _size(boosted.to_worker), _size(boosted.memory),
                    f"does not fit: {_size(grown.memory)} each" if whole else f"{grown.seconds:,.0f}", "; ".join(boosted.limits),
                )
            )  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


#: A row, a cell and a level: as placement counts them. A forest's cell: ``model``. The speed-up of 4 threads in a process: four cores
#: (on two hyperthreads of one core it is 1.49).
MEASURED = Costs(
    row=1e-9 * ROW_TOGETHER,
    cell=1e-9 * CELL,
    level=1e-9 * EXCHANGES / 6,
    level_worker=1e-9 * EXCHANGES_WORKER / 6,
    forest_cell=9.1e-9,
    speed_up=1.83,
)


if __name__ == "__main__":
    print(table(MEASURED))
