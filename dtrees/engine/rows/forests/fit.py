"""A forest over shards of rows that outlasts its shards: many trees grow side by side (:mod:`dtrees.engine.coordinator.side_by_side`).

What trees under way ask of shards travels in one exchange, and so do the parcels that shards have for one another meanwhile
(:mod:`dtrees.engine.rows.between.side_by_side`). But of trees that ask for many rows to be sent, those wait that would make it more than
one tree alone has sent at once.

When shards are lost, new ones take their places, with the same rows, and the trees under way are grown again. Trees do not depend on one
another, so nothing is replayed; but where sums of what trees say of rows out of bag are wanted, finished trees are put through the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from dtrees.engine.coordinator.session import Requests, Steps
from dtrees.engine.coordinator.side_by_side import SideBySide, TreeUnderWay
from dtrees.engine.coordinator.tree_by_tree import TreeLog
from dtrees.engine.plan.node_limits import SumsKept
from dtrees.engine.plan.plans import Callback, ForestPlan, ForestResult
from dtrees.engine.protocol.messages import Many, Message
from dtrees.engine.rows import messages as m
from dtrees.engine.rows.between.stretches import in_order
from dtrees.engine.rows.exchange import RowsExecutor
from dtrees.engine.rows.fit import LastingRows
from dtrees.engine.rows.forests import messages as f
from dtrees.engine.rows.forests.tree import forest_tree_steps, rows_to_send
from dtrees.engine.shard.targets.forest_target import exponent_of_votes
from dtrees.split.policy import SHARED_CELLS
from dtrees.tree.tree import Tree

#: Numbers that a row is sent with where leaves are measured, beside its targets.
_CELLS_MEASURED = 2


def grow_forest_on_rows(
    executor: RowsExecutor,
    plan: ForestPlan,
    first: int,
    last: int,
    callback: Callback | None = None,
    log: TreeLog | None = None,
    *,
    n_side_by_side: int = 1,
) -> ForestResult:
    """Grow the trees numbered ``first`` to ``last - 1``.

    Parameters
    ----------
    executor : RowsExecutor
        Closing it is left to the caller.
    plan : ForestPlan
    first, last : int
    callback : callable, optional
        Called after each tree, in their order; returning True leaves out the trees after it.
    log : TreeLog, optional
        Keeps trees, should the forest have to be grown again; not where sums of rows out of bag are wanted.
    n_side_by_side : int, default=1
        Trees to grow at once at most (:func:`~dtrees.engine.rows.forests.tree.trees_at_once`).

    Returns
    -------
    ForestResult
        That of :func:`dtrees.engine.run.forest_growth.grow_forest`.
    """
    return _Forest(executor, plan, first, last, n_side_by_side, callback, log).run()


class _Forest(LastingRows, SideBySide[Tree]):
    """The trees of a forest over shards of rows."""

    def __init__(
        self,
        executor: RowsExecutor,
        plan: ForestPlan,
        first: int,
        last: int,
        n_side_by_side: int,
        callback: Callback | None,
        log: TreeLog | None,
    ) -> None:
        LastingRows.__init__(self, executor, plan, rows_to_send(plan, executor.n_rows, executor.n_shards))
        SideBySide.__init__(self, first, last, n_side_by_side, plan.out_of_bag, callback, log)
        self._plan = plan
        self._scales: f.ForestScales

    def _open(self) -> None:
        session, executor = self._session, self._executor
        session.sent_rows = rows_to_send(self._plan, executor.n_rows, executor.n_shards)  # there may be more shards than before
        self._edges = session.introduce(self._edges)
        self._scales = cast(f.ForestScales, session.say(m.Prepare, session.next_serial(), None)[0])
        session.say(f.OpenForest, self._edges, self._scales)

    def _begin(self) -> None:
        if not self._is_open:
            super()._begin()

    def _steps(self, number: int) -> Steps[Tree]:
        return forest_tree_steps(self._session, self._plan, self._scales, number)

    def _asking(self, window: Iterable[TreeUnderWay[Tree]]) -> Iterator[TreeUnderWay[Tree]]:
        """Return the trees whose requests travel together: those that have no rows sent, and of the others as many as may."""
        sent, most = 0, SHARED_CELLS * self._executor.n_shards
        for tree in window:
            own = max((self._cells_sent(message) for message in tree.requests.values()), default=0)
            if not own or not sent or sent + own <= most:
                sent += own
                yield tree

    def _cells_sent(self, message: Message) -> int:
        """Return how many cells of rows shards send one another for a message."""
        match message:
            case m.Level(apart=m.Apart(n_rows=n_rows)) | m.GrowApart(apart=m.Apart(n_rows=n_rows)):
                return n_rows * SumsKept.of(self._plan).cells_sent(self._plan.rules)
            case f.MeasureMeans():
                return int(message.tree.n_node_samples[0]) * (_CELLS_MEASURED + self._plan.n_values)
        return 0

    def _tree_of(self, grown: Tree) -> Tree:
        return grown

    def _closing(self, number: int, grown: Tree) -> Requests:
        session = self._session
        return dict.fromkeys(range(session.executor.n_shards), f.AddVotes(session.fit, session.epoch, number, grown))

    def _result(self) -> ForestResult:
        """Return all trees, with what they say of rows out of bag."""
        if not self._out_of_bag:
            return ForestResult(self._told)
        session, n_rows = self._session, self._executor.n_rows
        votes = cast(list[f.Votes], session.say(f.CountVotes))
        total, count = (in_order([one[i] for one in votes], session.stretches, n_rows) for i in range(2))
        return ForestResult(self._told, total, count, exponent_of_votes(self._scales.largest))

    def _restore(self) -> None:
        self._forget_trees()
        super()._restore()

    def _replay_finished(self) -> None:
        if self._out_of_bag:
            for number, tree in enumerate(self._told, self._first):
                closing = self._closing(number, tree)
                self._session.tell({shard: Many(message.fit, message.epoch, (0,), (message,)) for shard, message in closing.items()})
            self._n_closed = len(self._told)
