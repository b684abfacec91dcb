"""Tables on a cluster, in blocks on workers.

Blocks have whole columns (:mod:`dtrees.cluster.data.columns`), or the rows of workers (:mod:`dtrees.cluster.data.rows`). A lost block of
either kind is made again from the user's data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from dtrees.cluster.data.placement import Plan
from dtrees.cluster.reliability.fit import current_fit
from dtrees.cluster.reliability.waiting import Tasks, same
from dtrees.cluster.transport.clients import holders, out_of_the_way
from dtrees.ensemble.backend import Table
from dtrees.ensemble.checkpoint import array_digest, table_digest
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.target import check_target, check_weights, encode_target


@dataclass(frozen=True)
class Encoding:
    """How partitions are converted to numbers, and whether the numbers of cells are stored on disk."""

    schema: Schema
    classes: Any
    estimator: str
    multi_output: bool | str
    is_on_disk: bool

    def target(self, y: Any) -> NDArray[Any]:
        """Return the target of a partition as numbers."""
        return encode_target(
            check_target(y, classify=self.classes is not None, name=self.estimator, multi_output=self.multi_output), self.classes
        )


@dataclass(frozen=True)
class ClusterTable(ABC):
    """A table on a cluster, with its target and weights, in blocks of columns or of rows: one for each shard, if there are several.

    Attributes
    ----------
    client : distributed.Client
    plan : Plan
    encoding : Encoding
    n_rows : int
    blocks : list of Future
    workers : list of str
        The worker on which each block was made.
    places_rows : bool
        Whether blocks hold rows of the table, not columns.
    """

    client: Client
    plan: Plan
    encoding: Encoding
    n_rows: int
    blocks: list[Future]
    workers: list[str]
    places_rows: ClassVar[bool]

    @property
    def n_columns(self) -> int:
        """Number of columns of the table."""
        return len(self.encoding.schema)

    @abstractmethod
    def shard(self, i: int) -> tuple[Any, ...]:
        """Return the data of a shard: a block, and what it needs to know."""

    @abstractmethod
    def share(self, i: int) -> tuple[int, int]:
        """Return the number of columns and of rows of a block."""

    @abstractmethod
    def needed(self, i: int) -> int:
        """Return the bytes that a worker needs for a shard."""

    @abstractmethod
    def weighted(self, tasks: Tasks, weight: NDArray[np.float64]) -> tuple[Self, list[Future]]:
        """Return the table with other weights, and the futures created for these."""

    def bring(self, i: int, worker: str) -> Future:
        """Return block ``i`` on another worker: moved there if it is in memory, otherwise made again from the user's data.

        Dask alone would make it again on any worker, and the worker that needs it would fetch a copy.
        """
        old = self.blocks[i]
        with Tasks(self.client) as tasks:
            having = set(holders(self.client, [old.key])[old.key]) - current_fit().heartbeats.silent.keys()
            moves = self._moves_from(having, worker)
            new = tasks.submit("moved", same, old, on=worker) if moves else self._made_again(tasks, i, worker)
            tasks.keep(new)
        self.blocks[i], self.workers[i] = new, worker
        old.release()
        return new

    def _moves_from(self, having: set[str], worker: str) -> bool:
        """Return whether a block is moved from the workers that have it, instead of being made again."""
        return bool(having)

    @abstractmethod
    def _made_again(self, tasks: Tasks, i: int, worker: str) -> Future:
        """Start making a block on a worker from the user's data."""

    def fetch(self, name: str) -> NDArray[Any]:
        """Fetch the "target" or "weight" of all rows, in row order; multi-output targets by output."""
        with out_of_the_way(), Tasks(self.client) as tasks:
            (found,) = tasks.waiter.gather([self._vector(tasks, name)])
            return np.asarray(found, order="F")

    def fingerprint(self, table: Table) -> str:
        """Return a digest of the training set, independent of its placement; see :meth:`dtrees.ensemble.in_process.Backend.fingerprint`."""
        with out_of_the_way(), Tasks(self.client) as tasks:
            names = ["target", "weight"] if table.weight is not None else ["target"]
            vectors = [tasks.submit("digest", array_digest, self._vector(tasks, name)) for name in names]
            return table_digest(table, self._column_digests(), *(*tasks.waiter.gather(vectors), None)[:2])

    @abstractmethod
    def _vector(self, tasks: Tasks, name: str) -> Future:
        """Return the "target" or "weight" of all rows."""

    @abstractmethod
    def _column_digests(self) -> list[str]:
        """Return the digest of each column, or a single digest of a sparse table."""


def join_targets(chunks: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate targets; multi-output targets by output."""
    return np.asarray(np.concatenate(chunks), order="F")


def join_weights(chunks: list[Any]) -> NDArray[np.float64]:
    """Concatenate checked weights."""
    return np.concatenate([weight for chunk in chunks if (weight := check_weights(chunk, len(chunk))) is not None])
