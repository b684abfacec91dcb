"""The rows of a node in the order of the target, as a linked list, and in the order of a column.

The deviations of all prefixes and suffixes in the order of the column are found by removing one row after the other from the list.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, inlined_kernel, inner_kernel, kernel, shared_kernel
from dtrees.split.compile.specialised import optional
from dtrees.split.criteria.several import SeveralDeviations
from dtrees.split.search.deviations import DEVIATION, LOW_BITS, LOW_MASK, deviations_by_tree, note
from dtrees.split.table.sorting import code_in, code_of, key_of, place_in, sort_keys

#: An element of the line: its level and weight, its row, and the rank of its target.
LINE = np.dtype([("level", np.int64), ("weight", np.int64), ("row", np.uint32), ("number", np.uint32)])
#: The neighbours of an element, in an array of their own, because they are read and written out of order and should stay in the cache.
LINK = np.dtype([("previous", np.uint32), ("next", np.uint32)])
#: A copy of an element, in the order of a column.
ITEM = np.dtype([("level", np.int64), ("weight", np.int64), ("element", np.int64)])


@by_reference
class LineUp(NamedTuple):
    """Scratch space of one thread for searches by order statistics, reused between calls.

    Attributes
    ----------
    levels : ndarray of int64, shape (n_targets,)
        The targets of the table in fixed point, ascending.
    line, items : ndarray of LINE, ITEM
    links : ndarray of LINK, shape (2, n_rows + 1)
        Of the rows that go left, and of those that go right.
    left, right : ndarray of DEVIATION
        Deviations of the first i rows, and of all but the first i rows, in the order of the column.
    quantiles : ndarray of float64, shape (2, n_rows + 1)
        Quantiles of the same sets, if constraints compare them.
    totals : ndarray of DEVIATION, shape (4, n_rows + 1) or (4, 2)
        Deviations of several targets together, with missing values on the left, and then on the right.
    elements : ndarray of uint32
        The element of each place of a node's keys.
    node : ndarray of int64, shape (7,)
        The first and last place of the node in ``line`` (no other node of the tree has these places; those in a block are below -1),
        then the result of :func:`first_state` for all its rows.
    most : ndarray of float64, shape (1,)
        An upper bound of the gain of its splits; negative if unknown.
    """

    levels: NDArray[np.int64]
    line: NDArray[Any]
    links: NDArray[Any]
    items: NDArray[Any]
    left: NDArray[Any]
    right: NDArray[Any]
    quantiles: NDArray[np.float64]
    totals: NDArray[Any]
    elements: NDArray[np.uint32]
    node: NDArray[np.int64]
    most: NDArray[np.float64]


def make_line_up(n_rows: int, levels: NDArray[np.int64], several: bool = False) -> LineUp:
    """Return scratch space for nodes of up to ``n_rows`` rows, of one target or of ``several``."""
    line, items, left, right = (np.empty(n_rows + 1, kind) for kind in (LINE, ITEM, DEVIATION, DEVIATION))
    links = np.empty((2, n_rows + 1), LINK)
    totals = np.empty((4, n_rows + 1 if several else 2), DEVIATION)
    quantiles, elements = np.empty((2, n_rows + 1)), np.empty(n_rows + 1, np.uint32)
    return LineUp(levels, line, links, items, left, right, quantiles, totals, elements, np.full(7, -1, np.int64), np.full(1, -1.0))


@optional
def n_targets(criterion: Any) -> Any:
    """Return the number of targets."""
    return ZERO() + 1


@n_targets.of(SeveralDeviations)
def _(criterion):
    return criterion.rows.shape[1]


@optional
def of_one_target(criterion: Any) -> Any:
    """Return the criterion for a single target."""
    return criterion


@of_one_target.of(SeveralDeviations)
def _(criterion):
    return criterion.criterion


@optional
def put_in_line(criterion: Any, t: Any, partition: Any, start: Any, in_stop: Any, scratch: Any) -> None:
    """Put a node's in-sample rows into the order of the ``t``-th target, unless they are already."""
    node = scratch.line_up.node
    if node[0] != start or node[1] != in_stop:
        for i in range(in_stop - start):
            scratch.keys[i] = key_of(partition.g[start + i], i)
        line_up_by_keys(criterion, partition.rows, partition.h, start, in_stop - start, scratch)
        node[0], node[1] = start, in_stop


@put_in_line.of(SeveralDeviations)
def _(criterion, t, partition, start, in_stop, scratch):
    for i in range(in_stop - start):
        scratch.keys[i] = key_of(criterion.rows[partition.g[start + i], t], i)
    line_up_by_keys(criterion.criterion, partition.rows, partition.h, start, in_stop - start, scratch)


@kernel
def put_block_in_line(criterion, block, first, last, scratch):
    """Put the rows of a node of a block (:mod:`dtrees.split.grow.block`) into the order of their targets, unless they are already."""
    node = scratch.line_up.node
    if node[0] != -2 - first or node[1] != -2 - last:
        line_up_block(criterion, block, first, last, scratch)


@kernel
def line_up_block(criterion, block, first, last, scratch):
    """Put the rows of a node of a block into the order of their targets; ``scratch.keys`` receives their keys."""
    node = scratch.line_up.node
    for i in range(last - first):
        place = block.places[first + i]
        scratch.keys[i] = key_of(block.g[place], place)
    line_up_by_keys(criterion, block.rows, block.h, np.int64(0), last - first, scratch)
    node[0], node[1] = -2 - first, -2 - last


@inner_kernel
def line_up_by_keys(criterion, rows, b, start, n, scratch):
    """Put the ``n`` rows of a node into the order of ``scratch.keys``: the rank of the target, and the place, counted from ``start``."""
    line_up = scratch.line_up
    keys, line, levels, node = scratch.keys, line_up.line, line_up.levels, line_up.node
    sort_keys(keys, scratch.spare, n, scratch.counts)
    line[0].level = 0
    line[0].weight = 0
    for i in range(n):
        place, number = start + np.int64(place_in(keys[i])), code_of(keys[i])
        line_up.elements[place_in(keys[i])] = i + 1
        element = line[i + 1]
        element.level = levels[number]
        element.weight = b[place] if b.shape[0] > 0 else 1
        element.row = rows[place]
        element.number = number
    link_elements(line_up.links[0], n, line_up.items, n, n)
    line_up.most[0] = -1.0
    node[2], node[3], node[4], node[5], node[6] = first_state(criterion, line, line_up.links[0])


@inner_kernel
def link_elements(links, n, items, first, last):
    """Link elements 1 to n, except those of ``items[first:last]``."""
    for i in range(n + 1):
        links[i].previous = i - 1
        links[i].next = i + 1
    links[0].previous = n
    links[n].next = 0
    for i in range(first, last):
        link = links[items[i].element]
        links[link.previous].next = link.next
        links[link.next].previous = link.previous


@inner_kernel
def first_state(criterion, line, links):
    """Return the weight of the linked elements, their lower quantile, the weight before it, and their deviation in two parts."""
    above, both = criterion.above, criterion.above + criterion.below
    total = 0
    i = links[0].next
    while i != 0:
        total += line[i].weight
        i = links[i].next
    before = 0
    quantile = np.int64(links[0].next)
    while both * (before + line[quantile].weight) < above * total:
        before += line[quantile].weight
        quantile = np.int64(links[quantile].next)
    level = line[quantile].level
    high = low = 0
    i = links[0].next
    while i != 0:
        signed = line[i].weight * (above if i > quantile else -criterion.below)
        high += signed * ((line[i].level >> LOW_BITS) - (level >> LOW_BITS))
        low += signed * ((line[i].level & LOW_MASK) - (level & LOW_MASK))
        i = links[i].next
    return total, quantile, before, high, low


@inner_kernel
def list_items(codes, n_distinct, n, scratch):
    """List the elements in line in the order of a column; return the number of non-missing ones, -1 if the column is constant.

    Their codes are written to ``scratch.keys``.
    """
    keys, line, items = scratch.keys, scratch.line_up.line, scratch.line_up.items
    for i in range(n):
        keys[i] = key_of(codes[line[i + 1].row], i + 1)
    sort_keys(keys, scratch.spare, n, scratch.counts)
    if code_in(keys[0]) == code_in(keys[n - 1]):
        return -1
    end = n
    while code_in(keys[end - 1]) == np.uint64(n_distinct):
        end -= 1
    for i in range(n):
        note_item(items[i], line, np.int64(place_in(keys[i])))
    return end


@inlined_kernel
def note_item(item, line, element):
    """Copy an element of the line to an item."""
    item.element = element
    item.level = line[element].level
    item.weight = line[element].weight


@inlined_kernel
def _remove_one(criterion, line, links, item, state, out):
    """Remove an item if every weight is 1, without a branch, and write the remaining deviation; return the new state.

    The quantile is the least element k with both * k >= above * total. When a row is removed, the quantile either stays or moves to the
    previous remaining row: at most one step in the linked line.
    """
    above, both = criterion.above, criterion.above + criterion.below
    total, quantile, level, excess, high, low = state
    x, other = np.uint64(item.element), item.level  # an unsigned index spares Numba's check of its sign
    link = links[x]
    links[link.previous].next = link.next
    links[link.next].previous = link.previous
    factor = above if x > quantile else -criterion.below
    high -= factor * ((other >> LOW_BITS) - (level >> LOW_BITS))
    low -= factor * ((other & LOW_MASK) - (level & LOW_MASK))
    falls = excess + above >= both
    excess += above - both if falls else above
    following, preceding = np.uint64(links[quantile].next), np.uint64(links[quantile].previous)
    # The slope of the deviation in the level between the old quantile and the new one.
    slope = excess if falls else excess - both
    quantile = (preceding if x >= quantile else quantile) if falls else (following if x <= quantile else quantile)
    new = line[quantile].level
    high += slope * ((new >> LOW_BITS) - (level >> LOW_BITS))
    low += slope * ((new & LOW_MASK) - (level & LOW_MASK))
    note(out, high, low, total - 1)
    return total - 1, quantile, new, excess, high, low


@inlined_kernel
def _state(criterion, line, begin):
    """Return the state that :func:`_remove_one` needs for its first removal; see :func:`first_state`."""
    total, quantile, before, high, low = begin
    # At least 0, and less than the sum of the factors.
    excess = (criterion.above + criterion.below) * (before + 1) - criterion.above * total
    return total, np.uint64(quantile), line[quantile].level, excess, high, low


@inner_kernel
def _remove_equal(criterion, line, links, items, end, left_begin, right_begin, left, right):
    """Remove ``items[:end]``, if every weight is 1, from both lines: in reverse order for ``left``, in order for ``right``.

    Each removal depends on the previous one. Alternating between the lines gives the processor two independent chains.
    """
    one, other, left_links, right_links = _state(criterion, line, left_begin), _state(criterion, line, right_begin), links[0], links[1]
    n, step = np.uint64(end), np.uint64(1)
    for k in range(n):
        i = n - step - k
        one = _remove_one(criterion, line, left_links, items[i], one, left[i])
        other = _remove_one(criterion, line, right_links, items[k], other, right[k + step])


@inner_kernel
def _remove(criterion, line, links, items, end, forward, max_steps, begin, out):
    """Remove ``items[:end]`` from the linked line, one after the other, and write the remaining deviation each time.

    The deviation is linear in the levels while the quantile stays, and in the quantile while it moves to a neighbour. The two parts of
    the levels are summed separately.

    Parameters
    ----------
    criterion : Deviations
    forward : bool
        Remove items in order, and write the deviation without the first at ``out[1]``; otherwise in reverse order.
    max_steps : int
        Limit of the total steps of the quantile.
    begin : tuple of int
        See :func:`first_state`.

    Returns
    -------
    bool
        False if the quantile would exceed the limit; then ``out`` is incomplete.
    """
    above, both = criterion.above, criterion.above + criterion.below
    total, quantile, before, high, low = begin
    level, own = line[quantile].level, line[quantile].weight
    steps = 0
    for k in range(end):
        i = k if forward else end - 1 - k
        x, weight, other = items[i].element, items[i].weight, items[i].level
        link = links[x]
        links[link.previous].next = link.next
        links[link.next].previous = link.previous
        signed = weight * (above if x > quantile else -criterion.below)
        high -= signed * ((other >> LOW_BITS) - (level >> LOW_BITS))
        low -= signed * ((other & LOW_MASK) - (level & LOW_MASK))
        total -= weight
        before -= weight if x < quantile else 0
        own = 0 if x == quantile else own  # the walk starts at the old quantile
        wanted = above * total
        while both * (before + own) < wanted:
            before += own
            factor = both * before - wanted
            quantile = np.int64(links[quantile].next)
            new = line[quantile].level
            high += ((new >> LOW_BITS) - (level >> LOW_BITS)) * factor
            low += ((new & LOW_MASK) - (level & LOW_MASK)) * factor
            level, own = new, line[quantile].weight
            steps += 1
        while both * before >= wanted and before > 0:
            factor = both * before - wanted
            quantile = np.int64(links[quantile].previous)
            new = line[quantile].level
            high += ((new >> LOW_BITS) - (level >> LOW_BITS)) * factor
            low += ((new & LOW_MASK) - (level & LOW_MASK)) * factor
            level, own = new, line[quantile].weight
            before -= own
            steps += 1
        if steps > max_steps:
            return False
        note(out[i + 1 if forward else i], high, low, total)
    return True


@shared_kernel
def deviations(criterion, line, links, items, whole, n, end, left_last, right_last, weighted, max_steps, left, right):
    """Write the deviations of all prefixes and suffixes of ``items[:end]``.

    Parameters
    ----------
    criterion : Deviations
    line : ndarray of LINE
        Elements 1 to ``n`` are the node's rows in the order of the target.
    links : ndarray of LINK, shape (2, n + 1) or longer
    items : ndarray of ITEM
        The same rows in the order of the column.
    whole : tuple of int
        The result of :func:`first_state` for all rows.
    end, left_last, right_last : int
        The ``items[end:left_last]`` (missing values) are in each set on the left, ``items[left_last:n]`` in none; likewise on the right.
    weighted : bool
    max_steps : int
    left, right : ndarray of DEVIATION, shape (end + 1,) or longer
        ``left[i]`` is for the first i items, ``right[i]`` for all others.
    """
    link_elements(links[0], n, items, left_last, n)
    link_elements(links[1], n, items, right_last, n)
    one = whole if left_last == n else first_state(criterion, line, links[0])
    other = whole if right_last == n else first_state(criterion, line, links[1])
    note(left[end], one[3], one[4], one[0])
    note(right[0], other[3], other[4], other[0])
    if not weighted:
        _remove_equal(criterion, line, links, items, end, one, other, left, right)
        return
    if not _remove(criterion, line, links[0], items, end, False, max_steps, one, left):
        deviations_by_tree(criterion, line, items, n, end, left_last, False, left)
    if not _remove(criterion, line, links[1], items, end, True, max_steps, other, right):
        deviations_by_tree(criterion, line, items, n, end, right_last, True, right)
