"""A table as codes, the form that every scan reads.

Terms
-----
distinct values
    the values of a column, ascending, without missing values.
code
    the index of a row's value among its column's distinct values; a missing value has the code after the last one.

Codes have everything that a decision tree uses of a column: a split between two neighbouring values is a split between two codes, so
kernels compare integers instead of floats, and columns with few distinct values are summed value by value without sorting. The distinct
values are only needed to turn a chosen split into a threshold. Columns are immutable once finished, and shared by all trees and threads.

Some rows can be taken as a table (:func:`take_rows`, :func:`take_table`), with all that a tree uses of them.

Use
---
>>> import numpy as np
>>> columns = presort([np.array([0.5, np.nan, -1.0, 0.5])])
>>> columns.codes
array([[1, 2, 0, 1]], dtype=uint32)
>>> columns.values
array([-1. ,  0.5])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import inner_kernel, kernel, lean_kernel
from dtrees.split.compile.memory import count_bits, lowest_bit, read_float64
from dtrees.split.numbers.ordered import float32_of_key, key_of_float32, rounded_down
from dtrees.split.table.mmap_arrays import Allocate, Reused, forget, is_on_disk, mapped
from dtrees.split.table.sorting import RADIX, radix_sort, sort_keys

#: Rows are numbered by uint32; the highest numbers are reserved.
MAX_ROWS = 2**32 - 2**16


def as_words(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return float32 or float64 as words: shape (n, 1) or (n, 2)."""
    return values.view(np.float32).reshape(values.shape[0], values.dtype.itemsize // 4)


@by_reference
class Columns(NamedTuple):
    """Presorted columns of the same rows.

    Attributes
    ----------
    codes : ndarray of uint32, shape (n_columns, n_rows)
        Index of each row's value among the distinct values of its column; their number if the value is missing.
    words : ndarray of float32, shape (n_distinct, 1 or 2)
        The distinct values of all columns, one column after the other, each ascending: float32, or the two halves of float64. Both have
        the same array type, so that the kernels of a first fit are compiled once (:func:`value_at`).
    offsets : ndarray of int64, shape (n_columns + 1,)
        Column ``j`` has the distinct values ``values[offsets[j]:offsets[j + 1]]``.
    """

    codes: NDArray[np.uint32]
    words: NDArray[np.float32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, codes: NDArray[np.uint32], values: NDArray[Any], offsets: NDArray[np.int64]) -> Columns:
        """Return columns whose distinct values are an array of float32 or float64, shape (n_distinct,)."""
        return cls(codes, as_words(values), offsets)

    @property
    def values(self) -> NDArray[Any]:
        """The distinct values of all columns, float32 or float64, shape (n_distinct,)."""
        return self.words.view(np.float32 if self.words.shape[1] == 1 else np.float64)[:, 0]

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.codes.shape[0])

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.codes.shape[1])

    def distinct(self, column: int) -> NDArray[Any]:
        """Return the distinct values of a column, ascending; not for keyed columns."""
        return self.values[self.offsets[column] : self.offsets[column + 1]]

    @property
    def is_keyed(self) -> bool:
        """Whether codes are keys (:mod:`dtrees.split.table.keyed_columns`), and distinct values unknown."""
        return int(self.offsets[-1]) != int(self.words.shape[0])

    def missing(self, column: int) -> int:
        """Return the code of missing values of a column."""
        return int(self.offsets[column + 1] - self.offsets[column])

    def values_of(self, column: int | NDArray[np.int64], codes: NDArray[Any]) -> NDArray[np.float64]:
        """Return the values of codes, NaN for missing ones; ``column`` may be an array with the column of each code.

        Examples
        --------
        >>> presort([np.array([0.5, np.nan, -1.0])]).values_of(0, np.array([0, 2, 1]))
        array([-1. ,  nan,  0.5])
        """
        codes = codes.astype(np.int64)
        values = np.full(codes.shape, np.nan)
        present = codes < self.offsets[np.add(column, 1)] - self.offsets[column]
        if self.is_keyed:
            keys = (np.broadcast_to(self._lowest_keys()[column], codes.shape)[present] + codes[present]).astype(np.uint32)
            values[present] = float32_of_key(keys)
        else:
            values[present] = self.values[np.broadcast_to(self.offsets[column], codes.shape)[present] + codes[present]]
        return values

    def codes_up_to(self, column: int | NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the highest code up to each value, -1 if there is none; ``column`` may be an array. Values are not NaN.

        Examples
        --------
        >>> presort([np.array([0.5, np.nan, -1.0])]).codes_up_to(0, np.array([-2.0, 0.0, 0.5, np.inf]))
        array([-1,  0,  1,  1])
        """
        if self.is_keyed:
            n_codes = self.offsets[np.add(column, 1)] - self.offsets[column]
            return np.clip(key_of_float32(rounded_down(values)) - self._lowest_keys()[column], -1, n_codes - 1)
        if isinstance(column, int):
            distinct = self.distinct(column)
            return np.searchsorted(distinct, rounded_down(values, distinct.dtype), side="right") - 1
        codes = np.empty(values.shape, np.int64)
        for one in np.unique(column).tolist():
            codes[column == one] = self.codes_up_to(one, values[column == one])
        return codes

    def _lowest_keys(self) -> NDArray[np.int64]:
        return key_of_float32(self.words[: self.n_columns, 0])


#: Buffers for sorting columns: keys, spare keys, and counts; see :func:`~dtrees.split.table.sorting.radix_sort`.
Bench = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]


def make_bench(n_rows: int) -> Bench:
    """Return buffers for sorting columns of ``n_rows`` rows, one after the other."""
    return mapped(n_rows, np.uint64), mapped(n_rows, np.uint64), np.empty(RADIX, np.int64)


def presort_column(
    values: NDArray[Any], codes: NDArray[np.uint32] | None = None, bench: Bench | None = None
) -> tuple[NDArray[np.uint32], NDArray[Any]]:
    """Sort one column.

    Parameters
    ----------
    values : ndarray, shape (n_rows,)
        Booleans, integers within ±2**53, float32 or float64; NaN is missing.
    codes : ndarray of uint32, shape (n_rows,), optional
        Buffer for the codes.
    bench : Bench, optional
        Buffers for columns of this many rows.

    Returns
    -------
    codes : ndarray of uint32, shape (n_rows,)
    distinct : ndarray of float32 or float64, shape (n_distinct,)
        float32 if that holds every value of the column's dtype, otherwise float64.
    """
    n = values.shape[0]
    if n > MAX_ROWS:
        raise ValueError(f"X has {n} rows; dtrees numbers rows with 32 bits and takes at most {MAX_ROWS}.")
    if codes is None:
        codes = np.empty(n, dtype=np.uint32)
    keys, spare, counts = bench or make_bench(n)
    # The spare keys hold values before the keys are sorted, and again afterwards.
    if np.can_cast(values.dtype, np.float32):
        bits = spare.view(np.uint32)[:n]
        bits.view(np.float32)[:] = values
        _keys_of_float32(bits, keys)
        sort_keys(keys, spare, n, counts)
        distinct = spare.view(np.float32)[: _number_float32(keys, codes, bits)]
    else:
        values = _as_float64(values)
        sort_float64(values.view(np.uint64), keys, spare, counts)
        distinct = spare.view(np.float64)
        distinct = distinct[: number_values(values, keys, codes, distinct)]
    own = mapped(distinct.shape[0], distinct.dtype)
    own[:] = distinct
    return codes, own


def _as_float64(values: NDArray[Any]) -> NDArray[np.float64]:
    if values.flags.c_contiguous and values.dtype == np.float64:
        return values
    own = mapped(values.shape[0], np.float64)
    own[:] = values
    return own


#: The bits of infinity, in the upper half of 64 for a float32.
_INFINITY_32, _INFINITY_64 = np.uint64(0x7F80000000000000), np.uint64(0x7FF0000000000000)


@inner_kernel
def _ordered_bits(x, infinity):
    """Return the bits of a float as an integer in the order of the numbers, with -0.0 equal to 0.0, and NaN last."""
    sign = np.uint64(0x8000000000000000)
    if x == sign:
        x = np.uint64(0)
    if x & ~sign > infinity:
        return np.uint64(0xFFFFFFFFFFFFFFFF)
    return ~x if x & sign else x | sign


@kernel
def _keys_of_float32(bits, keys):
    """Write ``key << 32 | row`` for each row; a key is the upper half of the ordered bits."""
    low = np.uint64(0xFFFFFFFF)
    for i in range(bits.shape[0]):
        keys[i] = (_ordered_bits(np.uint64(bits[i]) << np.uint64(32), _INFINITY_32) & ~low) | np.uint64(i)


@kernel
def sort_float64(bits, keys, spare, counts):
    """Sort by the lower half of the ordered bits, then, stably, by the upper half."""
    shift = np.uint64(32)
    low = np.uint64(0xFFFFFFFF)
    n = bits.shape[0]
    differ = np.uint64(0)
    for i in range(n):
        half = _ordered_bits(bits[i], _INFINITY_64) & low
        differ |= half ^ (_ordered_bits(bits[0], _INFINITY_64) & low)
        keys[i] = half << shift | np.uint64(i)
    if differ != 0:  # otherwise all lower halves are equal: the numbers are float32s, or small integers
        radix_sort(keys, spare, n, np.uint64(0), low, counts)
    first, last = low, np.uint64(0)
    for i in range(n):
        row = keys[i] & low
        upper = _ordered_bits(bits[row], _INFINITY_64) >> shift
        keys[i] = upper << shift | row
        first = min(first, upper)
        last = max(last, upper)
    radix_sort(keys, spare, n, first, last, counts)


@kernel
def _number_float32(keys, codes, distinct):
    """Number the distinct values among the keys; write their bits and each row's number, and return how many there are."""
    sign, missing = np.uint32(0x80000000), np.uint32(0xFFFFFFFF)
    n_distinct = 0
    before = missing
    for i in range(keys.shape[0]):
        key = np.uint32(keys[i] >> np.uint64(32))
        if key != before and key != missing:
            distinct[n_distinct] = key ^ sign if key & sign else ~key
            n_distinct += 1
        before = key
        codes[keys[i] & np.uint64(0xFFFFFFFF)] = n_distinct if key == missing else n_distinct - 1
    return n_distinct


@kernel
def number_values(values, keys, codes, distinct):
    """Number the distinct values; write them and each row's number, and return how many there are."""
    n_distinct = 0
    n = keys.shape[0]
    row_bits = np.uint64(0xFFFFFFFF)
    i = 0
    while i < n:
        row = keys[i] & row_bits
        value = values[row]
        if value != value:
            break
        if n_distinct == 0 or value != distinct[n_distinct - 1]:
            distinct[n_distinct] = value if value != 0.0 else abs(value)  # -0.0 and 0.0 are one value, stored as 0.0
            n_distinct += 1
        codes[row] = n_distinct - 1
        i += 1
    while i < n:
        codes[keys[i] & row_bits] = n_distinct
        i += 1
    return n_distinct


def presort(columns: Sequence[NDArray[Any]], map: Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]] = map) -> Columns:
    """Sort many columns of the same rows.

    Parameters
    ----------
    columns : sequence of ndarray, each of shape (n_rows,)
        See :func:`presort_column`.
    map : callable, default=map
        Maps a function over columns; a thread pool's ``map`` sorts them in parallel.
    """
    assembly = Assembly(columns[0].shape[0] if columns else 0, len(columns))
    list(map(lambda j: assembly.sort(j, columns[j]), range(len(columns))))
    return assembly.finished()


class Assembly:
    """Builder of columns: each column is written to its place when it arrives, so that no data is in memory twice.

    Parameters
    ----------
    n_rows, n_columns : int
    allocate : callable, default=np.empty
        Allocates the arrays, in memory or on disk (:mod:`dtrees.split.table.mmap_arrays`).

    Examples
    --------
    >>> assembly = Assembly(3, 2)
    >>> assembly.sort(1, np.array([5.0, 3.0, 5.0]))
    >>> assembly.take([0], presort([np.array([7.0, 8.0, 9.0])]))
    >>> assembly.finished().codes
    array([[0, 1, 2],
           [1, 0, 1]], dtype=uint32)
    """

    def __init__(self, n_rows: int, n_columns: int, allocate: Allocate = np.empty) -> None:
        self._allocate = allocate
        self._codes = allocate(n_columns * n_rows, np.uint32).reshape(n_columns, n_rows)
        self._benches = Reused(partial(make_bench, n_rows))
        self._distinct: list[NDArray[Any]] = [np.empty(0, np.float32)] * n_columns

    def __sizeof__(self) -> int:
        """Return the size of its arrays in bytes."""
        return self._codes.nbytes + sum(distinct.nbytes for distinct in self._distinct)

    def sort(self, place: int, values: NDArray[Any]) -> None:
        """Sort a column and store it at its place; see :func:`presort_column`. Several threads may call it."""
        with self._benches.one() as bench:
            _, distinct = presort_column(values, self._codes[place], bench)
        if is_on_disk(self._codes):
            self._distinct[place] = self._allocate(distinct.shape[0], distinct.dtype)
            self._distinct[place][:] = distinct
            forget(self._codes[place], self._distinct[place])
        else:
            self._distinct[place] = distinct

    def rest(self) -> None:
        """Release the buffers for sorting: no column will be sorted for a while."""
        self._benches.forget()

    def take(self, places: Sequence[int], columns: Columns) -> None:
        """Copy sorted columns to their places."""
        for j, place in enumerate(places):
            self._codes[place] = columns.codes[j]
            self._distinct[place] = columns.distinct(j).copy()

    def finished(self) -> Columns:
        """Return the columns, after all have been stored; nothing can be added any more."""
        self.rest()
        distinct, self._distinct = self._distinct, []
        return Columns.of(self._codes, *_join(distinct, self._allocate))


def _join(distinct: list[NDArray[Any]], allocate: Allocate) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Concatenate distinct values in the smallest dtype that holds all; the list is emptied on the way, to save memory."""
    offsets = np.zeros(len(distinct) + 1, dtype=np.int64)
    np.cumsum([d.shape[0] for d in distinct], out=offsets[1:])
    values = allocate(int(offsets[-1]), np.result_type(np.float32, *(d.dtype for d in distinct)))
    for j in reversed(range(len(distinct))):
        own = values[offsets[j] : offsets[j + 1]]
        own[:] = distinct.pop()
        forget(own)
    return values, offsets


@inner_kernel
def are_keyed(columns):
    """Return whether codes are keys; see :attr:`Columns.is_keyed`."""
    return columns.offsets[columns.codes.shape[0]] != columns.words.shape[0]


@inner_kernel
def value_at(values, i):
    """Return the i-th distinct value, of values given as words (:class:`Columns`)."""
    return np.float64(values[i, 0]) if values.shape[1] == 1 else read_float64(values, i)


@lean_kernel
def value_of_code(columns, column, code):
    """Return the value of a code of a column, keyed or not."""
    return value_by_key(columns, column, lowest_key(columns, column), code)


@lean_kernel
def lowest_key(columns, column):
    """Return the key of code 0 of a column, if the column is keyed; otherwise 0."""
    if not are_keyed(columns):
        return np.uint32(0)
    sign = np.uint32(0x80000000)
    bits = np.float32(columns.words[column, 0]).view(np.uint32)  # Numba recognises the call of a NumPy type only
    return np.uint32(~bits if bits & sign else bits | sign)


@lean_kernel
def value_by_key(columns, column, lowest, code):
    """Return the value of a code of a column, whose lowest key is given: faster for many codes of one column."""
    if not are_keyed(columns):
        return value_at(columns.words, columns.offsets[column] + np.int64(code))
    sign = np.uint32(0x80000000)
    key = np.uint32(lowest + np.uint32(code))
    return np.float64(np.uint32(key ^ sign if key & sign else ~key).view(np.float32))


@kernel
def write_values(columns, which, rows, out):
    """Write the values of some rows in some columns, NaN for missing ones."""
    for i in range(which.shape[0]):
        column = np.int64(which[i])
        n_distinct, codes = columns.offsets[column + 1] - columns.offsets[column], columns.codes[column]
        for k in range(rows.shape[0]):
            code = codes[rows[k]]
            out[i, k] = value_of_code(columns, column, code) if np.int64(code) < n_distinct else np.nan


@kernel
def highest_code_below(values, low, high, threshold):
    """Return the highest index in low..high with values[index] <= threshold, given that low satisfies it."""
    while low < high:
        middle = (low + high + 1) // 2
        if value_at(values, middle) <= threshold:
            low = middle
        else:
            high = middle - 1
    return low


def take_rows(columns: Columns, which: NDArray[np.int64], rows: NDArray[np.uint32]) -> Columns:
    """Return the given rows of the columns at the places ``which``.

    Codes are uint16 if that holds them: such a table is for sending or copying, not for searching.

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
    values = [_take_column(columns, j, rows, codes[k]) for k, j in enumerate(which.tolist())]
    offsets = np.concatenate([[0], np.cumsum([value.shape[0] for value in values])]).astype(np.int64)
    return Columns.of(codes, np.concatenate([columns.values[:0], *values]), offsets)


def take_table(
    columns: Columns,
    rows: NDArray[np.uint32],
    as_stored: Callable[[int, NDArray[Any]], NDArray[Any]],
    map: Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]] = map,
) -> Columns:
    """Return the given rows as a table: the result of :func:`presort` for these rows, without sorting.

    Parameters
    ----------
    columns : Columns
    rows : ndarray of uint32, shape (n,)
    as_stored : callable
        Converts the distinct values of a column among these rows, given its number, to the form in which they are stored.
    map : callable, default=map
        As in :func:`presort`.

    Examples
    --------
    >>> whole = presort([np.array([0.5, np.nan, -1.0, 7.0])])
    >>> some = take_table(whole, np.array([1, 3, 0], np.uint32), lambda j, distinct: distinct)
    >>> some.codes, some.values
    (array([[2, 1, 0]], dtype=uint32), array([0.5, 7. ]))
    """
    codes = np.empty((columns.n_columns, rows.shape[0]), np.uint32)
    values = list(map(lambda j: as_stored(j, _take_column(columns, j, rows, codes[j])), range(columns.n_columns)))
    return Columns.of(codes, *_join(values, np.empty))


def _take_column(columns: Columns, j: int, rows: NDArray[np.uint32], out: NDArray[Any]) -> NDArray[Any]:
    """Write the codes of some rows of a column, among the distinct values that these rows have, and return the values."""
    distinct = columns.distinct(j)
    present = np.zeros((distinct.shape[0] >> 6) + 1, np.uint64)
    found = np.empty(min(rows.shape[0], distinct.shape[0]), np.int64)
    n_found = renumber(columns.codes[j], distinct.shape[0], rows, present, out, found)
    values: NDArray[Any] = distinct[found[:n_found]]
    return values


@kernel
def renumber(codes, n_distinct, rows, present, out, found):
    """Write the rank of each row's code among those of all rows, and the codes that occur, ascending; return the number of these.

    Missing values have the rank after the last. ``present`` has a bit for each code, all zero.
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
            there = 64 * word + np.int64(lowest_bit(bits))
            if there < n_distinct:
                found[n] = there
                n += 1
            bits &= bits - one
    for i in range(rows.shape[0]):
        code = np.uint64(codes[rows[i]])
        at = np.int64(code >> np.uint64(6))
        out[i] = before[at] + count_bits(present[at] & ((one << (code & low)) - one))
    return n
