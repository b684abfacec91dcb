"""An open fit over shards of rows: messages to all of them, and what lasts from one tree to the next.

The steps of a tree are generators that send nothing themselves (:data:`~dtrees.engine.coordinator.session.Steps`). Those of a boosted tree
are carried out by the shards, which tell one another what comes of each (:mod:`dtrees.engine.rows.between.in_common`); those of many trees
of a forest at once by the coordinator (:mod:`dtrees.engine.rows.forests.fit`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.session import Steps
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Message
from dtrees.engine.rows import messages as m
from dtrees.engine.rows.exchange import RowsExecutor
from dtrees.engine.rows.searching.grain import Grain
from dtrees.engine.rows.searching.zone_edges import Edges, merge_sketches

T = TypeVar("T")


class Counted(Protocol):
    """How many there are: shards, rows in all, and columns."""

    @property
    def n_shards(self) -> int: ...  # noqa: D102

    @property
    def n_rows(self) -> int: ...  # noqa: D102

    @property
    def n_columns(self) -> int: ...  # noqa: D102


class Counts(NamedTuple):
    """What a shard knows of all."""

    n_shards: int
    n_rows: int
    n_columns: int


@dataclass
class TreeSession:
    """An open fit, as the steps of a tree need to know it, wherever they are carried out.

    Attributes
    ----------
    executor : Counted
    plan : BoostingPlan or ForestPlan
    fit : str
    sent_rows : int
        Up to how many rows a node is grown by one shard.
    epoch : int
    stretches : list of ndarray
        Of each shard.
    serial : int
        Of the last exchange that led to parcels.
    grain : Grain
    """

    executor: Counted
    plan: BoostingPlan | ForestPlan
    fit: str
    sent_rows: int
    epoch: int = 0
    stretches: list[NDArray[np.int64]] = field(default_factory=list)
    serial: int = 0
    grain: Grain = field(default_factory=Grain)

    @property
    def boosting(self) -> BoostingPlan:
        """The plan, of boosting."""
        assert isinstance(self.plan, BoostingPlan)
        return self.plan

    def next_serial(self) -> int:
        """Return a number for an exchange that leads to parcels."""
        self.serial += 1
        return self.serial

    def ask(self, kind: type[Message], *arguments: Any) -> Steps[list[Any]]:
        """Ask for one message to every shard to be sent; return their replies."""
        message = kind(self.fit, self.epoch, *arguments)
        replies = yield dict.fromkeys(range(self.executor.n_shards), message)
        return [replies[shard] for shard in range(self.executor.n_shards)]

    def level(self, divide: m.Divide, search: m.FindBars | None, apart: m.Apart | None = None) -> Steps[list[m.Levelling]]:
        """Have shards divide nodes, and search some, or grow some to their ends."""
        return (yield from self.ask(m.Level, self.next_serial(), divide, search, apart))


@dataclass
class RowsSession(TreeSession):
    """An open fit over shards of rows, as the coordinator has it.

    Attributes
    ----------
    executor : RowsExecutor
    """

    executor: RowsExecutor

    def renewed(self) -> RowsSession:
        """Return the session of the next epoch."""
        return replace(self, epoch=self.epoch + 1)

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

    def say(self, kind: type[Message], *arguments: Any) -> list[Any]:
        """Send one message to every shard; return their replies."""
        return self.run(self.ask(kind, *arguments))

    def run(self, steps: Steps[T]) -> T:
        """Carry out steps, one exchange after the other; return what they do."""
        try:
            requests = next(steps)
            while True:
                requests = steps.send(self.executor.send(requests))
        except StopIteration as end:
            return cast(T, end.value)

    def tell(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Send messages to some shards; return their replies."""
        return self.executor.send(messages)
