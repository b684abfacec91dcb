"""What a boosting that outlasts its shards does with trees, wherever its shards have columns or rows: the tree is the transaction.

When shards are lost, the tree under way is forgotten, all shards are brought to the state after the last finished tree, and it is grown
again.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, Protocol, TypeVar

from dtrees.engine.coordinator.lasting import Lasting
from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.protocol.messages import Scores
from dtrees.tree.tree import Tree


class TreeLog(Protocol):
    """Keeps finished trees where they outlast the coordinator."""

    def recall(self) -> list[tuple[Tree, Scores]]:
        """Return the trees that an earlier run of this very fit has kept, from the first one on."""

    def keep(self, tree: Tree, scores: Scores) -> None:
        """Keep the next tree."""


class _Repairable(Protocol):
    """What is asked of either kind of executor."""

    def wants_repair(self) -> bool:
        """Tell whether shards are to be replaced before the next tree."""


E = TypeVar("E", bound=_Repairable)


class TreeByTree(Lasting, Generic[E]):
    """Grows trees one after the other; those that a log has kept are not grown again but replayed.

    Parameters
    ----------
    executor : Executor or RowsExecutor
    plan : BoostingPlan
    log : TreeLog, optional
    """

    def __init__(self, executor: E, plan: BoostingPlan, log: TreeLog | None) -> None:
        self._executor, self._log = executor, log
        self._n_trees = plan.n_rounds * plan.loss.n_outputs
        self._finished: list[tuple[Tree, int]] = []
        self._recalled = [] if log is None else log.recall()[::-1]

    def replay_tree(self, tree: Tree, output: int = 0) -> None:
        """Take over a tree grown earlier: add its values to the predictions of every row."""
        self._lasting(lambda: self._replay(tree, output))
        self._finished.append((tree, output))

    def grow_tree(self, tree: int, output: int = 0, learning_rate: float = 1.0, score: bool = False) -> tuple[Tree, Scores]:
        """Grow a tree; see :func:`dtrees.engine.coordinator.tree.grow_tree`."""
        if self._recalled:
            grown, scores = self._recalled.pop()
            self.replay_tree(grown, output)
            return grown, scores
        if self._executor.wants_repair():
            self._recover()
        grown, scores = self._lasting(lambda: self._grow(tree, output, learning_rate, score))
        self._finished.append((grown, output))
        if self._log is not None:
            self._log.keep(grown, scores)
        return grown, scores

    @abstractmethod
    def _replay(self, tree: Tree, output: int) -> None:
        """Have shards add the values of a tree to their predictions."""

    @abstractmethod
    def _grow(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Have shards grow a tree."""
