"""Actors that call one another, and are not left waiting by one that is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from distributed import Client, get_worker

from dtrees.cluster.growing.actors import ActorBase, Actors, Failed
from dtrees.cluster.transport.packing import pack
from dtrees.cluster.transport.peers import PeerLost, Peers


class Sender(ActorBase):
    """Sends arrays to others like it, whatever it is doing itself."""

    AT_ONCE = frozenset({"keep", "interrupt"})

    def __init__(self, channels: bool, number: int) -> None:
        super().__init__()
        self.kept: list[Any] = []
        self.peers = Peers(get_worker(), number)
        self.peers._uses_channels = channels

    def meet(self, where: list[tuple[str, str]]) -> None:
        self.peers.meet(where)

    def interrupt(self) -> None:
        self.peers.interrupt()

    def keep(self, array: Any) -> None:
        self.kept.append(array)

    def send(self, to: list[int], array: Any) -> int | Failed:
        try:
            self.peers.send({i: pack(("keep", (array,))) for i in to})
            return self.peers.sent
        except PeerLost as error:
            return Failed(error)

    def held(self, n: int) -> list[Any]:
        """Return what has come, when so many have."""
        while len(self.kept) < n:
            self.peers.check()
            time.sleep(0.01)
        return self.kept


def senders_on(client: Client, channels: bool) -> Actors:
    actors = Actors(client, "sender", Sender)
    for number, worker in enumerate([*client.nthreads(), next(iter(client.nthreads()))]):  # two of them share a worker
        actors.add(worker, (channels, number))
    actors.wait_until_made()
    actors.call("meet", dict.fromkeys(range(4), (actors.where,)))
    return actors


@pytest.fixture(params=["channels", "no channels"])
def senders(client: Client, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Actors]:
    if request.param == "no channels":  # as where connections are encrypted

        async def none(*_: Any) -> None:
            return None

        monkeypatch.setattr("dtrees.cluster.growing.actors.open_channel", none)
    actors = senders_on(client, request.param == "channels")
    yield actors
    actors.close()


@pytest.mark.parametrize("n_bytes", [8, 16_000_000])  # the larger ones do not fit into what a connection holds
def test_all_send_to_all_at_once(senders: Actors, n_bytes: int) -> None:
    array = np.arange(n_bytes // 8)
    sent = senders.call("send", {i: ([j for j in range(4) if j != i], array + i) for i in range(4)})
    assert all(3 * n_bytes < n < 3 * n_bytes + 3000 for n in sent.values())
    for i, held in senders.call("held", dict.fromkeys(range(4), (3,))).items():
        assert sorted(int(one[0]) for one in held) == [j for j in range(4) if j != i]


def test_one_that_is_not_there(senders: Actors) -> None:
    where = senders.where
    senders.call("meet", {0: ([*where[:3], (where[3][0], "nobody")],)})
    with pytest.raises(PeerLost, match="cannot be reached: no actor nobody"):
        senders.call("send", {0: ([1, 3], np.zeros(1))})
    senders.call("meet", {0: (where,)})
    senders.call("send", {0: ([1, 3], np.ones(1))})
    assert [float(one[0]) for one in senders.call("held", {3: (1,)})[3]] == [1.0]
