"""Clusters of processes on this machine for benchmarks, and the events of fits that run on them.

Terms
-----
exchange
    a message to some shards, and their replies; its data is in the events of :mod:`dtrees.cluster.transport.events`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from benchmarks.data import synthetic
from benchmarks.resident import give_back, resident_bytes

#: Rows of a partition that is generated on a worker.
PART_ROWS = 125_000


@contextlib.contextmanager
def cluster(n_workers: int, threads: int = 1, memory_limit: int = 0) -> Iterator[Client]:
    """Yield the current client of a cluster of ``n_workers`` processes, by default without memory limits."""
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=threads, memory_limit=memory_limit, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as local,
        Client(local, set_as_default=False) as client,
        client.as_current(),
    ):  # fmt: skip
        client.wait_for_workers(n_workers, timeout=60)
        yield client


def made_on_workers(n_rows: int, n_columns: int, part_rows: int = PART_ROWS) -> tuple[Any, Any]:
    """Return Dask arrays whose partitions are generated whenever they are computed."""
    lengths = [min(part_rows, n_rows - first) for first in range(0, n_rows, part_rows)]
    parts = [dask.delayed(synthetic, nout=2)(length, n_columns=n_columns, seed=seed) for seed, length in enumerate(lengths)]
    X = [da.from_delayed(part[0], (length, n_columns), np.float32) for part, length in zip(parts, lengths, strict=True)]
    y = [da.from_delayed(part[1], (length,), np.float64) for part, length in zip(parts, lengths, strict=True)]
    return da.concatenate(X), da.concatenate(y)


def placed(how: str) -> Any:
    """Make fits inside the block use a placement, whatever they would choose."""
    return dask.config.set({"dtrees.placement": how})


@dataclass(frozen=True)
class News:
    """The events of a fit (:mod:`dtrees.cluster.transport.events`): of its exchanges and of its rounds."""

    exchanges: list[dict[str, Any]]
    rounds: list[dict[str, Any]]

    def trees(self) -> list[dict[str, Any]]:
        """Return the exchange of each tree after the first, in which kernels are loaded."""
        return [one for one in self.exchanges if one["message"] == "GrowTree"][1:]


def news(client: Client, fit: str | None = None) -> News:
    """Return the events of a fit so far, by default of the last. Dask stores the latest thousand exchanges only.

    They are requested afterwards: a listener for every event would take time of this process on some core.
    """
    told = {topic: client.get_events(topic) for topic in ("dtrees", "dtrees-exchange")}
    fit = fit or (told["dtrees"][-1][1]["fit"] if told["dtrees"] else None)
    exchanges = [facts for _, facts in told["dtrees-exchange"] if facts["fit"] == fit]
    rounds = [facts | {"at": at} for at, facts in told["dtrees"] if facts["fit"] == fit and facts["what"] == "round"]
    return News(exchanges, rounds)


def forget_peak() -> int:
    """Return freed memory to the system, reset the peak, and return the resident bytes."""
    give_back()
    return resident_bytes()
