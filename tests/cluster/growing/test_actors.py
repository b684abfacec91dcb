"""Actors: messages to them travel as bytes, pickled once; they call each other, and do not wait for one that is gone."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from distributed import Client, Worker, get_worker

from dtrees.cluster.compat import actor_on, waiting_thread
from dtrees.cluster.growing.actors import Actors, ActorsLost
from dtrees.cluster.transport.direct_channel import ActorBase, Failed, pack_named
from dtrees.cluster.transport.peers import PeerLost, Peers
from tests.cluster.samples import wait_until
from tests.slow import one_of_each

# --- messages to actors travel as bytes, pickled once for any number of receivers ---


class Echo(ActorBase):
    def say(self, *what: Any) -> Any:
        return what

    def fail(self) -> Failed:
        return Failed(KeyError("of its own"))


class Counted:
    n_pickled = 0

    def __reduce__(self) -> tuple[Any, ...]:
        Counted.n_pickled += 1
        return str, ("counted",)


@pytest.fixture
def echoes(client: Client, connections: None) -> Iterator[Actors]:
    actors = Actors(client, "echo", Echo)
    for worker in client.nthreads():
        actors.add(worker, ())
    actors.wait_until_made()
    yield actors
    actors.close()


@pytest.mark.parametrize("n_bytes", [8, 4_000_000])  # below and above the size from which Dask avoids copies
def test_arrays_come_back(echoes: Actors, n_bytes: int) -> None:
    sent = {i: (np.full(n_bytes // 8, i), "text") for i in range(3)}
    heard = echoes.call("say", sent)
    assert heard.keys() == sent.keys()
    for i, (array, text) in heard.items():
        assert np.array_equal(array, sent[i][0])
        assert text == "text"
        array[0] = 7  # no other object has this array


def test_what_several_are_told_is_pickled_once(echoes: Actors) -> None:
    Counted.n_pickled = 0
    argument = Counted()
    assert echoes.call("say", {0: (argument,), 1: (argument,), 2: ("else",)}) == {0: ("counted",), 1: ("counted",), 2: ("else",)}
    assert Counted.n_pickled == 1


def test_bytes_are_counted(echoes: Actors) -> None:
    echoes.call("say", {1: (b"x" * 10_000,)})
    assert 10_000 < echoes.sent.total() < 10_200
    assert 10_000 < echoes.received.total() < 10_200


def test_errors_of_a_method_are_raised_here(echoes: Actors) -> None:
    with pytest.raises(KeyError, match="of its own"):
        echoes.call("fail", {0: (), 1: ()})
    assert not echoes.lost


# The larger ones exceed the buffers of a connection.
@pytest.mark.parametrize(("connections", "n_bytes"), one_of_each(["plain", "carried"], [16_000_000, 8]), indirect=["connections"])
def test_calls_of_any_size(echoes: Actors, n_bytes: int) -> None:
    array = np.arange(n_bytes // 8)
    for k in range(3):
        heard = echoes.call("say", {i: (k, i, array) for i in range(3)})
        assert [heard[i][:2] for i in range(3)] == [(k, i) for i in range(3)]
        assert all(np.array_equal(heard[i][2], array) for i in range(3))


def test_an_error_does_not_touch_the_next_call(echoes: Actors) -> None:
    with pytest.raises(KeyError, match="of its own"):
        echoes.call("fail", {0: (), 1: ()})
    assert echoes.call("say", {0: ("more",), 2: ("else",)}) == {0: ("more",), 2: ("else",)}


def test_an_actor_lost_as_soon_as_it_is_made(mortal_client: Client) -> None:
    """Dask reports it by an error of the actor's future, as if creating the actor had raised it."""
    actors = Actors(mortal_client, "echo", Echo)
    first, second, *_ = mortal_client.nthreads()
    actors.add(first, ())
    wait_until(lambda: actors._futures[0].status == "finished")
    os.kill(mortal_client.run(os.getpid, workers=[first])[first], signal.SIGKILL)
    wait_until(lambda: actors._futures[0].status == "error")
    with pytest.raises(ActorsLost, match=first):
        actors.wait_until_made()
    assert actors.lost == {0}
    actors.replace(0, second, ())
    actors.wait_until_made()
    assert actors.call("say", {0: ("hello",)}) == {0: ("hello",)}
    actors.close()


class Dying(ActorBase):
    """An actor that replies, and dies a moment later, while another waits for its payload."""

    def meet(self, dies: bool) -> None:
        if dies:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
        else:
            time.sleep(60)


def test_one_that_others_wait_for_is_lost_after_its_reply(mortal_client: Client) -> None:
    actors = Actors(mortal_client, "dying", Dying)
    for worker in list(mortal_client.nthreads())[:2]:
        actors.add(worker, ())
    actors.wait_until_made()
    with pytest.raises(ActorsLost, match=actors.workers[0]):
        actors.call("meet", {0: (True,), 1: (False,)})
    actors.close()


class Broken(ActorBase):
    def __init__(self) -> None:
        raise ValueError("what its maker did wrong")


def test_an_error_of_making_an_actor_is_raised(client: Client) -> None:
    actors = Actors(client, "echo", Broken)
    actors.add(next(iter(client.nthreads())), ())
    with pytest.raises(ValueError, match="what its maker did wrong"):
        actors.wait_until_made()
    assert not actors.lost
    actors.close()


def _profiled() -> list[bool]:
    """Return whether Dask's profiler samples this task's thread before, during and after a wait."""
    worker, thread = get_worker(), threading.get_ident()
    before = thread in worker.active_threads
    with waiting_thread():
        while_waiting = thread in worker.active_threads
    return [before, while_waiting, thread in worker.active_threads]


def test_a_task_that_waits_is_not_profiled(client: Client) -> None:
    assert client.submit(_profiled, pure=False).result() == [True, False, True]
    with waiting_thread():  # no task
        pass


# --- actors that call each other, and do not wait for one that is gone ---


class Sender(ActorBase):
    """An actor that sends arrays to others of its kind, and receives theirs while it sends or waits."""

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
        """Send an array to some actors; return the number of bytes sent, and the arrays received, once there are ``n``."""
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


# The larger ones exceed the buffers of a connection.
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
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(senders.call, "swap", {0: ([], None, 1)})
        client.run(_interrupt, senders.key(0))  # from another thread than the one that waits for it
        with pytest.raises(PeerLost, match="the wait for other workers was given up"):
            waiting.result()
    with pytest.raises(PeerLost, match="given up"):  # until they meet again
        senders.call("swap", {0: ([], None, 1)})
    senders.call("meet", {0: (senders.where,)})
    assert senders.call("swap", {0: ([], None, 0)})[0] == (0, [])


def _interrupt(key: str, dask_worker: Worker) -> None:
    actor = actor_on(dask_worker, key)
    if actor is not None:
        actor.interrupt()
