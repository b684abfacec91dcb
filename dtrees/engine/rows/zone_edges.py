"""Edges of zones that all shards share, found by sketches of each shard's values, and the zone maps that follow from them.

Every shard *sketches* each of its columns: up to some thousands of values, each with the number of rows from the previous value up to it.
The sketches of all shards determine the edges of zones and parts (:mod:`dtrees.split.table.zone_map`), which are values. Edges do not
affect the splits found, only the time to find them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.policy import FOLD, MAX_ZONES, most_zones
from dtrees.split.table.columns import Columns
from dtrees.split.table.keyed_columns import list_ends, write_parts
from dtrees.split.table.mmap_arrays import forget, is_on_disk
from dtrees.split.table.zone_map import ZoneMap, not_joined
from dtrees.split.zones.over_shards.records import CODES

#: Number of values in the sketch of a column with more distinct values.
SKETCH_VALUES = 8192
#: Number of rows of a shard that are sketched.
SKETCH_ROWS = 1 << 16
#: A value of more than 1 / 512 of a shard's rows is a separate entry of the sketch.
_HEAVY_SHARE = 512
#: Largest number of frequent values of a column that get a zone of their own.
_MOST_HEAVY = 80
#: Largest number of bits by which codes of a column are looked up when rows are picked.
_CELL_BITS = 20
#: Largest number of rows listed at an end of a column. Late trees of 1M x 28 on two shards take 0.88 of the time that they take with 128.
_LISTED_AT_ENDS = 512
#: A number of listed rows beyond all possible ones, which disables the lists.
_NONE_LISTED = 2**40


class Sketch(NamedTuple):
    """A sketch of a column.

    Attributes
    ----------
    values : ndarray of float32 or float64
        Ascending; sent as float32 if that is exact for all columns.
    weights : ndarray of int64 or uint32
        The number of rows with a value above the previous one and up to this one.
    alone : ndarray of bool
        Whether all of these rows have the value itself.
    """

    values: NDArray[Any]
    weights: NDArray[Any]
    alone: NDArray[np.bool_]


class Sketches(NamedTuple):
    """The sketches of all columns of a shard, and its number of rows."""

    columns: list[Sketch]
    n_rows: int


class Edges(NamedTuple):
    """Edges of zones and parts of all columns of a table.

    Attributes
    ----------
    upper : ndarray of float64, shape (n_columns, most parts)
        The highest value of each part; for a part without values, that of the previous part.
    alone : ndarray of bool, shape (n_columns, most parts)
        Whether a part has a single value.
    n_zones : ndarray of int64, shape (n_columns,)
    exact : ndarray of bool, shape (n_columns,)
        Whether each zone of a column is one of its distinct values.
    least, most : ndarray of float64, shape (n_columns,)
        Approximately the lowest and the highest value of each column, both finite.
    n_categories : ndarray of int64, shape (n_columns,)
        The number of categories; 0 for numeric columns. Categorical columns have no zones: in zone sums, they are treated as columns with
        missing values only (:mod:`dtrees.engine.rows.categories`).
    """

    upper: NDArray[np.float64]
    alone: NDArray[np.bool_]
    n_zones: NDArray[np.int64]
    exact: NDArray[np.bool_]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    n_categories: NDArray[np.int64]

    def of_categories(self, n_categories: NDArray[np.int64]) -> Edges:
        """Return the edges of a table in which some columns are categorical, given their numbers of categories."""
        some = n_categories > 0
        upper, alone = np.where(some[:, None], np.inf, self.upper), self.alone & ~some[:, None]
        return Edges(upper, alone, np.where(some, 0, self.n_zones), self.exact | some, self.least, self.most, n_categories)

    def take(self, columns: NDArray[np.int32]) -> Edges:
        """Return the edges of some columns."""
        taken: list[Any] = [of[columns] for of in self]
        return Edges(*taken)

    def ranges(
        self, column: NDArray[np.int32], part: NDArray[np.int64], shift: NDArray[np.int64], cut: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the lowest value of each given part, and how many of its ``cut`` finer parts make up a unit of value."""
        first, last = part << shift, (part + 1) << shift
        low = np.where(first > 0, self.upper[column, first - 1], -np.inf).clip(self.least[column], self.most[column])
        high = self.upper[column, last - 1].clip(self.least[column], self.most[column])
        with np.errstate(all="ignore"):
            scale = cut / (high - low)
        return np.stack([low, np.where(scale > 0.0, scale, 0.0)], axis=1)


def sketch_columns(columns: Columns, map: Any = map) -> Sketches:
    """Sketch every column of a shard's rows; ``map`` is as for :func:`~dtrees.split.table.columns.presort`.

    With many rows, a sample is used. It is evenly spread but not at equal distances, since a table may be periodic.
    """
    n = columns.n_rows
    rows = None
    if n > SKETCH_ROWS:
        shift = np.random.default_rng(0).random(SKETCH_ROWS)
        rows = ((np.arange(SKETCH_ROWS) + shift) * (n / SKETCH_ROWS)).astype(np.int64).clip(max=n - 1)
    quantiles = np.sin(np.pi * np.arange(1, SKETCH_VALUES + 1) / (2 * SKETCH_VALUES)) ** 2
    kind = np.float32 if columns.is_keyed else np.float64
    found = map(lambda j: _sketch_column(columns, j, rows, quantiles), range(columns.n_columns))
    return Sketches([Sketch(values.astype(kind), weights.astype(np.uint32), alone) for values, weights, alone in found], n)


def _sketch_column(columns: Columns, j: int, rows: NDArray[np.int64] | None, quantiles: NDArray[np.float64]) -> Sketch:
    codes, counts = _count(columns.codes[j] if rows is None else columns.codes[j][rows], columns.missing(j))
    if rows is not None and codes.shape[0] <= SKETCH_VALUES:  # there may be no more distinct values
        rows = None
        codes, counts = _count(columns.codes[j], columns.missing(j))
    forget(columns.codes[j])
    if codes.shape[0] <= SKETCH_VALUES:
        return Sketch(columns.values_of(j, codes), counts, np.ones(codes.shape[0], np.bool_))
    below = np.cumsum(counts)
    heavy = np.flatnonzero(counts * _HEAVY_SHARE >= below[-1])
    ends = np.searchsorted(below, np.rint(quantiles * below[-1]))
    is_end = np.zeros(below.shape[0], np.bool_)
    is_end[np.minimum(ends, below.shape[0] - 1)] = is_end[heavy] = is_end[heavy[heavy > 0] - 1] = is_end[-1] = True
    ends = np.flatnonzero(is_end)
    alone = np.diff(ends, prepend=-1) == 1
    if rows is not None:
        alone &= np.isin(ends, heavy)  # in a sample, only frequent values count as alone
        below = np.rint(below * (columns.n_rows / rows.shape[0])).astype(np.int64)
    return Sketch(columns.values_of(j, codes[ends]), np.diff(below[ends], prepend=0), alone)


def _count(codes: NDArray[np.uint32], missing: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the codes that occur, ascending, and the number of rows of each."""
    codes = np.sort(codes)
    codes = codes[: np.searchsorted(codes, missing)]
    ends = np.flatnonzero(codes[1:] != codes[:-1])
    ends = np.append(ends, codes.shape[0] - 1) if codes.shape[0] else ends
    return codes[ends], np.diff(ends, prepend=-1)


def merge_sketches(sketches: Sequence[Sketches]) -> Edges:
    """Return the edges of columns that several shards have sketched."""
    n_columns, n_rows = len(sketches[0].columns), sum(sketch.n_rows for sketch in sketches)
    cut, ends = [], np.zeros((2, n_columns))
    for j, of_column in enumerate(zip(*(sketch.columns for sketch in sketches), strict=True)):
        values, weights, alone = (np.concatenate(some) for some in zip(*of_column, strict=True))
        parts, ones, exact = _cut(values.astype(np.float64), weights.astype(np.int64), alone, most_zones(n_rows))
        cut.append((np.array(parts), np.array(ones), exact))  # arrays, as lists for 28 columns would take 5 MB
        finite = values[np.isfinite(values)]
        if finite.shape[0]:
            ends[:, j] = finite.min(), finite.max()
    n_zones = np.array([len(parts) >> FOLD for parts, _, _ in cut], np.int64)
    most = max(1, int(n_zones.max(initial=0))) << FOLD
    upper, single = np.full((n_columns, most), np.inf), np.zeros((n_columns, most), np.bool_)
    for j, (ends_of_parts, are_single, _) in enumerate(cut):
        upper[j, : len(ends_of_parts)], single[j, : len(ends_of_parts)] = ends_of_parts, are_single
    all_exact, none = np.array([exact for _, _, exact in cut], np.bool_), np.zeros(n_columns, np.int64)
    return Edges(upper, single, n_zones, all_exact, ends[0], ends[1], none)


def _cut(
    values: NDArray[np.float64], weights: NDArray[np.int64], alone: NDArray[np.bool_], most_zones: int
) -> tuple[list[float], list[bool], bool]:
    """Return the upper edges of the parts of a column, whether each has a single value, and whether each zone does."""
    distinct, which = np.unique(values, return_inverse=True)
    total = np.bincount(which, weights, distinct.shape[0]).astype(np.int64)
    single = np.bincount(which, np.where(alone, weights, 0), distinct.shape[0]).astype(np.int64)
    fold = 1 << FOLD
    if alone.all() and distinct.shape[0] < MAX_ZONES:
        return np.repeat(distinct, fold).tolist(), ([True] + [False] * (fold - 1)) * distinct.shape[0], True
    n_rows = int(total.sum())
    heavy = np.flatnonzero(single * most_zones >= n_rows)
    heavy = np.sort(heavy[np.argsort(-single[heavy], kind="stable")][: min(_MOST_HEAVY, most_zones // 3)])
    n_parts = max(fold, ((most_zones - 2 * heavy.shape[0] - 1) << FOLD) - 2 * heavy.shape[0] - 2)
    quantiles = n_rows * np.sin(np.pi * np.arange(1, n_parts) / (2 * n_parts)) ** 2
    part_of = np.searchsorted(quantiles, np.cumsum(total) - 0.5 * total)
    ends = np.flatnonzero(np.append(part_of[1:] != part_of[:-1], True))
    parts, ones, first = list[float](), list[bool](), 0

    def add_zones(edges: list[float], is_one: bool) -> None:
        n = -len(edges) % fold  # the last parts of a zone may be empty
        parts.extend([*edges, *edges[-1:] * n])
        ones.extend([is_one, *[False] * (len(edges) + n - 1)])

    for place in [*heavy.tolist(), distinct.shape[0]]:
        inside = distinct[ends[(ends >= first) & (ends < place)]].tolist()
        if inside and inside[-1] >= distinct[place - 1]:
            del inside[-1]
        last = np.nextafter(distinct[place], -np.inf) if place < distinct.shape[0] else np.inf
        add_zones([*inside, last], is_one=False)
        if place < distinct.shape[0]:
            add_zones([float(distinct[place])], is_one=True)
        first = place + 1
    return parts, ones, False


def own_zone_map(columns: Columns, edges: Edges, map: Any = map) -> ZoneMap:
    """Return the zone map of a shard's own rows; ``map`` is as for :func:`~dtrees.split.table.columns.presort`."""
    k, n_parts = columns.n_columns, edges.n_zones << FOLD
    n_codes = np.diff(columns.offsets)
    first_codes = np.repeat(n_codes[:, None], edges.upper.shape[1] + 1, axis=1)
    for j in range(k):
        first_codes[j, 0] = 0  # the code of missing values, in a column without zones
        if n_parts[j]:
            first_codes[j, 1 : n_parts[j]] = columns.codes_up_to(j, edges.upper[j, : n_parts[j] - 1]) + 1
    part = write_parts(columns, first_codes, n_parts, map)
    made = _make_map(edges, part, first_codes)
    if is_on_disk(part):  # lookups of listed rows would read the disk at random
        made.ends[:, 2] = _NONE_LISTED
    else:
        listed, ends = list_ends(part, n_parts, _LISTED_AT_ENDS)
        made = made._replace(listed=listed, ends=ends)
    shift = np.array([max(0, int(n).bit_length() - _CELL_BITS) for n in n_codes], np.int64)
    return made._replace(shift=shift)


def searcher_zone_map(edges: Edges) -> ZoneMap:
    """Return the zone map by which columns are searched: without rows, with codes that stand for parts."""
    k, most = edges.upper.shape
    is_empty = np.zeros((k, most), np.bool_)
    is_empty[:, 1:] = edges.upper[:, 1:] == edges.upper[:, :-1]
    is_empty |= np.arange(most) >= (edges.n_zones << FOLD)[:, None]
    width = np.where(is_empty, 0, np.where(edges.alone, 1, CODES))
    first_codes = np.zeros((k, most + 1), np.int64)
    np.cumsum(width, axis=1, out=first_codes[:, 1:])
    return _make_map(edges, np.empty((0, k), np.uint16), first_codes)


def _make_map(edges: Edges, part: NDArray[np.uint16], first_codes: NDArray[np.int64]) -> ZoneMap:
    """Return a zone map without lists of rows."""
    k = edges.n_zones.shape[0]
    return ZoneMap(
        part=part,
        which=np.arange(k),
        n_zones=edges.n_zones,
        by_category=np.zeros(k, np.bool_),
        exact=edges.exact,
        first_codes=first_codes,
        shift=np.zeros(k, np.int64),
        listed=np.zeros((k, 2, 1), np.uint32),
        ends=np.zeros((k, 4), np.int64),
        lists=np.empty((k, 0), np.uint64),
        firsts=np.zeros((k, 1), np.int64),
        joined=not_joined(part.shape[0]),
        fold=FOLD,
        most_codes=0,
    )
