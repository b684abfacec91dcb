"""Fits on a table in this process: one shard, which has all columns, and whose methods are called without messages.

Rounds of boosting are grown by all threads together; of the independent trees of a forest, each thread grows some.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.session import Requests, Session, Steps, T, replay_tree
from dtrees.engine.coordinator.tree import grow_tree, starting
from dtrees.engine.plan.plans import BoostingPlan, Callback, FitInterrupted, ForestPlan, ForestResult, Progress
from dtrees.engine.protocol.messages import Begun, Scores
from dtrees.engine.shard.shard import Shard
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.threads import Threads
from dtrees.split.policy import SERIAL_FOREST_CELLS
from dtrees.split.table.sparse_columns import AnyColumns, SparseColumns
from dtrees.tree.tree import Tree


class LocalExecutor:
    """One shard with all columns, in this process.

    Parameters
    ----------
    columns, target, weight
        See :class:`~dtrees.engine.shard.shard.Shard`.
    n_threads : int
    n_trees : int, default=1
        Trees that grow side by side, and share the threads.
    """

    n_shards = 1

    def __init__(
        self, columns: AnyColumns, target: NDArray[Any], weight: NDArray[np.float64] | None, n_threads: int, n_trees: int = 1
    ) -> None:
        self.n_trees = n_trees
        self.n_rows, self.n_columns = columns.n_rows, columns.n_columns
        self.shard = Shard(columns, np.arange(self.n_columns, dtype=np.int32), self.n_columns, target, weight, n_threads)
        # A tree of a sparse table is grown whole, by one thread.
        self.whole_threads = 1 if isinstance(columns, SparseColumns) else max(1, n_threads // n_trees)

    def owner(self, columns: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the one shard for every column."""
        return np.zeros(columns.shape[0], np.int64)

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.shard.close()


@dataclass(frozen=True)
class LocalSession(Session):
    """A fit on a table in this process. Threads that grow trees side by side have a slot each, in a session of their own."""

    executor: LocalExecutor  # type: ignore[assignment]  # no messages are sent
    slot: int = 0

    def begin(self, initial: NDArray[np.float64] | None = None) -> Begun:
        """Open the fit."""
        return self.executor.shard.begin(self.fit, self.epoch, self.plan, initial, n_whole=self.executor.n_trees)

    def ask(self, requests: Requests, following: Requests | None = None) -> Mapping[int, Any]:
        """Call the tree under way, or the shard."""
        method, *arguments = requests[0]
        shard = self.executor.shard
        return {0: getattr(shard if method in shard.OWN else shard.trees[self.slot], method)(*arguments)}

    def run(self, programs: Sequence[Steps[T]], is_begun: bool = False) -> list[T]:
        """Carry out the steps of a tree: small ones take no longer than some steps of Python."""
        (steps,), replies = programs, None
        try:
            while True:
                replies = self.ask(steps.send(cast(Any, replies)))
        except StopIteration as end:
            return [end.value]


class LocalFit:
    """Boosts on a table in this process: the shard grows each tree, and adds it to the predictions, in one call.

    Very wide tables are grown by levels, by several calls, and so are all while the kernels that grow whole trees are being compiled.

    Parameters
    ----------
    executor : LocalExecutor
    plan : BoostingPlan
    initial : ndarray of float64, shape (K,) or (K, n_rows), optional
        The raw prediction to start from, of all rows or of each.

    Attributes
    ----------
    initial : ndarray of float64, shape (K,)
    """

    def __init__(self, executor: LocalExecutor, plan: BoostingPlan, initial: NDArray[np.float64] | None = None) -> None:
        self._session = LocalSession(executor, plan, fit=uuid.uuid4().hex)
        self.initial = self._session.begin(initial).initial
        self._at_once = self._session.subtree_rows >= executor.n_rows
        (self._tree,) = executor.shard.trees

    def replay_tree(self, tree: Tree, output: int) -> None:
        """Take over a tree grown earlier: add its values to the predictions of every row."""
        replay_tree(self._session, tree, output)

    def grow_tree(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Grow a tree; see :func:`dtrees.engine.coordinator.tree.grow_tree`."""
        if self._at_once:
            return self._tree.boost(tree, output, learning_rate, score)
        return grow_tree(self._session, starting(self._session, tree, output), learning_rate, score)


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
