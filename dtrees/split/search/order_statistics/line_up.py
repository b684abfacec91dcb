"""The rows of a node in the order of the target, as a linked list, and in the order of a column."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import inlined_kernel, inner_kernel, kernel
from dtrees.split.search.order_statistics.deviations import (
    DEVIATION,
    LOW_BITS,
    LOW_MASK,
)
from dtrees.split.table.keys import code_in, code_of, key_of, place_in
from dtrees.split.table.sorting import sort_keys

#: An element of the line: what is summed, the row, and the number of its target.
LINE = np.dtype([("level", np.int64), ("weight", np.int64), ("row", np.uint32), ("number", np.uint32)])
#: Its neighbours; apart, because they are read and written out of order and should stay in the cache.
LINK = np.dtype([("previous", np.uint32), ("next", np.uint32)])
#: An element again, in the order of a column.
ITEM = np.dtype([("level", np.int64), ("weight", np.int64), ("element", np.int64)])


@by_reference
class LineUp(NamedTuple):
    """What one thread needs to search by order statistics; reused between calls.

    Attributes
    ----------
    levels : ndarray of int64, shape (n_targets,)
        The targets of the table in fixed point, ascending.
    line, items : ndarray of LINE, ITEM
    links : ndarray of LINK, shape (2, n_rows + 1)
        Of the rows that go left, and of those that go right.
    left, right : ndarray of DEVIATION
        Of the first i rows and of all but the first i rows, in the order of the column.
    quantiles : ndarray of float64, shape (2, n_rows + 1)
        Of the same, where constraints compare them.
    totals : ndarray of DEVIATION, shape (4, n_rows + 1) or (4, 0)
        Those of several targets together, with missing values on the left, and then with these on the right.
    elements : ndarray of uint32
        The element of each place that a node's keys are of.
    node : ndarray of int64, shape (7,)
        The first and last place of the node that ``line`` holds (a node has them to itself throughout a tree; those in a block are below
        -1), then what :func:`first_state` says of all its rows.
    most : ndarray of float64, shape (1,)
        What its splits gain at most; negative where that is not known.
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
    totals = np.empty((4, n_rows + 1 if several else 0), DEVIATION)
    quantiles, elements = np.empty((2, n_rows + 1)), np.empty(n_rows + 1, np.uint32)
    return LineUp(levels, line, links, items, left, right, quantiles, totals, elements, np.full(7, -1, np.int64), np.full(1, -1.0))


@kernel
def put_in_line(criterion, partition, start, in_stop, scratch):
    """Put a node's in-sample rows in the order of their targets, unless they are already."""
    line_up = scratch.line_up
    node = line_up.node
    if node[0] == start and node[1] == in_stop:
        return
    for i in range(in_stop - start):
        scratch.keys[i] = key_of(partition.g[start + i], i)
    line_up_by_keys(criterion, partition.rows, partition.h, start, in_stop - start, scratch)
    node[0], node[1] = start, in_stop


@kernel
def put_block_in_line(criterion, block, first, last, scratch):
    """Put the rows of a node of a block (:mod:`dtrees.split.grow.block`) in the order of their targets, unless they are already."""
    node = scratch.line_up.node
    if node[0] != -2 - first or node[1] != -2 - last:
        line_up_block(criterion, block, first, last, scratch)


@kernel
def line_up_block(criterion, block, first, last, scratch):
    """Put the rows of a node of a block in the order of their targets; their keys are left in ``scratch.keys``."""
    node = scratch.line_up.node
    for i in range(last - first):
        place = block.places[first + i]
        scratch.keys[i] = key_of(block.g[place], place)
    line_up_by_keys(criterion, block.rows, block.h, np.int64(0), last - first, scratch)
    node[0], node[1] = -2 - first, -2 - last


@inner_kernel
def line_up_by_keys(criterion, rows, b, start, n, scratch):
    """Put the ``n`` rows of a node in the order of ``scratch.keys``: the number of the target, and the place from ``start`` on."""
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
    """Link elements 1 to n, but for those of ``items[first:last]``."""
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
    """Return the weight of the linked elements, their lower quantile, the weight before that, and their deviation in two parts."""
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
    """List the elements in line in the order of a column; return how many are not missing there, -1 if the column is constant.

    Their codes are left in ``scratch.keys``.
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
    """Make an item of an element of the line."""
    item.element = element
    item.level = line[element].level
    item.weight = line[element].weight
