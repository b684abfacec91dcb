"""One node and one column: bring the node's rows into the column's order.

Two ways, chosen by the number of rows m of the node and the number of distinct values d of the column (:func:`prefers_bins`):

bins
    one bin for each distinct value, filled in one pass over the rows. No sorting; right where d is not much larger than m.
sorting
    the rows' codes are sorted (radix sort of code and place packed into 64 bits). Right for small nodes of columns with many values.

Neither approximates: a bin holds a single value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

_INSERTION = 24


class Groups(NamedTuple):
    """Sums of a node's rows by distinct value: code, sums a and b, and number of rows of each."""

    codes: NDArray[np.uint32]
    a: NDArray[np.int64]
    b: NDArray[np.int64]
    n: NDArray[np.int64]


@njit(nogil=True, cache=True, inline="always")
def prefers_bins(n_rows, n_distinct):
    """Tell whether filling bins is cheaper than sorting.

    A pass over the bins costs about a quarter of handling a row by sorting.
    """
    return n_distinct <= 4 * n_rows


@njit(nogil=True, cache=True)
def group_by_bins(codes, n_distinct, partition, start, mid, groups):
    """Sum a node's in-sample rows by their code, through one bin for each distinct value.

    Parameters
    ----------
    codes : ndarray of uint32, shape (n_rows,)
        The column.
    groups : Groups
        Room for ``n_distinct + 1``.

    Returns
    -------
    n_groups : int
        The sums of the codes present are in the first elements of ``groups``, ascending; missing ones are not among them.
    g, h, n : int
        Sums and count of the rows where the value is missing.
    """
    rows, a, b = partition.rows, partition.a, partition.b
    bin_a, bin_b, bin_n = groups.a, groups.b, groups.n
    bin_a[: n_distinct + 1] = 0
    bin_n[: n_distinct + 1] = 0
    if b.shape[0] > 0:
        bin_b[: n_distinct + 1] = 0
        for i in range(start, mid):
            code = codes[rows[i]]
            bin_a[code] += a[i]
            bin_b[code] += b[i]
            bin_n[code] += 1
        h = bin_b[n_distinct]
    else:
        for i in range(start, mid):
            code = codes[rows[i]]
            bin_a[code] += a[i]
            bin_n[code] += 1
        h = bin_n[n_distinct]
        bin_b[:n_distinct] = bin_n[:n_distinct]
    g, n = bin_a[n_distinct], bin_n[n_distinct]
    m = 0
    for code in range(n_distinct):
        if bin_n[code] > 0:
            groups.codes[m] = code
            bin_a[m] = bin_a[code]
            bin_b[m] = bin_b[code]
            bin_n[m] = bin_n[code]
            m += 1
    return m, g, h, n


@njit(nogil=True, cache=True)
def group_by_sorting(codes, n_distinct, partition, start, mid, groups, keys, spare):
    """Do the same as :func:`group_by_bins` by sorting; ``groups``, ``keys`` and ``spare`` need room for the node's rows."""
    a, b = partition.a, partition.b
    weighted = b.shape[0] > 0
    keys = sorted_places(codes, partition.rows, start, mid, keys, spare)
    n_groups = -1
    last = np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(mid - start):
        code = keys[i] >> np.uint64(32)
        place = start + np.int64(keys[i] & np.uint64(0xFFFFFFFF))
        if code != last:
            n_groups += 1
            last = code
            groups.codes[n_groups] = code
            groups.a[n_groups] = 0
            groups.b[n_groups] = 0
            groups.n[n_groups] = 0
        groups.a[n_groups] += a[place]
        groups.b[n_groups] += b[place] if weighted else 1
        groups.n[n_groups] += 1
    if last == np.uint64(n_distinct):
        return n_groups, groups.a[n_groups], groups.b[n_groups], groups.n[n_groups]
    return n_groups + 1, 0, 0, 0


@njit(nogil=True, cache=True)
def sorted_places(codes, rows, start, mid, keys, spare):
    """Sort a node's in-sample rows by code.

    Returns the array (``keys`` or ``spare``, uint64) whose first ``mid - start`` elements are ``code << 32 | place - start``, ascending.
    """
    m = mid - start
    low = np.uint64(0xFFFFFFFF)
    high = np.uint64(0)
    for i in range(m):
        code = np.uint64(codes[rows[start + i]])
        keys[i] = code << np.uint64(32) | np.uint64(i)
        low = min(low, code)
        high = max(high, code)
    if m <= _INSERTION:
        _insertion_sort(keys, m)
        return keys
    return _radix_sort(keys, spare, m, low, high)


@njit(nogil=True, cache=True)
def _insertion_sort(keys, m):
    for i in range(1, m):
        key = keys[i]
        j = i - 1
        while j >= 0 and keys[j] > key:
            keys[j + 1] = keys[j]
            j -= 1
        keys[j + 1] = key


@njit(nogil=True, cache=True)
def _radix_sort(keys, spare, m, low, high):
    """Sort by the codes, known to lie in low..high; stable, so places stay ascending among equal codes."""
    bits = 0
    span = high - low
    while span > 0:
        bits += 1
        span >>= np.uint64(1)
    widest = 8 if m < 1024 else 11
    passes = (bits + widest - 1) // widest
    if passes == 0:
        return keys
    digit = (bits + passes - 1) // passes
    mask = np.uint64((1 << digit) - 1)
    counts = np.empty(1 << digit, np.int64)
    for p in range(passes):
        shift = np.uint64(p * digit)
        counts[:] = 0
        for i in range(m):
            counts[(((keys[i] >> np.uint64(32)) - low) >> shift) & mask] += 1
        total = 0
        for k in range(counts.shape[0]):
            count = counts[k]
            counts[k] = total
            total += count
        for i in range(m):
            key = keys[i]
            k = (((key >> np.uint64(32)) - low) >> shift) & mask
            spare[counts[k]] = key
            counts[k] += 1
        keys, spare = spare, keys
    return keys
