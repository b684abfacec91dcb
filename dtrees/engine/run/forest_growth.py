"""Independent trees: each thread grows whole trees from the shared columns."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from itertools import takewhile
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.tree import grow_tree, starting
from dtrees.engine.plan.plans import Callback, FitInterrupted, ForestPlan, ForestResult, Progress
from dtrees.engine.run.local_executor import LocalExecutor, LocalSession
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.threads import Threads
from dtrees.split.policy import SERIAL_FOREST_CELLS
from dtrees.split.table.sparse_columns import AnyColumns
from dtrees.tree.tree import Tree


def grow_forest(
    columns: AnyColumns | Callable[[], AnyColumns],
    target: NDArray[Any],
    weight: NDArray[np.float64] | None,
    plan: ForestPlan,
    first: int,
    last: int,
    n_threads: int,
    callback: Callback | None = None,
) -> ForestResult:
    """Grow the trees numbered ``first`` to ``last - 1``.

    Parameters
    ----------
    columns : Columns, SparseColumns or callable
        A function that returns them gives them away: if there is one tree, their memory is free again when all its splits are found.
    target : ndarray, shape (n_rows,)
        float64 for regression, class numbers from 0 otherwise.
    weight : ndarray of float64, shape (n_rows,), or None
    plan : ForestPlan
    first, last : int
        A tree depends on its number, the plan and the table only.
    n_threads : int
        Trees grow side by side; where there are fewer trees than threads, each uses several. Very small tables get a single thread.
    callback : callable, optional
        Called after each tree, by one thread at a time; returning True leaves out the trees not yet begun.

    Raises
    ------
    FitInterrupted
        On Ctrl-C.
    """
    n_trees = last - first
    last_tree = callable(columns) and n_trees == 1
    if callable(columns):
        columns = columns()
    if columns.n_rows * columns.n_columns <= SERIAL_FOREST_CELLS:
        n_threads = 1
    side_by_side = max(1, min(n_threads, n_trees))
    executor = LocalExecutor(columns, target, weight, max(1, n_threads), side_by_side)
    del columns
    free = [LocalSession(executor, plan, fit=uuid.uuid4().hex, last_tree=last_tree, slot=slot) for slot in range(side_by_side)]
    began = time.perf_counter()
    stopped = threading.Event()
    finished: dict[int, Tree] = {}
    lock = threading.Lock()

    def grow(number: int) -> Tree | None:
        if stopped.is_set():
            return None
        session = free.pop()  # list.pop and append are atomic
        try:
            tree, _ = grow_tree(session, starting(session, number))
        except BaseException:
            stopped.set()
            raise
        finally:
            free.append(session)
        with lock:
            finished[number] = tree
            if callback is not None and callback(Progress(len(finished), n_trees, time.perf_counter() - began)):
                stopped.set()
        return tree

    try:
        free[0].begin()
        with Threads(side_by_side) as threads:
            grown = threads.map(grow, range(first, last), give_up=executor.shard.give_up)
    except KeyboardInterrupt as error:
        with lock:
            done = list(takewhile(lambda tree: tree is not None, map(finished.get, range(first, last))))
        raise FitInterrupted(ForestResult(cast(list[Tree], done))) from error
    finally:
        executor.shard.close()
    # A fit that was stopped keeps the trees up to the first that was left out.
    trees = cast(list[Tree], list(takewhile(lambda tree: tree is not None, grown)))
    bag = executor.shard.target.out_of_bag if isinstance(executor.shard.target, ForestTarget) else None
    return ForestResult(trees) if bag is None else ForestResult(trees, bag.sum, bag.count, bag.exponent)
