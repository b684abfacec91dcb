"""Actors that call one another, and are not left waiting by one that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from distributed import Client, Worker, get_worker

from dtrees.cluster.compat import actor_on
from dtrees.cluster.growing.actors import Actors
from dtrees.cluster.transport.direct_channel import ActorBase, Failed, pack_named
from dtrees.cluster.transport.peers import PeerLost, Peers
from tests.slow import one_of_each


class Sender(ActorBase):
    """Sends arrays to others like it, and takes theirs while it sends or waits."""

    AT_ONCE = frozenset({"interrupt"})

    def __init__(self, number: int) -> None:
        super().__init__()
        self.kept = kept = []  # type: ignore[var-annotated]
        self.peers = Peers(get_worker(), number, lambda sent: kept.append(sent[1][0]))

    def meet(self, where: list[tuple[str, str]]) -> None:
        self.peers.meet(where)

    def interrupt(self) -> None:
        self.peers.interrupt()

    def swap(self, to: list[int], array: Any, n: int, seconds: float = 60.0) -> tuple[int, list[Any]] | Failed:
        """Send an array to some; return how many bytes that were, and what has come, when so many have."""
        try:
            self.peers.send({i: pack_named(("array",), (array,)) for i in to})
            return self.peers.sent, self.peers.wait(lambda: self.kept if len(self.kept) >= n else None, seconds, "arrays")
        except PeerLost as error:
            return Failed(error)


def senders_on(client: Client) -> Actors:
    actors = Actors(client, "sender", Sender)
    for number, worker in enumerate([*client.nthreads(), next(iter(client.nthreads()))]):  # two of them share a worker
        actors.add(worker, (number,))
    actors.wait_until_made()
    actors.call("meet", dict.fromkeys(range(4), (actors.where,)))
    return actors


@pytest.fixture
def senders(client: Client, connections: None) -> Iterator[Actors]:
    actors = senders_on(client)
    yield actors
    actors.close()


# The larger ones do not fit into what a connection holds.
@pytest.mark.parametrize(("connections", "n_bytes"), one_of_each(["plain", "carried"], [16_000_000, 8]), indirect=["connections"])
def test_all_send_to_all_at_once(senders: Actors, n_bytes: int) -> None:
    array = np.arange(n_bytes // 8)
    swapped = senders.call("swap", {i: ([j for j in range(4) if j != i], array + i, 3) for i in range(4)})
    for i, (sent, held) in swapped.items():
        assert 3 * n_bytes < sent < 3 * n_bytes + 3000
        assert sorted(int(one[0]) for one in held) == [j for j in range(4) if j != i]


def test_one_that_is_not_there(senders: Actors) -> None:
    where = senders.where
    senders.call("meet", {0: ([*where[:3], (where[3][0], "nobody")],)})
    with pytest.raises(PeerLost, match="cannot be reached: no actor nobody"):
        senders.call("swap", {0: ([1, 3], np.zeros(1), 0)})
    senders.call("meet", {0: (where,)})
    senders.call("swap", {0: ([1, 3], np.ones(1), 0)})
    assert [float(one[0]) for one in senders.call("swap", {3: ([], None, 1)})[3][1]] == [1.0]


def test_who_waits_in_vain_is_told(client: Client, senders: Actors) -> None:
    with pytest.raises(PeerLost, match="other workers have not sent their arrays for 0 s"):
        senders.call("swap", {0: ([], None, 1, 0.2)})
    senders.post("swap", {0: ([], None, 1)})
    client.run(_interrupt, senders.key(0))  # as somebody else than who waits for it
    with pytest.raises(PeerLost, match="the wait for other workers was given up"):
        senders.collect()
    with pytest.raises(PeerLost, match="given up"):  # until they meet again
        senders.call("swap", {0: ([], None, 1)})
    senders.call("meet", {0: (senders.where,)})
    assert senders.call("swap", {0: ([], None, 0)})[0] == (0, [])


def _interrupt(key: str, dask_worker: Worker) -> None:
    actor = actor_on(dask_worker, key)
    if actor is not None:
        actor.interrupt()
