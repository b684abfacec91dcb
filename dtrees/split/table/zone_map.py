"""The zone map of a table: the zones of every row, for all columns at once.

The values of each column are divided into up to 255 consecutive *zones* (:mod:`dtrees.split.zones.bounds` explains why), and each of
these into sixteen *parts*. Nodes with many of the table's rows are summed by parts, nodes of half as many rows by pairs of parts, and so
on: the bound of a zone grows with its number of rows, while noise in the sums of a node grows with the square root of the node's. In a
million rows of noise, such as those of late boosting trees, 255 zones prune nothing, 2,040 parts all but a twentieth, and 4,080 all but
a hundredth.

Smaller tables also list the rows of each column in the order of their values. The rows of flagged zones are read from these lists, in
order, if most of them are in the node; otherwise they are picked from the node's rows and sorted.

To sum all columns of a node in one pass over its rows, the parts of a row in all columns are stored side by side, two bytes each.

Categories have no order, so each is a zone, not divided into parts; columns with too many categories have no zones. The columns with the
fewest come first, as they may be *joined*: in place of its codes in several columns, a row has a single number, its *element*. The sums
of a node by pairs of categories of two columns give its sums by category of both. So a row is added once for all columns of a *table* of
joined columns, by its element there, and the sums of each column are computed from these (:mod:`dtrees.split.zones.sums`).

Cuts
----
The bound of a zone grows with the zone's rows m, and noise in the sum of k rows with sqrt(k). So zones are narrow near the ends of a
column: the z-th of Z cuts is at the quantile sin(pi z / 2Z)**2, whose density makes m proportional to sqrt(k (n - k)). A value with at
least a zone's share of the rows, such as 0 in a sparse column, has a zone to itself, which needs no bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split import policy
from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, kernel
from dtrees.split.table.columns import Columns, presort
from dtrees.split.table.mmap_arrays import Reused, beside, forget, is_on_disk, mapped


@by_reference
class JoinedColumns(NamedTuple):
    """The joined columns of a zone map, which are its first.

    Attributes
    ----------
    table_of, stride : ndarray of int64, shape (n,)
        The table that each is in, and the factor of its codes in the element.
    begins : ndarray of int64, shape (n_tables + 1,)
        First element of each table, and the end of the last.
    elements : ndarray of uint16, shape (n_rows, n_tables)
        Elements of each row, one in each table, numbered over all tables.
    """

    table_of: NDArray[np.int64]
    stride: NDArray[np.int64]
    begins: NDArray[np.int64]
    elements: NDArray[np.uint16]

    @property
    def n_elements(self) -> int:
        """The number of elements of all tables."""
        return int(self.begins[-1])

    def take(self, places: NDArray[np.int64], n_others: int) -> JoinedColumns:
        """Return the joined columns at some places, or none if joining saves no time next to ``n_others`` more columns."""
        if not _is_worth_it(self.table_of[places], n_others):
            return not_joined(self.elements.shape[0])
        tables, table_of = np.unique(self.table_of[places], return_inverse=True)
        begins = _begins_of(np.diff(self.begins)[tables])
        elements = np.ascontiguousarray(self.elements[:, tables])
        elements -= (self.begins[tables] - begins[:-1]).astype(np.uint16)
        return JoinedColumns(table_of, self.stride[places], begins, elements)


def not_joined(n_rows: int) -> JoinedColumns:
    """Return the value for a table of ``n_rows`` rows without joined columns."""
    none = np.empty(0, np.int64)
    return JoinedColumns(none, none, np.zeros(1, np.int64), np.empty((n_rows, 0), np.uint16))


def join(n_codes: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Assign columns to tables of up to ``most`` elements, or of one column, given their numbers of codes; neighbours are joined.

    Returns
    -------
    table_of, stride : ndarray of int64, shape (n,)
    sizes : ndarray of int64, shape (n_tables,)
        Number of elements of each table.

    Examples
    --------
    >>> table_of, stride, sizes = join(np.array([3, 5, 20, 30]), 300)
    >>> table_of.tolist(), stride.tolist(), sizes.tolist()
    ([0, 0, 0, 1], [1, 3, 15, 1], [300, 30])
    """
    table_of, stride, sizes = np.zeros(n_codes.shape[0], np.int64), np.ones(n_codes.shape[0], np.int64), list[int]()
    for place, n in enumerate(n_codes.tolist()):
        if not sizes or sizes[-1] * n > most:
            sizes.append(1)
        table_of[place], stride[place] = len(sizes) - 1, sizes[-1]
        sizes[-1] *= n
    return table_of, stride, np.array(sizes, np.int64)


def join_columns(n_codes: NDArray[np.int64], n_rows: int, n_others: int) -> JoinedColumns:
    """Return columns with these numbers of codes, ascending, joined if that saves time next to ``n_others`` more columns.

    If there are too many elements for the rows of the table, fewer columns are joined with each other. Elements are written later.
    """
    for most in policy.MOST_JOINED:
        table_of, stride, sizes = join(n_codes, most)
        if int(sizes.sum()) <= min(policy.ALL_JOINED, n_rows // policy.ROWS_PER_JOINED):
            if not _is_worth_it(table_of, n_others):
                break
            return JoinedColumns(table_of, stride, _begins_of(sizes), np.empty((n_rows, sizes.shape[0]), np.uint16))
    return not_joined(n_rows)


def _begins_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _is_worth_it(table_of: NDArray[np.int64], n_others: int) -> bool:
    """Return whether joining columns saves time; if there are others, it takes one more pass over the rows."""
    saved = table_of.shape[0] - np.unique(table_of).shape[0]
    return bool(saved >= max(policy.JOINED_SAVES * table_of.shape[0], policy.SAVES_PASS if n_others else 1))


@kernel
def write_elements(part, joined, first, last):
    """Write the elements of the rows ``first`` to ``last``; the first columns of ``part`` have their codes."""
    elements = joined.elements
    for block in range(first, last, 512):
        end = min(block + 512, last)
        for i in range(block, end):
            for table in range(elements.shape[1]):
                elements[i, table] = joined.begins[table]
        for j in range(joined.stride.shape[0]):
            table, factor = joined.table_of[j], joined.stride[j]
            for i in range(block, end):
                elements[i, table] += factor * np.int64(part[i, j])


#: A shift that maps all codes to the same number.
_ALL_IN_ONE = 62
#: The arrays of a zone map that have an entry for each column.
_OF_COLUMNS = ("which", "n_zones", "by_category", "exact", "first_codes", "shift", "listed", "ends", "lists", "firsts")


@by_reference
class ZoneMap(NamedTuple):
    """The zones of every row, for some columns.

    Attributes
    ----------
    part : ndarray of uint16, shape (n_rows, k)
        The part of each cell; shifted right by ``fold``, its zone. Missing values have the number after the last part.
    which : ndarray of int64, shape (k,)
        The columns: columns of categories, by their number of categories, then the others, ascending.
    n_zones : ndarray of int64, shape (k,)
        At most 255; for columns of categories their number, 0 if there are too many.
    by_category : ndarray of bool, shape (k,)
        Whether a column holds categories: its parts are codes.
    exact : ndarray of bool, shape (k,)
        Whether each zone is a single value, which is in its first part; the others are empty.
    first_codes : ndarray of int64, shape (k, most parts + 1)
        The first code of each part, and the code of missing values; unused for exact columns.
    shift : ndarray of int64, shape (k,)
        Codes that are equal after this right shift are in the same part, except the code of missing values.
    listed : ndarray of uint32, shape (k, 2, 128)
        The rows of some parts at the lower and the upper end of each column, ascending.
    ends : ndarray of int64, shape (k, 4)
        The first part after the lower end, the first at the upper end, and the number of rows listed at each.
    lists : ndarray of uint64, shape (k, n_rows) or (k, 0)
        In tables of up to LIST_ROWS rows, ``code << 32 | row`` for all rows, ascending, for each column; missing values come last.
    firsts : ndarray of int64, shape (k, most parts + 1)
        Start of each part's rows in a column's list, then of the missing values; unused for exact columns.
    joined : JoinedColumns
        The first columns, if they are joined.
    fold : int
        A zone has ``2**fold`` parts; the last parts of the last zone may be empty.
    most_codes : int
        The largest number of codes of a column of categories, including that of missing values; 0 if there is none.
    """

    part: NDArray[np.uint16]
    which: NDArray[np.int64]
    n_zones: NDArray[np.int64]
    by_category: NDArray[np.bool_]
    exact: NDArray[np.bool_]
    first_codes: NDArray[np.int64]
    shift: NDArray[np.int64]
    listed: NDArray[np.uint32]
    ends: NDArray[np.int64]
    lists: NDArray[np.uint64]
    firsts: NDArray[np.int64]
    joined: JoinedColumns
    fold: int
    most_codes: int

    def take(self, columns: NDArray[np.int64]) -> ZoneMap:
        """Return some of the columns."""
        places = np.flatnonzero(np.isin(self.which, columns))
        few = places[places < self.joined.stride.shape[0]]
        joined = self.joined.take(few, places.shape[0] - few.shape[0])
        rest: dict[str, Any] = {name: getattr(self, name)[places] for name in _OF_COLUMNS}
        return self._replace(part=_take_columns(self.part, places), joined=joined, **rest)


def compile_zones() -> None:
    """Compile the kernels that build zone maps."""
    map_zones(presort([np.arange(2.0)]))


def _take_columns(part: NDArray[np.uint16], places: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Return some columns of parts, on disk if the parts are."""
    if not is_on_disk(part):
        return np.ascontiguousarray(part[:, places])
    n, k = part.shape[0], places.shape[0]
    taken = beside(part)(n * k, np.uint16).reshape(n, k)
    step = max(1, policy.DISK_BYTES // (2 * part.shape[1]))
    for first in range(0, n, step):
        rows = slice(first, first + step)
        taken[rows] = part[rows, places]
        forget(part[rows], taken[rows])
    return taken


def map_zones(columns: Columns, map: Any = map, fold: int = policy.FOLD, categorical: Sequence[int] = ()) -> ZoneMap:
    """Divide each column into zones, and each zone into ``2**fold`` parts.

    ``map`` is as in :func:`~dtrees.split.table.columns.presort`; ``categorical`` lists the columns of categories.
    """
    n_rows, n_columns = columns.n_rows, columns.n_columns
    by_category = np.zeros(n_columns, np.bool_)
    by_category[list(categorical)] = True
    n_distinct = np.diff(columns.offsets)
    which = np.lexsort((np.where(by_category, n_distinct, 0), ~by_category))
    by_category, n_distinct = by_category[which], n_distinct[which]
    n_parts = policy.most_zones(n_rows) << fold
    quantiles = _quantiles(n_rows, n_parts)
    shifts = np.zeros(n_columns, np.int64)
    most_cells = min(int(n_distinct.max(initial=0)), policy.MAX_SINGLE_CELLS) + 1
    part_of = mapped(n_columns * most_cells, np.uint16, large_pages=False).reshape(n_columns, most_cells)  # most columns use little of it
    first_codes = np.zeros((n_columns, n_parts + 1), np.int64)
    listed, ends = np.zeros((n_columns, 2, policy.LISTED_AT_ENDS), np.uint32), np.zeros((n_columns, 4), np.int64)
    lists, firsts = np.empty((n_columns, n_rows if n_rows <= policy.LIST_ROWS else 0), np.uint64), np.zeros(first_codes.shape, np.int64)
    n_zones = np.zeros(n_columns, np.int64)
    summed = _summed_categories(n_distinct, by_category)

    counts = Reused(lambda: mapped(int(n_distinct.max(initial=0)) + 1, np.uint32))

    def cut(j: int) -> None:
        if by_category[j]:
            n_zones[j], shifts[j] = (n_distinct[j], 0) if summed[j] else (0, _ALL_IN_ONE)
            part_of[j, : max(1, n_zones[j])] = np.arange(max(1, n_zones[j]))
            return
        codes = columns.codes[which[j]]
        with counts.one() as own:
            n_zones[j], shifts[j] = _cut_column(
                codes, own[: n_distinct[j] + 1], quantiles, fold, part_of[j], first_codes[j], listed[j], ends[j]
            )
        if lists.shape[1]:
            _list_rows(codes, int(n_distinct[j]), first_codes[j], lists[j], firsts[j])

    list(map(cut, range(n_columns)))
    counts.forget()
    few_codes = by_category & (2 * (n_distinct + 1) <= policy.MOST_JOINED[0])
    n_few = int(few_codes.sum())
    part, joined = np.empty((n_rows, n_columns), np.uint16), join_columns(n_distinct[:n_few] + 1, n_rows, n_columns - n_few)
    step = max(4096, n_rows // 64)
    missing = np.where(by_category, n_zones, n_zones << fold)

    def write(first: int) -> None:
        last = min(first + step, n_rows)
        _write_parts(columns.codes, which, part_of, shifts, n_distinct, missing, first, last, part)
        if joined.n_elements:
            write_elements(part, joined, first, last)

    list(map(write, range(0, n_rows, step)))
    exact, most_codes = by_category | (n_zones == n_distinct), int((n_distinct + 1)[by_category].max(initial=0))
    return ZoneMap(part, which, n_zones, by_category, exact, first_codes, shifts, listed, ends, lists, firsts, joined, fold, most_codes)


def _summed_categories(n_distinct: NDArray[np.int64], by_category: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which columns of categories have few enough of them for nodes to be summed by category."""
    few = by_category & (n_distinct <= policy.SUMMED_CATEGORIES)
    order = np.argsort(np.where(few, n_distinct, 0), kind="stable")
    few[order] &= np.cumsum(np.where(few, n_distinct, 0)[order]) <= policy.ALL_SUMMED_CATEGORIES
    return few


def _quantiles(n_rows: int, n: int) -> NDArray[np.int64]:
    """Return the numbers of rows at which each of n parts ends, ascending; the last is the number of all rows."""
    return np.rint(n_rows * np.sin(np.pi * np.arange(1, n + 1) / (2 * n)) ** 2).astype(np.int64)


@kernel
def _cut_column(codes, counts, quantiles, fold, part_of, first_codes, listed, ends):
    """Write the part of each code, shifted, and a column's arrays of :class:`ZoneMap`; return its number of zones, and the shift.

    ``counts`` is a buffer for the number of rows of each code, including that of missing values.
    """
    n_distinct = counts.shape[0] - 1
    if n_distinct < policy.MAX_ZONES:
        for code in range(n_distinct):
            part_of[code] = code << fold
        return n_distinct, ZERO()
    counts[:] = np.uint32(0)
    for i in range(codes.shape[0]):
        counts[codes[i]] += np.uint32(1)
    shift = _cell_shift(counts[:n_distinct], codes.shape[0])
    n_parts = _cut(counts, quantiles, fold, shift, part_of, first_codes)
    low, high = ZERO(), n_distinct
    n = ZERO()
    for code in range(n_distinct):
        if code > 0 and part_of[code >> shift] != part_of[(code - 1) >> shift]:
            low = code
        n += np.int64(counts[code])
        if n > policy.LISTED_AT_ENDS:
            break
    n = ZERO()
    for code in range(n_distinct - 1, low, -1):
        n += np.int64(counts[code])
        if n > policy.LISTED_AT_ENDS:
            break
        if part_of[code >> shift] != part_of[(code - 1) >> shift]:
            high = code
    n_low = n_high = ZERO()
    for row in range(codes.shape[0]):
        mine = np.int64(codes[row])
        if mine < low:
            listed[0, n_low] = row
            n_low += 1
        elif high <= mine < n_distinct:
            listed[1, n_high] = row
            n_high += 1
    ends[0], ends[1], ends[2], ends[3] = part_of[low >> shift], part_of[(high - 1) >> shift] + 1, n_low, n_high
    return (n_parts - 1 >> fold) + 1, shift


@kernel
def _cell_shift(counts, n_rows):
    """Return the right shift of codes, given the number of rows with each.

    It is the smallest with fewer cells than a limit, which is higher if a value is frequent enough for a zone of its own.
    """
    most = np.uint32(0)
    for count in counts:
        most = max(most, count)
    limit = policy.MAX_SINGLE_CELLS if np.int64(most) * policy.MAX_ZONES > n_rows else policy.MAX_CELLS
    shift = ZERO()
    while counts.shape[0] >> shift >= limit:
        shift += 1
    return shift


@kernel
def _list_rows(codes, n_distinct, first_codes, rows, firsts):
    """List the rows of a column in the order of their codes, and write the start of each part."""
    place = np.zeros(n_distinct + 2, np.int64)
    for code in codes:
        place[np.int64(code) + 1] += 1
    for code in range(n_distinct):
        place[code + 1] += place[code]
    for part in range(first_codes.shape[0]):
        firsts[part] = place[first_codes[part]]
    for row in range(codes.shape[0]):
        code = np.uint64(codes[row])
        rows[np.uint64(place[code])] = code << np.uint64(32) | np.uint64(row)
        place[code] += 1


@kernel
def _cut(counts, quantiles, fold, shift, part_of, first_codes):
    """Divide a column into parts, given the number of rows with each code; return the number after the last part used.

    Codes that are equal when shifted are a *cell*, and in the same part. The number of a part is the number of quantiles below it, so a
    cell of many rows skips numbers. If it skips at least those of a zone, it gets a zone of its own. The last of ``counts`` is for
    missing values.
    """
    n_distinct = counts.shape[0] - 1
    n_rows = np.int64(0)
    for code in range(n_distinct):
        n_rows += np.int64(counts[code])
    # Parts refer to the rows present: quantiles are scaled to them.
    share, n_quantiles = n_rows / quantiles[quantiles.shape[0] - 1], quantiles.shape[0]
    first_codes[:] = n_distinct
    n = below = following = ZERO()
    part = NONE()
    for cell in range(((n_distinct - 1) >> shift) + 1):
        first, last = cell << shift, min((cell + 1) << shift, n_distinct)
        for code in range(first, last):
            n += np.int64(counts[code])
        while following < n_quantiles and n >= quantiles[following] * share:
            following += 1
        own_zone = ((max(below, part + 1) - 1) >> fold) + 1
        mine = own_zone << fold if following >> fold > own_zone else max(part, below)
        first_codes[part + 1 : mine + 1] = first
        part_of[cell] = part = mine
        below = following
    return part + 1


@kernel
def _write_parts(codes, which, part_of, shifts, n_distinct, missing, first, last, part):
    for block in range(first, last, 512):
        end = min(block + 512, last)
        for j in range(which.shape[0]):
            mine, shift, n, last_part = part_of[j], np.uint64(shifts[j]), np.uint64(n_distinct[j]), np.uint16(missing[j])
            own = codes[which[j]]
            for i in range(block, end):
                code = np.uint64(own[i])
                part[i, j] = mine[code >> shift] if code < n else last_part
