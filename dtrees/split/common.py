"""One node and one column in which most rows have one value: 0 in a sparse column, the absence of a category, or none.

Only the other rows are listed, sorted and swept. The sums of those of the *common* code are the node's without the others', so that nothing
but their codes is looked at.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.group import MANY, PROBES, common_code, sort_keys
from dtrees.split.kernel import NONE, ZERO, lean_kernel
from dtrees.split.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.sweep import cut_after, cut_after_class, first_above, sum_classes, sum_rows, sweep_classes, sweep_sorted

#: So many of the rows that are looked at have to have the common code.
_MOST = 12
#: At most one row in so many has another code.
_OTHERS = 3


@lean_kernel
def find_common(codes, rows, scratch):
    """Return the code that most of a node's rows seem to have, -1 if none does."""
    n = rows.shape[0]
    if n < MANY:
        return NONE()
    probed = scratch.keys[:PROBES]
    for k in range(PROBES):
        probed[k] = np.uint64(codes[rows[n * k // PROBES]]) << np.uint64(32)
    code, n_equal = common_code(probed, PROBES)
    return np.int64(code) if n_equal >= _MOST else NONE()


@lean_kernel
def list_others(codes, rows, common, keys):
    """Write ``code << 32 | place`` of the rows of a node with other codes, places from 0, and return how many there are.

    Returns -1 if they are too many to be searched this way.
    """
    at, common = np.uint64(0), np.uint64(common)
    for i in range(np.uint64(rows.shape[0])):
        code = np.uint64(codes[rows[i]])
        keys[at] = code << np.uint64(32) | i
        at += np.uint64(code != common)
    return np.int64(at) if np.int64(at) <= rows.shape[0] // _OTHERS else NONE()


@lean_kernel
def search_others(n_distinct, partition, start, mid, common, m, sums, limits, bar, scratch):
    """Find the best split of a node in a column from the ``m`` rows in ``scratch.keys``, which have other codes than the common one.

    Parameters and result are otherwise as of :func:`~dtrees.split.search.search_column`.
    """
    if m == 0:
        return CONSTANT, 0.0, False
    keys = scratch.keys[:m]
    sort_keys(keys, scratch.spare, m, scratch.counts)
    n_present = first_above(keys, ZERO(), m, n_distinct - 1)
    n_lower = first_above(keys, ZERO(), n_present, common)
    has_missing = common == n_distinct or n_present < m
    if limits.n_classes > 0:
        score = _sweep_classes(limits, keys, n_lower, n_present, n_distinct, partition, start, mid, common, sums, bar, scratch)
    else:
        node = sums[0], sums[1], mid - start
        score = _sweep(limits, keys, n_lower, n_present, n_distinct, partition.a, partition.b, start, common, node, bar, scratch.best)
    return SPLIT if score >= 0.0 else NO_SPLIT, score, has_missing


@lean_kernel
def _subtract(one, other):
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


@lean_kernel
def _sweep(limits, keys, n_lower, n_present, n_distinct, a, b, start, common, node, bar, best):
    """Sweep lower codes, then the common one, then higher ones. The best split goes to ``best``, its score is returned."""
    nothing = ZERO(), ZERO(), ZERO()
    if common == n_distinct:
        missing = _subtract(node, sum_rows(keys, ZERO(), n_present, a, b, start))
        return sweep_sorted(limits, keys, ZERO(), n_present, a, b, start, nothing, missing, node, NONE(), bar, best)
    missing = sum_rows(keys, n_present, keys.shape[0], a, b, start)
    left = _subtract(_subtract(node, missing), sum_rows(keys, n_lower, n_present, a, b, start))
    top = bar
    if n_lower > 0:
        top = max(top, sweep_sorted(limits, keys, ZERO(), n_lower, a, b, start, nothing, missing, node, common, top, best))
    following = np.int64(keys[n_lower] >> np.uint64(32)) if n_lower < n_present else NONE()
    top = cut_after(limits, left, missing, node, common, following, top, best)
    if n_lower < n_present:
        top = max(top, sweep_sorted(limits, keys, n_lower, n_present, a, b, start, left, missing, node, NONE(), top, best))
    return top if top > bar else -1.0


@lean_kernel
def _sweep_classes(limits, keys, n_lower, n_present, n_distinct, partition, start, mid, common, node, bar, scratch):
    """Do the same in the class layout."""
    a, b, best = partition.a, partition.b, scratch.best
    left, missing, higher, best_left = scratch.classes[0], scratch.classes[1], scratch.classes[2], scratch.classes[3]
    nothing, n_node = (ZERO(), ZERO()), (node.sum(), mid - start)
    if common == n_distinct:
        weight, n = sum_classes(keys, ZERO(), n_present, a, b, start, higher)
        for k in range(node.shape[0]):
            left[k], missing[k] = 0, node[k] - higher[k]
        n_missing = n_node[0] - weight, n_node[1] - n
        return sweep_classes(
            limits, keys, ZERO(), n_present, a, b, start, left, nothing, missing, n_missing, node, n_node, NONE(), bar, best, best_left
        )
    n_missing = sum_classes(keys, n_present, keys.shape[0], a, b, start, missing)
    weight, n = sum_classes(keys, n_lower, n_present, a, b, start, higher)
    top = bar
    if n_lower > 0:
        left[:] = 0
        score = sweep_classes(
            limits, keys, ZERO(), n_lower, a, b, start, left, nothing, missing, n_missing, node, n_node, common, top, best, best_left
        )
        top = max(top, score)
    for k in range(node.shape[0]):
        left[k] = node[k] - missing[k] - higher[k]
    n_left = n_node[0] - n_missing[0] - weight, n_node[1] - n_missing[1] - n
    following = np.int64(keys[n_lower] >> np.uint64(32)) if n_lower < n_present else NONE()
    top = cut_after_class(limits, left, n_left, missing, n_missing, node, n_node, common, following, top, best, best_left)
    if n_lower < n_present:
        score = sweep_classes(
            limits, keys, n_lower, n_present, a, b, start, left, n_left, missing, n_missing, node, n_node, NONE(), top, best, best_left
        )
        top = max(top, score)
    return top if top > bar else -1.0
