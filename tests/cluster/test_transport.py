"""Dask clients, requests to the scheduler, and data that travels outside Dask's event loop."""

import asyncio
import gc
import socket
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.security import Security
from sklearn.base import clone

import dtrees
from dtrees.cluster.errors import SchedulerLost
from dtrees.cluster.transport import direct_channel
from dtrees.cluster.transport.clients import ask, connect, connected, in_loop, local_client
from dtrees.cluster.transport.direct_channel import DirectChannel, framed, open_channel, pack_named, unpack
from tests.cluster.samples import LENGTHS, assert_clean, assert_same_model, in_partitions, table, targets

# --- Dask clients, of clusters started here or already running; and requests to the scheduler, which end with an answer or an error ---


def test_an_embedded_cluster() -> None:
    with local_client(n_workers=2, threads_per_worker=1) as client:
        assert sorted(client.nthreads().values()) == [1, 1]
        assert all(worker.startswith("tcp://127.0.0.1:") for worker in client.nthreads())
        assert client.dashboard_link.startswith("http://127.0.0.1:")
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
        with local_client(n_workers=1, threads_per_worker=1) as second:  # the dashboard's usual port is already taken
            assert second.dashboard_link != client.dashboard_link
    assert client.status == "closed"


@pytest.mark.parametrize("argument", ["n_workers", "threads_per_worker"])
def test_numbers_below_one(argument: str) -> None:
    with pytest.raises(ValueError, match=f"{argument} is 0; give at least 1"), local_client(**{argument: 0}):
        pass


def test_connecting_leaves_the_cluster_running(cluster_of_3: LocalCluster) -> None:
    with connect(cluster_of_3.scheduler_address) as client:
        assert len(client.nthreads()) == 3
    with connect(cluster_of_3.scheduler_address.removeprefix("tcp://")) as client:
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "No Dask scheduler answers at '127.0.0.1:1' (waited 0.5 s)"),
        ("tcp://no-such-host.invalid:8786", "No Dask scheduler answers"),
        ("somewhere", "'somewhere' is not a scheduler's address"),
        ("http://127.0.0.1:8787", "is not a scheduler's address"),
    ],
)
def test_no_scheduler_there(address: str, message: str) -> None:
    with pytest.raises(ConnectionError) as caught, connect(address, timeout=0.5):
        pass
    assert str(caught.value).startswith(message) or message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_scheduler_without_workers(caplog: pytest.LogCaptureFixture) -> None:
    """Its workers may come when there is work, as those of an adaptive cluster or of a queue."""
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        connect(cluster.scheduler_address, timeout=5),
    ):
        assert "distributed.scheduler.no-workers-timeout" in caplog.text


def test_no_client_is_left_behind() -> None:
    with pytest.raises(ConnectionError), connect("127.0.0.1:1", timeout=0.2):
        pass
    with pytest.raises(ValueError, match="No clients found"):
        Client.current()


def test_a_loop_that_ends() -> None:
    """Like that of a process that exits: no request waits forever, and none is left unprocessed."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    client: Any = SimpleNamespace(loop=SimpleNamespace(asyncio_loop=loop), asynchronous=False)
    assert in_loop(client, asyncio.sleep, 0, "answer") == "answer"
    threading.Timer(0.3, loop.call_soon_threadsafe, [loop.stop]).start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(SchedulerLost, match="was closed"):
                in_loop(client, asyncio.sleep, 60)
        gc.collect()
    thread.join()
    loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
    loop.close()


def test_from_the_loop_itself(client: Client) -> None:
    """It would wait for itself."""

    async def ask_here() -> Any:
        return ask(client, client.scheduler.ncores)

    with pytest.raises(RuntimeError, match="event loop"):
        in_loop(client, ask_here)


def test_a_client_that_another_thread_is_making_is_waited_for() -> None:
    states = iter(["newly-created", "connecting", "connecting", "running"])

    class Client:
        @property
        def status(self) -> str:
            return next(states)

    client = Client()
    assert connected(client) is client
    assert next(states, None) is None


def test_a_scheduler_that_does_not_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cluster.transport.clients.SCHEDULER_PATIENCE", 0.5)
    assert sorted(ask(client, client.scheduler.ncores).values()) == [1, 1, 1]
    with pytest.raises(SchedulerLost, match=r"does not answer \(waited 0 s\)"):
        ask(client, asyncio.Event().wait)


# --- data outside Dask's event loop: objects and arrays arrive unchanged, over plain TCP connections ---


# --- objects and arrays in transfer: they arrive unchanged, whatever their memory layout ---


NAME = ("fit", 3, 14, "sums", 1)
ARRAYS: dict[str, tuple[Any, ...]] = {
    "none": (),
    "empty": (np.empty(0, np.uint16), np.empty((0, 5)), np.arange(3)),
    "of all kinds": (np.arange(3, dtype=np.uint8), np.array([True, False]), np.array([-0.0, np.nan]), np.arange(5, dtype=np.int32)),
    "of several dimensions": (np.arange(6).reshape(2, 3), np.arange(24.0).reshape(2, 3, 4), np.array(7)),
    "with gaps": (np.arange(100)[::3], np.arange(12).reshape(3, 4).T),
    "large": (np.arange(3, dtype=np.uint8), np.arange(100_000), np.ones(1)),
    "records": (np.zeros(2, [("a", "i4"), ("b", "f8")]), np.arange(2)),
    "a bundle": ([(0, [1, 2], (np.arange(4),))],),
    "nothing but": (None,),
    "objects": ((np.arange(3), None, [np.zeros((2, 3), [("a", "i1"), ("b", "f8")])[:, ::2], np.array(["a", None], object), np.arange(0)]),),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        equal = one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()
        return one.dtype == other.dtype and one.shape == other.shape and equal
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("arrays", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("come", [bytes, bytearray])
def test_what_comes_is_what_was_sent(arrays: tuple[Any, ...], come: Any) -> None:
    name, found = unpack(come(b"".join(pack_named(NAME, arrays))))
    assert name == NAME
    assert same(found, arrays)
    for array in found:
        if isinstance(array, np.ndarray):
            array[...] = array  # is writeable


def test_what_is_large_is_not_copied() -> None:
    array = np.arange(100_000)
    assert any(np.shares_memory(np.frombuffer(piece, np.uint8), array) for piece in pack_named(NAME, (array,)))


def test_a_buffer_is_used_again_once_nobody_has_anything_in_it() -> None:
    """A part of the first message is still referenced when the second arrives, but not when the third does."""
    one, other = socket.socketpair()

    class Connection:
        socket = other

        def close(self) -> None:
            other.close()

    channel: Any = DirectChannel(Connection())  # type: ignore[arg-type]

    def sent(start: int, n: int = 200_000) -> np.ndarray:
        """Send numbers, and return the second half of what arrives."""
        rest = memoryview(b"".join(framed(*pack_named(NAME, (np.arange(start, start + n),)))))
        one.setblocking(False)
        while (come := channel.receive()) is None:
            rest = rest[one.send(rest[:50_000]) :] if len(rest) else rest
        return unpack(come)[1][0][n // 2 :]

    with one, other:
        first = sent(0)
        second = sent(1_000_000)
        assert not np.shares_memory(first, second)
        assert (first[0], second[0]) == (100_000, 1_100_000)
        was = second.ctypes.data
        del second
        third = sent(2_000_000)
        assert third.ctypes.data == was
        assert (first[0], third[0], third[-1]) == (100_000, 2_100_000, 2_199_999)
        few = sent(5, 4)
        assert few.tolist() == [7, 8]
        assert not np.shares_memory(few, third)


# --- connections outside Dask's event loop, for plain TCP, with a limited lifetime ---


#: A self-signed certificate for this machine, for a hundred years: ``openssl req -x509 -newkey rsa:2048 -nodes``.
TLS = Path(__file__).parent / "tls"


@pytest.mark.timeout(180)
def test_a_cluster_with_encrypted_connections() -> None:
    """Event loops carry messages to shards and scorers, and the model is the same."""
    certificate, key = str(TLS / "certificate.pem"), str(TLS / "key.pem")
    roles = {
        f"tls_{role}_{part}": path for role in ("scheduler", "worker", "client") for part, path in (("cert", certificate), ("key", key))
    }
    security = Security(tls_ca_file=certificate, require_encryption=True, **roles)
    frame = table()
    y = targets(frame)["regression"]
    boosting = dtrees.GradientBoostingRegressor(n_estimators=4, max_depth=3, subsample=0.8, random_state=0)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", security=security) as cluster,
        Client(cluster, set_as_default=False) as client,
        client.as_current(),
    ):
        assert all(worker.startswith("tls://") for worker in client.nthreads())
        with dask.config.set({"dtrees.placement": "sharded"}):
            fitted = boosting.fit(in_partitions(frame, LENGTHS[3]), in_partitions(y, LENGTHS[3]), eval_set=[(frame, y)])
        by_rows = clone(boosting).set_params(subsample=1.0, max_features=None, categorical_features=None)
        X, y_parts = in_partitions(frame, LENGTHS[3]), in_partitions(y, LENGTHS[3])
        assert_same_model(clone(by_rows).fit(X, y_parts, placement="rows"), clone(by_rows).fit(frame, y))
        assert_clean(client)
    here = clone(boosting).fit(frame, y, eval_set=[(frame, y)])
    assert_same_model(fitted, here)
    assert repr(fitted.evals_result_) == repr(here.evals_result_)


def test_a_worker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_channel, "_SECONDS_TO_OPEN", 1.0)

    async def act() -> None:
        async def be_silent(reader: Any, writer: Any) -> None:
            await asyncio.sleep(60)

        server = await asyncio.start_server(be_silent, "127.0.0.1", 0)
        address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(OSError, match="waited 1 s"):
            await open_channel(address, "key", {})
        server.close()

    asyncio.run(act())
