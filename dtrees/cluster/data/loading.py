"""Row partitions to presorted columns or rows, by tasks: only summaries pass through the client.

The stages, with one or more tasks each::

    check     a partition: its schema, and the summary of its target and weights   ->  merged at the client
    (then the placement is decided: :mod:`dtrees.cluster.data.placement`)
    encode    a partition: columns to numbers; from here to whole columns: :mod:`dtrees.cluster.data.columns`

With placement by rows, :mod:`dtrees.cluster.data.rows` takes the later stages.

Every result can be computed again from the user's collections as long as their futures exist: in this way, Dask replaces results of a lost
worker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from distributed import Client

from dtrees.cluster.data.columns import load_columns
from dtrees.cluster.data.memory import Sizes, WorkerCapacity, block_bytes, worker_capacities
from dtrees.cluster.data.partitions import Partitions, align, is_lazy, joined, lengths_by_target
from dtrees.cluster.data.placement import Plan, check_placement, partition_holders, place, possible, share_out
from dtrees.cluster.data.rows import load_rows
from dtrees.cluster.data.tables import Encoding
from dtrees.cluster.reliability.fit import current_fit
from dtrees.cluster.reliability.waiting import Tasks
from dtrees.cluster.transport.clients import bytes_of_results
from dtrees.engine.plan.wants import SPARSE, of_rows
from dtrees.ensemble.backend import LoadOptions, Table
from dtrees.ensemble.input.schema import Schema, checked_table
from dtrees.ensemble.input.target import TargetSummary, check_target, check_weights

logger = logging.getLogger("dtrees.cluster")


def load(client: Client, X: Any, y: Any, sample_weight: Any, options: LoadOptions) -> Table:
    """Check, encode and presort a training set on the cluster.

    Parameters
    ----------
    client : distributed.Client
    X : Dask DataFrame or Array of shape (n, n_columns)
    y : Dask Series or Array, or local array, of shape (n,); for several targets, a frame or array of shape (n, k)
    sample_weight : Dask Series or Array, local array of shape (n,), number or None
    options : LoadOptions

    Returns
    -------
    Table
        Its columns, target and weight are one :class:`~dtrees.cluster.data.tables.ClusterTable`.

    Raises
    ------
    NotEnoughMemory
        If no worker, or not all of them together, can hold the columns.
    ValueError
        If trees cannot grow where they are to be placed, before anything is loaded.
    """
    check_placement(current_fit().settings.placement, options.wants)
    if options.target and not is_lazy(y):
        y = check_target(y, classify=options.classify, name=options.estimator_name, multi_output=options.multi_output)
    before = worker_capacities(client)
    with Tasks(client) as tasks:
        margin = options.base_margin
        parts = align(tasks, X, y if options.target else None, sample_weight, margin if is_lazy(margin) else None)
        if not parts.lengths:
            shape = (0, X.shape[1])
            raise ValueError(f"X has no rows: found array with 0 sample(s) (shape={shape}) while a minimum of 1 is required.")
        wants = (*options.wants, *([] if parts.cells is None else [SPARSE]), *of_rows(sum(parts.lengths)))
        check_placement(current_fit().settings.placement, wants)
        here = checked_table(joined(tasks.waiter.gather(parts.X))) if options.fetch_X else None
        if parts.margin is not None:
            margin = joined(tasks.waiter.gather(parts.margin))
        schema, summary = _summarise(tasks, parts, options)
        sizes, capacities = _measure(tasks, parts, schema, summary, options, before)
        logger.info("loading %d rows and %d columns from %d partitions", summary.n_rows, len(schema), len(parts.lengths))
        plan, shares = _plan(tasks, parts, sizes, capacities, options.n_trees, possible(wants))
        plan.publish(capacities)
        encoding = Encoding(schema, summary.classes, options.estimator_name, options.multi_output, plan.placement.storage == "disk")
        loaded = tasks, parts, plan, summary.n_rows, encoding
        columns = load_rows(*loaded, shares) if plan.placement.kind == "rows" else load_columns(*loaded)
    weight = None if parts.weight is None else columns
    return Table.load(schema, summary, columns=columns, target=columns, weight=weight, placement=plan.placement, base_margin=margin, X=here)


def _plan(
    tasks: Tasks, parts: Partitions, sizes: Sizes, capacities: Mapping[str, WorkerCapacity], n_trees: int | None, placements: Sequence[str]
) -> tuple[Plan, Mapping[str, Sequence[int]]]:
    """Return the plan of what each worker will hold, by one of these placements, and, by rows, which partitions each worker keeps."""
    settings, only_whole = current_fit().settings, "sharded" not in placements
    shares: dict[str, list[int]] = {}
    if settings.placement == "rows" or (settings.placement == "auto" and "rows" in placements):
        threads = {worker: capacity.threads for worker, capacity in capacities.items()}
        shares = share_out(parts.lengths, partition_holders(tasks.client, parts.X), threads)
    rows = {worker: sum(parts.lengths[i] for i in own) for worker, own in shares.items()} or None
    plan = place(sizes, capacities, settings.placement, n_trees, only_whole=only_whole, rows=rows, storage=settings.storage)
    return plan, shares


def _measure(
    tasks: Tasks, parts: Partitions, schema: Schema, summary: TargetSummary, options: LoadOptions, before: dict[str, WorkerCapacity]
) -> tuple[Sizes, dict[str, WorkerCapacity]]:
    """Return the sizes of the table, and the capacities of workers.

    Workers have computed partitions since ``before``, which are not part of the loaded table; the smaller of both memory uses is the better
    estimate.
    """
    n_classes, each = summary.n_classes, None if parts.cells is None else parts.cells / summary.n_rows
    about: Any = {"n_classes": n_classes, "n_targets": summary.n_targets, "n_outputs": options.n_outputs}
    evaluation = []
    for given in options.sets:
        own: Any = {"weighted": given.weight is not None, "started": given.base_margin is not None or options.fetch_X}
        evaluation += [block_bytes(schema, n, cells=each, **own, **about) for n in lengths_by_target(tasks, given.X, given.y)]
    now = {
        worker: min(capacity, before.get(worker, capacity), key=lambda capacity: capacity.used)
        for worker, capacity in worker_capacities(tasks.client).items()
    }
    partition = max(bytes_of_results(tasks.client, parts.X).values(), default=0)
    sizes = Sizes.of(
        schema, summary.n_rows, weighted=parts.weight is not None, partition=partition, evaluation=evaluation,
        out_of_bag=options.out_of_bag, boosting=options.n_trees is None, bag=options.bag, distinct_draws=not options.target,
        remembered=options.remembered, **about,
    )  # fmt: skip
    return sizes if parts.cells is None else sizes.of_stored(parts.cells), now


def _summarise(tasks: Tasks, parts: Partitions, options: LoadOptions) -> tuple[Schema, TargetSummary]:
    """Check all partitions; return their merged schema and summary."""
    weights = parts.weight if parts.weight is not None else [None] * len(parts.lengths)
    what = replace(options, sets=(), base_margin=None)  # evaluation sets may be large
    checked = tasks.waiter.gather(tasks.map("check", _check, parts.X, parts.y, weights, options=what))
    summary = TargetSummary.merge(summary for _, summary in checked)
    summary.check()
    return Schema.merge(schema for schema, _ in checked), summary


def _check(X: Any, y: Any, weight: Any, options: LoadOptions) -> tuple[Schema, TargetSummary]:
    """Return the schema of a partition, and the summary of its target and weights."""
    y = check_target(y, classify=options.classify, name=options.estimator_name, multi_output=options.multi_output)
    weight = check_weights(weight, len(y))
    return Schema.infer(X, options.categories), TargetSummary.of(y, weight, classify=options.classify, columns=options.multi_output)
