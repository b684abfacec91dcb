"""How the shards that grow a tree together talk to one another.

All shards know the same of a tree, so they decide the same: each takes all of its steps (:mod:`dtrees.engine.rows.tree`), does what is of
its own rows, and tells all others what came of that. Decisions take no way by the coordinator, and are made while nobody waits for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.rows.exchange import Arrays, Parcel, Step, Turn
from dtrees.engine.rows.grain import Grain

T = TypeVar("T")
#: Steps that all shards take at the same time, which return something in the end.
Steps = Generator[Step | Turn, Any, T]


@dataclass(frozen=True)
class Shards:
    """What a shard knows of all.

    Attributes
    ----------
    plan : BoostingPlan or ForestPlan
    fit : str
    epoch : int
    shard, n_shards : int
        Which of how many this is.
    n_rows, n_columns : int
        Of the whole table.
    stretches : list of ndarray
        Of each shard.
    sent_rows : int
        Up to how many rows a node is grown by one shard.
    grain : Grain
    serials : iterator of int
        Numbers for exchanges.
    """

    plan: BoostingPlan | ForestPlan
    fit: str
    epoch: int
    shard: int
    n_shards: int
    n_rows: int
    n_columns: int
    stretches: list[NDArray[np.int64]] = field(default_factory=list)
    sent_rows: int = 0
    grain: Grain = field(default_factory=Grain)
    serials: Iterator[int] = field(default_factory=itertools.count)

    @property
    def boosting(self) -> BoostingPlan:
        """The plan, of boosting."""
        assert isinstance(self.plan, BoostingPlan)
        return self.plan

    @property
    def everyone(self) -> range:
        """The numbers of all shards."""
        return range(self.n_shards)

    @property
    def by_stretches(self) -> list[tuple[int, int]]:
        """The shard, and the place there, of each stretch, in the order of rows."""
        every = sorted((int(some[i, 0]), shard, i) for shard, some in enumerate(self.stretches) for i in range(some.shape[0]))
        return [(shard, i) for _, shard, i in every]

    def step(self, name: str, serial: int, arrays: Mapping[int, Arrays], senders: Sequence[int]) -> Step:
        """Return a step with arrays for shards by their numbers, which waits for those of senders."""
        once: dict[int, Parcel] = {}
        parcels = {}
        for shard, some in arrays.items():
            if id(some) not in once:
                once[id(some)] = Parcel(self.fit, self.epoch, serial, name, self.shard, some)
            parcels[shard] = once[id(some)]
        return Step(self.fit, self.epoch, serial, name, parcels, senders)

    def to_all(self, name: str, serial: int, arrays: Arrays) -> Step:
        """Return a step with the same arrays for all shards, which waits for those of all."""
        return self.step(name, serial, dict.fromkeys(self.everyone, arrays), self.everyone)

    def gather(self, name: str, own: T) -> Steps[list[T]]:
        """Tell all shards something; return what each has told."""
        sent = yield self.to_all(name, next(self.serials), cast(Arrays, (own,)))
        return [one for (one,) in sent]

    def of_one(self, name: str, shard: int, find: Callable[[], T]) -> Steps[T]:
        """Return what one shard finds, which tells all."""
        told = cast(Arrays, (find(),)) if shard == self.shard else ()
        ((found,),) = yield self.step(name, next(self.serials), dict.fromkeys(self.everyone, told) if told else {}, (shard,))
        return cast(T, found)
