"""What outlasts the loss of shards, whatever is grown and whatever shards have: the tree is the transaction.

When shards are lost, the tree under way is forgotten, all shards are brought to a state to go on from, and it is grown again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, TypeVar

from dtrees.engine.protocol.messages import Scores, ShardsLost
from dtrees.tree.tree import Tree

T = TypeVar("T")


class TreeLog(Protocol):
    """Keeps finished trees where they outlast the coordinator."""

    def recall(self) -> list[tuple[Tree, Scores]]:
        """Return the trees that an earlier run of this very fit has kept, from the first one on."""

    def keep(self, tree: Tree, scores: Scores) -> None:
        """Keep the next tree."""


class Lasting(ABC):
    """A fit that goes on when shards are lost: they are replaced, all are brought to a state to go on from, and it is tried again."""

    def _lasting(self, act: Callable[[], T]) -> T:
        """Do something that leaves no trace in the fit unless it ends well, as often as it takes."""
        while True:
            try:
                return act()
            except ShardsLost:
                self._recover()

    def _recover(self) -> None:
        """Bring all shards to the state after the last finished tree, as often as it takes."""
        while True:
            try:
                return self._restore()
            except ShardsLost:
                continue

    @abstractmethod
    def _restore(self) -> None:
        """Replace shards that are gone, or misplaced, and bring all to the state after the last finished tree."""


class _Repairable(Protocol):
    """What is asked of either kind of executor."""

    def wants_repair(self) -> bool:
        """Tell whether shards are to be replaced before the next tree."""


class TreeByTree(Lasting):
    """Grows trees one after the other."""

    def __init__(self, executor: _Repairable) -> None:
        self._shards = executor
        self._finished: list[tuple[Tree, int]] = []

    def replay_tree(self, tree: Tree, output: int = 0) -> None:
        """Take over a tree grown earlier: add its values to the predictions of every row."""
        self._lasting(lambda: self._replay(tree, output))
        self._finished.append((tree, output))

    def grow_tree(self, tree: int, output: int = 0, learning_rate: float = 1.0, score: bool = False) -> tuple[Tree, Scores]:
        """Grow a tree; see :func:`dtrees.engine.coordinator.tree.grow_tree`."""
        if self._shards.wants_repair():
            self._recover()
        grown, scores = self._lasting(lambda: self._grow(tree, output, learning_rate, score))
        self._finished.append((grown, output))
        return grown, scores

    @abstractmethod
    def _replay(self, tree: Tree, output: int) -> None:
        """Have shards add the values of a tree to their predictions."""

    @abstractmethod
    def _grow(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Have shards grow a tree."""
