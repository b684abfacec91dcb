"""Row partitions to presorted columns, by tasks: nothing but summaries passes through the client.

The stages, each a task or more for the scheduler to place::

    check     a partition: its schema, and the summary of its target and weights   ->  merged at the client
    encode    a partition: columns to numbers, cut into blocks of columns
    presort   a block: the pieces of all partitions joined, then sorted
    target    all partitions: class codes or values; weight alike

Every result can be computed again from the user's collections, as long as somebody holds on to what it was made for: that is how Dask
replaces what a lost worker held.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from dtrees.cluster.partitions import Partitions, align, is_lazy
from dtrees.cluster.tasks import Tasks
from dtrees.ensemble.backend import Table
from dtrees.ensemble.schema import Schema
from dtrees.ensemble.target import TargetSummary, check_target, check_weights, encode_classes
from dtrees.split.columns import Columns, concatenate, presort

logger = logging.getLogger("dtrees.cluster")


@dataclass(frozen=True)
class ClusterColumns:
    """The presorted columns of a table, on a cluster.

    Attributes
    ----------
    client : distributed.Client
    blocks : list of Future
        Each a :class:`~dtrees.split.columns.Columns`.
    bounds : tuple of int
        Block i has the columns ``bounds[i]`` to ``bounds[i + 1] - 1`` of the table.
    n_rows : int
    """

    client: Client
    blocks: list[Future]
    bounds: tuple[int, ...]
    n_rows: int

    @property
    def n_columns(self) -> int:
        """Number of columns of the table."""
        return self.bounds[-1]


def load(client: Client, X: Any, y: Any, sample_weight: Any, *, classify: bool, estimator_name: str) -> Table:
    """Check, encode and presort a training set on the cluster.

    Parameters
    ----------
    client : distributed.Client
    X : Dask DataFrame or Array of shape (n, n_columns)
    y : Dask Series or Array, or local array, of shape (n,)
    sample_weight : Dask Series or Array, local array of shape (n,), number or None
    classify : bool
    estimator_name : str
        For messages.

    Returns
    -------
    Table
        Its columns are a :class:`ClusterColumns`; target and weight are futures of arrays.
    """
    if not is_lazy(y):
        y = check_target(y, classify=classify, name=estimator_name)
    with Tasks(client) as tasks:
        parts = align(tasks, X, y, sample_weight)
        if not parts.lengths:
            shape = (0, X.shape[1])
            raise ValueError(f"X has no rows: found array with 0 sample(s) (shape={shape}) while a minimum of 1 is required.")
        schema, summary = _summarise(tasks, parts, classify=classify, name=estimator_name)
        bounds = _cut_columns(len(schema), sum(client.nthreads().values()))
        logger.info(
            "loading %d rows and %d columns from %d partitions into %d blocks",
            summary.n_rows, len(schema), len(parts.lengths), len(bounds) - 1,
        )  # fmt: skip
        blocks = _presort_blocks(tasks, parts.X, schema, bounds)
        codes = tasks.map("encode", _encode_target, parts.y, classes=summary.classes, name=estimator_name)
        target = tasks.submit("target", _join, codes)
        weight = None if parts.weight is None else tasks.submit("weight", _join_weights, parts.weight)
        made = [future for future in (*blocks, target, weight) if future is not None]
        tasks.watch.wait(made)
        tasks.keep(*made)
    columns = ClusterColumns(client, blocks, tuple(bounds), summary.n_rows)
    return Table.of(schema, summary, columns=columns, target=target, weight=weight)


def _summarise(tasks: Tasks, parts: Partitions, *, classify: bool, name: str) -> tuple[Schema, TargetSummary]:
    """Check all partitions; return what they say together."""
    weights = parts.weight if parts.weight is not None else [None] * len(parts.lengths)
    checked = tasks.watch.gather(tasks.map("check", _check, parts.X, parts.y, weights, classify=classify, name=name))
    summary = TargetSummary.merge(summary for _, summary in checked)
    summary.check()
    return Schema.merge(schema for schema, _ in checked), summary


def _presort_blocks(tasks: Tasks, X: list[Future], schema: Schema, bounds: list[int]) -> list[Future]:
    encoded = tasks.map("encode", _encode, X, schema=schema, bounds=bounds)
    blocks = []
    for block in range(len(bounds) - 1):
        pieces = tasks.map("split", _piece, encoded, block=block)
        blocks.append(tasks.submit("presort", _presort, pieces))
    return blocks


def join_blocks(blocks: list[Columns]) -> Columns:
    """Return blocks side by side; a lone one as it is."""
    return blocks[0] if len(blocks) == 1 else concatenate(blocks)


def _cut_columns(n_columns: int, n_blocks: int) -> list[int]:
    """Return the bounds of blocks of columns, one block for each thread of the cluster where there are columns enough.

    Examples
    --------
    >>> _cut_columns(8, 3)
    [0, 3, 6, 8]
    """
    n_blocks = max(1, min(n_blocks, n_columns))
    small, n_large = divmod(n_columns, n_blocks)
    return [0, *np.cumsum([small + 1] * n_large + [small] * (n_blocks - n_large)).tolist()]


def _check(X: Any, y: Any, weight: Any, classify: bool, name: str) -> tuple[Schema, TargetSummary]:
    """Return the schema of a partition, and the summary of its target and weights."""
    y = check_target(y, classify=classify, name=name)
    weight = check_weights(weight, len(y))
    return Schema.infer(X), TargetSummary.of(y, weight, classify=classify)


def _encode(X: Any, schema: Schema, bounds: Sequence[int]) -> list[list[NDArray[Any]]]:
    """Return the columns of a partition as numbers, block by block."""
    columns = [np.ascontiguousarray(column) for column in schema.encode(X)]
    return [columns[first:last] for first, last in itertools.pairwise(bounds)]


def _piece(encoded: list[list[NDArray[Any]]], block: int) -> list[NDArray[Any]]:
    return encoded[block]


def _presort(pieces: list[list[NDArray[Any]]]) -> Columns:
    """Join the pieces of a block, and sort its columns."""
    return presort([np.concatenate(column) for column in zip(*pieces, strict=True)])


def _encode_target(y: Any, classes: NDArray[Any] | None, name: str) -> NDArray[Any]:
    y = check_target(y, classify=classes is not None, name=name)
    return y if classes is None else encode_classes(y, classes)


def _join(pieces: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(pieces)


def _join_weights(pieces: list[Any]) -> NDArray[np.float64]:
    weights = [check_weights(piece, len(piece)) for piece in pieces]
    return np.concatenate([weight for weight in weights if weight is not None])
