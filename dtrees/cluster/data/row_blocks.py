"""Rows that stay where they are: each worker keeps the rows of the partitions that it has, all columns of them, presorted by itself.

No cell of the table goes to another worker, but for partitions that lie on few workers, or on none that takes part. The tasks::

    check     a partition: its schema, and the summary of its target and weights   ->  merged at the client, as for columns
    (here it is decided which worker keeps which partitions: :func:`share_out`)
    rows      a worker's partitions: columns to numbers, each sorted; target; weights   ->  a :class:`RowBlock`

Like columns, blocks are made again of the user's data where they are lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client, Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.compat import threads_of
from dtrees.cluster.data.memory import Sizes
from dtrees.cluster.data.partitions import Partitions
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.reliability.tasks import Tasks
from dtrees.cluster.transport.scheduler_rpc import holders
from dtrees.engine.threads import Threads
from dtrees.ensemble.backend import LoadOptions, Placement
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.target import check_target, check_weights, encode_target
from dtrees.ensemble.persistence.checkpoint import array_digest
from dtrees.split.table.columns import Columns
from dtrees.split.table.keyed_columns import arrange_rows

#: Partitions stay with the worker that has them, unless it has more than so many times its share of the rows.
_MOST_SHARE = 1.25

Stretch = tuple[int, int]


@dataclass(frozen=True)
class RowBlock:
    """The rows of some partitions.

    Attributes
    ----------
    columns : Columns
        All columns of the table; codes are of these rows' values.
    stretches : list of (int, int)
        The number in the table of the first row of each partition, and the one after its last; ascending.
    target : ndarray, shape (n_rows,) or (n_rows, k)
    weight : ndarray of float64, shape (n_rows,), or None
    """

    columns: Columns
    stretches: list[Stretch]
    target: NDArray[Any]
    weight: NDArray[np.float64] | None

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays."""
        arrays = [self.columns.codes, self.columns.words, self.target, self.weight]
        return sum(array.nbytes for array in arrays if array is not None)


@dataclass(frozen=True)
class RowEncoding:
    """How partitions become numbers."""

    schema: Schema
    classes: Any
    estimator: str
    several: bool


@dataclass(frozen=True)
class ClusterRows:
    """The rows of a table, on a cluster.

    Attributes
    ----------
    client : distributed.Client
    placement : Placement
    blocks : list of Future
        Each a :class:`RowBlock`, for a shard.
    stretches : list of list of (int, int)
        Of each block.
    workers : list of str
        Where each block was made.
    parts : list of tuple
        For each block, the keys of the tasks for its partitions of X, of y, and of weights or None. What they stand for is not kept; Dask
        knows how to make it again.
    n_rows : int
    encoding : RowEncoding
    sizes : Sizes
        What the whole table takes.
    spare : dict from str to float
        Bytes that workers have left beside rows and what goes with them, but for evaluation sets.
    """

    client: Client
    placement: Placement
    blocks: list[Future]
    stretches: list[list[Stretch]]
    workers: list[str]
    parts: list[tuple[list[str], list[str], list[str] | None]]
    n_rows: int
    encoding: RowEncoding
    sizes: Sizes
    spare: dict[str, float]

    @property
    def n_columns(self) -> int:
        """Number of columns of the table."""
        return len(self.encoding.schema)

    def rows_of(self, i: int) -> int:
        """Return the number of rows of a block."""
        return sum(last - first for first, last in self.stretches[i])

    def bring(self, i: int, worker: str) -> Future:
        """Return block ``i`` on another worker: moved there if it is in memory somewhere, else made again from the user's data."""
        old = self.blocks[i]
        with Tasks(self.client) as tasks:
            if set(holders(self.client, [old.key])[old.key]) - current_fit().heartbeats.silent.keys():
                new = tasks.submit("rows", _same, old, workers=[worker], allow_other_workers=True)
            else:
                X, y, weight = (None if keys is None else tasks.find(keys) for keys in self.parts[i])
                new = tasks.submit(
                    "rows", _load, X, y, weight, self.stretches[i], self.encoding, workers=[worker], allow_other_workers=True
                )
            tasks.keep(new)
        self.blocks[i], self.workers[i] = new, worker
        current_fit().own(new)
        old.release()
        return new


def share_out(lengths: Sequence[int], there: Sequence[Collection[str]], threads: Mapping[str, int]) -> dict[str, list[int]]:
    """Return which partitions each worker keeps, ascending; workers without any are left out.

    Parameters
    ----------
    lengths : sequence of int
        Rows of each partition.
    there : sequence of collection of str
        The workers that have it already.
    threads : mapping from str to int
        The workers to choose from, with their shares of the work.

    Examples
    --------
    >>> share_out([10, 10, 10, 1], [["a"], ["a", "b"], ["b"], ["c"]], {"a": 1, "b": 1})
    {'a': [0, 3], 'b': [1, 2]}
    >>> share_out([10, 10], [["a"], ["a"]], {"a": 1, "b": 1})  # one worker is not left with all of them
    {'a': [0], 'b': [1]}
    """
    most = {worker: _MOST_SHARE * sum(lengths) * n / sum(threads.values()) for worker, n in threads.items()}
    load = dict.fromkeys(sorted(threads), 0)
    kept: dict[str, list[int]] = {}

    def filled(worker: str) -> tuple[float, str]:
        return load[worker] / threads[worker], worker

    # Those that lie on few workers first: the others can do with what is left.
    for i in sorted(range(len(lengths)), key=lambda i: (len(there[i]) or len(threads), -lengths[i], i)):
        having = [worker for worker in there[i] if worker in load and (not load[worker] or load[worker] + lengths[i] <= most[worker])]
        worker = min(having or load, key=filled)
        load[worker] += lengths[i]
        kept.setdefault(worker, []).append(i)
    return {worker: sorted(kept[worker]) for worker in sorted(kept)}


def partition_holders(client: Client, parts: Sequence[Future]) -> list[list[str]]:
    """Return the workers that have each partition, without those that are silent."""
    having = holders(client, [part.key for part in parts])
    silent = current_fit().heartbeats.silent
    return [[worker for worker in having[part.key] if worker not in silent] for part in parts]


def load_rows(
    tasks: Tasks, parts: Partitions, shares: Mapping[str, Sequence[int]], encoding: RowEncoding
) -> tuple[list[Future], list[list[Stretch]], list[tuple[list[str], list[str], list[str] | None]]]:
    """Start making a block for each worker; return blocks, their stretches, and the keys of what they are made of."""
    ends = np.cumsum(parts.lengths).tolist()
    blocks, stretches, keys = [], [], []
    for worker, own in shares.items():
        mine = [(ends[i] - parts.lengths[i], ends[i]) for i in own]
        X, y = [parts.X[i] for i in own], [parts.y[i] for i in own]
        weight = None if parts.weight is None else [parts.weight[i] for i in own]
        blocks.append(tasks.submit("rows", _load, X, y, weight, mine, encoding, workers=[worker], allow_other_workers=True))
        stretches.append(mine)
        keys.append(([part.key for part in X], [part.key for part in y], None if weight is None else [part.key for part in weight]))
    return blocks, stretches, keys


def row_encoding(schema: Schema, classes: Any, options: LoadOptions) -> RowEncoding:
    """Return how partitions of a table become numbers."""
    return RowEncoding(schema, classes, options.estimator_name, options.several)


def _load(X: list[Any], y: list[Any], weight: list[Any] | None, stretches: list[Stretch], encoding: RowEncoding) -> RowBlock:
    """Encode the rows of some partitions."""
    schema = encoding.schema
    lengths = [last - first for first, last in stretches]
    with Threads(threads_of(get_worker())) as threads:
        columns = arrange_rows(lambda i: schema.encode(X[i]), lengths, len(schema), threads.map)
    classify = encoding.classes is not None
    targets = [
        encode_target(check_target(part, classify=classify, name=encoding.estimator, several=encoding.several), encoding.classes)
        for part in y
    ]
    weights = None if weight is None else [check_weights(part, len(part)) for part in weight]
    return RowBlock(
        columns,
        stretches,
        np.asarray(np.concatenate(targets), order="F"),
        None if weights is None else np.concatenate([one for one in weights if one is not None]),
    )


def _same(block: RowBlock) -> RowBlock:
    return block


def digests(tasks: Tasks, rows: ClusterRows) -> tuple[list[str], str, str | None]:
    """Return the digest of each column, of the target and of weights: those of a table that is placed otherwise.

    A column at a time is put together by a task.
    """
    blocks, n = rows.blocks, rows.n_rows
    columns = []
    for j in range(rows.n_columns):
        distinct = tasks.submit("digest", _merged, tasks.map("digest", _distinct, blocks, column=j))
        codes = tasks.map("digest", _codes, blocks, [distinct] * len(blocks), column=j)
        columns.append(tasks.submit("digest", _digest, codes, rows.stretches, n, distinct))
        tasks.waiter.wait([columns[-1]])
    names = ["target", *(["weight"] if rows.parts[0][2] is not None else [])]
    vectors = [
        tasks.submit("digest", _digest, tasks.map("digest", getattr, blocks, [name] * len(blocks)), rows.stretches, n) for name in names
    ]
    target, weight = (*tasks.waiter.gather(vectors), None)[:2]
    return tasks.waiter.gather(columns), target, weight


def _distinct(block: RowBlock, column: int) -> NDArray[np.float64]:
    codes = np.unique(block.columns.codes[column])
    return block.columns.values_of(column, codes[codes < block.columns.missing(column)])


def _merged(distinct: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.unique(np.concatenate(distinct))


def _codes(block: RowBlock, distinct: NDArray[np.float64], column: int) -> NDArray[np.uint32]:
    """Return the codes of a block's rows among the distinct values of all."""
    codes, which = np.unique(block.columns.codes[column], return_inverse=True)
    mine = block.columns.values_of(column, codes)
    return np.where(np.isnan(mine), len(distinct), np.searchsorted(distinct, mine)).astype(np.uint32)[which]


def _digest(pieces: list[NDArray[Any]], stretches: Sequence[Sequence[Stretch]], n_rows: int, *others: NDArray[Any]) -> str:
    """Return the digest of values of all rows, given by block, in their order."""
    whole = np.empty((n_rows, *pieces[0].shape[1:]), pieces[0].dtype)
    for piece, own in zip(pieces, stretches, strict=True):
        begin = 0
        for first, last in own:
            whole[first:last] = piece[begin : begin + last - first]
            begin += last - first
    return array_digest(whole, *others)
