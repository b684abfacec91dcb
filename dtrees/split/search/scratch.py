"""Scratch space of one thread for searching nodes, allocated once and reused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.node.records import Found, no_split_found
from dtrees.split.policy import MAX_CELLS, MAX_PARTS, MAX_SINGLE_CELLS, MOST_BINS
from dtrees.split.search.category_orders import Groups, make_groups
from dtrees.split.search.line_up import LineUp, make_line_up
from dtrees.split.search.vectors import Chunk, make_chunk
from dtrees.split.table.mmap_arrays import mapped
from dtrees.split.table.sorting import BIN, RADIX

#: A zone: its sums of g, abs(g) and h and its number of rows, those of all zones before it, and whether it must be scanned.
ZONE = np.dtype([(name, np.int64) for name in ("g", "abs_g", "h", "n", "g_before", "h_before", "n_before", "flag")], align=True)

_NO_LEVELS = np.empty(0, np.int64)


@by_reference
class Scratch(NamedTuple):
    """Scratch space of a thread.

    Attributes
    ----------
    bins : ndarray of BIN
        For a column's distinct values and one more; empty if classes are summed.
    keys, spare : ndarray of uint64
        For sorting rows.
    zones, parts : ndarray of ZONE
    sums : ndarray of int64, shape (7, MAX_PARTS)
        Sums of zones, quantity by quantity (:mod:`dtrees.split.criteria.statistics`).
    scores : ndarray of float64
    flags : ndarray of uint8
    marks, numbers, cuts, part_of
        For :mod:`dtrees.split.zones.scan` and :mod:`dtrees.split.zones.gather_rows`.
    found : Found
        The best split in the current column.
    other_found : Found
        Another split, while two searches are compared.
    classes : ndarray of int64, shape (3, n_classes) or (3, 0)
        Weights of classes, or sums of several targets, of sets of rows.
    counts : ndarray of int64
        For :func:`~dtrees.split.table.sorting.radix_sort`.
    line_up : LineUp or None
        For criteria of order statistics.
    chunk : Chunk
    groups : Groups
        For columns of categories; small if there are none.
    """

    bins: NDArray[Any]
    keys: NDArray[np.uint64]
    spare: NDArray[np.uint64]
    zones: NDArray[Any]
    parts: NDArray[Any]
    sums: NDArray[np.int64]
    scores: NDArray[np.float64]
    flags: NDArray[np.uint8]
    marks: NDArray[np.uint64]
    numbers: NDArray[np.int64]
    cuts: NDArray[np.int64]
    part_of: NDArray[np.uint16]
    found: Found
    other_found: Found
    classes: NDArray[np.int64]
    counts: NDArray[np.int64]
    line_up: LineUp | None
    chunk: Chunk
    groups: Groups


def make_scratch(
    n_rows: int,
    max_distinct: int,
    n_classes: int,
    levels: NDArray[np.int64] = _NO_LEVELS,
    categories: bool = False,
    n_sums: int = 0,
    several: bool = False,
) -> Scratch:
    """Return scratch space for nodes of up to ``n_rows`` rows and columns of up to ``max_distinct`` distinct values.

    Columns with many more distinct values than the node has rows are sorted instead of put into bins, so bins are few. ``n_classes`` is
    0 if moments are summed; ``levels`` are the targets of criteria of order statistics, and ``several`` says whether there are several
    of these. ``categories`` says whether there are columns of categories. ``n_sums`` is the number of sums of a node, if these are
    neither classes nor moments.
    """
    n_bins = min(max_distinct, 4 * n_rows, MOST_BINS) + 1
    n_keys = n_rows + 1
    n_cells = max(MAX_CELLS, -(-min(max_distinct, MAX_SINGLE_CELLS) // 64) * 64)
    n_sums = n_sums or n_classes or 2
    return Scratch(
        bins=np.empty(0 if n_classes else n_bins, BIN),
        keys=mapped(n_keys, np.uint64),
        spare=mapped(n_keys, np.uint64),
        zones=np.empty(MAX_PARTS + 1, ZONE),
        parts=np.empty(MAX_PARTS, ZONE),
        sums=np.empty((7, MAX_PARTS), np.int64),
        scores=np.empty(MAX_PARTS),
        flags=np.empty(MAX_PARTS, np.uint8),
        marks=np.zeros(n_cells // 64 + 1, np.uint64),
        numbers=np.empty(MAX_PARTS, np.int64),
        cuts=np.empty((2, MAX_PARTS), np.int64),
        part_of=mapped(n_cells, np.uint16, large_pages=False),
        found=no_split_found(n_sums),
        other_found=no_split_found(n_sums),
        classes=np.zeros((3, n_classes), np.int64),
        counts=np.empty(RADIX, np.int64),
        line_up=make_line_up(n_rows, levels, several) if levels.shape[0] else None,
        chunk=make_chunk(),
        groups=make_groups(max_distinct if categories else 0, n_sums),
    )
