"""The placement of a table: which worker gets which columns or rows, decided once for a fit by sizes, before any column is loaded.

Terms
-----
one-worker
    one worker has all columns, and grows all trees. If it is lost, another one takes over.
replicated
    every worker has all columns, and grows some of the trees. Only for independent trees.
sharded
    every worker has some of the columns, and all of them grow each tree together.
rows
    every worker keeps the rows of its partitions, with all their columns, and all workers grow each tree together.
auto
    the placement with the lowest predicted time, among those with sufficient memory; for boosting by the costs in
    :mod:`dtrees.cluster.data.memory`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from dask.utils import format_bytes
from distributed import Client, Future

from dtrees.cluster.data import memory
from dtrees.cluster.data.memory import Sizes, WorkerCapacity
from dtrees.cluster.errors import NotEnoughMemory, WorkerLost
from dtrees.cluster.reliability.fit import PLACEMENTS, current_fit
from dtrees.cluster.transport.clients import holders, threads_of_workers
from dtrees.cluster.transport.events import publish
from dtrees.engine.plan.wants import ALL_ROWS, IN_TURN, WHOLE_TABLE, Want
from dtrees.ensemble.backend import Placement
from dtrees.split.policy import DELEGATED_COLUMNS

logger = logging.getLogger("dtrees.cluster")

#: The capacities of workers, by address.
Capacities = Mapping[str, WorkerCapacity]
_AS_ASKED = "as asked for by placement"
#: The requirements (:mod:`dtrees.engine.plan.wants`) that placements do not meet.
_LACKS = {"rows": {ALL_ROWS, WHOLE_TABLE}, "sharded": {WHOLE_TABLE}, "replicated": {IN_TURN}}
#: With this many workers, or fewer, a forest that fits no single worker may grow by columns. With a third of the columns tried in a node,
#: the busiest of two workers and the coordinator took 0.18 s a tree by rows and 0.13 by columns for 100,000 x 28, 0.12 and 0.46 for 40,000
#: x 100. By columns, each worker divides all rows.
_FEW_WORKERS = 3
#: A partition stays on its worker if the worker's rows exceed its share by at most this factor with it, or are below its share by this
#: factor without it. Moving a partition takes no longer than the imbalance costs in some trees. In three of eight fits, two workers had
#: read five and three of the eight partitions of a Parquet file.
_MOST_SHARE = 1.05


@dataclass(frozen=True)
class Plan:
    """The columns, rows and memory of each worker.

    Attributes
    ----------
    sizes : Sizes
        The sizes that were planned for.
    placement : Placement
    columns : dict from str to list of int
        The columns that each worker loads and sorts, ascending. Together they are the columns of the table, each once. By rows, each worker
        has all columns.
    needs : dict from str to int
        Upper limits of the bytes that each worker will need, including evaluation sets.
    spare : dict from str to float
        Bytes that each worker has free besides everything but evaluation sets; for a worker without columns, all its bytes.
    """

    sizes: Sizes
    placement: Placement
    columns: dict[str, list[int]]
    needs: dict[str, int]
    spare: dict[str, float]

    def publish(self, capacities: Capacities) -> None:
        """Log the plan, one line for each worker, and publish it."""
        placement, kind = self.placement, self.placement.kind
        logger.info("placement %s: %s", kind, placement.reason)
        n_columns = sum(map(len, self.columns.values()))
        for worker, needed in self.needs.items():
            if kind == "rows":
                what = f"rows{' beside cells on disk' * (placement.storage == 'disk')}"
            else:
                what = f"{n_columns if kind == 'replicated' else len(self.columns.get(worker, ()))} of {n_columns} columns"
            logger.info("%s will hold %s: %s of %s", worker, what, format_bytes(needed), _free(capacities[worker]))
        facts = {"workers": list(placement.workers), "bytes": self.needs, "storage": placement.storage}
        publish(current_fit().name, "placed", placement=kind, reason=placement.reason, **facts)


def possible(wants: Collection[Want]) -> list[str]:
    """Return the placements that meet the requirements of a fit."""
    return [placement for placement in PLACEMENTS if not _LACKS.get(placement, set()) & {want.what for want in wants}]


def check_placement(placement: str, wants: Collection[Want]) -> None:
    """Raise ValueError if a placement does not meet the requirements of a fit."""
    for want in wants:
        if want.what in _LACKS.get(placement, ()):
            raise ValueError(f"placement is {placement!r}, but {want.reason}; wants one of {', '.join(possible(wants))}")


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
    """Decide the placement of columns or rows.

    Parameters
    ----------
    sizes : Sizes
    capacities : mapping from str to WorkerCapacity
        The capacities of the workers.
    placement : {"auto", "one-worker", "replicated", "sharded", "rows"}, default="auto"
    n_trees : int or None, default=None
        Number of independent trees; None for boosting.
    only_whole : bool, default=False
        Whether they require a worker with all columns.
    rows : mapping from str to int, optional
        Number of rows that each worker would keep, if trees can grow by rows.
    storage : {"auto", "memory", "disk"}, default="memory"
        Where cells are stored with placement by rows; "auto" is the disk if no other option fits the workers' memory.

    Raises
    ------
    NotEnoughMemory
        If workers have too little memory.

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
    case = _Case(sizes, capacities, n_trees, only_whole, rows)
    chosen = case.choose() if placement == "auto" else Placement(placement, _AS_ASKED)
    try:
        return case.plan(replace(chosen, storage="disk" if storage == "disk" else "memory"))
    except NotEnoughMemory:
        if storage != "auto" or rows is None or placement not in ("auto", "rows"):
            raise
    return case.plan(Placement("rows", "in memory, cells would fit nowhere", storage="disk"))


@dataclass(frozen=True)
class _Case:
    """The inputs of a placement; see :func:`place`."""

    sizes: Sizes
    capacities: Capacities
    n_trees: int | None
    only_whole: bool
    rows: Mapping[str, int] | None

    @property
    def whole(self) -> dict[str, int]:
        """Bytes that each worker would need if it had all columns."""
        return {worker: needed_for_all(self.sizes, capacity.threads, self.n_trees) for worker, capacity in self.capacities.items()}

    @property
    def able(self) -> list[str]:
        """The workers with memory for the whole table and the evaluation sets."""
        evaluation = sum(self.sizes.evaluation)
        return [worker for worker, needed in self.whole.items() if needed + evaluation <= self.capacities[worker].free]

    def plan(self, placement: Placement) -> Plan:
        """Return what each worker will hold, including evaluation sets, if there is sufficient memory."""
        sizes, kind = self.sizes, placement.kind
        columns = {worker: list(range(len(sizes.columns))) for worker in self.rows or ()}
        if kind == "rows":
            needs = self._needs_of_rows(on_disk=placement.storage == "disk")
        elif kind == "one-worker":
            capacities = self.capacities
            best = max(self.able or capacities, key=lambda worker: (capacities[worker].threads, capacities[worker].free, worker))
            columns, needs = {best: list(range(len(sizes.columns)))}, {best: self.whole[best]}
        else:
            columns, needs = self._shared_columns()
            needs = needs if kind == "sharded" else self.whole
        placement = replace(placement, workers=tuple(needs))
        spare = {worker: capacity.free - needs.get(worker, 0) for worker, capacity in self.capacities.items()}
        for size, worker in zip(sizes.evaluation, place_blocks(sizes.evaluation, placement, self._threads, spare), strict=True):
            needs[worker] = needs.get(worker, 0) + size
        self._refuse_impossible(placement, needs)
        return Plan(sizes, placement, columns, needs, spare)

    @property
    def _threads(self) -> dict[str, int]:
        return {worker: capacity.threads for worker, capacity in self.capacities.items()}

    def _needs_of_rows(self, *, on_disk: bool = False) -> dict[str, int]:
        """Return the bytes that each worker needs with placement by rows."""
        sizes, rows = self.sizes, self.rows
        assert rows is not None
        needs: dict[str, int] = {}
        for worker, n in rows.items():
            threads = min(self.capacities[worker].threads, len(sizes.columns))
            needs[worker] = sizes.needed_for_rows(n, threads, has_all_targets=not needs, on_disk=on_disk)
        return needs if self.n_trees is None else {worker: needed + sizes.forest_by_rows(rows[worker]) for worker, needed in needs.items()}

    def _shared_columns(self) -> tuple[dict[str, list[int]], dict[str, int]]:
        """Return the columns of each worker if all have a share, and the bytes that each then needs."""
        sizes, threads = self.sizes, self._threads
        of_forest = 0 if self.n_trees is None else sizes.oob_sums_in_all(0) + sizes.delegated
        free = {
            worker: capacity.free - sizes.besides(threads=min(capacity.threads, len(sizes.columns))) - of_forest
            for worker, capacity in self.capacities.items()
        }
        columns = spread(sizes.columns, threads, free)
        return columns, {worker: sizes.needed(own, threads=threads[worker]) + of_forest for worker, own in columns.items()}

    def choose(self) -> Placement:
        """Return a placement without workers, and its reason."""
        able, n_trees, capacities = self.able, self.n_trees, self.capacities
        some = f"{len(able)} of {len(capacities)} workers can hold"
        if len(capacities) == 1:
            return Placement("one-worker", "the cluster has one worker")
        if not self.only_whole and n_trees is None:
            return self._boosting()
        if not self.only_whole and not able:
            return self._forest_that_fits_no_worker()
        if n_trees is None or not able:
            return Placement("one-worker", f"it grows on whole tables only, and {some} this one")
        if n_trees <= 1:
            return Placement("one-worker", "there is one tree to grow, and a worker can hold the whole table")
        if len(able) == len(capacities):
            return Placement("replicated", "trees do not depend on each other, and every worker can hold the whole table")
        if max(self._threads[worker] for worker in able) * 2 >= sum(self._threads.values()):
            return Placement("one-worker", "the worker that can hold the whole table has half of all threads, or more")
        if self.only_whole:
            return Placement("one-worker", f"it grows on whole tables only, and {some} this one")
        return Placement("sharded", f"{some} the whole table")

    def _boosting(self) -> Placement:
        """Return the placement with the lowest predicted time of a tree (the first of equals), and its reason.

        Columns are an option even without sufficient memory, so that the error states what they would need.
        """
        n_rows, n_columns, threads = self.sizes.n_rows, len(self.sizes.columns), self._threads
        predicted = {}
        if self.able:
            predicted["one-worker"] = memory.seconds_alone(n_rows, n_columns, max(threads[worker] for worker in self.able))
        predicted["sharded"] = memory.seconds_by_columns(n_rows, n_columns, threads)
        if self.rows is not None and self._rows_fit():
            predicted["rows"] = memory.seconds_by_rows(self.rows, n_columns, threads)
        kind = min(predicted, key=lambda kind: predicted[kind])
        if kind == "one-worker":
            why = "what each worker does for all rows, and messages, would take longer than they save"
        else:
            why = "all workers together are faster than one" if self.able else self._fits_none
        weighed = ", ".join(f"{kind} {seconds:.3g}" for kind, seconds in predicted.items())
        return Placement(kind, f"{self._of_size}, {why}; predicted seconds a tree: {weighed}", predicted=predicted)

    def _forest_that_fits_no_worker(self) -> Placement:
        """Return the placement for trees over all workers: by columns for few workers with few columns each, if memory suffices."""
        few = len(self.capacities) <= _FEW_WORKERS and len(self.sizes.columns) <= DELEGATED_COLUMNS * len(self.capacities)
        by_rows = self._rows_fit() and not (few and not self._short(self._shared_columns()[1]))
        return Placement("rows" if by_rows else "sharded", f"{self._of_size}, {self._fits_none}")

    @property
    def _of_size(self) -> str:
        return f"with {self.sizes.n_rows:,} rows and {len(self.sizes.columns):,} columns"

    @property
    def _fits_none(self) -> str:
        return f"the table ({format_bytes(self.sizes.table)} presorted) fits no single worker"

    def _rows_fit(self) -> bool:
        """Return whether rows may stay on their workers, and memory suffices for that."""
        if self.rows is None:
            return False
        needs, free = self._needs_of_rows(), sum(capacity.free for capacity in self.capacities.values())
        return not self._short(needs) and sum(needs.values()) + sum(self.sizes.evaluation) <= free

    def _short(self, needs: Mapping[str, int]) -> list[str]:
        """Return the workers that lack the memory that they would need."""
        return [worker for worker, needed in needs.items() if needed > self.capacities[worker].free]

    def _refuse_impossible(self, placement: Placement, needs: Mapping[str, int]) -> None:
        sizes, capacities, kind, short = self.sizes, self.capacities, placement.kind, self._short(needs)
        if not short:
            return
        worst = max(short, key=lambda worker: needs[worker] - capacities[worker].free)
        others = f" (and {len(short) - 1} more workers are short of memory)" if len(short) > 1 else ""
        on_disk, elsewhere = placement.storage == "disk", ""
        if kind == "rows" and not on_disk:
            elsewhere = ", have cells on the workers' disks (dtrees.storage in Dask's configuration: 'auto' or 'disk')"
        elif kind not in ("sharded", "rows") and not self.only_whole:
            elsewhere = ", spread the columns over all workers (placement='sharded')"
        besides = ""
        if sizes.evaluation:
            besides += f", evaluation sets and their predictions {format_bytes(sum(sizes.evaluation))}"
        if sizes.oob_sums:
            copies = "" if kind == "sharded" else ", for each batch of trees"
            besides += f", and the sums for oob_score=True {format_bytes(sizes.oob_sums)} on each worker, several times{copies}"
        raise NotEnoughMemory(
            f"X with {sizes.n_rows:,} rows and {len(sizes.columns):,} columns does not fit the memory of the Dask cluster with placement "
            f"{kind!r}{' and cells on disk' * on_disk}: worker {worst} would need {format_bytes(needs[worst])}, and has "
            f"{_free(capacities[worst])}{others}. Presorted, the columns take {format_bytes(sizes.table)} in all{besides}. "
            f"Add workers{elsewhere}, give them more memory (dask worker --memory-limit), free what they hold, or pass fewer columns, "
            "or narrower ones (float32 rather than float64)."
        )


def needed_for_all(sizes: Sizes, threads: int, n_trees: int | None) -> int:
    """Return the bytes needed by a worker that has all columns and grows trees of a forest of ``n_trees`` (None: boosting)."""
    under_way = min(threads, n_trees or 1)
    batches = min(n_trees or 1, memory.BATCHES_PER_THREAD_OUT_OF_BAG * threads)
    return sizes.needed(range(len(sizes.columns)), under_way, threads) + sizes.oob_sums_in_all(batches)


def _free(capacity: WorkerCapacity) -> str:
    if capacity.limit == float("inf"):
        return "unlimited memory"
    return (
        f"{format_bytes(int(capacity.free))} free ({format_bytes(int(capacity.limit))} usable, {format_bytes(int(capacity.used))} in use)"
    )


def nthreads(client: Client) -> dict[str, int]:
    """Return the number of threads of each worker.

    Raises
    ------
    WorkerLost
        If there are no workers.
    """
    threads = {worker: n for worker, n in sorted(threads_of_workers(client).items()) if n > 0}
    if not threads:
        raise WorkerLost(memory.NO_WORKERS)
    return threads


def spread(sizes: Sequence[float], capacities: Mapping[str, float], limits: Mapping[str, float] | None = None) -> dict[str, list[int]]:
    """Spread items over workers in proportion to their capacities: the largest first, each to the least filled worker.

    Parameters
    ----------
    sizes : sequence of float
        Bytes of each item.
    capacities : mapping from str to float
        The workers' shares of the work, for example their numbers of threads.
    limits : mapping from str to float, optional
        Bytes that each worker can take. An item that fits nowhere is still assigned.

    Returns
    -------
    dict from str to list of int
        The items of each worker that has any, ascending.

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
        Bytes of each block.
    placement : Placement
        The placement of columns: a worker with all columns gets all blocks.
    threads : mapping from str to int
        Number of threads of each worker.
    spare : mapping from str to float
        Bytes that each worker has free; see :class:`~dtrees.cluster.data.placement.Plan`.

    Examples
    --------
    >>> place_blocks([6, 4, 4], Placement("sharded", "", ("a",)), {"a": 1, "b": 1}, {"a": 5.0, "b": 12.0})
    ['b', 'a', 'b']
    """
    if placement.kind == "one-worker" and placement.workers[0] in threads:
        return list(placement.workers) * len(sizes)
    found = spread(sizes, threads, {worker: spare.get(worker, 0.0) for worker in threads})
    return [worker for _, worker in sorted((block, worker) for worker, blocks in found.items() for block in blocks)]


def share_out(lengths: Sequence[int], there: Sequence[Collection[str]], threads: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the partitions that each worker keeps, ascending; workers without any are left out.

    Parameters
    ----------
    lengths : sequence of int
        Number of rows of each partition.
    there : sequence of collection of str
        The workers that already have each partition.
    threads : mapping from str to int
        The workers to choose from, with their shares of the work.

    Examples
    --------
    >>> share_out([10, 10, 10, 1], [["a"], ["a", "b"], ["b"], ["c"]], {"a": 1, "b": 1})
    {'a': [0, 3], 'b': [1, 2]}
    >>> share_out([10, 10], [["a"], ["a"]], {"a": 1, "b": 1})  # one worker is not left with all of them
    {'a': [0], 'b': [1]}
    >>> share_out([10] * 8, [["a"]] * 5 + [["b"]] * 3, {"a": 1, "b": 1})  # nor with a quarter more than its share
    {'a': [0, 1, 2, 3], 'b': [4, 5, 6, 7]}
    >>> share_out([10] * 5, [["a"]] * 2 + [["b"]] * 3, {"a": 1, "b": 1})  # none is moved where one has to have more than the other
    {'a': [0, 1], 'b': [2, 3, 4]}
    """
    share = {worker: sum(lengths) * n / sum(threads.values()) for worker, n in threads.items()}
    load = dict.fromkeys(sorted(threads), 0)
    assigned: dict[str, list[int]] = {}

    def filled(worker: str) -> tuple[float, bool, str]:
        return load[worker] / threads[worker], worker not in there[i], worker

    def stays(worker: str) -> bool:
        return load[worker] + lengths[i] <= _MOST_SHARE * share[worker] or _MOST_SHARE * load[worker] < share[worker]

    # Partitions on few workers first: the others have more choices.
    for i in sorted(range(len(lengths)), key=lambda i: (len(there[i]) or len(threads), -lengths[i], i)):
        having = [worker for worker in there[i] if worker in load and stays(worker)]
        worker = min(having or load, key=filled)
        load[worker] += lengths[i]
        assigned.setdefault(worker, []).append(i)
    return {worker: sorted(assigned[worker]) for worker in sorted(assigned)}


def partition_holders(client: Client, parts: Sequence[Future]) -> list[list[str]]:
    """Return the workers that have each partition, without silent ones."""
    having = holders(client, [part.key for part in parts])
    silent = current_fit().heartbeats.silent
    return [[worker for worker in having[part.key] if worker not in silent] for part in parts]
