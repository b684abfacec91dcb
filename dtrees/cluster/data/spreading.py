"""Items spread over workers: columns, and the blocks of evaluation sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dtrees.ensemble.backend import Placement


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
