"""Deviations of all prefixes and suffixes of a node's rows in the order of a column, by taking one row after the other away."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import inlined_kernel, inner_kernel, shared_kernel
from dtrees.split.search.order_statistics.deviations import (
    LOW_BITS,
    LOW_MASK,
    deviations_by_tree,
    note,
)
from dtrees.split.search.order_statistics.line_up import first_state, link_elements


@inlined_kernel
def _remove_one(criterion, line, links, item, state, out):
    """Remove an item where every weight is 1, without a branch, and note the deviation of what is left; return what is known of that.

    The quantile is the least element k with both * k >= above * total. When a row goes, it stays where it is among what is left, or falls
    to the one before: a step in the linked line at most.
    """
    above, both = criterion.above, criterion.above + criterion.below
    total, quantile, level, excess, high, low = state
    x, other = np.uint64(item.element), item.level  # unsigned: Numba looks at the sign of an index each time
    link = links[x]
    links[link.previous].next = link.next
    links[link.next].previous = link.previous
    factor = above if x > quantile else -criterion.below
    high -= factor * ((other >> LOW_BITS) - (level >> LOW_BITS))
    low -= factor * ((other & LOW_MASK) - (level & LOW_MASK))
    falls = excess + above >= both
    excess += above - both if falls else above
    following, preceding = np.uint64(links[quantile].next), np.uint64(links[quantile].previous)
    # How much the deviation grows with the level between the quantile that was and the one that is.
    slope = excess if falls else excess - both
    quantile = (preceding if x >= quantile else quantile) if falls else (following if x <= quantile else quantile)
    new = line[quantile].level
    high += slope * ((new >> LOW_BITS) - (level >> LOW_BITS))
    low += slope * ((new & LOW_MASK) - (level & LOW_MASK))
    note(out, high, low, total - 1)
    return total - 1, quantile, new, excess, high, low


@inlined_kernel
def _state(criterion, line, begin):
    """Return what :func:`_remove_one` is to know of the rows that it removes the first of; see :func:`first_state`."""
    total, quantile, before, high, low = begin
    # At least 0, and below the sum of the factors.
    excess = (criterion.above + criterion.below) * (before + 1) - criterion.above * total
    return total, np.uint64(quantile), line[quantile].level, excess, high, low


@inner_kernel
def _remove_equal(criterion, line, links, items, end, left_begin, right_begin, left, right):
    """Remove ``items[:end]``, where every weight is 1, from both lines: the last first for ``left``, the first first for ``right``.

    Each removal waits for the one before. Both ways in turn, the processor has two to work on.
    """
    one, other, left_links, right_links = _state(criterion, line, left_begin), _state(criterion, line, right_begin), links[0], links[1]
    n, step = np.uint64(end), np.uint64(1)
    for k in range(n):
        i = n - step - k
        one = _remove_one(criterion, line, left_links, items[i], one, left[i])
        other = _remove_one(criterion, line, right_links, items[k], other, right[k + step])


@inner_kernel
def _remove(criterion, line, links, items, end, forward, max_steps, begin, out):
    """Remove ``items[:end]`` from the linked line, one after the other, and note the deviation of what is left each time.

    The deviation is linear in the levels while the quantile stays where it is, and in the quantile while it moves to a neighbour. The two
    parts of the levels are summed apart.

    Parameters
    ----------
    criterion : Deviations
    forward : bool
        Remove the first item first, and note what is left without it at ``out[1]``; else the last, and so on.
    max_steps : int
        How far the quantile may walk in all.
    begin : tuple of int
        See :func:`first_state`.

    Returns
    -------
    bool
        False if it would have walked too far; then ``out`` is not complete.
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
        own = 0 if x == quantile else own  # the walk starts from where the quantile was
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
    """Write the deviations of all sets of ``items[:end]`` from either end on.

    Parameters
    ----------
    criterion : Deviations
    line : ndarray of LINE
        Elements 1 to ``n`` are the node's rows in the order of the target.
    links : ndarray of LINK, shape (2, n + 1) or longer
    items : ndarray of ITEM
        The same in the order of the column.
    whole : tuple of int
        See :func:`first_state`, of all rows.
    end, left_last, right_last : int
        The ``items[end:left_last]`` (missing values) are in each set on the left, ``items[left_last:n]`` in none; likewise on the right.
    weighted : bool
    max_steps : int
    left, right : ndarray of DEVIATION, shape (end + 1,) or longer
        ``left[i]`` is for the first i items, ``right[i]`` for all but these.
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
