"""Some rows of some columns as a table of their own.

Nothing that a tree can see of the rows is lost: the new table has the same values in the same order, only its codes count those distinct
values that occur in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.split.compile.words import count_bits, lowest_bit
from dtrees.split.table.columns import Columns


def take_rows(columns: Columns, which: NDArray[np.int64], rows: NDArray[np.uint32]) -> Columns:
    """Return the given rows of the columns at the places ``which``.

    Its codes are uint16 where that holds them: such a table is to be sent, or copied, not to be searched.

    Examples
    --------
    >>> from dtrees.split.table.columns import presort
    >>> table = presort([np.array([0.5, np.nan, -1.0, 7.0]), np.array([3.0, 4.0, 3.0, 5.0])])
    >>> some = take_rows(table, np.array([0]), np.array([1, 3, 0, 3], np.uint32))
    >>> some.codes
    array([[2, 1, 0, 1]], dtype=uint16)
    >>> some.values
    array([0.5, 7. ])
    """
    m = rows.shape[0]
    codes = np.empty((which.shape[0], m), np.uint16 if m < 2**16 else np.uint32)
    values: list[NDArray[Any]] = []
    for k, j in enumerate(which.tolist()):
        distinct = columns.distinct(j)
        present = np.zeros((distinct.shape[0] >> 6) + 1, np.uint64)
        found = np.empty(min(m, distinct.shape[0]), np.int64)
        n_found = renumber(columns.codes[j], distinct.shape[0], rows, present, codes[k], found)
        values.append(distinct[found[:n_found]])
    offsets = np.concatenate([[0], np.cumsum([value.shape[0] for value in values])]).astype(np.int64)
    return Columns.of(codes, np.concatenate([columns.values[:0], *values]), offsets)


@kernel
def renumber(codes, n_distinct, rows, present, out, found):
    """Write the rank of each row's code among those of all rows, and the codes that occur, ascending; return how many these are.

    Missing values get the rank after the last. ``present`` has a bit for each code, all zero.
    """
    one, low = np.uint64(1), np.uint64(63)
    for i in range(rows.shape[0]):
        code = np.uint64(codes[rows[i]])
        present[code >> np.uint64(6)] |= one << (code & low)
    before = np.empty(present.shape[0], np.int64)
    n = 0
    for word in range(present.shape[0]):
        before[word] = n
        bits = present[word]
        while bits != np.uint64(0):
            code = 64 * word + np.int64(lowest_bit(bits))
            if code < n_distinct:
                found[n] = code
                n += 1
            bits &= bits - one
    for i in range(rows.shape[0]):
        code = np.uint64(codes[rows[i]])
        at = np.int64(code >> np.uint64(6))
        out[i] = before[at] + count_bits(present[at] & ((one << (code & low)) - one))
    return n
