"""Fits on a table in this process: one shard with all columns, whose methods are called directly, without messages.

All threads grow a boosted tree together; for a forest, each thread grows some of the trees.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import scores_of
from dtrees.engine.plan.plans import BoostingPlan, Callback, FitInterrupted, ForestPlan, ForestResult, Progress, Weights, watch
from dtrees.engine.protocol.exchange import Shards, alone
from dtrees.engine.protocol.messages import NO_SCORES, Scores
from dtrees.engine.shard.shard import Shard
from dtrees.engine.shard.tree import grow_alone
from dtrees.engine.threads import Threads
from dtrees.split.compile.cache import PATCHES_NUMBA, is_cached
from dtrees.split.compile.helper import allow_helper, start_helper
from dtrees.split.grow.parallel_subtree import grow_together
from dtrees.split.policy import SERIAL_FOREST_CELLS
from dtrees.split.table.sparse_columns import AnyColumns, presort_cells
from dtrees.tree.tree import Tree

_logger = logging.getLogger("dtrees")
_noted: set[bool] = set()
#: Processor time of compiling, in seconds.
_SECONDS = 25 if PATCHES_NUMBA else 40


def note_compilation(sparse: bool = False) -> None:
    """Start a helper process for compiling, and log which kernels will be compiled and how long that takes, unless they are cached.

    At most once in a process for sparse tables, and once for dense ones.
    """
    kernel = presort_cells if sparse else grow_together  # the first ones to be compiled
    if sparse in _noted or kernel.signatures:
        return
    _noted.add(sparse)
    allow_helper()
    if not is_cached(f"{kernel.__module__}.{kernel.__name__}"):
        start_helper()  # starts when there is something to compile
        what = f"kernels for {'sparse' if sparse else 'dense'} tables"
        _logger.warning(f"dtrees compiles {what}, once on this machine: about {_SECONDS} s of processor time.")


class LocalExecutor:
    """One shard with all columns, in this process. It grows each tree of boosting and adds it to the predictions in one call.

    Trees of very wide tables are grown by levels, in several calls.

    Parameters
    ----------
    columns, target, weight
        See :class:`~dtrees.engine.shard.shard.Shard`.
    n_threads : int
    n_trees : int, default=1
        Number of trees that grow side by side and share the threads.
    """

    def __init__(self, columns: AnyColumns, target: NDArray[Any], weight: Weights, n_threads: int, n_trees: int = 1) -> None:
        self._n_trees = n_trees
        self.n_rows, self.n_columns = columns.n_rows, columns.n_columns
        self.shard = Shard(columns, np.arange(self.n_columns, dtype=np.int32), self.n_columns, target, weight, n_threads)

    def begin(self, plan: BoostingPlan | ForestPlan, initial: NDArray[np.float64] | None = None) -> LocalExecutor:
        """Begin a fit; ``initial`` is the initial raw prediction, shape (K,), or that of each row, shape (K, n_rows)."""
        self.shard.begin(Shards(plan, "", 0, 0, 1, self.n_rows, self.n_columns), initial, self._n_trees)
        return self

    @property
    def initial(self) -> NDArray[np.float64]:
        """The initial raw prediction of boosting, shape (K,)."""
        return self.shard.initial

    def replay_tree(self, tree: Tree, place: int) -> None:
        """Add the values of a tree grown earlier, given its place in its round, to the predictions of all rows."""
        alone(self.shard.replay_tree(tree, place))

    def grow_tree(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Grow a tree of boosting; with ``score``, compute the mean losses afterwards."""
        shard, rows = self.shard, self.shard.trees[0]
        grown = shard.add_boosted(grow_alone(rows, tree, output, learning_rate), output)
        return grown, scores_of([rows.boosting.losses(0, self.n_rows)]) if score else NO_SCORES

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.shard.close()


def grow_forest(
    columns: AnyColumns | Callable[[], AnyColumns],
    target: NDArray[Any],
    weight: Weights,
    plan: ForestPlan,
    first: int,
    last: int,
    n_threads: int,
    callback: Callback | None = None,
) -> ForestResult:
    """Grow the trees ``first`` to ``last - 1`` of a forest.

    Parameters
    ----------
    columns : Columns, SparseColumns or callable
        A function transfers ownership of the columns: for a single tree, their memory is released when all its splits are found.
    target : ndarray, shape (n_rows,)
        float64 for regression, class numbers from 0 otherwise.
    weight : ndarray of float64, shape (n_rows,), or None
    plan : ForestPlan
    first, last : int
        A tree depends only on its number, the plan and the table.
    n_threads : int
        Trees grow side by side; with fewer trees than threads, each uses several. Very small tables use a single thread.
    callback : callable, optional
        Called after each tree, by one thread at a time; returning True leaves out the trees that have not started.

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
    shard = executor.shard
    del columns
    free = list(range(side_by_side))  # free slots
    began = time.perf_counter()
    stopped = threading.Event()
    finished: dict[int, Tree] = {}
    lock = threading.Lock()

    def grow(number: int) -> None:
        if stopped.is_set():
            return
        index = free.pop()  # list.pop and append are atomic
        try:
            tree = alone(shard.grow_of_forest(number, index))
            shard.close_tree(number)
        except BaseException:
            stopped.set()
            raise
        finally:
            free.append(index)
        with lock:
            finished[number] = tree
            if callback is not None and callback(Progress(len(finished), n_trees, time.perf_counter() - began)):
                stopped.set()

    def done() -> list[Tree]:
        """Return the trees up to the first unfinished one."""
        with lock:
            return [finished[number] for number in takewhile(finished.__contains__, range(first, last))]

    watch(callback, lambda: ForestResult([tree for _, tree in sorted(finished.items())]))
    try:
        executor.begin(plan)
        if last_tree and not plan.rules.categorical:  # sets of categories are found from the columns
            shard.trees[0].when_found = shard.give_up_columns
        with Threads(side_by_side) as threads:
            threads.map(grow, range(first, last), give_up=shard.give_up)
    except KeyboardInterrupt as error:
        raise FitInterrupted(ForestResult(done())) from error
    finally:
        shard.close()
    return ForestResult(done(), *(shard.count_votes() if plan.out_of_bag else ()))
