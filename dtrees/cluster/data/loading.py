"""Row partitions to presorted columns, by tasks: nothing but summaries passes through the client.

The stages, each a task or more::

    check     a partition: its schema, and the summary of its target and weights   ->  merged at the client
    (here it is decided which worker gets which columns: :mod:`dtrees.cluster.data.placement`)
    encode    a partition: columns to numbers; from here to whole columns: :mod:`dtrees.cluster.data.presorting`
    target    all partitions: class codes or values; weight alike

Where workers keep the rows that they have, it goes on with :mod:`dtrees.cluster.data.row_blocks`.

Every result can be computed again from the user's collections, as long as somebody holds on to what it was made for: that is how Dask
replaces what a lost worker held.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from dtrees.cluster.data.memory import Sizes, WorkerCapacity, block_bytes, worker_capacities
from dtrees.cluster.data.partitions import Partitions, align, is_lazy, joined, lengths_by_target
from dtrees.cluster.data.placement import Plan, check_placement, place
from dtrees.cluster.data.presorting import presort_blocks, presort_stored, side_by_side
from dtrees.cluster.data.row_blocks import ClusterRows, RowEncoding, load_rows, partition_holders, row_encoding, share_out
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.reliability.tasks import Tasks, release, same
from dtrees.cluster.transport.events import tell
from dtrees.cluster.transport.scheduler_rpc import holders
from dtrees.ensemble.backend import LoadOptions, Placement, Table
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.tables import checked_table
from dtrees.ensemble.input.target import TargetSummary, check_target, check_weights, encode_target

logger = logging.getLogger("dtrees.cluster")


@dataclass(frozen=True)
class ClusterColumns:
    """The presorted columns of a table, on a cluster.

    Attributes
    ----------
    client : distributed.Client
    placement : Placement
    blocks : list of Future
        Each a :class:`~dtrees.split.table.columns.Columns`: where columns are sharded, a block for each shard; else one with all of them,
        which is a :class:`~dtrees.split.table.sparse_columns.SparseColumns` if the table is sparse.
    ids : list of list of int
        The columns of each block, ascending.
    workers : list of str
        Where each block was made.
    n_rows : int
    schema : Schema
    sizes : Sizes
        What the table takes.
    spare : dict from str to float
        Bytes that workers have left beside columns and what goes with them, but for evaluation sets.
    partitions : list of str
        The keys of the tasks for X, in row order. What they stand for is not kept; Dask knows how to make it again.
    cells : int or None
        Stored cells, if the table is sparse.
    """

    client: Client
    placement: Placement
    blocks: list[Future]
    ids: list[list[int]]
    workers: list[str]
    n_rows: int
    schema: Schema
    sizes: Sizes
    spare: dict[str, float]
    partitions: list[str]
    cells: int | None = None

    @property
    def n_columns(self) -> int:
        """Number of columns of the table."""
        return sum(map(len, self.ids))

    def bring(self, i: int, worker: str) -> Future:
        """Return block ``i`` on another worker: moved there if it is in memory somewhere, else made again from the user's data.

        If left to Dask, it would be made again wherever it pleases, and fetched from there by the worker that needs it: two copies.
        """
        old = self.blocks[i]
        with Tasks(self.client) as tasks:
            if set(holders(self.client, [old.key])[old.key]) - current_fit().heartbeats.silent.keys():
                new = tasks.submit("presort", same, old, workers=[worker], allow_other_workers=True)
            else:
                X = tasks.find(self.partitions)
                (new,) = presort_blocks(tasks, X, self.schema, self.n_rows, {worker: self.ids[i]})
            tasks.keep(new)
        self.blocks[i], self.workers[i] = new, worker
        current_fit().own(new)
        old.release()
        return new


def load(client: Client, X: Any, y: Any, sample_weight: Any, options: LoadOptions) -> Table:
    """Check, encode and presort a training set on the cluster.

    Parameters
    ----------
    client : distributed.Client
    X : Dask DataFrame or Array of shape (n, n_columns)
    y : Dask Series or Array, or local array, of shape (n,); of several targets, where options allow them, a frame or array of shape (n, k)
    sample_weight : Dask Series or Array, local array of shape (n,), number or None
    options : LoadOptions

    Returns
    -------
    Table
        Its columns are a :class:`ClusterColumns`; target and weight are futures of arrays. Or all are :class:`ClusterRows`.

    Raises
    ------
    NotEnoughMemory
        If no worker, or not all of them together, can hold the columns.
    ValueError
        If trees cannot grow where they are to be placed, before anything is loaded.
    """
    whole = "X is for a bag, each of whose boosters is a task" if options.bag else ""
    check_placement(current_fit().settings.placement, boosting=options.n_trees is None, whole=whole)
    if current_fit().settings.placement == "rows" and options.rows_refusal is not None:
        raise ValueError(f'{options.rows_refusal}. Place it by columns: placement="sharded"')
    if not is_lazy(y):
        y = check_target(y, classify=options.classify, name=options.estimator_name, several=options.several)
    before = worker_capacities(client)
    with Tasks(client) as tasks:
        margin = options.base_margin
        parts = align(tasks, X, y, sample_weight, margin if is_lazy(margin) else None)
        if not parts.lengths:
            shape = (0, X.shape[1])
            raise ValueError(f"X has no rows: found array with 0 sample(s) (shape={shape}) while a minimum of 1 is required.")
        if parts.cells is not None:
            whole = "X is sparse, and trees of a sparse table are grown whole"
            check_placement(current_fit().settings.placement, boosting=options.n_trees is None, whole=whole)
        here = checked_table(joined(tasks.waiter.gather(parts.X))) if options.fetch_X else None
        if parts.margin is not None:
            margin = joined(tasks.waiter.gather(parts.margin))
        schema, summary = _summarise(tasks, parts, options)
        sizes, capacities = _measure(tasks, parts, schema, summary, options, before)
        logger.info("loading %d rows and %d columns from %d partitions", summary.n_rows, len(schema), len(parts.lengths))
        plan, shares = _plan(tasks, parts, sizes, capacities, _rows_refusal(parts, options), options)
        _tell(plan, capacities)
        columns: ClusterColumns | ClusterRows
        target: Future | ClusterRows
        weight: Future | ClusterRows | None
        if plan.placement.kind == "rows":
            columns = target = _keep_rows(tasks, parts, plan, shares, row_encoding(schema, summary.labels, options, plan.placement))
            weight = None if parts.weight is None else columns
        else:
            columns, target, weight = _load_columns(tasks, parts, plan, schema, summary, options)
    return Table.of(schema, summary, columns=columns, target=target, weight=weight, placement=columns.placement, base_margin=margin, X=here)


def _rows_refusal(parts: Partitions, options: LoadOptions) -> str | None:
    """Return why trees cannot grow where rows stay; None if they can."""
    if options.bag or parts.cells is not None:
        return "it is for dense tables, and no bags"  # check_placement says more
    return options.rows_refusal


def _plan(
    tasks: Tasks, parts: Partitions, sizes: Sizes, capacities: Mapping[str, WorkerCapacity], refusal: str | None, options: LoadOptions
) -> tuple[Plan, Mapping[str, Sequence[int]]]:
    """Return what each worker will hold, and which partitions each keeps, if rows stay where they are."""
    shares: dict[str, list[int]] = {}
    settings = current_fit().settings
    placement = settings.placement
    if placement == "rows" or (placement == "auto" and refusal is None):
        threads = {worker: capacity.threads for worker, capacity in capacities.items()}
        shares = share_out(parts.lengths, partition_holders(tasks.client, parts.X), threads)
    rows = {worker: sum(parts.lengths[i] for i in own) for worker, own in shares.items()}
    only_whole = options.bag or parts.cells is not None
    return place(sizes, capacities, placement, options.n_trees, only_whole=only_whole, rows=rows or None, storage=settings.storage), shares


def _load_columns(
    tasks: Tasks,
    parts: Partitions,
    plan: Plan,
    schema: Schema,
    summary: TargetSummary,
    options: LoadOptions,
) -> tuple[ClusterColumns, Future, Future | None]:
    """Have whole columns presorted; return them, the target and the weights."""
    fit = current_fit()
    workers, ids = list(plan.columns), list(plan.columns.values())
    if parts.cells is not None:
        blocks = [presort_stored(tasks, parts.X, schema, summary.n_rows, workers[0])]
        ids, workers = [list(range(len(schema)))], workers[:1]
    else:
        blocks = presort_blocks(tasks, parts.X, schema, summary.n_rows, plan.columns)
    if plan.placement.kind == "replicated" and len(blocks) > 1:
        blocks = [side_by_side(tasks, blocks, ids, summary.n_rows, workers[0])]
        ids, workers = [list(range(len(schema)))], workers[:1]
    codes = tasks.map("encode", _encode_target, parts.y, classes=summary.labels, name=options.estimator_name, several=options.several)
    target = tasks.submit("target", _join_targets, codes)
    weight = None if parts.weight is None else tasks.submit("weight", _join_weights, parts.weight)
    release([*parts.X, *parts.y, *(parts.weight or ()), *codes])  # each goes when the tasks that need it are done
    made = [future for future in (*blocks, target, weight) if future is not None]
    tasks.waiter.wait(made)
    tasks.keep(*made)
    if plan.placement.kind != "sharded":  # shards tell for themselves
        held = {worker: (len(schema), int(plan.needs[worker])) for worker in plan.placement.workers}
        tell(fit.name, "holding", rows=summary.n_rows, columns=len(schema), workers=held)
    keys = [future.key for future in parts.X]
    columns = ClusterColumns(
        tasks.client, plan.placement, blocks, ids, workers, summary.n_rows, schema, plan.sizes, plan.spare, keys, parts.cells
    )
    return columns, target, weight


def _keep_rows(tasks: Tasks, parts: Partitions, plan: Plan, shares: Mapping[str, Sequence[int]], encoding: RowEncoding) -> ClusterRows:
    """Have each worker take over the rows of the partitions that it has."""
    blocks, stretches, keys = load_rows(tasks, parts, shares, encoding)
    release([*parts.X, *parts.y, *(parts.weight or ())])
    tasks.waiter.wait(blocks)
    tasks.keep(*blocks)
    n_rows = sum(parts.lengths)
    return ClusterRows(tasks.client, plan.placement, blocks, stretches, list(shares), keys, n_rows, encoding, plan.sizes, plan.spare)


def _measure(
    tasks: Tasks, parts: Partitions, schema: Schema, summary: TargetSummary, options: LoadOptions, before: dict[str, WorkerCapacity]
) -> tuple[Sizes, dict[str, WorkerCapacity]]:
    """Return what the table takes, and what workers have.

    Since ``before``, the workers have computed partitions, which they will not keep: the less they used then or use now, the better known.
    """
    client = tasks.client
    n_classes = summary.n_classes
    each = None if parts.cells is None else parts.cells / summary.n_rows
    evaluation = [
        block_bytes(
            schema,
            length,
            weighted=given.weight is not None,
            n_classes=n_classes,
            n_targets=summary.n_targets,
            cells=each,
            started=given.base_margin is not None or options.fetch_X,
        )
        for given in options.sets
        for length in lengths_by_target(tasks, given.X, given.y)
    ]
    now = {
        worker: min(capacity, before.get(worker, capacity), key=lambda capacity: capacity.used)
        for worker, capacity in worker_capacities(client).items()
    }
    partition = max(client.nbytes([future.key for future in parts.X], summary=False).values(), default=0)
    sizes = Sizes.of(
        schema, summary.n_rows, weighted=parts.weight is not None, partition=partition, evaluation=evaluation, n_classes=n_classes,
        out_of_bag=options.out_of_bag, n_targets=summary.n_targets, boosting=options.n_trees is None, bag=options.bag,
    )  # fmt: skip
    return sizes if parts.cells is None else sizes.of_stored(parts.cells), now


def _tell(plan: Plan, capacities: Mapping[str, WorkerCapacity]) -> None:
    """Say where the table goes."""
    plan.log(capacities)
    placement = plan.placement
    tell(
        current_fit().name,
        "placed",
        placement=placement.kind,
        reason=placement.reason,
        workers=list(placement.workers),
        bytes=plan.needs,
        storage=placement.storage,
    )


def _summarise(tasks: Tasks, parts: Partitions, options: LoadOptions) -> tuple[Schema, TargetSummary]:
    """Check all partitions; return what they say together."""
    weights = parts.weight if parts.weight is not None else [None] * len(parts.lengths)
    told = {
        "classify": options.classify, "name": options.estimator_name, "categories": options.categories, "several": options.several
    }  # fmt: skip
    checked = tasks.waiter.gather(tasks.map("check", _check, parts.X, parts.y, weights, **told))
    summary = TargetSummary.merge(summary for _, summary in checked)
    summary.check()
    return Schema.merge(schema for schema, _ in checked), summary


def _check(
    X: Any, y: Any, weight: Any, classify: bool, name: str, categories: tuple[int, ...], several: bool
) -> tuple[Schema, TargetSummary]:
    """Return the schema of a partition, and the summary of its target and weights."""
    y = check_target(y, classify=classify, name=name, several=several)
    weight = check_weights(weight, len(y))
    return Schema.infer(X, categories), TargetSummary.of(y, weight, classify=classify)


def _encode_target(y: Any, classes: NDArray[Any] | list[NDArray[Any]] | None, name: str, several: bool) -> NDArray[Any]:
    return encode_target(check_target(y, classify=classes is not None, name=name, several=several), classes)


def _join_targets(pieces: list[NDArray[Any]]) -> NDArray[Any]:
    return np.asarray(np.concatenate(pieces), order="F")  # of several targets, each one's rows are side by side


def _join_weights(pieces: list[Any]) -> NDArray[np.float64]:
    weights = [check_weights(piece, len(piece)) for piece in pieces]
    return np.concatenate([weight for weight in weights if weight is not None])
