"""Trees of a forest that grow side by side over shards: their messages travel together.

To split one node takes messages to the shards and back, however few rows it has, and a tree has many levels. So the
messages of many trees travel together (:class:`~dtrees.engine.protocol.messages.Many`): an exchange takes each tree one step further,
whatever that step is, and when the first tree is finished, a further one starts. A tree is grown by the very steps that a tree alone is
grown by, and does not know of the others. Those over shards of columns are grown by :mod:`dtrees.engine.run.lockstep`, those over shards
of rows by :mod:`dtrees.engine.rows.forests.fit`.

Terms
-----
window
    the trees under way, consecutive ones; the first leaves it when it is finished, so the callback hears of trees in their order.
slot
    the place of a tree on each shard: its number modulo the size of the window.
closing
    adding a tree's predictions of its rows out of bag to their sums, which shards keep. Trees are closed in their order: at any time,
    the sums are those of the first so many trees.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any, Generic, TypeVar, cast

from dtrees.engine.coordinator.lasting import Lasting
from dtrees.engine.coordinator.session import Requests, Steps
from dtrees.engine.coordinator.tree_by_tree import TreeLog
from dtrees.engine.plan.plans import Callback, ForestResult, Progress
from dtrees.engine.protocol import messages as m
from dtrees.tree.tree import Tree

G = TypeVar("G")


class TreeUnderWay(Generic[G]):
    """A tree under way: its steps, and the requests that it waits for the replies of; none when it is finished.

    Parameters
    ----------
    number, slot : int
    steps : generator
        Returns what has been grown.

    Attributes
    ----------
    requests : mapping from int to Message
    grown : object or None
    """

    def __init__(self, number: int, slot: int, steps: Steps[G]) -> None:
        self.number, self.slot, self._steps = number, slot, steps
        self.requests: Requests = next(steps)
        self.grown: G | None = None

    def take(self, replies: Mapping[int, Any]) -> None:
        """Take the replies."""
        try:
            self.requests = self._steps.send(replies)
        except StopIteration as end:
            self.requests = {}
            self.grown = end.value


class SideBySide(Lasting, Generic[G]):
    """The trees of a forest over shards: those under way, and those that are finished.

    When shards are lost, the trees under way are forgotten, and the forest goes on after those that are closed.

    Parameters
    ----------
    first, last : int
        The numbers of the trees are ``first`` to ``last - 1``.
    n_side_by_side : int
        Trees to grow at once at most.
    out_of_bag : bool
        Whether trees are to be closed.
    callback, log : optional
        See :func:`~dtrees.engine.run.lockstep.grow_forest_on_shards`.
    """

    #: Of either kind; subclasses know which.
    _executor: Any
    _session: Any

    def __init__(
        self, first: int, last: int, n_side_by_side: int, out_of_bag: bool, callback: Callback | None, log: TreeLog | None
    ) -> None:
        self._first, self._last, self._n_trees = first, last, last - first
        self._n_slots, self._out_of_bag = max(1, min(n_side_by_side, last - first)), out_of_bag
        self._callback = callback
        self._log = log
        self._began = time.perf_counter()
        self._window: deque[TreeUnderWay[G]] = deque()
        self._told: list[Tree] = []
        self._n_closed = 0  # these have left the window; without rows out of bag, there is nothing to close
        self._is_repair_due = False

    def run(self) -> ForestResult:
        """Grow all trees."""
        for tree, _ in [] if self._log is None else self._log.recall():
            if self._first + len(self._told) < self._last:
                self._tell_of(tree)
                self._n_closed += not self._out_of_bag
        return self._lasting(self._grow)

    @abstractmethod
    def _begin(self) -> None:
        """Open the fit, if it is not."""

    @abstractmethod
    def _steps(self, number: int) -> Steps[G]:
        """Return the steps of a tree."""

    @abstractmethod
    def _tree_of(self, grown: G) -> Tree:
        """Return the tree that its steps have grown."""

    @abstractmethod
    def _closing(self, number: int, grown: G) -> Requests:
        """Return the requests that close a tree."""

    @abstractmethod
    def _result(self) -> ForestResult:
        """Return the trees, and what they say of rows out of bag."""

    def _asking(self, window: Iterable[TreeUnderWay[G]]) -> Iterable[TreeUnderWay[G]]:
        """Return the trees whose requests travel together next: all, or some of them, with the first."""
        return window

    def _grow(self) -> ForestResult:
        """Grow the trees that are not finished."""
        while self._n_closed < self._last - self._first:
            self._begin()
            self._step()
            self._tell()
        return self._result()

    def _step(self) -> None:
        """Take the trees under way one step further."""
        self._is_repair_due = self._is_repair_due or self._executor.wants_repair(self._last - self._first - self._n_closed)
        if self._is_repair_due and not self._window:
            self._recover()
        if not self._is_repair_due:
            following = self._first + self._n_closed + len(self._window)
            room = self._n_slots - len(self._window)
            for number in range(following, min(following + room, self._last)):
                self._window.append(TreeUnderWay(number, number % self._n_slots, self._steps(number)))
        # After all shards were lost, trees that were told of are under way once more, and a later one may be grown sooner.
        closing = list(takewhile(self._is_told, self._window))
        for tree in closing:
            tree.requests = self._closing(tree.number, cast(G, tree.grown))
        asking = [tree for tree in self._asking(self._window) if tree.requests]
        by_slot = self._exchange(asking)
        for _ in closing:
            self._leave()
        for tree in asking:
            if tree.grown is None:
                tree.take(by_slot[tree.slot])

    def _exchange(self, asking: Iterable[TreeUnderWay[G]]) -> Mapping[int, Mapping[int, Any]]:
        """Send the requests of trees in one exchange; return the replies by slot, and shard."""
        messages: defaultdict[int, list[tuple[int, m.Message]]] = defaultdict(list)
        for tree in asking:
            for shard, message in tree.requests.items():
                messages[shard].append((tree.slot, message))
        fit, epoch = self._session.fit, self._session.epoch
        # Shards that are told the same are sent the same message, which is pickled once.
        same = {shard: tuple(id(message) for _, message in pairs) for shard, pairs in messages.items()}
        many = {same[shard]: m.Many(fit, epoch, *zip(*pairs, strict=True)) for shard, pairs in messages.items()}
        replies = self._executor.send({shard: many[same[shard]] for shard in messages})
        by_slot: defaultdict[int, dict[int, Any]] = defaultdict(dict)
        for shard, pairs in messages.items():
            for (slot, _), reply in zip(pairs, replies[shard], strict=True):
                by_slot[slot][shard] = reply
        return by_slot

    def _is_told(self, tree: TreeUnderWay[G]) -> bool:
        """Whether a tree is finished, and the callback has heard of it."""
        return tree.grown is not None and tree.number < self._first + len(self._told)

    def _leave(self) -> None:
        self._window.popleft()
        self._n_closed += 1

    def _tell(self) -> None:
        """Tell of the trees that are finished, in their order."""
        for tree in list(self._window):
            if tree.grown is None or tree.number >= self._last:
                break
            if not self._is_told(tree):
                finished = self._tree_of(tree.grown)
                if self._log is not None:
                    self._log.keep(finished, m.Scores(math.nan, math.nan))
                self._tell_of(finished)
            if not self._out_of_bag:
                self._leave()
        while self._window and self._window[-1].number >= self._last:
            self._window.pop()

    def _tell_of(self, tree: Tree) -> None:
        self._told.append(tree)
        progress = Progress(len(self._told), self._n_trees, time.perf_counter() - self._began)
        if self._callback is not None and self._callback(progress):
            self._last = self._first + len(self._told)

    def _forget_trees(self) -> None:
        """Forget the trees under way."""
        self._window.clear()
        self._is_repair_due = False
