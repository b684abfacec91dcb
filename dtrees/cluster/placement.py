"""Which worker gets which columns, and when one worker should have them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distributed import Client

from dtrees.cluster.errors import WorkerLost

#: Cells (rows times columns) that a thread gets through in a level while shards exchange that level's two messages: some 6 ms, at 4 ns.
CELLS_PER_LEVEL = 1_500_000


def nthreads(client: Client) -> dict[str, int]:
    """Return the threads of each worker.

    Raises
    ------
    WorkerLost
        If there are no workers.
    """
    threads = {worker: n for worker, n in sorted(client.nthreads().items()) if n > 0}
    if not threads:
        raise WorkerLost(
            "The Dask cluster has no workers. Start some (dask worker ADDRESS), or scale the cluster up, and run the fit again."
        )
    return threads


def worker_for_all(n_cells: int, threads: Mapping[str, int]) -> str | None:
    """Return the worker that had best boost by itself, None if the columns should be spread over all workers.

    More threads save time in proportion to the table, round trips between workers cost the same for any.

    Parameters
    ----------
    n_cells : int
        Rows times columns.
    threads : mapping from str to int
        Of each worker.

    Examples
    --------
    >>> worker_for_all(160_000, {"a": 1, "b": 2})
    'b'
    >>> worker_for_all(28_000_000, {"a": 1, "b": 2}) is None
    True
    """
    largest = max(threads, key=lambda worker: (threads[worker], worker))
    saved = n_cells * (1 / threads[largest] - 1 / sum(threads.values()))
    return largest if len(threads) == 1 or saved < CELLS_PER_LEVEL else None


def spread(sizes: Sequence[float], capacities: Mapping[str, float]) -> dict[str, list[int]]:
    """Spread items over workers so that each has about its share: the largest first, each to the worker least filled.

    Parameters
    ----------
    sizes : sequence of float
        Of the items, in bytes.
    capacities : mapping from str to float
        The workers, and their shares of the work (threads, for example).

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
    """
    placed: dict[str, list[int]] = {}
    load = dict.fromkeys(capacities, 0.0)
    for item in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        worker = min(load, key=lambda w: ((load[w] + sizes[item]) / capacities[w], w))
        load[worker] += sizes[item]
        placed.setdefault(worker, []).append(item)
    return {worker: sorted(items) for worker, items in placed.items()}
