"""Subtrees grown by several threads inside one kernel, which share out large nodes among themselves.

To start threads from Python for every step on a level takes longer than many of these steps. So each thread comes once, and works until
there is nothing left to do. Two kinds of work wait: *pieces* of a step on a large node, and nodes small enough to be grown to their end by
one thread (:mod:`dtrees.split.subtree`). Pieces go first, as more work follows from them; then the largest node. Nothing waits for a thread
that has not come: whoever finishes the last piece of a step makes the pieces of the next::

    SUM (of the root) -> OPEN -> SCAN -> MARK -> SPREAD -> COPY -> SUM (of the smaller child) -> OPEN both children

Which thread does what makes no difference to the tree. Large nodes are searched by zone sums (:mod:`dtrees.split.heirs`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.columns import highest_code_below
from dtrees.split.hashing import LEFT, RIGHT, child_path
from dtrees.split.heirs import give_back, search_columns, search_lead, take
from dtrees.split.kernel import NONE, ZERO, kernel, lean_entry, lean_kernel
from dtrees.split.partition import is_pure
from dtrees.split.prefetch import AHEAD, prefetch
from dtrees.split.queue import acquire, load, release, rest
from dtrees.split.search import Candidates, empty_candidates
from dtrees.split.status import NO_SPLIT, SPLIT
from dtrees.split.subtree import Nodes, Stops, empty_nodes, grow_subtree, is_large, may_be_split, most_nodes, node_weight, note_split
from dtrees.split.sweep import Limits
from dtrees.split.zone_sums import add, subtract, sum_rows

#: Most pieces of a step.
_PIECES = 32
#: Most nodes that are shared out; of further ones, each is grown by one thread.
_NODES = 512
#: Fewest rows of a piece.
_PIECE_ROWS = 4096

#: Kinds of work.
_DONE, _GROW, _OPEN, _SUM, _SCAN, _MARK, _SPREAD, _COPY = (np.int64(kind) for kind in range(-1, 7))
#: What is in ``control``: the lock, pieces and nodes that wait, those not finished, nodes there are, room taken in ``parts``.
_LOCK, _WAITING_PIECES, _WAITING_NODES, _PIECES_LEFT, _NODES_LEFT, _N_NODES, _ROOM = (np.int64(8 * k) for k in range(7))
#: What is in ``places``: see there.
_START, _MID, _STOP, _DEPTH, _SLOT, _LEFT, _UNDONE, _FIRST, _COUNT, _SUMMED, _LEAD = range(11)


class Team(NamedTuple):
    """What the threads share.

    Attributes
    ----------
    control : ndarray of int64
    pieces : ndarray of int64, shape (n, 3)
        Pieces that wait: kind, node, number.
    waiting : ndarray of int64
        Nodes that wait for one thread.
    places : ndarray of int64, shape (n_nodes, 11)
        Start, mid, stop and depth of each node, its slot, its left child (the right one has the next number), pieces of its step not
        finished, where in ``parts`` its subtree begins (-1: it is shared out) and how many nodes that has, which node is being summed, and
        the column searched first.
    paths : ndarray of uint64, shape (n_nodes,)
    bars : ndarray of float64, shape (n_nodes,)
        The best score known of each node.
    found : Candidates
        The best split of each node.
    counts : ndarray of int64, shape (n_nodes, _PIECES, 2)
        Of each piece of a division the rows going left, in and out of sample; of each piece of a sum the slot.
    goes_left : ndarray of uint8, shape (n_rows,)
        By place.
    nodes : Nodes
    parts : Nodes
        Room for the nodes of subtrees.
    share_rows : int
        Nodes of more rows are shared out.
    n_threads : int
    """

    control: NDArray[np.int64]
    pieces: NDArray[np.int64]
    waiting: NDArray[np.int64]
    places: NDArray[np.int64]
    paths: NDArray[np.uint64]
    bars: NDArray[np.float64]
    found: Candidates
    counts: NDArray[np.int64]
    goes_left: NDArray[np.uint8]
    nodes: Nodes
    parts: Nodes
    share_rows: int
    n_threads: int


def make_team(
    places: NDArray[np.int64],
    paths: NDArray[np.uint64],
    sums: NDArray[np.int64],
    limits: Limits,
    stops: Stops,
    share_rows: int,
    n_threads: int,
) -> Team:
    """Return what is shared by threads that are to grow subtrees.

    Parameters
    ----------
    places : ndarray of int64, shape (n, 4)
        Start, mid, stop and depth of each subtree's root.
    paths : ndarray of uint64, shape (n,)
    sums : ndarray of int64, shape (n, n_sums)
    limits : Limits
    stops : Stops
    share_rows : int
        Nodes of more rows are shared out.
    n_threads : int
    """
    n, n_sums = sums.shape
    sizes = places[:, 1] - places[:, 0]
    shared = bool((sizes > share_rows).any())
    capacity = n + (_NODES if shared else 0)
    most_shared = int(sizes.sum()) // max(1, share_rows) + 1 if shared else 0
    room = sum(most_nodes(stops, limits, size, depth) for size, depth in zip(sizes.tolist(), places[:, 3].tolist(), strict=True))
    control = np.zeros(64, np.int64)
    control[_N_NODES] = n
    team = Team(
        control,
        np.empty((2 * capacity + (most_shared + 1) * _PIECES, 3), np.int64),
        np.empty(capacity, np.int64),
        np.zeros((capacity, 11), np.int64),
        np.zeros(capacity, np.uint64),
        np.full(capacity, -1.0),
        empty_candidates(capacity, n_sums),
        np.empty((capacity if shared else 0, _PIECES, 2), np.int64),
        np.empty(int(places[:, 2].max()) if shared else 0, np.uint8),
        empty_nodes(capacity, n_sums),
        empty_nodes(room, n_sums),
        share_rows,
        n_threads,
    )
    team.places[:n, :4] = places
    team.places[:, _SLOT] = -1
    team.paths[:n] = paths
    team.nodes.sums[:n] = sums
    team.pieces[:n, 0], team.pieces[:n, 1] = _OPEN, np.arange(n)[::-1]
    control[_WAITING_PIECES] = control[_PIECES_LEFT] = n
    return team


@lean_entry
def grow_together(columns, team, task):
    """Grow the team's subtrees; called by each of its threads, with a task of its own (:class:`~dtrees.split.subtree.Task`).

    A thread returns when there is no work left to begin; :func:`wait_for_team` waits for what others are at.
    """
    while True:
        kind, i, piece = _claim(team)
        if kind == _DONE:
            return
        if kind == _GROW:
            _grow(task.heirs, columns, team, task, i)
        else:
            _work(task.heirs, columns, team, task, kind, i, piece)
        acquire(team.control, _LOCK)
        team.control[_NODES_LEFT if kind == _GROW else _PIECES_LEFT] -= 1
        release(team.control, _LOCK)


@kernel
def wait_for_team(team):
    """Wait until all subtrees are grown."""
    spins = ZERO()
    while load(team.control, _NODES_LEFT) + load(team.control, _PIECES_LEFT) > 0:
        spins = rest(spins)


@lean_kernel
def _claim(team):
    """Return work that no other thread has: its kind, node and piece."""
    control = team.control
    spins = ZERO()
    while True:
        acquire(control, _LOCK)
        n_pieces, n_nodes, unfinished = control[_WAITING_PIECES], control[_WAITING_NODES], control[_PIECES_LEFT]
        kind, node, piece = NONE(), NONE(), NONE()
        if n_pieces > 0:
            kind, node, piece = team.pieces[n_pieces - 1]
            control[_WAITING_PIECES] = n_pieces - 1
        elif n_nodes > 0:
            kind = ZERO()
            largest = ZERO()
            for k in range(n_nodes):
                if _rows_of(team, team.waiting[k]) > _rows_of(team, team.waiting[largest]):
                    largest = k
            node = team.waiting[largest]
            team.waiting[largest] = team.waiting[n_nodes - 1]
            control[_WAITING_NODES] = n_nodes - 1
        release(control, _LOCK)
        if kind >= 0 or unfinished == 0:
            return kind, node, piece
        while load(control, _WAITING_PIECES) + load(control, _WAITING_NODES) == 0 and load(control, _PIECES_LEFT) > 0:
            spins = rest(spins)


@lean_kernel
def _rows_of(team, i):
    return team.places[i, _MID] - team.places[i, _START]


@lean_kernel
def _add_pieces(team, kind, i, n):
    """Make the pieces of a step on a node."""
    control = team.control
    acquire(control, _LOCK)
    team.places[i, _UNDONE] = n
    waiting = control[_WAITING_PIECES]
    for piece in range(n):
        team.pieces[waiting + piece] = kind, i, piece
    control[_WAITING_PIECES] = waiting + n
    control[_PIECES_LEFT] += n
    release(control, _LOCK)


@lean_kernel
def _is_last(team, i):
    """Note that a piece of a step on a node is finished; tell whether it was the last."""
    acquire(team.control, _LOCK)
    team.places[i, _UNDONE] -= 1
    undone = team.places[i, _UNDONE]
    release(team.control, _LOCK)
    return undone == 0


@lean_kernel
def _n_pieces(team, n_rows):
    """Return into how many pieces a step on so many rows is cut."""
    return max(1, min(_PIECES, min(2 * team.n_threads, n_rows // _PIECE_ROWS)))


@lean_kernel
def _bounds(first, last, piece, n):
    size = last - first
    return first + size * piece // n, first + size * (piece + 1) // n


@lean_kernel
def _grow(heirs, columns, team, task, i):
    """Grow a node to its end."""
    start, mid, stop, depth, slot, _, _, first, _, _, _ = team.places[i]
    last = first + most_nodes(task.stops, task.limits, mid - start, depth)
    if heirs is not None:
        heirs.slot_of[0] = slot
    nodes = Nodes(team.parts.records[first:last], team.parts.sums[first:last])
    team.places[i, _COUNT] = grow_subtree(columns, task, start, mid, stop, depth, team.paths[i], team.nodes.sums[i], nodes)


@lean_kernel
def _leave_to_one(team, task, i):
    """Have a node grown to its end by one thread."""
    control = team.control
    room = most_nodes(task.stops, task.limits, _rows_of(team, i), team.places[i, _DEPTH])
    acquire(control, _LOCK)
    team.places[i, _FIRST] = control[_ROOM]
    control[_ROOM] += room
    team.waiting[control[_WAITING_NODES]] = i
    control[_WAITING_NODES] += 1
    control[_NODES_LEFT] += 1
    release(control, _LOCK)


@lean_kernel
def _work(heirs, columns, team, task, kind, i, piece):
    """Do a piece and, if it was the last of its step, what comes between that step and the next."""
    if heirs is None:  # decided by type: what follows is compiled only where nodes are shared out
        _leave_to_one(team, task, i)
    elif kind == _OPEN:
        _open(heirs, columns, team, task, i)
    elif kind == _SUM:
        _sum(heirs, team, task, i, piece)
        if _is_last(team, i):
            _settle(heirs, columns, team, task, i)
    elif kind == _SCAN:
        _scan(heirs, columns, team, task, i, piece)
        if _is_last(team, i):
            _decide(heirs, team, i)
    elif kind == _MARK:
        _mark(columns, team, task, i, piece)
        if _is_last(team, i):
            _place_children(team, i)
            _add_pieces(team, _SPREAD, i, _n_pieces(team, team.places[i, _STOP] - team.places[i, _START]))
    elif kind == _SPREAD:
        _spread(team, task, i, piece)
        if _is_last(team, i):
            _add_pieces(team, _COPY, i, _n_pieces(team, team.places[i, _STOP] - team.places[i, _START]))
    else:
        _copy(team, task, i, piece)
        if _is_last(team, i):
            _hand_down(heirs, team, task, i)


@lean_kernel
def _open(heirs, columns, team, task, i):
    """Share a node out, if it is large and its sums have a slot or can have one; otherwise leave it to one thread."""
    control, places = team.control, team.places[i]
    start, mid, depth = places[_START], places[_MID], places[_DEPTH]
    inner = may_be_split(task.stops, mid - start, depth, node_weight(task.limits, team.nodes.sums[i]))
    shared = mid - start > team.share_rows and inner and not is_pure(task.target, task.partition.rows, start, mid)
    if shared:
        acquire(control, _LOCK)
        shared = control[_N_NODES] + 2 <= team.places.shape[0]
        if shared:
            places[_LEFT] = control[_N_NODES]
            control[_N_NODES] += 2
        release(control, _LOCK)
    known = places[_SLOT] >= 0
    if shared and not known:
        shared = _start_sum(heirs, team, i, i)
    if not shared:
        _leave_to_one(team, task, i)
        return
    places[_FIRST] = -1
    record = team.nodes.records[i]
    record.start, record.mid, record.stop = start, mid, places[_STOP]
    record.column, record.left, record.right = -1, -1, -1
    record.threshold, record.gain, record.missing_left = 0.0, 0.0, False
    if known:
        _search(heirs, columns, team, task, i)
    else:
        _add_pieces(team, _SUM, i, team.counts[i, 0, 1])


@lean_kernel
def _start_sum(heirs, team, i, node):
    """Take slots for the pieces of a step of node ``i``, the sum of ``node``; return whether there was one at least."""
    wanted = _n_pieces(team, _rows_of(team, node))
    n = ZERO()
    while n < wanted:
        slot = take(heirs, team.n_threads)
        if slot < 0:
            break
        team.counts[i, n, 0] = slot
        n += 1
    team.counts[i, 0, 1] = n
    team.places[i, _SUMMED] = node
    return n > 0


@lean_kernel
def _sum(heirs, team, task, i, piece):
    node = team.places[i, _SUMMED]
    first, last = _bounds(team.places[node, _START], team.places[node, _MID], piece, team.counts[i, 0, 1])
    sum_rows(heirs.zone_map, task.partition, first, last, heirs.sums.slots[team.counts[i, piece, 0]], heirs.sums.size_shift)


@lean_kernel
def _settle(heirs, columns, team, task, i):
    """Add up the pieces of a sum; take them from the parent's for the larger child."""
    slots, places = heirs.sums.slots, team.places
    summed = team.counts[i, 0, 0]
    for piece in range(1, team.counts[i, 0, 1]):
        add(slots[summed].reshape(-1), slots[team.counts[i, piece, 0]].reshape(-1))
        give_back(heirs, team.counts[i, piece, 0])
    node = places[i, _SUMMED]
    if node == i:
        places[i, _SLOT] = summed
        _search(heirs, columns, team, task, i)
        return
    left = places[i, _LEFT]
    other = left + 1 if node == left else left
    subtract(slots[places[i, _SLOT]].reshape(-1), slots[summed].reshape(-1))
    places[other, _SLOT] = places[i, _SLOT]
    if _wants_slot(team, task, node):
        places[node, _SLOT] = summed
    else:
        give_back(heirs, summed)
    _add_pieces(team, _OPEN, left, ZERO() + 1)
    _add_pieces(team, _OPEN, left + 1, ZERO() + 1)


@lean_kernel
def _wants_slot(team, task, i):
    places = team.places[i]
    return is_large(task, places[_MID] - places[_START], places[_DEPTH], team.nodes.sums[i])


@lean_kernel
def _n_scans(heirs):
    return min(_PIECES, (heirs.zone_map.which.shape[0] + 1) // 2)


@lean_kernel
def _search(heirs, columns, team, task, i):
    """Begin the search of a node whose sums are known."""
    place = (team.places[i, _START], team.places[i, _MID], team.places[i, _SLOT])
    team.places[i, _LEAD] = search_lead(
        heirs, columns, task.limits, task.partition, place, team.nodes.sums[i], team.bars, i, task.scratch, task.best
    )
    team.found.records[i].status = NO_SPLIT
    _offer(team, task, i)
    _add_pieces(team, _SCAN, i, _n_scans(heirs))


@lean_kernel
def _scan(heirs, columns, team, task, i, piece):
    """Search some columns."""
    place = (team.places[i, _START], team.places[i, _MID], team.places[i, _SLOT])
    first, last = _bounds(ZERO(), heirs.zone_map.which.shape[0], piece, _n_scans(heirs))
    lead = team.places[i, _LEAD]
    task.best.records[0].status = NO_SPLIT
    middle = min(max(first, lead), last)
    following = max(first, lead + 1)
    partition, sums, limits, scratch, best = task.partition, team.nodes.sums[i], task.limits, task.scratch, task.best
    search_columns(heirs, first, middle, columns, limits, partition, place, sums, team.bars, i, scratch, best)
    search_columns(heirs, following, last, columns, limits, partition, place, sums, team.bars, i, scratch, best)
    _offer(team, task, i)


@lean_kernel
def _offer(team, task, i):
    """Make what a thread found the best split of a node, if it is."""
    mine, best = task.best.records[0], team.found.records[i]
    if mine.status == SPLIT:
        acquire(team.control, _LOCK)
        if best.status != SPLIT or mine.score > best.score or (mine.score == best.score and mine.column < best.column):
            team.found.records[i] = mine
            team.found.left[i, 0], team.found.left[i, 1] = task.best.left[0, 0], task.best.left[0, 1]
        release(team.control, _LOCK)


@lean_kernel
def _decide(heirs, team, i):
    """Split a node, if a split was found."""
    places = team.places[i]
    if team.found.records[i].status == SPLIT:
        note_split(team.nodes.records[i], team.found.records[i])
        _add_pieces(team, _MARK, i, _n_pieces(team, places[_STOP] - places[_START]))
    else:
        give_back(heirs, places[_SLOT])


@lean_kernel
def _mark(columns, team, task, i, piece):
    """Tell, and count, the rows going left."""
    start, mid, stop = team.places[i, _START], team.places[i, _MID], team.places[i, _STOP]
    split = team.found.records[i]
    values = columns.values[columns.offsets[split.column] : columns.offsets[split.column + 1]]
    missing = np.int64(values.shape[0])
    cut = highest_code_below(values, split.cut, missing - 1, split.threshold)
    codes, rows, missing_left = columns.codes[split.column], task.partition.rows, split.missing_left
    first, last = _bounds(start, stop, piece, _n_pieces(team, stop - start))
    inside = outside = ZERO()
    for place in range(first, last):
        if place + AHEAD < last:
            prefetch(codes, np.int64(rows[place + AHEAD]))
        code = np.int64(codes[rows[place]])
        goes_left = missing_left if code == missing else code <= cut
        team.goes_left[place] = goes_left
        inside += goes_left & (place < mid)
        outside += goes_left & (place >= mid)
    team.counts[i, piece, 0], team.counts[i, piece, 1] = inside, outside


@lean_kernel
def _place_children(team, i):
    """Say where the children lie, and where each piece's rows going left do."""
    start, mid, stop, depth, _, left, _, _, _, _, _ = team.places[i]
    inside = outside = ZERO()
    for piece in range(_n_pieces(team, stop - start)):
        counts = team.counts[i, piece]
        counts[0], counts[1], inside, outside = inside, outside, inside + counts[0], outside + counts[1]
    middle = start + inside + outside
    one, other = team.places[left], team.places[left + 1]
    one[_START], one[_MID], one[_STOP], one[_DEPTH] = start, start + inside, middle, depth + 1
    other[_START], other[_MID], other[_STOP], other[_DEPTH] = middle, middle + mid - start - inside, stop, depth + 1
    team.paths[left], team.paths[left + 1] = child_path(team.paths[i], LEFT), child_path(team.paths[i], RIGHT)
    sums = team.nodes.sums
    for k in range(sums.shape[1]):
        sums[left, k] = team.found.left[i, k]
        sums[left + 1, k] = sums[i, k] - sums[left, k]


@lean_kernel
def _spread(team, task, i, piece):
    """Copy the rows of a piece to where they belong, in the spare partition."""
    start, mid, stop = team.places[i, _START], team.places[i, _MID], team.places[i, _STOP]
    one, other = team.places[team.places[i, _LEFT]], team.places[team.places[i, _LEFT] + 1]
    inside, outside = team.counts[i, piece]
    goes_left = team.goes_left
    rows, a, b = task.partition.rows, task.partition.a, task.partition.b
    spare_rows, spare_a, spare_b = task.spare.rows, task.spare.a, task.spare.b
    has_b = b.shape[0] > 0
    first, last = _bounds(start, stop, piece, _n_pieces(team, stop - start))
    middle = min(max(first, mid), last)
    left, right = start + inside, other[_START] + min(first, mid) - start - inside
    for k in range(first, middle):
        side = np.int64(goes_left[k])
        place = left if side else right
        spare_rows[place] = rows[k]
        spare_a[place] = a[k]
        if has_b:
            spare_b[place] = b[k]
        left += side
        right += 1 - side
    left, right = one[_MID] + outside, other[_MID] + middle - mid - outside
    for k in range(middle, last):
        side = np.int64(goes_left[k])
        spare_rows[left if side else right] = rows[k]
        left += side
        right += 1 - side


@lean_kernel
def _copy(team, task, i, piece):
    """Copy a piece back."""
    start, stop = team.places[i, _START], team.places[i, _STOP]
    partition, spare = task.partition, task.spare
    first, last = _bounds(start, stop, piece, _n_pieces(team, stop - start))
    for place in range(first, last):
        partition.rows[place] = spare.rows[place]
    for place in range(first, last):
        partition.a[place] = spare.a[place]
    if partition.b.shape[0] > 0:
        for place in range(first, last):
            partition.b[place] = spare.b[place]


@lean_kernel
def _hand_down(heirs, team, task, i):
    """Open the children of a node; if the larger one is to have its sums, sum the smaller one first."""
    places = team.places
    left = places[i, _LEFT]
    record = team.nodes.records[i]
    record.left, record.right = left, left + 1
    smaller, larger = (left, left + 1) if _rows_of(team, left) <= _rows_of(team, left + 1) else (left + 1, left)
    if _wants_slot(team, task, larger) and _start_sum(heirs, team, i, smaller):
        _add_pieces(team, _SUM, i, team.counts[i, 0, 1])
        return
    give_back(heirs, places[i, _SLOT])
    _add_pieces(team, _OPEN, left, ZERO() + 1)
    _add_pieces(team, _OPEN, left + 1, ZERO() + 1)


@kernel
def join(team, root, out):
    """Write the nodes of a subtree in preorder; return how many there are.

    Parameters
    ----------
    team : Team
        When its work is done.
    root : int
        Number of the subtree's root.
    out : Nodes
        Written.
    """
    todo = np.empty((team.places.shape[0] + 1, 3), np.int64)
    todo[0] = root, -1, 0
    n_todo = 1
    n = ZERO()
    while n_todo > 0:
        n_todo -= 1
        node, parent, side = todo[n_todo]
        if parent >= 0:
            if side == 0:
                out.records[parent].left = n
            else:
                out.records[parent].right = n
        first, count = team.places[node, _FIRST], team.places[node, _COUNT]
        if first < 0:
            out.records[n] = team.nodes.records[node]
            out.sums[n] = team.nodes.sums[node]
            if out.records[n].column >= 0:
                left = team.places[node, _LEFT]
                todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2] = left + 1, n, 1
                todo[n_todo + 1, 0], todo[n_todo + 1, 1], todo[n_todo + 1, 2] = left, n, 0
                n_todo += 2
            n += 1
            continue
        for k in range(count):
            record = out.records[n + k]
            out.records[n + k] = team.parts.records[first + k]
            out.sums[n + k] = team.parts.sums[first + k]
            if record.column >= 0:
                record.left += n
                record.right += n
        n += count
    return n


def count_nodes(team: Team) -> int:
    """Return how many nodes there may be in all subtrees together."""
    return int(team.places[: team.control[_N_NODES], _COUNT].sum()) + int(team.control[_N_NODES])
