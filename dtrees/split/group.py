"""One node and one column: bring the node's rows into the column's order.

Two ways, chosen by the number of rows m of the node and the number of distinct values d of the column (:func:`prefers_bins`):

bins
    one bin for each distinct value, filled in one pass over the rows. No sorting; right where d is not much larger than m.
sorting
    the rows' codes are sorted (radix sort of code and place packed into 64 bits). Right for small nodes of columns with many values.

Neither approximates: a bin holds a single value.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.kernel import ZERO, kernel, lean_kernel

_INSERTION = 24
#: Of so many rows, or more, a few are looked at, evenly spaced, to find a code that most of them have.
MANY, PROBES = 512, 16
#: Where so many of the few have one code, keys of that are not sorted.
_EQUAL = 8
#: Values of a digit of the radix sort.
RADIX = 1 << 11


#: Sums of a node's rows with one value: the value's code, sums a and b, number of rows.
GROUP = np.dtype([("a", np.int64), ("b", np.int64), ("n", np.uint32), ("code", np.uint32)], align=True)


@kernel
def prefers_bins(n_rows, n_distinct):
    """Tell whether filling bins is cheaper than sorting.

    A pass over the bins costs about a quarter of handling a row by sorting.
    """
    return n_distinct <= 4 * n_rows


@kernel
def group_by_bins(codes, n_distinct, partition, start, mid, groups):
    """Sum a node's in-sample rows by their code, through one bin for each distinct value.

    Parameters
    ----------
    codes : ndarray of uint32, shape (n_rows,)
        The column.
    groups : ndarray of GROUP
        Room for ``n_distinct + 1``.

    Returns
    -------
    n_groups : int
        The sums of the codes present are in the first elements of ``groups``, ascending; missing ones are not among them.
    g, h, n : int
        Sums and count of the rows where the value is missing.
    """
    rows, a, b = partition.rows, partition.a, partition.b
    for code in range(n_distinct + 1):
        groups[code].a = 0
        groups[code].b = 0
        groups[code].n = 0
    if b.shape[0] > 0:
        for i in range(start, mid):
            bin = groups[codes[rows[i]]]
            bin.a += a[i]
            bin.b += b[i]
            bin.n += 1
    else:
        for i in range(start, mid):
            bin = groups[codes[rows[i]]]
            bin.a += a[i]
            bin.n += 1
        for code in range(n_distinct + 1):
            groups[code].b = groups[code].n
    missing = groups[n_distinct]
    g, h, n = missing.a, missing.b, np.int64(missing.n)
    m = 0
    for code in range(n_distinct):
        if groups[code].n > 0:
            groups[m].a = groups[code].a
            groups[m].b = groups[code].b
            groups[m].n = groups[code].n
            groups[m].code = code
            m += 1
    return m, g, h, n


@lean_kernel
def sort_places(codes, rows, start, mid, keys, spare, counts):
    """Write ``code << 32 | place - start`` of a node's in-sample rows, ascending, to the first ``mid - start`` of ``keys`` (uint64)."""
    m = mid - start
    rows = rows[start:mid]
    low, high = np.uint64(0xFFFFFFFF), np.uint64(0)
    for i in range(m):
        code = np.uint64(codes[rows[i]])
        low, high = min(low, code), max(high, code)
        keys[i] = code << np.uint64(32) | np.uint64(i)
    if m <= _INSERTION:
        _insertion_sort(keys, m)
    else:
        radix_sort(keys, spare, m, low, high, counts)


@kernel
def sort_keys(keys, spare, m, counts):
    """Sort ``keys[:m]`` by code. Places must ascend. ``counts`` is scratch space, int64 of shape (RADIX,)."""
    if m <= _INSERTION:
        _insertion_sort(keys, m)
        return
    low = keys[0]
    high = keys[0]
    for i in range(1, m):
        low = min(low, keys[i])
        high = max(high, keys[i])
    radix_sort(keys, spare, m, low >> np.uint64(32), high >> np.uint64(32), counts)


@lean_kernel
def _insertion_sort(keys, m):
    for i in range(1, m):
        key = keys[i]
        j = i - 1
        while j >= 0 and keys[j] > key:
            keys[j + 1] = keys[j]
            j -= 1
        keys[j + 1] = key


@lean_kernel
def radix_sort(keys, spare, m, low, high, counts):
    """Sort by the codes, known to lie in low..high; stable, so places stay ascending among equal codes.

    Keys of a code that most have, such as that of 0 in a sparse column, are in order among themselves: only the others are sorted. To count
    them, each would wait for the one before.
    """
    common, n_equal = common_code(keys, m) if m >= MANY else (np.uint64(0), ZERO())
    if n_equal < _EQUAL:
        _sort_by_digits(keys, spare, m, low, high, counts)
        return
    n_lower, n_higher = _part(keys, spare, np.uint64(m), common)
    if n_lower > 0:
        _sort_by_digits(keys, spare[n_higher:], n_lower, low, common - np.uint64(1), counts)
    last = np.uint64(m - 1)
    at = np.uint64(n_lower)
    for i in range(last + np.uint64(1) - at - np.uint64(n_higher)):
        keys[at + i] = spare[last - i]
    rest = keys[m - n_higher :]
    for i in range(n_higher):
        rest[i] = spare[i]
    if n_higher > 0:
        _sort_by_digits(rest, spare, n_higher, common + np.uint64(1), high, counts)


@lean_kernel
def common_code(keys, m):
    """Return the code that most of PROBES keys have, if one does, and how many of these."""
    code, votes, n_equal = np.uint64(0), ZERO(), ZERO()
    for k in range(PROBES):  # Boyer and Moore: who has the majority outlasts all others together
        mine = keys[m * k // PROBES] >> np.uint64(32)
        if votes == 0:
            code = mine
        votes += 1 if mine == code else -1
    for k in range(PROBES):
        n_equal += (keys[m * k // PROBES] >> np.uint64(32)) == code
    return code, n_equal


@lean_kernel
def _part(keys, spare, m, code):
    """Move keys of lower codes to the front, those of higher ones to ``spare``, and those of this code to its end, in reverse.

    Returns how many have lower and higher ones. A key is written to each place that it might belong to, which is free, and then one is
    taken.
    """
    lower, higher = np.uint64(0), np.uint64(0)
    for i in range(m):
        key = keys[i]
        mine = key >> np.uint64(32)
        keys[lower] = key
        spare[higher] = key
        spare[m - np.uint64(1) - (i - lower - higher)] = key
        lower += np.uint64(mine < code)
        higher += np.uint64(mine > code)
    return np.int64(lower), np.int64(higher)


@lean_kernel
def _sort_by_digits(keys, spare, m, low, high, counts):
    """Do it by a pass over all keys for each digit of the codes."""
    bits = 0
    span = high - low
    while span > 0:
        bits += 1
        span >>= np.uint64(1)
    widest = 8 if m < 1024 else 11
    passes = (bits + widest - 1) // widest
    if passes == 0:
        return
    digit = (bits + passes - 1) // passes
    size = 1 << digit
    mask = np.uint64(size - 1)
    source, sink = keys, spare
    for p in range(passes):
        shift = np.uint64(p * digit)
        counts[:size] = 0
        for i in range(m):
            counts[(((source[i] >> np.uint64(32)) - low) >> shift) & mask] += 1
        total = 0
        for k in range(size):
            count = counts[k]
            counts[k] = total
            total += count
        for i in range(m):
            key = source[i]
            k = (((key >> np.uint64(32)) - low) >> shift) & mask
            sink[np.uint64(counts[k])] = key  # unsigned: Numba looks at the sign of an index each time
            counts[k] += 1
        source, sink = sink, source
    if passes & 1:
        for i in range(m):
            keys[i] = spare[i]
