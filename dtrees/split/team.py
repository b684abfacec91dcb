"""Subtrees grown by several threads inside one kernel, which share out large nodes among themselves.

To start threads from Python for every step on a level takes longer than many of these steps. So each thread comes once, and works until
there is nothing left to do. Two kinds of work wait: *pieces* of a step on a large node, and nodes small enough to be grown to their end by
one thread (:mod:`dtrees.split.subtree`). Pieces go first, as more work follows from them; then the largest node. Nothing waits for a thread
that has not come: whoever finishes the last piece of a step makes the pieces of the next::

    OPEN -> SUM, SETTLE (of the root) -> LEAD -> SCAN -> MARK -> SPREAD -> SUM, SETTLE (of the smaller child) -> OPEN both children

A large node's rows are divided from the one partition into the other, the spare one, and those of its children back again. Where a node is
not divided any more, or left to one thread, they are copied to the first.

Which thread does what makes no difference to the tree. Large nodes are searched by zone sums (:mod:`dtrees.split.heirs`), which are made
and looked at by several threads as well (:mod:`dtrees.split.team_sums`).
"""

from __future__ import annotations

import numpy as np

from dtrees.split.board import (
    COUNT,
    DEPTH,
    DONE,
    FIRST_COLUMN,
    FIRST_PART,
    GROW,
    LEAD,
    LEFT_CHILD,
    LOCK,
    MARK,
    MID,
    N_NODES,
    NODES_LEFT,
    OPEN,
    PIECES,
    PIECES_LEFT,
    SCAN,
    SETTLE,
    SIDE,
    SLOT,
    SPREAD,
    START,
    STOP,
    SUM,
    SUMMED,
    WAITING_NODES,
    add_pieces,
    bounds_of,
    claim_work,
    is_last,
    n_pieces,
    partition_of,
    rows_of,
)
from dtrees.split.columns import highest_code_below
from dtrees.split.criteria import NEWTON
from dtrees.split.hashing import LEFT, RIGHT, child_path
from dtrees.split.heirs import first_to_search, give_back, search_columns
from dtrees.split.kernel import NONE, ZERO, lean_entry, lean_kernel
from dtrees.split.nodes import Nodes, make_leaf, note_split
from dtrees.split.partition import is_pure, mark_places
from dtrees.split.prefetch import AHEAD_TO_WRITE, prefetch_to_write
from dtrees.split.queue import acquire, release
from dtrees.split.status import NO_SPLIT, SPLIT
from dtrees.split.subtree import grow_subtree, is_large, may_be_split, most_nodes, node_weight
from dtrees.split.team_sums import (
    finish_settling,
    is_settled,
    lead_piece,
    place_of,
    settle_piece,
    start_leading,
    start_settling,
    start_sum,
    start_taking,
    sum_piece,
)
from dtrees.split.zone_sums import are_few


@lean_entry
def grow_together(columns, team, task):
    """Grow the team's subtrees; called by each of its threads, with a task of its own (:class:`~dtrees.split.subtree.Task`).

    A thread returns when there is no work left to begin; :func:`wait_for_team` waits for what others are at.
    """
    while True:
        kind, i, piece = claim_work(team)
        if kind == DONE:
            return
        if kind == GROW:
            _bring_back(team, task, i)
            start, mid, stop, depth, slot = team.places[i, : SLOT + 1]
            first = team.places[i, FIRST_PART]
            last = first + most_nodes(task.stops, task.limits, mid - start, depth)
            _begin(task.heirs, slot)
            nodes = Nodes(team.parts.records[first:last], team.parts.sums[first:last])
            team.places[i, COUNT] = grow_subtree(columns, task, start, mid, stop, depth, team.paths[i], team.sums[i], nodes)
        else:
            _work(task.heirs, columns, team, task, kind, i, piece)
        acquire(team.control, LOCK)
        team.control[NODES_LEFT if kind == GROW else PIECES_LEFT] -= 1
        release(team.control, LOCK)


@lean_kernel
def _bring_back(team, task, i):
    """Copy a node's rows to the first partition, if they are not there."""
    if team.places[i, SIDE] != 0:
        partition, spare = task.partition, task.spare
        start, stop = team.places[i, START], team.places[i, STOP]
        for place in range(start, stop):
            partition.rows[place] = spare.rows[place]
        for place in range(start, stop):
            partition.a[place] = spare.a[place]
        if partition.b.shape[0] > 0:
            for place in range(start, stop):
                partition.b[place] = spare.b[place]


@lean_kernel
def _begin(heirs, slot):
    if heirs is not None:
        heirs.slot_of[0] = slot


@lean_kernel
def _leave_to_one(team, task, i):
    """Have a node grown to its end by one thread."""
    control = team.control
    acquire(control, LOCK)
    team.waiting[control[WAITING_NODES]] = i
    control[WAITING_NODES] += 1
    control[NODES_LEFT] += 1
    release(control, LOCK)


@lean_kernel
def _work(heirs, columns, team, task, kind, i, piece):
    """Do a piece and, if it was the last of its step, what comes between that step and the next."""
    if heirs is None:  # decided by type: what follows is compiled only where nodes are shared out
        _leave_to_one(team, task, i)
    elif kind == OPEN:
        _open(heirs, team, task, i)
    elif kind == SUM:
        sum_piece(heirs, team, task, i, piece)
        if is_last(team, i):
            if is_settled(team, i):
                _assign(heirs, team, task, i, finish_settling(heirs, team, i))
            else:
                start_settling(heirs, team, i)
    elif kind == SETTLE:
        settle_piece(heirs, team, i, piece)
        if is_last(team, i):
            _assign(heirs, team, task, i, finish_settling(heirs, team, i))
    elif kind == LEAD:
        lead_piece(heirs, team, task, i, piece)
        if is_last(team, i):
            _start_scans(heirs, team, task, i)
    elif kind == SCAN:
        _scan(heirs, columns, team, task, i, piece)
        if is_last(team, i):
            _decide(heirs, team, task, i)
    elif kind == MARK:
        _mark(columns, team, task, i, piece)
        if is_last(team, i):
            _place_children(team, task, i)
            add_pieces(team, SPREAD, i, n_pieces(team, team.places[i, STOP] - team.places[i, START]))
    else:
        _spread(heirs, team, task, i, piece)
        if is_last(team, i):
            _hand_down(heirs, team, task, i)


@lean_kernel
def _open(heirs, team, task, i):
    """Share a node out, if it is large and its sums have a slot or can have one; otherwise leave it to one thread."""
    control, places = team.control, team.places[i]
    start, mid, depth = places[START], places[MID], places[DEPTH]
    inner = may_be_split(task.stops, mid - start, depth, node_weight(task.limits, team.sums[i]))
    shared = mid - start > team.share_rows and inner and not is_pure(task.target, partition_of(team, task, i).rows, start, mid)
    if shared:
        acquire(control, LOCK)
        shared = control[N_NODES] + 2 <= team.places.shape[0]
        if shared:
            places[LEFT_CHILD] = control[N_NODES]
            control[N_NODES] += 2
        release(control, LOCK)
    if shared:
        places[COUNT] = -1
        make_leaf(team.parts.records[places[FIRST_PART]], start, mid, places[STOP])
        if places[SLOT] >= 0:
            start_leading(heirs, team, task, i)
        else:
            shared = start_sum(heirs, team, i, i)
    if not shared:
        _leave_to_one(team, task, i)


@lean_kernel
def _assign(heirs, team, task, i, summed):
    """Say whose a sum is that was made in a step of node ``i``, and go on."""
    places = team.places
    node = places[i, SUMMED]
    if node == i:
        places[i, SLOT] = summed
        start_leading(heirs, team, task, i)
        return
    left = places[i, LEFT_CHILD]
    other = left + 1 if node == left else left
    places[other, SLOT] = places[i, SLOT]
    if _wants_slot(team, task, node):
        places[node, SLOT] = summed
    else:
        give_back(heirs, summed)
    _open_children(team, i)


@lean_kernel
def _open_children(team, i):
    left = team.places[i, LEFT_CHILD]
    add_pieces(team, OPEN, left, ZERO() + 1)
    add_pieces(team, OPEN, left + 1, ZERO() + 1)


@lean_kernel
def _wants_slot(team, task, i):
    places = team.places[i]
    return is_large(task, places[MID] - places[START], places[DEPTH], team.sums[i])


@lean_kernel
def _n_scans(heirs):
    """Return into how many pieces the search of all columns but the first is cut."""
    return min(PIECES - 1, heirs.zone_map.which.shape[0])


@lean_kernel
def _start_scans(heirs, team, task, i):
    """Make the pieces of the search: the column that looks best goes first, while other threads begin with the others."""
    lead = team.places[i, FIRST_COLUMN]
    team.places[i, FIRST_COLUMN] = first_to_search(heirs, lead, place_of(team, i), team.sums[i], task.limits, team.bars[i], task.scratch)
    team.found.records[i].status = NO_SPLIT
    add_pieces(team, SCAN, i, _n_scans(heirs) + 1)


@lean_kernel
def _scan(heirs, columns, team, task, i, piece):
    """Search some columns: the last piece, which is claimed first, the one that looks best, the others the rest."""
    place = place_of(team, i)
    first, last, but = team.places[i, FIRST_COLUMN], team.places[i, FIRST_COLUMN] + 1, NONE()
    if piece < _n_scans(heirs):
        first, last = bounds_of(ZERO(), heirs.zone_map.which.shape[0], piece, _n_scans(heirs))
        but = team.places[i, FIRST_COLUMN]
    best = task.best
    best.records[0].status = NO_SPLIT
    partition = partition_of(team, task, i)
    search_columns(heirs, first, last, but, columns, task.limits, partition, place, team.sums[i], team.bars, i, task.scratch, best)
    _offer(team, task, i)


@lean_kernel
def _offer(team, task, i):
    """Make what a thread found the best split of a node, if it is."""
    mine, best = task.best.records[0], team.found.records[i]
    if mine.status == SPLIT:
        acquire(team.control, LOCK)
        if best.status != SPLIT or mine.score > best.score or (mine.score == best.score and mine.column < best.column):
            team.found.records[i] = mine
            team.found.left[i, 0], team.found.left[i, 1] = task.best.left[0, 0], task.best.left[0, 1]
        release(team.control, LOCK)


@lean_kernel
def _decide(heirs, team, task, i):
    """Split a node, if a split was found."""
    places = team.places[i]
    if team.found.records[i].status == SPLIT:
        note_split(team.parts.records[team.places[i, FIRST_PART]], team.found.records[i])
        add_pieces(team, MARK, i, n_pieces(team, places[STOP] - places[START]))
    else:
        give_back(heirs, places[SLOT])
        _bring_back(team, task, i)


@lean_kernel
def _mark(columns, team, task, i, piece):
    """Tell, and count, the rows going left."""
    start, mid, stop = team.places[i, START], team.places[i, MID], team.places[i, STOP]
    split = team.found.records[i]
    values = columns.values[columns.offsets[split.column] : columns.offsets[split.column + 1]]
    missing = np.int64(values.shape[0])
    cut = highest_code_below(values, split.cut, missing - 1, split.threshold)
    codes, rows, missing_left = columns.codes[split.column], partition_of(team, task, i).rows, split.missing_left
    first, last = bounds_of(start, stop, piece, n_pieces(team, stop - start))
    middle = min(max(first, mid), last)
    goes_left, counts = team.goes_left, team.counts[i, piece]
    counts[0] = mark_places(codes, cut, missing, missing_left, rows[first:middle], goes_left[first:middle])
    counts[1] = mark_places(codes, cut, missing, missing_left, rows[middle:last], goes_left[middle:last])


@lean_kernel
def _place_children(team, task, i):
    """Say where the children lie, and where each piece's rows going left do."""
    start, mid, stop, depth, _, left = team.places[i, : LEFT_CHILD + 1]
    inside = outside = ZERO()
    for piece in range(n_pieces(team, stop - start)):
        counts = team.counts[i, piece]
        counts[0], counts[1], inside, outside = inside, outside, inside + counts[0], outside + counts[1]
    middle = start + inside + outside
    one, other = team.places[left], team.places[left + 1]
    one[START], one[MID], one[STOP], one[DEPTH] = start, start + inside, middle, depth + 1
    other[START], other[MID], other[STOP], other[DEPTH] = middle, middle + mid - start - inside, stop, depth + 1
    one[SIDE] = other[SIDE] = 1 - team.places[i, SIDE]
    one[FIRST_PART] = team.places[i, FIRST_PART] + 1
    other[FIRST_PART] = one[FIRST_PART] + most_nodes(task.stops, task.limits, inside, depth + 1)
    team.paths[left], team.paths[left + 1] = child_path(team.paths[i], LEFT), child_path(team.paths[i], RIGHT)
    sums = team.sums
    for k in range(sums.shape[1]):
        sums[left, k] = team.found.left[i, k]
        sums[left + 1, k] = sums[i, k] - sums[left, k]


@lean_kernel
def _spread(heirs, team, task, i, piece):
    """Copy the rows of a piece to where they belong, in the other partition."""
    start, mid, stop = team.places[i, START], team.places[i, MID], team.places[i, STOP]
    one, other = team.places[team.places[i, LEFT_CHILD]], team.places[team.places[i, LEFT_CHILD] + 1]
    inside, outside = team.counts[i, piece]
    goes_left = team.goes_left
    partition, spare = partition_of(team, task, i), partition_of(team, task, team.places[i, LEFT_CHILD])
    rows, a, b = partition.rows, partition.a, partition.b
    spare_rows, spare_a, spare_b = spare.rows, spare.a, spare.b
    inner, noted = team.places[i, DEPTH] + 1 < task.stops.max_depth, heirs.sums.place_of
    # Nobody looks for rows of leaves, nor wants their sums, unless the tree's values are made of them.
    has_places, has_sums = inner and noted.shape[0] > 0, inner or task.limits.criterion != NEWTON
    has_b = has_sums and b.shape[0] > 0
    first, last = bounds_of(start, stop, piece, n_pieces(team, stop - start))
    middle = min(max(first, mid), last)
    left, right = np.uint64(start + inside), np.uint64(other[START] + min(first, mid) - start - inside)
    for k in range(np.uint64(first), np.uint64(middle)):  # unsigned: no test for negative indices
        side = np.uint64(goes_left[k])
        place = left if side else right
        spare_rows[place] = rows[k]
        if has_places:
            prefetch_to_write(noted, rows[min(k + np.uint64(AHEAD_TO_WRITE), np.uint64(middle) - np.uint64(1))])
            noted[rows[k]] = place
        if has_sums:
            spare_a[place] = a[k]
        if has_b:
            spare_b[place] = b[k]
        left += side
        right += np.uint64(1) - side
    left, right = np.uint64(one[MID] + outside), np.uint64(other[MID] + middle - mid - outside)
    for k in range(np.uint64(middle), np.uint64(last)):
        side = np.uint64(goes_left[k])
        place = left if side else right
        spare_rows[place] = rows[k]
        if has_places:
            noted[rows[k]] = place
        left += side
        right += np.uint64(1) - side


@lean_kernel
def _hand_down(heirs, team, task, i):
    """Open the children of a node; if the larger one is to have its sums, sum the smaller one first."""
    places = team.places
    left = places[i, LEFT_CHILD]
    record = team.parts.records[team.places[i, FIRST_PART]]
    record.left, record.right = left, left + 1
    smaller, larger = (left, left + 1) if rows_of(team, left) <= rows_of(team, left + 1) else (left + 1, left)
    if _wants_slot(team, task, larger):
        if are_few(heirs.zone_map, heirs.sums, places[i, SLOT], rows_of(team, smaller)):
            start_taking(heirs, team, i, smaller)
            return
        if start_sum(heirs, team, i, smaller):
            return
    give_back(heirs, places[i, SLOT])
    _open_children(team, i)
