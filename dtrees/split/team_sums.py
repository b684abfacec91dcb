"""The zone sums of one node, and their edges, by several threads: steps of :mod:`dtrees.split.team`.

The rows to be summed are cut into more pieces than there are threads, as these are never equally fast. Each thread adds its pieces up in a
slot: it takes one that nobody is at, and leaves it to the next piece. Then the slots are added up, some columns a piece, and taken from the
parent's; and the best edge is found, again some columns a piece. Where rows are too few for slots to be added up, a piece is all rows in
some columns.
"""

from __future__ import annotations

from dtrees.split.board import (
    ALL,
    FIRST_COLUMN,
    IDLE_SLOTS,
    LEAD,
    LOCK,
    MID,
    N_SLOTS,
    PIECES,
    SETTLE,
    SLOT,
    START,
    SUM,
    SUMMED,
    add_pieces,
    bounds_of,
    n_pieces,
    partition_of,
    rows_of,
)
from dtrees.split.heirs import give_back, take
from dtrees.split.kernel import NONE, ZERO, lean_kernel
from dtrees.split.queue import acquire, release
from dtrees.split.zone_sums import (
    add,
    begin_slot,
    best_edges,
    clear,
    elements,
    fold_like,
    follow_slot,
    get_ready,
    include,
    include_columns,
    piece_rows,
    subtract,
)

#: Fewest numbers of a slot that are worth a piece.
_PIECE_NUMBERS = 2**12
#: Rows taken from a slot for each thread that they are worth.
_TAKEN_ROWS = 32


@lean_kernel
def start_sum(heirs, team, i, node):
    """Make the pieces of a step of node ``i``, the sum of ``node``; return whether there was a slot for it."""
    places, sums, n_rows = team.places[i], heirs.sums, rows_of(team, node)
    wanted = n_pieces(team, n_rows)
    most = team.n_threads
    n = ZERO()
    while n < most:
        slot = take(heirs, team.n_threads)
        if slot < 0:
            break
        if node == i:
            begin_slot(sums, slot, n_rows)
        else:
            follow_slot(sums, slot, places[SLOT], rows_of(team, i) - n_rows)
        if min(wanted, n_rows // piece_rows(sums.most_zones, sums.grains[slot])) < most:
            most = 1
        team.counts[i, n, 0], team.counts[i, n, 1] = slot, 0
        n += 1
    if n == 0:
        return False
    if node != i:
        fold_like(heirs.zone_map, sums, places[SLOT], team.counts[i, 0, 0])
    places[SUMMED], places[N_SLOTS], places[IDLE_SLOTS] = node, n, n
    add_pieces(team, SUM, i, _pieces_of_columns(heirs, team) if n == 1 else wanted if n == team.n_threads else n)
    return True


@lean_kernel
def start_taking(heirs, team, i, node):
    """Make the pieces of a step of node ``i``: the rows of ``node``, a child, are taken from its slot, to be that of the other child."""
    team.places[i, SUMMED], team.places[i, N_SLOTS] = node, 0
    add_pieces(team, SUM, i, min(_pieces_of_columns(heirs, team), 1 + rows_of(team, node) // _TAKEN_ROWS))


@lean_kernel
def _pieces_of_columns(heirs, team):
    return max(1, min(team.n_threads, heirs.zone_map.which.shape[0]))


@lean_kernel
def is_settled(team, i):
    """Tell whether a sum of node ``i`` was made column by column: there is nothing to be added up, nor to be taken from the parent's."""
    return team.places[i, N_SLOTS] < 2


@lean_kernel
def _sum_columns(heirs, team, task, i, piece):
    """Sum all rows in the columns of a piece, and take the sums, or the rows themselves, from the parent's."""
    zone_map, sums, places, node = heirs.zone_map, heirs.sums, team.places[i], team.places[i, SUMMED]
    first, last = bounds_of(ZERO(), zone_map.which.shape[0], piece, places[ALL])
    partition, start, mid = partition_of(team, task, node), team.places[node, START], team.places[node, MID]
    if places[N_SLOTS] == 0:
        include_columns(zone_map, partition, start, mid, first, last, sums, places[SLOT], NONE())
        return
    slot = team.counts[i, 0, 0]
    elements(zone_map, sums, slot)[first:last] = 0
    include_columns(zone_map, partition, start, mid, first, last, sums, slot, ZERO() + 1)
    if node != i:
        subtract(zone_map, sums, places[SLOT], slot, first, last)


@lean_kernel
def sum_piece(heirs, team, task, i, piece):
    """Add the rows of a piece to a slot that no other thread is at."""
    if is_settled(team, i):
        _sum_columns(heirs, team, task, i, piece)
        return
    places, node = team.places[i], team.places[i, SUMMED]
    acquire(team.control, LOCK)
    places[IDLE_SLOTS] -= 1
    slot, used = team.counts[i, places[IDLE_SLOTS]]
    release(team.control, LOCK)
    if not used:
        clear(heirs.zone_map, heirs.sums, slot)
    first, last = bounds_of(team.places[node, START], team.places[node, MID], piece, places[ALL])
    include(heirs.zone_map, partition_of(team, task, node), first, last, heirs.sums, slot, ZERO() + 1)
    acquire(team.control, LOCK)
    team.counts[i, places[IDLE_SLOTS], 0], team.counts[i, places[IDLE_SLOTS], 1] = slot, 1
    places[IDLE_SLOTS] += 1
    release(team.control, LOCK)


@lean_kernel
def start_settling(heirs, team, i):
    """Make the pieces of the addition of slots; those that were not needed are free again."""
    counts, n = team.counts[i], ZERO()
    for k in range(team.places[i, N_SLOTS]):
        if counts[k, 1]:
            counts[n, 0] = counts[k, 0]
            n += 1
        else:
            give_back(heirs, counts[k, 0])
    team.places[i, N_SLOTS] = n
    add_pieces(team, SETTLE, i, _pieces_of(heirs, team, counts[0, 0]))


@lean_kernel
def settle_piece(heirs, team, i, piece):
    """Add up the slots of a sum in some columns; take it from the parent's, if it is that of a child."""
    zone_map, sums, places = heirs.zone_map, heirs.sums, team.places[i]
    first, last = bounds_of(ZERO(), zone_map.which.shape[0], piece, places[ALL])
    summed = team.counts[i, 0, 0]
    for k in range(1, places[N_SLOTS]):
        add(zone_map, sums, summed, team.counts[i, k, 0], first, last)
    if places[SUMMED] != i:
        subtract(zone_map, sums, places[SLOT], summed, first, last)


@lean_kernel
def finish_settling(heirs, team, i):
    """Return the slot that holds the sum, -1 if none does; the others are free again."""
    if team.places[i, N_SLOTS] == 0:
        return NONE()
    for k in range(1, team.places[i, N_SLOTS]):
        give_back(heirs, team.counts[i, k, 0])
    return team.counts[i, 0, 0]


@lean_kernel
def place_of(team, i):
    """Return where a node's rows are, and its slot."""
    return team.places[i, START], team.places[i, MID], team.places[i, SLOT]


@lean_kernel
def start_leading(heirs, team, task, i):
    """Make the pieces of the search for the best edge of a node that has a slot."""
    get_ready(heirs.zone_map, partition_of(team, task, i), heirs.sums, place_of(team, i), team.sums[i], task.limits)
    team.bars[i] = -1.0
    team.places[i, FIRST_COLUMN] = NONE()
    add_pieces(team, LEAD, i, _pieces_of(heirs, team, team.places[i, SLOT]))


@lean_kernel
def lead_piece(heirs, team, task, i, piece):
    """Find the best edge in some columns."""
    first, last = bounds_of(ZERO(), heirs.zone_map.which.shape[0], piece, team.places[i, ALL])
    place, sums = place_of(team, i), team.sums[i]
    edge, lead = best_edges(heirs.zone_map, heirs.sums, place, sums, task.limits, first, last, team.bars[i], task.scratch)
    acquire(team.control, LOCK)
    if edge > team.bars[i]:
        team.bars[i] = edge
        team.places[i, FIRST_COLUMN] = lead
    release(team.control, LOCK)


@lean_kernel
def _pieces_of(heirs, team, slot):
    """Return into how many pieces a step on the columns of a slot is cut."""
    numbers = elements(heirs.zone_map, heirs.sums, slot).size
    return max(1, min(min(PIECES, 2 * team.n_threads), min(heirs.zone_map.which.shape[0], numbers // _PIECE_NUMBERS)))
