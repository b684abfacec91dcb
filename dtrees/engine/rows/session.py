"""An open fit over shards of rows, as the coordinator has it: messages to all of them, and what lasts from one tree to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Message
from dtrees.engine.rows import messages as m
from dtrees.engine.rows.exchange import RowsExecutor
from dtrees.engine.rows.grain import Grain
from dtrees.engine.rows.searching.zone_edges import Edges, merge_sketches


class RowsDisagree(RuntimeError):
    """Shards of rows have divided a node otherwise than its split says, or have grown different trees."""


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
    grain : Grain
    """

    executor: RowsExecutor
    plan: BoostingPlan | ForestPlan
    fit: str
    sent_rows: int
    epoch: int = 0
    stretches: list[NDArray[np.int64]] = field(default_factory=list)
    serial: int = 0
    grain: Grain = field(default_factory=Grain)

    def renewed(self) -> RowsSession:
        """Return the session of the next epoch."""
        return replace(self, epoch=self.epoch + 1)

    def next_serial(self) -> int:
        """Return a number for an exchange that leads to parcels."""
        self.serial += 1
        return self.serial

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
        replies = self.tell(dict.fromkeys(range(self.executor.n_shards), kind(self.fit, self.epoch, *arguments)))
        return [replies[shard] for shard in range(self.executor.n_shards)]

    def grow(self, kind: type[Message], *arguments: Any) -> list[Any]:
        """Have all shards grow trees; return what each says of them.

        Raises
        ------
        RowsDisagree
        """
        grown = self.say(kind, self.next_serial(), *arguments, self.sent_rows, self.grain)
        if any(one.checksum != grown[0].checksum for one in grown):
            raise RowsDisagree(f"shards have each grown other trees than the others for {kind.__name__}{arguments}")
        self.serial, self.grain = grown[0].serial, grown[0].grain
        return grown

    def tell(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Send messages to some shards; return their replies."""
        return self.executor.send(messages)
