"""An open fit over shards of rows: messages to all of them, and what lasts from one tree to the next.

The steps of a tree are generators that send nothing themselves (:data:`~dtrees.engine.coordinator.session.Steps`): :meth:`RowsSession.run`
carries out those of one tree, :mod:`dtrees.engine.rows.forests.fit` those of many trees at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.session import Steps
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Message
from dtrees.engine.rows import messages as m
from dtrees.engine.rows.exchange import RowsExecutor
from dtrees.engine.rows.searching.zone_edges import Edges, merge_sketches
from dtrees.split.policy import FOLD

#: More cells are flagged than one in so many, or less: finer, or coarser parts are tried. Finer ones are kept for so many trees then.
_MUCH_FLAGGED_SHARE, _FLAGGED_SHARE, _TREES_AS_FINE = 100, 1000, 20
_FIRST_GRAIN = 1
#: More cells of a level are flagged than one in so many: the next one is summed by finer parts already. The first tree of noise takes
#: 1.9 instead of 2.9 s with it, loading included (1M x 28, two shards).
_FAR_TOO_MUCH_FLAGGED_SHARE = 16

T = TypeVar("T")


class Grain:
    """How finely large nodes are summed: by parts of zones, ``2**current`` of each, as fine as the last trees have wanted.

    Finer parts are more to sum and to send; by coarser ones more rows are flagged, and have to be looked at more closely.
    """

    def __init__(self) -> None:
        self.current = _FIRST_GRAIN
        self._flagged = self._cells = self._trees_as_fine = 0

    def note(self, flagged: int, cells: int) -> None:
        """Note how many cells of a level's nodes were flagged, of how many."""
        self._flagged += flagged
        self._cells += cells
        if flagged * _FAR_TOO_MUCH_FLAGGED_SHARE > cells and self.current < FOLD:
            self._refine()
            self._flagged = self._cells = 0

    def _refine(self) -> None:
        self.current = min(FOLD, self.current + 2)
        self._trees_as_fine = _TREES_AS_FINE

    def adapt(self) -> None:
        """Choose for the next tree, by the cells noted since the last one."""
        flagged, cells = self._flagged, self._cells
        self._flagged = self._cells = 0
        self._trees_as_fine -= 1
        if flagged * _MUCH_FLAGGED_SHARE > cells and self.current < FOLD:
            self._refine()
        elif flagged * _FLAGGED_SHARE < cells and self.current > 0 and self._trees_as_fine <= 0:
            self.current = max(0, self.current - 2)


@dataclass
class RowsSession:
    """An open fit over shards of rows.

    Attributes
    ----------
    executor : RowsExecutor
    plan : BoostingPlan or ForestPlan
    fit : str
    sent_rows : int
        Up to how many rows a node is grown by one shard.
    epoch : int
    stretches : list of ndarray
        Of each shard.
    serial : int
        Of the last exchange that led to parcels.
    derived : tuple, optional
        Of which tree and output shards have the gradients, and what they said of these.
    grain : Grain
    """

    executor: RowsExecutor
    plan: BoostingPlan | ForestPlan
    fit: str
    sent_rows: int
    epoch: int = 0
    stretches: list[NDArray[np.int64]] = field(default_factory=list)
    serial: int = 0
    derived: tuple[tuple[int, int], list[m.Derived]] | None = None
    grain: Grain = field(default_factory=Grain)

    @property
    def boosting(self) -> BoostingPlan:
        """The plan, of boosting."""
        assert isinstance(self.plan, BoostingPlan)
        return self.plan

    def renewed(self) -> RowsSession:
        """Return the session of the next epoch."""
        return replace(self, epoch=self.epoch + 1, derived=None)

    def introduce(self, edges: Edges | None) -> Edges:
        """Have shards begin the epoch; return the edges of zones that all shards share, found anew if they are not known."""
        executor, sketches = self.executor, edges is None
        introduced = self.tell(
            {shard: m.Introduce(self.fit, self.epoch, shard, executor.n_shards, self.plan, sketches) for shard in range(executor.n_shards)}
        )
        replies = [cast(m.Introduced, introduced[shard]) for shard in range(executor.n_shards)]
        self.stretches = [reply.stretches for reply in replies]
        if edges is not None:
            return edges
        merged = merge_sketches([reply.sketches for reply in replies if reply.sketches is not None])
        counts = [reply.n_categories for reply in replies if reply.n_categories is not None]
        return merged.of_categories(np.max(counts, axis=0))

    def next_serial(self) -> int:
        """Return a number for an exchange that leads to parcels."""
        self.serial += 1
        return self.serial

    def say(self, kind: type[Message], *arguments: Any) -> list[Any]:
        """Send one message to every shard; return their replies."""
        return self.run(self.ask(kind, *arguments))

    def ask(self, kind: type[Message], *arguments: Any) -> Steps[list[Any]]:
        """Ask for one message to every shard to be sent; return their replies."""
        message = kind(self.fit, self.epoch, *arguments)
        replies = yield dict.fromkeys(range(self.executor.n_shards), message)
        return [replies[shard] for shard in range(self.executor.n_shards)]

    def run(self, steps: Steps[T]) -> T:
        """Carry out steps, one exchange after the other; return what they do."""
        try:
            requests = next(steps)
            while True:
                requests = steps.send(self.executor.send(requests))
        except StopIteration as end:
            return cast(T, end.value)

    def level(self, divide: m.Divide, search: m.FindBars | None, apart: m.Apart | None = None) -> Steps[list[m.Levelling]]:
        """Have shards divide nodes, and search some, or grow some to their ends."""
        return (yield from self.ask(m.Level, self.next_serial(), divide, search, apart))

    def tell(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Send messages to some shards; return their replies."""
        return self.executor.send(messages)
