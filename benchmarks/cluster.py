"""Clusters of processes on this machine for benchmarks, and what fits tell while they run on them.

Terms
-----
exchange
    a message to some shards, and their replies; what is known of it is in the events of :mod:`dtrees.cluster.events`.
level
    two exchanges: ``Evaluate`` and ``Advance``.
overhead
    what an exchange takes beyond the slowest worker's own work.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait
from numpy.typing import NDArray

from benchmarks.data import synthetic
from benchmarks.resident import give_back, resident_bytes

#: Seconds until news of a fit that has ended must have come.
_DEADLINE = 30.0
#: Rows of a partition that is made where it is needed.
PART_ROWS = 125_000


@contextlib.contextmanager
def cluster(n_workers: int, threads: int = 1) -> Iterator[Client]:
    """Give the current client of as many workers, each a process, without limits of memory."""
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=threads, memory_limit=0, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as local,
        Client(local, set_as_default=False) as client,
        client.as_current(),
    ):  # fmt: skip
        client.wait_for_workers(n_workers, timeout=60)
        yield client


def collections(client: Client, X: NDArray[Any], y: NDArray[Any], n_parts: int = 8) -> tuple[Any, Any]:
    """Return Dask arrays of a table whose partitions lie on the workers."""
    rows = -(-X.shape[0] // n_parts)
    parts = client.persist([da.from_array(X, chunks=(rows, -1)), da.from_array(y, chunks=rows)])
    wait(parts)
    return parts[0], parts[1]


def made_on_workers(n_rows: int, n_columns: int) -> tuple[Any, Any]:
    """Return Dask arrays whose partitions are made whenever they are asked for."""
    lengths = [min(PART_ROWS, n_rows - first) for first in range(0, n_rows, PART_ROWS)]
    parts = [dask.delayed(synthetic, nout=2)(length, n_columns=n_columns, seed=seed) for seed, length in enumerate(lengths)]
    X = [da.from_delayed(part[0], (length, n_columns), np.float32) for part, length in zip(parts, lengths, strict=True)]
    y = [da.from_delayed(part[1], (length,), np.float64) for part, length in zip(parts, lengths, strict=True)]
    return da.concatenate(X), da.concatenate(y)


def placed(how: str) -> Any:
    """Have fits inside the block use a placement, whatever they would choose."""
    return dask.config.set({"dtrees.placement": how})


@dataclass
class News:
    """What fits told.

    Attributes
    ----------
    exchanges, rounds : list of dict
        The facts of :mod:`dtrees.cluster.events`.
    """

    exchanges: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    _came: threading.Condition = field(default_factory=threading.Condition)

    def take(self, event: tuple[float, dict[str, Any]]) -> None:
        """Note an event."""
        facts = event[1]
        with self._came:
            if facts["what"] == "exchange":
                self.exchanges.append(facts)
            elif facts["what"] == "round":
                self.rounds.append(facts | {"at": event[0]})
            self._came.notify_all()

    def wait_for_round(self, number: int) -> None:
        """Wait until a round is known to have ended.

        Raises
        ------
        TimeoutError
        """
        with self._came:
            if not self._came.wait_for(lambda: bool(self.rounds) and self.rounds[-1]["round"] >= number, _DEADLINE):
                raise TimeoutError(f"round {number} did not end")

    def levels(self) -> list[list[dict[str, Any]]]:
        """Return the two exchanges of each level after the first tree, in which kernels are loaded."""
        later = self.exchanges[[one["message"] for one in self.exchanges].index("Finish") + 1 :]
        pairs = pairwise(later)
        return [[first, second] for first, second in pairs if (first["message"], second["message"]) == ("Evaluate", "Advance")]


@contextlib.contextmanager
def listening(client: Client) -> Iterator[News]:
    """Give what the fits of the block tell."""
    news = News()
    for topic in ("dtrees", "dtrees-exchange"):
        client.subscribe_topic(topic, news.take)
    try:
        yield news
    finally:
        for topic in ("dtrees", "dtrees-exchange"):
            client.unsubscribe_topic(topic)


def sharded_fit(client: Client, model: Any, X: Any, y: Any) -> News:
    """Boost over shards, and return what was told of it."""
    with placed("sharded"), listening(client) as news:
        fitted = model.fit(X, y)
        news.wait_for_round(fitted.n_estimators_)
    return news


def overhead(exchanges: list[dict[str, Any]]) -> float:
    """Return the seconds of exchanges beyond the slowest worker's own work."""
    return float(sum(one["seconds"] - one["slowest"] for one in exchanges))


def seconds_of(call: Callable[[], Any]) -> float:
    """Time one call."""
    gc.collect()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def forget_peak() -> int:
    """Return freed memory to the system, forget earlier peaks, and return the bytes that are resident."""
    give_back()
    return resident_bytes()


def peak() -> int:
    """Return the largest number of bytes that were resident since then."""
    return resident_bytes("VmHWM")


def process_ids(client: Client) -> dict[str, int]:
    """Return the process of each worker."""
    return dict(client.run(os.getpid))
