"""Steps of a tree that every shard takes, instead of the coordinator for all.

All shards know the same, so they decide the same. What steps ask of shards, each carries out for its own part; what it replies, it tells
all others. So decisions take no way by the coordinator, and are made while nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar, cast

from dtrees.engine.coordinator.session import Steps
from dtrees.engine.protocol.messages import Message
from dtrees.engine.rows.exchange import Arrays, Program, Step

T = TypeVar("T")


def in_common(
    steps: Steps[T], shard: int, carry_out: Callable[[Message], Program], tell: Callable[[str, Arrays, Sequence[int]], Step]
) -> Generator[Step, Any, T]:
    """Take steps, as all other shards do at the same time; return what comes of them.

    Parameters
    ----------
    steps : Steps
    shard : int
        Which this is.
    carry_out : callable
        Carries out the message to this shard.
    tell : callable
        Makes a step of a name, with a parcel for all shards, unless it is empty, that awaits parcels of some.
    """
    try:
        requests = next(steps)
        while True:
            mine = requests.get(shard)
            told = () if mine is None else ((yield from carry_out(mine)),)
            name, senders = type(next(iter(requests.values()))).__name__, tuple(requests)
            sent = yield tell(name, told, senders)
            requests = steps.send({sender: reply for sender, (reply,) in zip(senders, sent, strict=True)})
    except StopIteration as end:
        return cast(T, end.value)
