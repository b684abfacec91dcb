"""Put a node's rows into the order of a column.

There are two methods, chosen by the number of rows m of the node and the number of distinct values d of the column
(:func:`prefers_bins`):

bins
    one bin for each distinct value, filled in one pass over the rows. No sorting; faster if d is not much larger than m.
sorting
    the rows' *keys* are sorted (radix sort): the code of a row's value and the row's place in one 64-bit number, so that the order is by
    value, then by place. Faster for small nodes and columns with many values.

Both are exact: a bin holds a single value.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import ZERO, inlined_kernel, kernel, lean_kernel, separate_kernel
from dtrees.split.criteria.statistics import Moments
from dtrees.split.policy import EQUAL_PROBES, INSERTION_ROWS, MOST_BINS, PROBED_ROWS, PROBES

#: The bits of a key for the place; the code is in the upper half.
PLACE = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
#: The code of a missing value if the number of a column's values is unknown. No column has so many values.
MISSING = np.uint32(0xFFFFFFFF)


@inlined_kernel
def key_of(code, place):
    """Return the key of a code and a place."""
    return np.uint64(code) << _HALF | np.uint64(place)


@inlined_kernel
def code_in(key):
    """Return the code of a key, unsigned."""
    return key >> _HALF


@inlined_kernel
def code_of(key):
    """Return the code of a key, signed."""
    return np.int64(key >> _HALF)


@inlined_kernel
def place_in(key):
    """Return the place of a key, unsigned, which is faster for indexing."""
    return key & PLACE


@inlined_kernel
def first_key(code):
    """Return the lowest key of a code."""
    return np.uint64(code) << _HALF


@lean_kernel
def lower_bound(numbers, low, high, bound):
    """Return the first index in ``low:high`` whose number, of ascending ones, is at least a bound; ``high`` if there is none."""
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


#: Values of a digit of the radix sort.
RADIX = 1 << 11


#: A bin: the sums of a and b of a node's rows with one value, their number, and the value's code.
BIN = np.dtype([("g", np.int64), ("h", np.int64), ("n", np.uint32), ("code", np.uint32)], align=True)


@kernel
def prefers_bins(n_rows, n_distinct):
    """Return whether filling bins is faster than sorting.

    A pass over a bin takes about a quarter of the time of sorting a row; the number of bins is limited.
    """
    return n_distinct <= min(4 * n_rows, MOST_BINS)


@kernel
def fill_bins(codes, n_distinct, partition, start, in_stop, bins):
    """Sum a node's in-sample rows by their code, through one bin for each distinct value.

    Parameters
    ----------
    codes : ndarray of uint32, shape (n_rows,)
        The column.
    bins : ndarray of BIN
        Buffer for ``n_distinct + 1`` bins.

    Returns
    -------
    n_bins : int
        Number of codes present, except missing values; their sums are in the first elements of ``bins``, ascending.
    missing : Moments
        Moments of the rows with missing values.
    """
    rows, a, b = partition.rows, partition.g, partition.h
    for code in range(n_distinct + 1):
        bins[code].g = 0
        bins[code].h = 0
        bins[code].n = 0
    if b.shape[0] > 0:
        for i in range(start, in_stop):
            one = bins[codes[rows[i]]]
            one.g += a[i]
            one.h += b[i]
            one.n += 1
    else:
        for i in range(start, in_stop):
            one = bins[codes[rows[i]]]
            one.g += a[i]
            one.n += 1
        for code in range(n_distinct + 1):
            bins[code].h = bins[code].n
    missing = Moments(bins[n_distinct].g, bins[n_distinct].h, np.int64(bins[n_distinct].n))
    m = 0
    for code in range(n_distinct):
        if bins[code].n > 0:
            bins[m].g = bins[code].g
            bins[m].h = bins[code].h
            bins[m].n = bins[code].n
            bins[m].code = code
            m += 1
    return m, missing


@lean_kernel
def sort_places(codes, rows, start, in_stop, keys, spare, counts):
    """Write the sorted keys of a node's in-sample rows, places from 0, to the first ``in_stop - start`` of ``keys`` (uint64)."""
    m = in_stop - start
    rows = rows[start:in_stop]
    low, high = np.uint64(0xFFFFFFFF), np.uint64(0)
    for i in range(m):
        code = np.uint64(codes[rows[i]])
        low, high = min(low, code), max(high, code)
        keys[i] = key_of(code, i)
    if m <= INSERTION_ROWS:
        _insertion_sort(keys, m)
    else:
        radix_sort(keys, spare, m, low, high, counts)


@kernel
def sort_keys(keys, spare, m, counts):
    """Sort ``keys[:m]`` by code. Places must ascend. ``counts`` is scratch space, int64 of shape (RADIX,)."""
    if m <= INSERTION_ROWS:
        _insertion_sort(keys, m)
        return
    low = keys[0]
    high = keys[0]
    for i in range(1, m):
        low = min(low, keys[i])
        high = max(high, keys[i])
    radix_sort(keys, spare, m, code_in(low), code_in(high), counts)


@lean_kernel
def _insertion_sort(keys, m):
    for i in range(1, m):
        key = keys[i]
        j = i - 1
        while j >= 0 and keys[j] > key:
            keys[j + 1] = keys[j]
            j -= 1
        keys[j + 1] = key


@separate_kernel
def radix_sort(keys, spare, m, low, high, counts):
    """Sort by the codes, which lie in low..high; stable, so places stay ascending among equal codes.

    If most keys have the same code, such as that of 0 in a sparse column, these are in order already, and only the others are sorted:
    counting equal codes is slow, as each increment waits for the one before.
    """
    common, n_equal = common_code(keys, m) if m >= PROBED_ROWS else (np.uint64(0), ZERO())
    if n_equal < EQUAL_PROBES:
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
    """Return the code of the majority of PROBES keys, if there is one, and the number of probes with it."""
    code, votes, n_equal = np.uint64(0), ZERO(), ZERO()
    for k in range(PROBES):  # Boyer and Moore: the majority outlasts all others together
        mine = code_in(keys[m * k // PROBES])
        if votes == 0:
            code = mine
        votes += 1 if mine == code else -1
    for k in range(PROBES):
        n_equal += code_in(keys[m * k // PROBES]) == code
    return code, n_equal


@lean_kernel
def _part(keys, spare, m, code):
    """Move keys of lower codes to the front, those of higher ones to ``spare``, and those of this code to its end, in reverse.

    Returns the numbers of lower and higher ones. Each key is written to all possible places, which are free, and then one write is kept.
    """
    lower, higher = np.uint64(0), np.uint64(0)
    for i in range(m):
        key = keys[i]
        mine = code_in(key)
        keys[lower] = key
        spare[higher] = key
        spare[m - np.uint64(1) - (i - lower - higher)] = key
        lower += np.uint64(mine < code)
        higher += np.uint64(mine > code)
    return np.int64(lower), np.int64(higher)


@lean_kernel
def _sort_by_digits(keys, spare, m, low, high, counts):
    """Sort by one pass over all keys for each digit of the codes."""
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
            counts[((code_in(source[i]) - low) >> shift) & mask] += 1
        total = 0
        for k in range(size):
            count = counts[k]
            counts[k] = total
            total += count
        for i in range(m):
            key = source[i]
            k = ((code_in(key) - low) >> shift) & mask
            sink[np.uint64(counts[k])] = key  # an unsigned index spares Numba's check of its sign
            counts[k] += 1
        source, sink = sink, source
    if passes & 1:
        for i in range(m):
            keys[i] = spare[i]
