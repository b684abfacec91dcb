"""Passes over the rows of one shard: rows in flagged parts, the next code above a cut, rows going left by sets, leaves of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, inner_kernel, kernel, lean_kernel
from dtrees.split.compile.work_queue import claimed
from dtrees.split.search.categories import has_category
from dtrees.split.table.columns import value_of_code
from dtrees.split.table.keyed_columns import are_listed, take_listed
from dtrees.split.table.sorting import PLACE, sort_keys
from dtrees.split.zones.gather_rows import pick
from dtrees.split.zones.over_shards.records import add_shard_row, open_value
from dtrees.split.zones.scan import next_code_by_rows


@by_reference
class WalkedTree(NamedTuple):
    """A finished tree, for rows given by their codes.

    Attributes
    ----------
    left, right, column, missing_left, values : ndarray, shape (n_nodes,)
        Arrays of its nodes.
    cuts : ndarray of int64, shape (n_nodes,)
        The highest code that goes left.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    column: NDArray[np.int32]
    missing_left: NDArray[np.bool_]
    values: NDArray[np.float64]
    cuts: NDArray[np.int64]


@by_reference
class SetsOfTree(NamedTuple):
    """The sets of a finished tree, and the categories of rows.

    Attributes
    ----------
    place_of : ndarray of int64, shape (n_columns,)
        Index in ``categories`` of each column of the table.
    categories : ndarray of uint32, shape (k, n_rows)
    set_of : ndarray of int64, shape (n_nodes,)
        The set of each node, -1 if it has none.
    begins, words : ndarray
        As in :class:`~dtrees.tree.category_sets.CategorySets`.
    """

    place_of: NDArray[np.int64]
    categories: NDArray[np.uint32]
    set_of: NDArray[np.int64]
    begins: NDArray[np.int64]
    words: NDArray[np.uint32]


@kernel
def next_codes(queue, nodes, columns, rows, cuts, out):
    """Write the lowest code above a cut among the rows of nodes, or the number of distinct values, by several threads.

    ``nodes``, shape (n, 3), are first and last place and column.
    """
    for k in claimed(queue, nodes.shape[0]):
        start, stop, column = nodes[k]
        n_distinct = columns.offsets[column + 1] - columns.offsets[column]
        out[k] = next_code_by_rows(columns.codes[column], n_distinct, rows, start, stop, cuts[k])


@kernel
def walk_rows(queue, chunks, codes, missing, tree, sets, rows, total):
    """Add to ``total`` the value of each row's leaf in a finished tree, by several threads.

    Parameters
    ----------
    chunks : ndarray of int64, shape (n, 2)
        Ranges of ``rows``.
    codes : ndarray of uint32, shape (n_columns, n_rows)
    missing : ndarray of int64, shape (n_columns,)
        The code of missing values.
    tree : WalkedTree
    sets : SetsOfTree
    """
    begins = sets.begins
    for k in claimed(queue, chunks.shape[0]):
        for i in range(chunks[k, 0], chunks[k, 1]):
            row, node = rows[i], ZERO()
            while tree.left[node] >= 0:
                j, which = tree.column[node], sets.set_of[node]
                code = np.int64(codes[j, row])
                if code == missing[j]:
                    goes_left = tree.missing_left[node]
                elif which >= 0:
                    category = np.int64(sets.categories[sets.place_of[j], row])
                    goes_left = has_category(sets.words, begins[which], begins[which + 1], category)
                else:
                    goes_left = code <= tree.cuts[node]
                node = np.int64(tree.left[node] if goes_left else tree.right[node])
            total[row] += tree.values[node]


@kernel
def add_in_order(x, first_row, n_rows, lanes):
    """Add absolute values of a range of rows to the partial sums of :func:`~dtrees.split.numbers.fixed_point.absolute_sum`."""
    whole = n_rows - n_rows % 4
    for i in range(x.shape[0]):
        row = first_row + i
        lanes[row % 4 if row < whole else 0] += abs(x[i])


@kernel
def pick_rows(queue, wanted, rows, scratch, kept, offsets, out, counts):
    """Write the values of rows in flagged parts, ascending, each with the sums of its rows, by several threads.

    Parameters
    ----------
    wanted : PartTasks
    rows : ShardRows
    kept : StoredRows
        If parts were divided, the rows stored by :func:`~dtrees.split.zones.over_shards.finer_parts.sum_finer`.
    offsets : ndarray of int64, shape (n,)
        Start of the buffer of each task in ``out``.
    out : ValueSums or ValueElements
        Written.
    counts : ndarray of int64, shape (n,)
        Written: the numbers of values.
    """
    columns, zone_map, keys = rows.columns, rows.zone_map, scratch.keys
    for k in claimed(queue, wanted.tasks.shape[0]):
        start, stop, j, shift, cut = wanted.tasks[k]
        column, parts = zone_map.which[j], wanted.parts[wanted.begins[k] : wanted.begins[k + 1]]
        first_codes, n_parts = zone_map.first_codes[j], parts.shape[0]
        if cut > 0:
            n_keys = _take_flagged(parts, kept, k, scratch.flags, keys)
        elif are_listed(rows.lists, column, shift, parts, stop - start):
            n_keys = take_listed(rows.lists, column, shift, parts, start, stop, keys, scratch.numbers)
            _put_codes(keys[:n_keys], columns.codes[column])
        else:
            n_keys = pick_parts((start, stop, j, shift), parts, rows, scratch)
        sort_keys(keys, scratch.spare, n_keys, scratch.counts)
        at, before, p = offsets[k] - 1, NONE(), ZERO()
        for i in range(n_keys):
            code, place = np.int64(keys[i] >> np.uint64(32)), start + np.int64(keys[i] & PLACE)
            if cut == 0:
                # Codes that are equal when shifted are picked together, and may be in several parts.
                while p < n_parts and code >= first_codes[(parts[p] + 1) << shift]:
                    p += 1
                if p == n_parts:
                    break
                if code < first_codes[parts[p] << shift]:
                    continue
            if code != before:
                at += 1
                before = code
                open_value(out, at, value_of_code(columns, column, code))
            add_shard_row(out, at, rows, place)
        counts[k] = at + 1 - offsets[k]


@lean_kernel
def _put_codes(keys, codes):
    """Replace the row in each key by its code."""
    for i in range(keys.shape[0]):
        keys[i] = np.uint64(codes[keys[i] >> np.uint64(32)]) << np.uint64(32) | (keys[i] & PLACE)


@inner_kernel
def _rows_before(part, n_parts, n_rows):
    """Return how many of a node's rows are expected in the parts before one, from the quantiles at the ends of parts."""
    return np.int64(n_rows * np.sin(np.pi * part / (2 * n_parts)) ** 2)


@lean_kernel
def _take_flagged(wanted, kept, task, flags, keys):
    """Copy a task's stored keys in the requested finer parts to ``keys``; return their number."""
    if wanted.shape[0] == 0:
        return ZERO()
    flags[:] = 0
    for part in wanted:
        flags[part] = 1
    at, first = np.uint64(0), kept.offsets[task]
    for i in range(np.uint64(first), np.uint64(first + kept.counts[task])):
        keys[at] = kept.keys[i]
        at += np.uint64(flags[kept.finer[i]])
    return np.int64(at)


@inner_kernel
def pick_parts(task, parts, rows, scratch):
    """Write ``code << 32 | place`` for a node's rows in parts of a column to ``scratch.keys``, with places from 0; return their number.

    Other rows with the same shifted codes may be included. ``task`` is the first four numbers of a task of
    :class:`~dtrees.split.zones.over_shards.records.PartTasks`.
    """
    start, stop, j, shift = task
    zone_map, column = rows.zone_map, rows.zone_map.which[j]
    first_codes, n_distinct = zone_map.first_codes[j], rows.columns.offsets[column + 1] - rows.columns.offsets[column]
    n_parts, m = zone_map.n_zones[j] << zone_map.fold >> shift, ZERO()
    for part in parts:
        first, last = first_codes[part << shift], first_codes[(part + 1) << shift]
        if last > first:
            # The distribution of the node's rows is unknown here: that of all rows is assumed.
            zone = scratch.zones[m]
            zone.n_before = _rows_before(part, n_parts, stop - start)
            zone.n = _rows_before(part + 1, n_parts, stop - start) - zone.n_before
            scratch.numbers[m] = part
            m += 1
    if m == 0 or stop == start:
        return ZERO()
    return pick(
        rows.columns.codes[column], n_distinct, zone_map, j, shift, scratch.numbers[:m], rows.partition.rows[start:stop], scratch.keys,
        scratch,
    )  # fmt: skip
