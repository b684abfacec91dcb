"""The state shared by threads that grow subtrees together (:mod:`dtrees.split.grow.parallel_subtree`): waiting work, and nodes so far.

Two kinds of work wait: *chunks* of a step on a large node, and nodes small enough to be grown to their leaves by one thread. A lock
guards both lists, the counters and the numbering of nodes. If a tree is grown level by level, the nodes of a level are searched in the
same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, kernel, lean_kernel
from dtrees.split.compile.work_queue import acquire, load, release, rest
from dtrees.split.grow.best_first import ORIGIN
from dtrees.split.node.records import NO_SPLIT, Candidates, Nodes, empty_candidates, empty_nodes, link
from dtrees.split.policy import CHUNK_ROWS, CHUNKS, SHARED_NODES

#: Most nodes of a tree: numbers of children have 32 bits, one of which is for the sign.
MOST_NODES = 2**31 - 1

#: Kinds of work.
DONE, GROW, OPEN, SUM, SETTLE, LEAD, SCAN, DIVIDE, MARK, SPREAD, DIVIDED = (np.int64(kind) for kind in range(-1, 10))
#: Indices of ``control``: the lock, waiting chunks and nodes, unfinished ones, the number of nodes, and 1 if a thread has failed.
LOCK, WAITING_CHUNKS, WAITING_NODES, CHUNKS_LEFT, NODES_LEFT, N_NODES, FAILED = (np.int64(8 * k) for k in range(7))
#: A node of a work pool; see :class:`WorkPool`.
PLACE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "start", "in_stop", "stop", "depth", "slot", "left_child", "n_chunks", "n_undone", "offset", "n_nodes", "summed", "n_slots",
            "idle_slots", "first_column", "side", "awaited",
        )
    ]
)  # fmt: skip


class Roots(NamedTuple):
    """Nodes to be grown to their leaves.

    Attributes
    ----------
    places : list of (start, in_stop, stop, depth)
    paths : ndarray of uint64, shape (n,)
    sums : ndarray of int64, shape (n, n_sums)
    origins : ndarray of ORIGIN, shape (n,)
        Origins of the nodes (:mod:`dtrees.split.grow.best_first`).
    """

    places: list[tuple[int, int, int, int]]
    paths: NDArray[np.uint64]
    sums: NDArray[np.int64]
    origins: NDArray[Any]


@by_reference
class WorkPool(NamedTuple):
    """The shared state of threads.

    Attributes
    ----------
    control : ndarray of int64
    chunks : ndarray of int64, shape (n, 3)
        Waiting chunks: kind, node, number.
    waiting : ndarray of int64
        Nodes that wait (:func:`set_aside`).
    places : ndarray of PLACE, shape (n_nodes,)
        Start, in_stop, stop and depth of each node, its slot, its left child (the right one has the next number), the chunks of its
        step, and the unfinished ones, the start of its subtree in ``parts``, the number of nodes of that (-1: the node is shared), the
        node being summed, the number of slots of the sum, and of those not in use, the column searched first, 1 if the node's rows are
        in the spare partition, and the step that the node waits for.
    paths : ndarray of uint64, shape (n_nodes,)
    origins : ndarray of ORIGIN, shape (n_nodes,)
        Origins of the nodes (:mod:`dtrees.split.grow.best_first`).
    bars : ndarray of float64, shape (n_nodes,)
        The best known score of each node.
    found : Candidates
        The best split of each node.
    counts : ndarray of int64, shape (n_nodes, CHUNKS, 2)
        For each chunk of a division, the numbers of rows going left, in and out of sample; for a sum, its slots, and whether they are
        used.
    goes_left : ndarray of uint8, shape (n_rows,)
        By place.
    sums : ndarray of int64, shape (n_nodes, n_sums)
        Sums of each node.
    parts : Nodes
        A buffer for the nodes of subtrees in preorder, with gaps: a child has the largest possible size of its subtree.
    share_rows : int
        Nodes of more rows are shared among threads.
    n_threads : int
    is_level : bool
        Whether nodes are only searched, not split.
    """

    control: NDArray[np.int64]
    chunks: NDArray[np.int64]
    waiting: NDArray[np.int64]
    places: NDArray[Any]
    paths: NDArray[np.uint64]
    origins: NDArray[Any]
    bars: NDArray[np.float64]
    found: Candidates
    counts: NDArray[np.int64]
    goes_left: NDArray[np.uint8]
    sums: NDArray[np.int64]
    parts: Nodes
    share_rows: int
    n_threads: int
    is_level: bool


def make_work_pool(n: int, most_shared: int, n_rows: int, n_nodes: int, n_sums: int, n_kept: int) -> WorkPool:
    """Return buffers for the shared state of threads that grow subtrees.

    Parameters
    ----------
    n : int
        Number of subtrees.
    most_shared : int
        Most nodes that are shared among threads at the same time; 0 for none.
    n_rows : int
        Rows of the partition, up to the last of a shared node.
    n_nodes : int
        Most nodes of all subtrees.
    n_sums : int
    n_kept : int
        Number of sums of each node that are returned.
    """
    n_shared = SHARED_NODES if most_shared else 0
    capacity = n + n_shared
    return WorkPool(
        np.zeros(64, np.int64),
        np.empty((2 * capacity + (most_shared + 1) * CHUNKS, 3), np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, PLACE),
        np.empty(capacity, np.uint64),
        np.empty(capacity, ORIGIN),
        np.empty(capacity),
        empty_candidates(capacity, n_sums),
        np.empty((capacity if n_shared else 0, CHUNKS, 2), np.int64),
        np.empty(n_rows, np.uint8),
        np.empty((capacity, n_sums), np.int64),
        empty_nodes(n_nodes, n_kept),
        0,
        1,
        False,
    )


#: The initial state of a work pool: ``control``, ``chunks`` and ``places`` of :class:`WorkPool`, for the roots only, and the places to be
#: overwritten. Here, places are plain numbers, which are copied many times as fast as the fields of records.
Opening = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def opening(work_pool: WorkPool, roots: Sequence[tuple[int, int, int, int]], most_nodes: Sequence[int]) -> Opening:
    """Return the initial state of a work pool that grows subtrees.

    For each subtree, the start, in_stop, stop and depth of the root, and the largest number of nodes are given.
    """
    n = len(roots)
    places = np.zeros(work_pool.places.shape, PLACE)
    places["slot"] = -1
    for name, values in zip(("start", "in_stop", "stop", "depth"), zip(*roots, strict=True), strict=True):
        places[name][:n] = values
    places["offset"][1:n] = list(accumulate(most_nodes[:-1]))
    chunks = np.array([(OPEN, root, 0) for root in range(n - 1, -1, -1)], np.int64)
    control = np.zeros(64, np.int64)
    control[WAITING_CHUNKS] = control[CHUNKS_LEFT] = control[N_NODES] = n
    return control, chunks, places.view(np.int64), work_pool.places.view(np.int64)


def begin(work_pool: WorkPool, opening: Opening, roots: Roots, share_rows: int, n_threads: int) -> WorkPool:
    """Return the work pool with subtrees to be grown; earlier results are overwritten.

    A thread that is late for earlier work still finds it finished, as ``control`` is a new array.

    Parameters
    ----------
    work_pool : WorkPool
    opening : Opening
        Of this work pool.
    roots : Roots
    share_rows : int
        Nodes of more rows are shared among threads.
    n_threads : int
    """
    n, (control, chunks, places, own_places) = roots.paths.shape[0], opening
    own_places[:] = places
    work_pool.chunks[:n] = chunks
    work_pool.paths[:n] = roots.paths
    work_pool.origins[:n] = roots.origins
    work_pool.sums[:n] = roots.sums
    return WorkPool(control.copy(), *work_pool[1:-3], share_rows, n_threads, False)


def begin_level(work_pool: WorkPool, n: int, slots: NDArray[np.int64]) -> WorkPool:
    """Return a work pool whose first nodes, which were divided and have these slots, pass them to the other ones, ``n`` in total.

    The other nodes are the children of the first, in pairs, or the root of the tree. They are only searched.
    """
    n_parents, places = slots.shape[0], work_pool.places
    places["slot"][:n_parents], places["left_child"][:n_parents] = slots, n_parents + 2 * np.arange(n_parents)
    places["offset"][:n] = np.arange(n)
    work_pool.found.records["status"][:n], work_pool.found.records["column"][:n] = NO_SPLIT, -1
    anew = np.flatnonzero(np.append(np.repeat(slots < 0, 2), np.ones(n - 3 * n_parents, np.bool_))) + n_parents
    some = [(OPEN, i, 0) for i in anew] + [(DIVIDED, i, 0) for i in np.flatnonzero(slots >= 0)]
    work_pool.chunks[: len(some)] = some
    work_pool.control[WAITING_CHUNKS] = work_pool.control[CHUNKS_LEFT] = len(some)
    return work_pool._replace(is_level=True)


@kernel
def wait_for_work_pool(control):
    """Wait until all subtrees of the work pool with this ``control`` are grown."""
    spins = ZERO()
    while load(control, NODES_LEFT) + load(control, CHUNKS_LEFT) > 0 and load(control, FAILED) == 0:
        spins = rest(spins)


def give_up(control: NDArray[np.int64]) -> None:
    """Stop all threads from claiming work of a work pool, or waiting for it: a thread has failed."""
    control[FAILED] = 1  # only this function writes this element: no lock is needed


@lean_kernel
def claim_work(work_pool):
    """Return work that no other thread has claimed: its kind, node and chunk."""
    control = work_pool.control
    spins = ZERO()
    while True:
        if load(control, FAILED) != 0:
            return NONE(), NONE(), NONE()
        acquire(control, LOCK)
        n_chunks, n_nodes, unfinished = control[WAITING_CHUNKS], control[WAITING_NODES], control[CHUNKS_LEFT]
        kind, node, chunk = NONE(), NONE(), NONE()
        if n_chunks > 0:
            kind, node, chunk = work_pool.chunks[n_chunks - 1]
            control[WAITING_CHUNKS] = n_chunks - 1
        elif n_nodes > 0:
            first = ZERO()
            for k in range(n_nodes):
                if _goes_first(work_pool, work_pool.waiting[k], work_pool.waiting[first]):
                    first = k
            node = work_pool.waiting[first]
            kind, chunk = work_pool.places[node].awaited, ZERO()
            work_pool.waiting[first] = work_pool.waiting[n_nodes - 1]
            control[WAITING_NODES] = n_nodes - 1
        release(control, LOCK)
        if kind >= 0 or unfinished <= 0:
            return kind, node, chunk
        while load(control, WAITING_CHUNKS) + load(control, WAITING_NODES) == 0 and load(control, CHUNKS_LEFT) > 0:
            if load(control, FAILED) != 0:
                break
            spins = rest(spins)


@lean_kernel
def _goes_first(work_pool, i, j):
    """Return whether node ``i`` goes before node ``j``: first by the rank of its split, or its parent's, then by rows."""
    mine, other = _rank_of(work_pool, i), _rank_of(work_pool, j)
    return mine < other or (mine == other and rows_of(work_pool, i) > rows_of(work_pool, j))


@lean_kernel
def _rank_of(work_pool, i):
    """Return the rank of a waiting node's split if it has been searched, otherwise of its parent's split."""
    return work_pool.origins[work_pool.places[i].left_child if work_pool.places[i].awaited == DIVIDE else i].rank


@lean_kernel
def set_aside(work_pool, i, kind):
    """Let a node wait for a step, GROW, OPEN or DIVIDE, that a thread takes when no chunks are waiting."""
    control = work_pool.control
    acquire(control, LOCK)
    work_pool.places[i].awaited = kind
    work_pool.waiting[control[WAITING_NODES]] = i
    control[WAITING_NODES] += 1
    control[NODES_LEFT if kind == GROW else CHUNKS_LEFT] += 1
    release(control, LOCK)


@lean_kernel
def partition_of(work_pool, task, i):
    """Return the partition that holds a node's rows."""
    return task.partition if work_pool.places[i].side == 0 else task.spare


@lean_kernel
def place_of(work_pool, i):
    """Return the range of a node's rows, and its slot."""
    return work_pool.places[i].start, work_pool.places[i].in_stop, work_pool.places[i].slot


@lean_kernel
def rows_of(work_pool, i):
    """Return the number of in-sample rows of a node."""
    return work_pool.places[i].in_stop - work_pool.places[i].start


@lean_kernel
def add_chunks(work_pool, kind, i, n):
    """Create the chunks of a step on a node."""
    control = work_pool.control
    acquire(control, LOCK)
    work_pool.places[i].n_chunks = work_pool.places[i].n_undone = n
    waiting = control[WAITING_CHUNKS]
    for chunk in range(n):
        work_pool.chunks[waiting + chunk] = kind, i, chunk
    control[WAITING_CHUNKS] = waiting + n
    control[CHUNKS_LEFT] += n
    release(control, LOCK)


@lean_kernel
def is_last(work_pool, i):
    """Count a chunk of a step on a node as finished; return whether it was the last."""
    acquire(work_pool.control, LOCK)
    work_pool.places[i].n_undone -= 1
    undone = work_pool.places[i].n_undone
    release(work_pool.control, LOCK)
    return undone == 0


@lean_kernel
def n_chunks(work_pool, n_rows):
    """Return the number of chunks of a step on ``n_rows`` rows."""
    return max(1, min(CHUNKS, min(2 * work_pool.n_threads, n_rows // CHUNK_ROWS)))


@lean_kernel
def bounds_of(first, last, chunk, n):
    """Return start and stop of one of ``n`` chunks of a range."""
    size = last - first
    return first + size * chunk // n, first + size * (chunk + 1) // n


@kernel
def join(work_pool, root):
    """Close the gaps between the nodes of a subtree, after all work is done; return the number of nodes.

    Parts only move to lower indices, in their order, so none is overwritten before it is moved.
    """
    first_of_all = work_pool.places[root].offset
    records, sums = work_pool.parts.records[first_of_all:], work_pool.parts.sums[first_of_all:]
    todo = np.empty((work_pool.places.shape[0] + 1, 3), np.int64)
    todo[0] = root, -1, 0
    n_todo = 1
    n = ZERO()
    while n_todo > 0:
        n_todo -= 1
        node, parent, side = todo[n_todo]
        link(records, parent, side, n)
        first, count = work_pool.places[node].offset - first_of_all, work_pool.places[node].n_nodes
        if count < 0:
            records[n] = records[first]
            for k in range(sums.shape[1]):
                sums[n, k] = work_pool.sums[node, k]
            if records[n].column >= 0:
                left = work_pool.places[node].left_child
                todo[n_todo], todo[n_todo + 1] = (left + 1, n, 1), (left, n, 0)
                n_todo += 2
            n += 1
            continue
        for k in range(count):
            record = records[n + k]
            records[n + k] = records[first + k]
            if record.column >= 0:
                record.left += n
                record.right += n
        for k in range(count):
            for j in range(sums.shape[1]):
                sums[n + k, j] = sums[first + k, j]
        n += count
    return n


def grown(work_pool: WorkPool, root: int, copy: bool) -> Nodes:
    """Return the nodes of a subtree in preorder, after all work is done; unless copied, they are views of the work pool's buffer."""
    first, count = work_pool.places["offset"].item(root), work_pool.places["n_nodes"].item(root)
    if count < 0:
        count = join(work_pool, root)
    if count > MOST_NODES:
        raise OverflowError(f"a tree of {count} nodes is too large: their numbers have 32 bits; set max_depth or min_samples_leaf")
    part = Nodes(work_pool.parts.records[first : first + count], work_pool.parts.sums[first : first + count])
    return Nodes(part.records.copy(), part.sums.copy()) if copy else part
