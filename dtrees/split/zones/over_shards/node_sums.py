"""Sums of nodes by zones and parts, as shards compute and send them, and as the searcher adds them.

For statistics other than moments, the sums of a zone, a part or a value are an *element*, whose numbers lie side by side:

of classes
    The weight of each class; for several targets, of each class of each target. If rows have weights, the number of rows follows.
of several numeric targets
    The sum of the amounts of each target, the weight of the rows, and their number. For zones and parts there follow sums of the sizes
    of amounts, ``(abs(amount) >> shift) + 1`` for each row and target, which give an upper bound of the sum of absolute amounts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dtrees.split.compile.kernels import ZERO, kernel, lean_kernel
from dtrees.split.compile.memory import prefetch_row
from dtrees.split.compile.specialised import specialised
from dtrees.split.compile.work_queue import claimed
from dtrees.split.criteria.statistics import AmountsOfTargets, Classes, ClassesOfTargets, n_first_classes, nothing, with_sums
from dtrees.split.numbers.packed import BLOCK, add_bytes, pack_bytes
from dtrees.split.policy import AHEAD
from dtrees.split.zones.sums import include_columns, numbers_of


@kernel
def sum_nodes(queue, tasks, zone_map, partition, sums):
    """Sum nodes into slots, by several threads.

    ``tasks``, shape (n, 6), are first and last place, slot, first and last column, and whether these places are the first for the slot;
    if not, they are added to it.
    """
    for k in claimed(queue, tasks.shape[0]):
        start, stop, slot, first, last, begins = tasks[k]
        if begins:
            numbers_of(sums, slot, first, last)[:] = 0
        include_columns(zone_map, partition, start, stop, first, last, sums, slot, ZERO() + 1)


@kernel
def sum_many(queue, tasks, zone_map, partition, sums, targets, n_classes):
    """Sum nodes into slots by class, or by target, by several threads.

    Parameters
    ----------
    tasks : ndarray of int64, shape (n, 6)
        As in :func:`~dtrees.split.zones.over_shards.node_sums.sum_nodes`.
    targets : ndarray of int64, shape (n_rows, n_targets)
        For several targets, the amounts of rows, or their classes in a common numbering; for one target, shape (0, 0).
    n_classes : int
        Over all targets; 0 for amounts.
    """
    for k in claimed(queue, tasks.shape[0]):
        start, stop, slot, first, last, begins = tasks[k]
        if begins:
            numbers_of(sums, slot, first, last)[:] = 0
        grain = sums.grains[slot]
        task, to = (start, stop, first, last), (sums.starts[grain], sums.shifts[grain], sums.slots[slot], sums.width)
        if targets.shape[1] == 0:
            _add_classes(zone_map.part, partition, task, to, n_classes)
        elif n_classes > 0:
            _add_classes_of_targets(zone_map.part, partition, task, to, targets, n_classes)
        else:
            _add_amounts(zone_map.part, partition, task, to, targets, sums.scales[slot].shift)


@lean_kernel
def _add_classes(parts, partition, task, to, n_classes):
    """Add rows to the sums of some columns; ``to`` has the starts of parts, their shifts, the sums, and the width of elements."""
    rows, a, b = partition.rows, partition.g, partition.h
    (start, stop, first, last), (starts, shifts, sums, width) = task, to
    weighted, one, width, counts = b.shape[0] > 0, np.int64(1), np.uint64(width), np.uint64(n_classes)
    for i in range(start, stop):
        prefetch_row(parts, np.int64(rows[min(i + AHEAD, stop - 1)]))
        own, own_class, weight = parts[np.uint64(rows[i])], np.uint64(a[i]), b[i] if weighted else one
        for j in range(np.uint64(first), np.uint64(last)):
            at = np.uint64(starts[j]) + (np.uint64(own[j]) >> shifts[j]) * width
            sums[at + own_class] += weight
            if weighted:
                sums[at + counts] += one


@lean_kernel
def _add_classes_of_targets(parts, partition, task, to, targets, n_classes):
    rows, b = partition.rows, partition.h
    (start, stop, first, last), (starts, shifts, sums, width) = task, to
    weighted, one, width, counts = b.shape[0] > 0, np.int64(1), np.uint64(width), np.uint64(n_classes)
    for i in range(start, stop):
        prefetch_row(parts, np.int64(rows[min(i + AHEAD, stop - 1)]))
        own, classes, weight = parts[np.uint64(rows[i])], targets[np.uint64(rows[i])], b[i] if weighted else one
        for j in range(np.uint64(first), np.uint64(last)):
            at = np.uint64(starts[j]) + (np.uint64(own[j]) >> shifts[j]) * width
            for t in range(classes.shape[0]):
                sums[at + np.uint64(classes[t])] += weight
            if weighted:
                sums[at + counts] += one


@lean_kernel
def _add_amounts(parts, partition, task, to, targets, size_shift):
    rows, b = partition.rows, partition.h
    (start, stop, first, last), (starts, shifts, sums, width) = task, to
    weighted, one, width, n_targets = b.shape[0] > 0, np.int64(1), np.uint64(width), np.uint64(targets.shape[1])
    for i in range(start, stop):
        prefetch_row(parts, np.int64(rows[min(i + AHEAD, stop - 1)]))
        own, amounts, weight = parts[np.uint64(rows[i])], targets[np.uint64(rows[i])], b[i] if weighted else one
        for j in range(np.uint64(first), np.uint64(last)):
            at = np.uint64(starts[j]) + (np.uint64(own[j]) >> shifts[j]) * width
            sizes = at + n_targets + np.uint64(2)
            for t in range(n_targets):
                sums[at + t] += amounts[t]
                sums[sizes + t] += (abs(amounts[t]) >> size_shift) + one
            sums[at + n_targets] += weight
            sums[at + n_targets + np.uint64(1)] += one


@lean_kernel
def add_row(element, a, weight, weighted, targets, n_classes):
    """Add a row to an element of a value; ``a`` is its class, or, for several targets, its number; ``targets`` are as above."""
    n_targets = targets.shape[1]
    if n_targets == 0:
        element[a] += weight
    elif n_classes > 0:
        for t in range(n_targets):
            element[targets[a, t]] += weight
    else:
        for t in range(n_targets):
            element[t] += targets[a, t]
        element[n_targets] += weight
        element[n_targets + 1] += 1
        return
    if weighted:
        element[n_classes] += 1


@lean_kernel
def _weight_and_rows(statistic, element):
    """Return the weight and the number of rows of an element of classes; the number follows the classes if rows have weights."""
    weight, n_classes = ZERO(), statistic.sums.shape[0]
    for k in range(n_first_classes(statistic)):
        weight += element[k]
    return weight, element[n_classes] if element.shape[0] > n_classes else weight


@specialised
def rows_of_element(statistic: Any, element: Any) -> Any:
    """Return the number of rows of an element, for the kind of the statistic."""


@rows_of_element.of(Classes, ClassesOfTargets)
def _(statistic, element):
    return _weight_and_rows(statistic, element)[1]


@rows_of_element.of(AmountsOfTargets)
def _(statistic, element):
    return element[statistic.sums.shape[0] + 1]


@specialised
def plus_element(statistic: Any, element: Any) -> Any:
    """Return a statistic plus the rows of an element; its sums are changed in place."""


@plus_element.of(Classes, ClassesOfTargets)
def _(statistic, element):
    _add_to(statistic.sums, element)
    weight, n = _weight_and_rows(statistic, element)
    return with_sums(statistic, statistic.sums, statistic.h + weight, statistic.n + n)


@plus_element.of(AmountsOfTargets)
def _(statistic, element):
    n_targets = statistic.sums.shape[0]
    _add_to(statistic.sums, element)
    return with_sums(statistic, statistic.sums, statistic.h + element[n_targets], statistic.n + element[n_targets + 1])


@lean_kernel
def _add_to(sums, element):
    for k in range(sums.shape[0]):
        sums[k] += element[k]


@lean_kernel
def statistic_of(node, element, buffer):
    """Return the statistic of an element, of the same kind as a node's; sums are written to ``buffer``."""
    return plus_element(nothing(node, buffer), element)


@kernel
def pack_sums(queue, tasks, sums, columns, kept, out, ends):
    """Pack the sums of nodes in the columns of other searchers, and copy those in a shard's own columns, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 6)
        First and last slot; range of ``columns``; start in ``out``, -1 to copy; index in ``kept``, or in ``ends``.
    sums : Sums
    columns : ndarray of int64
        Indices among the columns of the slots.
    kept : ndarray of int64
        Written: copies, slot by slot.
    out : ndarray of uint8
        Written: packed sums, with a buffer for each task.
    ends : ndarray of int64
        Written: the end of each slot in ``out``.
    """
    block = np.empty((sums.width, BLOCK + 1), np.int64)
    for t in claimed(queue, tasks.shape[0]):
        first, last, first_column, last_column, at, place = tasks[t]
        for slot in range(first, last):
            for j in columns[first_column:last_column]:
                numbers = numbers_of(sums, slot, j, j + 1)
                if at < 0:
                    kept[place : place + numbers.shape[0]] = numbers
                    place += numbers.shape[0]
                else:
                    at = pack_bytes(numbers, sums.width, out, at, block)
            if at >= 0:
                ends[place + slot - first] = at


@kernel
def pack_numbers(numbers, width, out, at):
    """Pack numbers into ``out`` from index ``at`` on; return their end."""
    return pack_bytes(numbers, width, out, at, np.empty((width, BLOCK + 1), np.int64))


@kernel
def add_packed(queue, tasks, packed, width, numbers, out, failed):
    """Add packed sums to others, by several threads.

    Parameters
    ----------
    tasks : ndarray of int64, shape (n, 4)
        Start in ``packed``, start of the numbers in ``numbers`` that they are added to, start in ``out``, and how many numbers they are.
    packed : ndarray of uint8
    width : int
    numbers, out : ndarray of int64
        May be the same array.
    failed : ndarray of int64, shape (1,)
        Set to 1 if a count does not agree.
    """
    for t in claimed(queue, tasks.shape[0]):
        at, first, place, n = tasks[t]
        if not add_bytes(packed, at, width, numbers[first : first + n], out[place : place + n]):
            failed[0] = 1


@kernel
def add_numbers(queue, tasks, numbers, out, adds):
    """Write unpacked numbers to ``out``, or add them, by several threads; ``tasks`` are those of :func:`add_packed`."""
    for t in claimed(queue, tasks.shape[0]):
        _, first, place, n = tasks[t]
        if adds:
            for i in range(n):
                out[place + i] += numbers[first + i]
        else:
            out[place : place + n] = numbers[first : first + n]
