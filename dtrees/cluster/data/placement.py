"""Which worker gets which columns: decided once for a fit, from sizes, when rows and columns are known and before any column is loaded.

Terms
-----
one-worker
    one worker has all columns, and grows all trees. Others take over if it is lost.
replicated
    every worker has all columns, and grows some of the trees. Only trees that do not depend on each other can grow so.
sharded
    every worker has some of the columns, and all of them grow each tree together.
rows
    every worker keeps the rows of the partitions that it has, all columns of them, and all of them grow each tree together.
auto
    whichever is likely to be fastest, among those that there is memory for: for boosting, and for forests that fit no worker, by
    :mod:`dtrees.cluster.data.memory`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dask.utils import format_bytes
from distributed import Client

from dtrees.cluster.data.memory import (
    BATCHES_PER_THREAD_OUT_OF_BAG,
    NO_WORKERS,
    Sizes,
    WorkerCapacity,
    forest_by_columns,
    forest_by_rows,
    seconds_alone,
    seconds_by_columns,
    seconds_by_rows,
)
from dtrees.cluster.errors import NotEnoughMemory, WorkerLost
from dtrees.cluster.reliability.fit import current_fit
from dtrees.cluster.transport.clients import threads_of_workers
from dtrees.cluster.transport.events import tell
from dtrees.ensemble.backend import Placement

logger = logging.getLogger("dtrees.cluster")

#: What each worker has.
Capacities = Mapping[str, WorkerCapacity]
_AS_ASKED = "as asked for by placement"


@dataclass(frozen=True)
class Plan:
    """What each worker will hold.

    Attributes
    ----------
    sizes : Sizes
        What was planned for.
    placement : Placement
    columns : dict from str to list of int
        The columns that each worker loads and sorts, ascending. All of them together are the table's, each once. Where workers keep rows,
        each has all.
    needs : dict from str to int
        Bytes that each worker will need at most, evaluation sets included.
    spare : dict from str to float
        Bytes that each worker has left beside all but evaluation sets; of one that has no columns, all that it has.
    """

    sizes: Sizes
    placement: Placement
    columns: dict[str, list[int]]
    needs: dict[str, int]
    spare: dict[str, float]

    def tell(self, capacities: Capacities) -> None:
        """Log the plan, a line for each worker, and tell of it."""
        placement, kind = self.placement, self.placement.kind
        logger.info("placement %s: %s", kind, placement.reason)
        n_columns = sum(map(len, self.columns.values()))
        for worker, needed in self.needs.items():
            if kind == "rows":
                what = f"rows{' beside cells on disk' * (placement.storage == 'disk')}"
            else:
                what = f"{n_columns if kind == 'replicated' else len(self.columns.get(worker, ()))} of {n_columns} columns"
            logger.info("%s will hold %s: %s of %s", worker, what, format_bytes(needed), _free(capacities[worker]))
        told = {"workers": list(placement.workers), "bytes": self.needs, "storage": placement.storage}
        tell(current_fit().name, "placed", placement=kind, reason=placement.reason, **told)


def check_placement(placement: str, *, boosting: bool, whole: str = "") -> None:
    """Raise ValueError if trees cannot grow that way; ``whole`` says what only grows where a worker has all columns, if it is such."""
    if whole and placement in ("sharded", "rows"):
        raise ValueError(
            f"placement is {placement!r}, but {whole}, which wants all columns on a worker; wants one of auto, one-worker"
            f"{'' if boosting else ', replicated'}"
        )
    if boosting and placement == "replicated":
        raise ValueError(
            "placement is 'replicated', which is for forests: in boosting each tree depends on those before it, so that workers cannot "
            "grow trees of their own; wants one of auto, one-worker, sharded, rows"
        )


def place(
    sizes: Sizes,
    capacities: Capacities,
    placement: str = "auto",
    n_trees: int | None = None,
    *,
    only_whole: bool = False,
    rows: Mapping[str, int] | None = None,
    storage: str = "memory",
) -> Plan:
    """Decide where columns go, or rows stay.

    Parameters
    ----------
    sizes : Sizes
    capacities : mapping from str to WorkerCapacity
        What each worker has.
    placement : {"auto", "one-worker", "replicated", "sharded", "rows"}, default="auto"
    n_trees : int or None, default=None
        Trees to grow that do not depend on each other; None for boosting.
    only_whole : bool, default=False
        Whether they grow only where a worker has all columns.
    rows : mapping from str to int, optional
        How many rows each worker would keep, if trees can grow where rows stay.
    storage : {"auto", "memory", "disk"}, default="memory"
        Where workers that keep rows have their cells; "auto" is on disk where nothing else fits their memory.

    Raises
    ------
    NotEnoughMemory
        If there is no memory for it.

    Examples
    --------
    >>> sizes = Sizes(1_000_000, (9_000_000,) * 28, 8_000_000, 14_000_000)  # 252 MB of columns
    >>> place(sizes, {"a": WorkerCapacity(1, 1e9), "b": WorkerCapacity(1, 1e9)}, n_trees=100).placement.kind
    'replicated'
    >>> plan = place(sizes, {"a": WorkerCapacity(1, 3e8), "b": WorkerCapacity(1, 3e8)}, n_trees=100)
    >>> plan.placement.kind, plan.placement.reason.split("; ")[0]
    ('sharded', 'with 1,000,000 rows and 28 columns, the table (240.33 MiB presorted) fits no single worker')
    >>> plan.needs
    {'a': 232971520, 'b': 232971520}
    """
    try:
        if placement == "rows":
            assert rows is not None
            return place_rows(sizes, rows, capacities, storage="disk" if storage == "disk" else "memory", n_trees=n_trees)
        return _place_columns(sizes, capacities, placement, n_trees, only_whole, rows)
    except NotEnoughMemory:
        if storage != "auto" or rows is None or placement not in ("auto", "rows"):
            raise
    reason = "in memory, cells would fit nowhere"
    return place_rows(sizes, rows, capacities, Placement("rows", reason, tuple(rows), storage="disk"), n_trees=n_trees)


def _place_columns(
    sizes: Sizes, capacities: Capacities, placement: str, n_trees: int | None, only_whole: bool, rows: Mapping[str, int] | None
) -> Plan:
    """Return the plan with columns placed, or with rows that stay where that is predicted to be faster."""
    whole = {worker: needed_for_all(sizes, capacity.threads, n_trees) for worker, capacity in capacities.items()}
    able = [worker for worker in capacities if whole[worker] + sum(sizes.evaluation) <= capacities[worker].free]
    kind, reason, predicted = placement, _AS_ASKED, dict[str, float]()
    if placement == "auto" and len(capacities) > 1 and not only_whole and (n_trees is None or not able):
        predicted = _predict(sizes, capacities, able, rows, n_trees)
        kind, reason = _fastest(sizes, predicted, able=bool(able))
    elif placement == "auto":
        kind, reason = _choose(capacities, able, n_trees, only_whole)
    if kind == "rows":
        assert rows is not None
        return place_rows(sizes, rows, capacities, Placement(kind, reason, tuple(rows), predicted), n_trees=n_trees)
    if kind == "one-worker":
        best = max(able or capacities, key=lambda worker: (capacities[worker].threads, capacities[worker].free, worker))
        columns, needs = {best: list(range(len(sizes.columns)))}, {best: whole[best]}
    else:
        columns, needs = _shared_columns(sizes, capacities, n_trees)
        needs = needs if kind == "sharded" else whole
    return _checked(sizes, Placement(kind, reason, tuple(needs), predicted), columns, needs, capacities, only_whole)


def place_rows(
    sizes: Sizes,
    rows: Mapping[str, int],
    capacities: Capacities,
    placement: Placement | None = None,
    storage: str = "memory",
    n_trees: int | None = None,
) -> Plan:
    """Return the plan by which workers keep so many rows each; ``placement`` says why, by default that it was asked for, and ``storage``.

    ``n_trees`` are as of :func:`place`.

    Raises
    ------
    NotEnoughMemory
        If some have not the memory for theirs.

    Examples
    --------
    >>> sizes = Sizes(1_000_000, (9_000_000,) * 28, 8_000_000, 14_000_000)
    >>> plan = place_rows(sizes, {"a": 750_000, "b": 250_000}, {"a": WorkerCapacity(1, 1e9), "b": WorkerCapacity(1, 1e9)})
    >>> print(plan.placement)
    rows on 2 workers: as asked for by placement
    >>> plan.needs
    {'a': 344075000, 'b': 155671520}
    """
    columns = {worker: list(range(len(sizes.columns))) for worker in rows}
    placement = placement or Placement("rows", _AS_ASKED, tuple(rows), storage=storage)
    needs = _needs_of_rows(sizes, rows, capacities, n_trees, on_disk=placement.storage == "disk")
    return _checked(sizes, placement, columns, needs, capacities)


def _needs_of_rows(
    sizes: Sizes, rows: Mapping[str, int], capacities: Capacities, n_trees: int | None, *, on_disk: bool = False
) -> dict[str, int]:
    threads = {worker: min(capacities[worker].threads, len(sizes.columns)) for worker in rows}
    needs = {worker: sizes.needed_for_rows(n, threads[worker], on_disk=on_disk) for worker, n in rows.items()}
    first = next(iter(rows))
    needs[first] = sizes.needed_for_rows(rows[first], threads[first], has_all_targets=True, on_disk=on_disk)
    return needs if n_trees is None else {worker: needed + sizes.forest_by_rows(rows[worker]) for worker, needed in needs.items()}


def _shared_columns(sizes: Sizes, capacities: Capacities, n_trees: int | None) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Return the columns of each worker where all have a share, and the bytes that each needs then."""
    of_forest = 0 if n_trees is None else sizes.votes_in_all(0) + sizes.delegated
    threads = {worker: capacity.threads for worker, capacity in capacities.items()}
    room = {
        worker: capacity.free - sizes.besides(threads=min(capacity.threads, len(sizes.columns))) - of_forest
        for worker, capacity in capacities.items()
    }
    columns = spread(sizes.columns, threads, room)
    return columns, {worker: sizes.needed(own, threads=threads[worker]) + of_forest for worker, own in columns.items()}


def _predict(
    sizes: Sizes, capacities: Capacities, able: Sequence[str], rows: Mapping[str, int] | None, n_trees: int | None
) -> dict[str, float]:
    """Return the seconds of a tree for each placement that there is memory for; columns, which have the most words, if there is no other.

    ``n_trees`` are those of a forest, which no worker can hold the table for; None for boosting.
    """
    threads = {worker: capacity.threads for worker, capacity in capacities.items()}
    n_rows, n_columns = sizes.n_rows, len(sizes.columns)
    by_columns, by_rows = seconds_by_columns, seconds_by_rows
    if n_trees is not None:
        by_columns, by_rows = (partial(of_forest, n_targets=sizes.n_targets) for of_forest in (forest_by_columns, forest_by_rows))
    predicted = {}
    if able:
        predicted["one-worker"] = seconds_alone(n_rows, n_columns, max(threads[worker] for worker in able))
    predicted["sharded"] = by_columns(n_rows, n_columns, threads)
    if rows is None:
        return predicted
    needs, free = _needs_of_rows(sizes, rows, capacities, n_trees), sum(capacity.free for capacity in capacities.values())
    if _fit(needs, capacities) and sum(needs.values()) + sum(sizes.evaluation) <= free:
        predicted["rows"] = by_rows(rows, n_columns, threads)
        if n_trees is not None and not _fit(_shared_columns(sizes, capacities, n_trees)[1], capacities):
            del predicted["sharded"]
    return predicted


def _fit(needs: Mapping[str, int], capacities: Capacities) -> bool:
    return all(needed <= capacities[worker].free for worker, needed in needs.items())


def _fastest(sizes: Sizes, predicted: Mapping[str, float], *, able: bool) -> tuple[str, str]:
    """Return the placement of the fewest seconds, the first of those, and the reason; ``able`` is whether a worker can hold the table."""
    kind = min(predicted, key=lambda kind: predicted[kind])
    weighed = ", ".join(f"{kind} {seconds:.3g}" for kind, seconds in predicted.items())
    if not able:
        why = f"the table ({format_bytes(sizes.table)} presorted) fits no single worker"
    elif kind == "one-worker":
        why = "what each worker does for all rows, and messages, would take longer than they save"
    else:
        why = "all workers together are faster than one"
    table = f"with {sizes.n_rows:,} rows and {len(sizes.columns):,} columns"
    return kind, f"{table}, {why}; predicted seconds a tree: {weighed}"


def _checked(
    sizes: Sizes,
    placement: Placement,
    columns: dict[str, list[int]],
    needs: Mapping[str, int],
    capacities: Capacities,
    only_whole: bool = False,
) -> Plan:
    """Return the plan, with evaluation sets placed, if there is memory for it."""
    spare = {worker: capacity.free - needs.get(worker, 0) for worker, capacity in capacities.items()}
    threads = {worker: capacity.threads for worker, capacity in capacities.items()}
    needs = dict(needs)
    for size, worker in zip(sizes.evaluation, place_blocks(sizes.evaluation, placement, threads, spare), strict=True):
        needs[worker] = needs.get(worker, 0) + size
    _refuse_impossible(placement, sizes, needs, capacities, only_whole)
    return Plan(sizes, placement, columns, needs, spare)


def needed_for_all(sizes: Sizes, threads: int, n_trees: int | None) -> int:
    """Return the bytes that a worker needs that has all columns, and grows trees of a forest of ``n_trees`` (None: boosting)."""
    under_way = min(threads, n_trees or 1)
    batches = min(n_trees or 1, BATCHES_PER_THREAD_OUT_OF_BAG * threads)
    return sizes.needed(range(len(sizes.columns)), under_way, threads) + sizes.votes_in_all(batches)


def _choose(capacities: Capacities, able: Sequence[str], n_trees: int | None, only_whole: bool) -> tuple[str, str]:
    """Return a placement and the reason for it where nothing is predicted; ``able`` are the workers with the memory for the whole table."""
    if len(capacities) == 1:
        return "one-worker", "the cluster has one worker"
    some = f"{len(able)} of {len(capacities)} workers can hold"
    if n_trees is None or not able:
        return "one-worker", f"it grows on whole tables only, and {some} this one"
    if n_trees <= 1:
        return "one-worker", "there is one tree to grow, and a worker can hold the whole table"
    if len(able) == len(capacities):
        return "replicated", "trees do not depend on each other, and every worker can hold the whole table"
    if max(capacities[worker].threads for worker in able) * 2 >= sum(capacity.threads for capacity in capacities.values()):
        return "one-worker", "the worker that can hold the whole table has half of all threads, or more"
    return ("one-worker", f"it grows on whole tables only, and {some} this one") if only_whole else ("sharded", f"{some} the whole table")


def _refuse_impossible(placement: Placement, sizes: Sizes, needs: Mapping[str, int], capacities: Capacities, only_whole: bool) -> None:
    kind = placement.kind
    short = [worker for worker, needed in needs.items() if needed > capacities[worker].free]
    if not short:
        return
    worst = max(short, key=lambda worker: needs[worker] - capacities[worker].free)
    others = f" (and {len(short) - 1} more workers are short of memory)" if len(short) > 1 else ""
    elsewhere = "" if kind in ("sharded", "rows") or only_whole else ", spread the columns over all workers (placement='sharded')"
    if kind == "rows" and placement.storage == "memory":
        elsewhere = ", have cells on the workers' disks (dtrees.storage in Dask's configuration: 'auto' or 'disk')"
    where = f"{kind!r}{' and cells on disk' * (placement.storage == 'disk')}"
    raise NotEnoughMemory(
        f"X with {sizes.n_rows:,} rows and {len(sizes.columns):,} columns does not fit the memory of the Dask cluster with placement "
        f"{where}: worker {worst} would need {format_bytes(needs[worst])}, and has {_free(capacities[worst])}{others}. "
        f"Presorted, the columns take {format_bytes(sizes.table)} in all{_besides(kind, sizes)}. "
        f"Add workers{elsewhere}, give them more memory (dask worker --memory-limit), free what they hold, or pass fewer columns, "
        "or narrower ones (float32 rather than float64)."
    )


def _besides(kind: str, sizes: Sizes) -> str:
    """Say what else there is that takes memory."""
    said = ""
    if sizes.evaluation:
        said += f", evaluation sets and their predictions {format_bytes(sum(sizes.evaluation))}"
    if sizes.votes:
        copies = "" if kind == "sharded" else ", for each batch of trees"
        said += f", and the sums for oob_score=True {format_bytes(sizes.votes)} on each worker, several times{copies}"
    return said


def _free(capacity: WorkerCapacity) -> str:
    if capacity.limit == float("inf"):
        return "unlimited memory"
    return (
        f"{format_bytes(int(capacity.free))} free ({format_bytes(int(capacity.limit))} usable, {format_bytes(int(capacity.used))} in use)"
    )


def nthreads(client: Client) -> dict[str, int]:
    """Return the threads of each worker.

    Raises
    ------
    WorkerLost
        If there are no workers.
    """
    threads = {worker: n for worker, n in sorted(threads_of_workers(client).items()) if n > 0}
    if not threads:
        raise WorkerLost(NO_WORKERS)
    return threads


def spread(sizes: Sequence[float], capacities: Mapping[str, float], limits: Mapping[str, float] | None = None) -> dict[str, list[int]]:
    """Spread items over workers so that each has about its share: the largest first, each to the worker least filled.

    Parameters
    ----------
    sizes : sequence of float
        Of the items, in bytes.
    capacities : mapping from str to float
        The workers, and their shares of the work (threads, for example).
    limits : mapping from str to float, optional
        Bytes that each worker can take. What fits nowhere goes to some worker all the same.

    Returns
    -------
    dict from str to list of int
        The items of each worker that has some, ascending.

    Examples
    --------
    >>> spread([4, 4, 4, 4], {"a": 1, "b": 3})
    {'b': [0, 1, 3], 'a': [2]}
    >>> spread([4], {"a": 1, "b": 1})
    {'a': [0]}
    >>> spread([4, 4, 4, 4], {"a": 1, "b": 3}, {"a": 20, "b": 5})
    {'b': [0], 'a': [1, 2, 3]}
    """
    placed: dict[str, list[int]] = {}
    load = dict.fromkeys(capacities, 0.0)
    for item in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        fitting = [worker for worker in load if limits is None or load[worker] + sizes[item] <= limits[worker]]
        worker = min(fitting or load, key=lambda w: ((load[w] + sizes[item]) / capacities[w], w))
        load[worker] += sizes[item]
        placed.setdefault(worker, []).append(item)
    return {worker: sorted(items) for worker, items in placed.items()}


def place_blocks(sizes: Sequence[int], placement: Placement, threads: Mapping[str, int], spare: Mapping[str, float]) -> list[str]:
    """Return the worker for each block of the evaluation sets.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of the blocks.
    placement : Placement
        Of the columns: where one worker has all, it has all blocks.
    threads : mapping from str to int
        Of each worker.
    spare : mapping from str to float
        Bytes that each worker has left; see :class:`~dtrees.cluster.data.placement.Plan`.

    Examples
    --------
    >>> place_blocks([6, 4, 4], Placement("sharded", "", ("a",)), {"a": 1, "b": 1}, {"a": 5.0, "b": 12.0})
    ['b', 'a', 'b']
    """
    if placement.kind == "one-worker" and placement.workers[0] in threads:
        return list(placement.workers) * len(sizes)
    found = spread(sizes, threads, {worker: spare.get(worker, 0.0) for worker in threads})
    return [worker for _, worker in sorted((block, worker) for worker, blocks in found.items() for block in blocks)]
