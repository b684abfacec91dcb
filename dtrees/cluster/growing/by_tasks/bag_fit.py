"""Bags by tasks: each grows a booster from the whole table that its worker holds, on rows that it draws.

What a task grows is a function of its number and the table. Which worker does so, with how many threads, and how often (a lost worker's
tasks are simply run again) leaves no trace in the result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from dtrees.cluster.data.memory import running, worker_capacities
from dtrees.cluster.growing.by_tasks.forest_fit import in_order
from dtrees.cluster.growing.by_tasks.tree_batches import Batches, ForestWorkers
from dtrees.cluster.growing.kernel_shipping import share_kernels
from dtrees.cluster.growing.reporting import Reporting
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.reliability.tasks import Tasks
from dtrees.cluster.transport.events import tell
from dtrees.engine.plan.plans import Callback, Progress
from dtrees.ensemble.backend import GrowOne, Table
from dtrees.split.table.columns import Columns


def grow_bag(table: Table, grow: GrowOne, n: int, callback: Callback | None) -> list[Any]:
    """Return what is grown for the numbers below ``n``, each by a task on a worker that has the table.

    The callback hears of them in their order; when it ends the fit, later ones are left out even where they are grown already.
    """
    columns, fit, began = table.columns, current_fit(), time.perf_counter()
    (block,) = columns.blocks
    about = replace(table, columns=None, target=None, weight=None)
    report = Reporting(fit, "tree", callback)
    workers, batches = ForestWorkers(columns, n), Batches(0, n, size=1)
    with Tasks(columns.client) as tasks:
        futures = []

        def start(capacities: Any) -> None:
            for batch in batches.give(workers.threads(capacities)):
                future = tasks.submit(
                    "booster", _grow, grow, about, block, table.target, table.weight, batch.first, batch.n_threads, fit.name,
                    workers=[batch.worker], allow_other_workers=True, priority=-batch.first,
                )  # fmt: skip
                futures.append(future)

        def finished() -> Iterator[tuple[int, Any]]:
            for i, result in tasks.waiter.as_completed(futures):
                batches.done(i)
                start(running(tasks.waiter.workers))
                yield i, result

        start(worker_capacities(columns.client))
        grown = []
        for result in in_order(finished()):
            grown.append(result)
            if report(Progress(len(grown), n, time.perf_counter() - began)):
                break
    return grown


def _grow(
    grow: GrowOne,
    about: Table,
    columns: Columns,
    target: NDArray[Any],
    weight: NDArray[np.float64] | None,
    number: int,
    n_threads: int,
    name: str,
) -> Any:
    share_kernels()
    began = time.perf_counter()
    table = replace(about, columns=columns, target=target, weight=weight, n_jobs=n_threads)
    result = grow(table, number, current_fit().check_after_tree)
    tell(name, "batch", worker=get_worker().address, seconds=time.perf_counter() - began, trees=1)
    return result
