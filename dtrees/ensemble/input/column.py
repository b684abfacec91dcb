"""Columns of a table: their kinds, and the conversion of their values to numbers.

Terms
-----
kind
    ``"numeric"``, ``"categorical"``, or ``"unknown"`` for a column with missing values only (of any dtype), which takes the kind that it
    has in other partitions.
dictionary
    the distinct categories of a column: sorted, or in the order declared by its dtype (ordered categoricals of pandas, Enum of polars).
    Missing values and categories outside of it become NaN.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import repeat
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.input.plain_data import check_labels, check_text, plain_label, take

NUMERIC, CATEGORICAL, UNKNOWN = "numeric", "categorical", "unknown"
#: The largest integer up to which all integers are exact in float64.
MAX_INTEGER = 2**53
#: Category numbers of dictionaries up to this size are exact in float32.
_MAX_FLOAT32_INTEGER = 2**24
#: The supported dtypes of numeric columns.
_DTYPES = {np.dtype(code).name for code in "?bBhHiIlLqQfd"}
_SUPPORTED = "numbers, booleans, text or categories"


@dataclass(frozen=True)
class Column:
    """One column: its name (None for arrays), kind, dtype if numeric, and dictionary if categorical.

    ``is_text`` tells whether a categorical column was plain text instead of a categorical dtype; it is ignored in comparisons. ``order``
    has all categories declared by an ordered dtype, including those not in the data.
    """

    name: str | None
    kind: str
    dtype: str = "float64"
    categories: tuple[Any, ...] = ()
    is_text: bool = field(default=False, compare=False)
    order: tuple[Any, ...] = field(default=(), compare=False)

    @property
    def has_unordered_text(self) -> bool:
        """Whether the categories are text in alphabetical order, so that their numbers have no meaning."""
        return self.kind == CATEGORICAL and not self.order and isinstance(next(iter(self.categories), None), str)

    @property
    def holds_numbers(self) -> bool:
        """Whether all categories are numbers."""
        return all(isinstance(category, int | float) and not isinstance(category, bool) for category in self.categories)

    @property
    def stored_dtype(self) -> type[np.floating[Any]]:
        """The dtype of the column's distinct values when it is presorted."""
        if self.kind == CATEGORICAL:
            return _dtype_of_numbers(len(self.categories))
        return np.float32 if np.can_cast(self.dtype, np.float32) else np.float64


def _dtype_of_numbers(n_categories: int) -> type[np.floating[Any]]:
    """Return the dtype for category numbers, given the number of categories."""
    return np.float32 if n_categories <= _MAX_FLOAT32_INTEGER else np.float64


def column_from_json(item: Any) -> Column:
    """Return the column described by a dict; raises ValueError if the description is invalid."""
    owner = "a column"
    name, kind = take(item, "name", (str, type(None)), owner), take(item, "kind", str, owner)
    dtype, categories = take(item, "dtype", str, owner), take(item, "categories", list, owner)
    if name is not None:
        check_text(name, "the names of columns")
    if kind == CATEGORICAL:
        is_ordered = "ordered" in item and take(item, "ordered", bool, owner)
        check_labels(categories, f"the categories of column {name!r}", is_sorted=not is_ordered)
        if dtype:
            raise ValueError(f"column {name!r} is categorical, but has the dtype {dtype!r:.40}")
        return Column(name, kind, dtype, tuple(categories), order=tuple(categories) if is_ordered else ())
    if kind not in (NUMERIC, UNKNOWN) or dtype not in _DTYPES or categories:
        raise ValueError(f"column {name!r} is of kind {kind!r:.40} and dtype {dtype!r:.40}")
    return Column(name, kind, dtype)


def float_dtype(*dtypes: np.dtype[Any]) -> type[np.floating[Any]]:
    """Return float32 if it represents all values of these dtypes exactly, otherwise float64."""
    small = all(dtype.itemsize <= 2 or (dtype.kind == "f" and dtype.itemsize == 4) for dtype in dtypes)
    return np.float32 if small else np.float64


def check_values(values: NDArray[Any], where: str) -> None:
    """Raise if there is an integer that float64 cannot represent exactly."""
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and values.size:
        _check_integers(int(values.min()), int(values.max()), where)


def has_infinity(values: NDArray[Any]) -> bool:
    """Return whether any value is infinite; fast for many values."""
    if values.dtype.kind != "f":
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum()
    return not np.isfinite(total) and bool(np.isinf(values).any())


def finite(values: NDArray[Any]) -> NDArray[Any]:
    """Replace infinities in training values by the largest and the smallest number of the dtype.

    Every threshold is then finite, and also separates infinite values in prediction, where they are not replaced.

    >>> finite(np.array([1.0, -np.inf, np.nan], np.float32))
    array([ 1.0000000e+00, -3.4028235e+38,            nan], dtype=float32)
    """
    return np.nan_to_num(values, nan=np.nan) if has_infinity(values) else values


def _check_integers(low: int, high: int, where: str) -> None:
    if low < -MAX_INTEGER or high > MAX_INTEGER:
        extreme = high if high > MAX_INTEGER else low
        raise ValueError(
            f"{where} contains the integer {extreme}; integers must lie within +-2**53 to be exact as float64. "
            "Drop identifiers, or pass them as text to be categories"
        )


def numbers_as_categories(name: str | None, values: NDArray[Any]) -> Column:
    """Return the categorical column of some numbers."""
    integers = _small_integers(values)
    if integers is None:
        distinct = np.unique(values.astype(np.float64, copy=False))
        distinct = distinct[~np.isnan(distinct)] + 0.0  # without negative zero
    else:
        distinct = np.flatnonzero(np.bincount(integers + 1)[1:]).astype(np.float64)
    return Column(name, CATEGORICAL, "", tuple(distinct.tolist())) if len(distinct) else Column(name, UNKNOWN)


def numbers_of(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    """Return the category number of each value of a column of numbers, NaN for missing values and unknown categories."""
    distinct = np.array(column.categories, np.float64)
    dtype = _dtype_of_numbers(len(distinct))
    if np.array_equal(distinct, np.arange(len(distinct))):
        values = _side_by_side(values)
        known_values = (values >= 0.0) & (values < len(distinct)) & (values == np.floor(values))
        return np.where(known_values, values + 0.0, np.nan).astype(dtype, copy=False)  # without negative zero
    integers, known = _small_integers(values), _small_integers(distinct)
    if integers is None or known is None:
        values, ascending = values.astype(np.float64, copy=False), np.argsort(distinct)  # the order of an ordered dtype may differ
        place = ascending[np.minimum(np.searchsorted(distinct, values, sorter=ascending), len(distinct) - 1)]
        return np.where(distinct[place] == values, place, np.nan).astype(dtype)
    number_of = np.full(known.max(initial=-1) + 2, np.nan, dtype)  # the last element is for missing values and larger ones
    number_of[known] = np.arange(len(distinct))
    return number_of.take(np.minimum(integers, len(number_of) - 1, out=integers))


def _small_integers(values: NDArray[Any]) -> NDArray[np.signedinteger[Any]] | None:
    """Return values as integers, -1 if missing, if they are integers from 0 to a limit in proportion to their number; otherwise None.

    They can then be looked up in a table, in a tenth of the time of sorting.
    """
    values = _side_by_side(values)
    most = 4 * len(values) + 2**16
    if not len(values):
        return None
    lowest, highest = values.min(), values.max()
    if np.isnan(lowest):
        missing = np.isnan(values)
        values = np.where(missing, values.dtype.type(-1), values)
        if values.max() >= most or np.count_nonzero(values < 0.0) > np.count_nonzero(missing):
            return None
    elif lowest < 0.0 or highest >= most:
        return None
    integers: NDArray[np.signedinteger[Any]] = values.astype(np.int32 if most < 2**31 else np.int64)
    return integers if np.array_equal(integers.astype(values.dtype), values) else None


def _side_by_side(values: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Return values as contiguous floats, for repeated passes: the values of a column may be far apart in memory."""
    return np.ascontiguousarray(values, None if values.dtype in (np.float32, np.float64) else np.float64)


def infer_column(name: str, series: nw.Series[Any], is_categorical: bool = False) -> Column:
    """Return the column of a frame, or of one of its partitions; numbers are categories if ``is_categorical``."""
    where = f"X column {name!r}"
    check_text(name, "the names of columns")
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        numbers = _numeric(series, where)
        if is_categorical:
            return numbers_as_categories(name, numbers)
        # A partition of a text column with missing values only may be read as numbers, all NaN.
        empty = numbers.dtype.kind == "f" and np.isnan(numbers[:1]).all() and np.isnan(numbers).all()
        return Column(name, UNKNOWN if empty else NUMERIC, numbers.dtype.name)
    if dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object, nw.Unknown):
        values = [value for value in _distinct(series, where) if not is_missing(value)]
        kinds = {_value_kind(value, where) for value in values}
        if not kinds:
            return Column(name, UNKNOWN)
        if len(kinds) > 1:
            raise ValueError(f"{where} mixes {' and '.join(sorted(kinds))}; convert it to one of them, for example with astype(str)")
        if kinds != {"text"} and dtype not in (nw.Categorical, nw.Enum):
            if is_categorical:
                return numbers_as_categories(name, _numeric(series, where))
            return Column(name, NUMERIC, _numeric(series, where).dtype.name)
        order = tuple(map(plain_label, dtype.categories)) if isinstance(dtype, nw.Enum) else ()
        categories = _in_order(map(plain_label, values), order)
        if kinds == {"numbers"} and len(categories) < len(values):
            raise ValueError(f"{where} has categories that are the same number as float64; wants text, or numbers that float64 holds")
        check_labels(categories, f"the categories of {where}", is_sorted=not order)  # ensures that a model with them can be saved
        return Column(name, CATEGORICAL, "", categories, is_text=dtype not in (nw.Categorical, nw.Enum), order=order)
    dates = " (turn dates into numbers, such as days since a fixed date)" if dtype.is_temporal() else ""
    raise ValueError(f"{where} is of dtype {_native_dtype(series)}; wants {_SUPPORTED}{dates}")


def _in_order(categories: Iterable[Any], order: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return distinct categories in the order of a dtype, sorted if it has none."""
    place = {category: i for i, category in enumerate(order)}
    return tuple(sorted(set(categories), key=place.__getitem__ if order else None))


def _native_dtype(series: nw.Series[Any]) -> str:
    """Return the dtype of a column as named by the library of its frame."""
    native = series.to_native()
    return str(getattr(native, "dtype", getattr(native, "type", series.dtype)))


def merge_column(parts: list[Column]) -> Column:
    """Merge the columns of all partitions."""
    names = {part.name for part in parts}
    if len(names) > 1:
        raise ValueError(f"X has partitions that name a column differently: {sorted(map(str, names))}; all must have the same columns")
    name = parts[0].name
    kinds = {part.kind for part in parts if part.kind != UNKNOWN}
    if len(kinds) > 1:
        raise ValueError(f"X column {name!r} holds text or categories in some partitions and numbers in others; give it one dtype")
    if kinds != {CATEGORICAL}:
        # Unknown ones count, as their missing values are floats.
        return Column(name, kinds.pop() if kinds else UNKNOWN, np.result_type(*(np.dtype(part.dtype) for part in parts)).name)
    categories = {category for part in parts for category in part.categories}
    value_kinds = {_value_kind(category, f"X column {name!r}") for category in categories}
    if len(value_kinds) > 1:
        raise ValueError(f"X column {name!r} has partitions with categories of {' and '.join(sorted(value_kinds))}; give it one dtype")
    orders = {part.order for part in parts if part.kind == CATEGORICAL}
    if len(orders) > 1:
        raise ValueError(f"X column {name!r} has partitions whose dtypes declare different orders of categories; give it one dtype")
    order = orders.pop()
    return Column(name, CATEGORICAL, "", _in_order(categories, order), is_text=any(part.is_text for part in parts), order=order)


def encode_column(column: Column, series: nw.Series[Any]) -> NDArray[Any]:
    """Return the values of a frame's column as numbers of the column's dtype (of the frame's, if that is empty), NaN if missing."""
    where = f"X column {column.name!r}"
    if column.kind == CATEGORICAL:
        return _category_numbers(column, series, where)
    if column.kind == UNKNOWN:
        return np.full(len(series), np.nan, column.dtype or np.float32)
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        now = infer_column(str(column.name), series)
        if now.kind == CATEGORICAL:
            example = now.categories[-1]
            held = "text" if now.is_text else "categories"
            how = f" ({HOW_TO_READ})" if isinstance(example, str) and looks_like_number(example) else ""
            raise ValueError(f"{where} was numeric at fit, but now holds {held}, such as {example!r:.40}; convert it to numbers{how}")
    values = _numeric(series, where)
    return finite(values.astype(column.dtype, copy=False)) if column.dtype else values


def _category_numbers(column: Column, series: nw.Series[Any], where: str) -> NDArray[Any]:
    if column.holds_numbers and (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        return numbers_of(column, _numeric(series, where))
    numbers = {category: number for number, category in enumerate(column.categories)}
    values = series.to_list()
    dtype = _dtype_of_numbers(len(numbers))
    codes = np.fromiter(map(numbers.get, values, repeat(np.nan)), dtype, len(values))
    if numbers and series.dtype != nw.String and np.isnan(codes).any():
        # Unseen categories count as missing values, but numbers in place of text are an error, as they cannot match.
        wanted = _value_kind(column.categories[0], where)
        number_of = {}
        for value in _distinct(series, where):
            if is_missing(value):
                continue
            if _value_kind(value, where) != wanted:
                raise ValueError(f"{where} held categories of {wanted} at fit, but now holds {value!r}; convert it to {wanted}")
            number_of[value] = numbers.get(plain_label(value), np.nan)
        codes = np.fromiter(map(number_of.get, values, repeat(np.nan)), dtype, len(values))
    return codes


def numbers_at(column: Column, values: NDArray[Any]) -> NDArray[np.float64]:
    """Convert values of a column, such as grid points, to the numbers that trees compare; NaN if missing or unknown."""
    if column.kind == CATEGORICAL:
        numbers = {category: number for number, category in enumerate(column.categories)}
        return np.array([np.nan if is_missing(value) else numbers.get(plain_label(value), np.nan) for value in values.tolist()], np.float64)
    return np.array([np.nan if is_missing(value) else value for value in values.tolist()], np.float64)


def _numeric(series: nw.Series[Any], where: str) -> NDArray[Any]:
    """Return a numeric or bool column as a checked array, NaN if missing."""
    dtype = series.dtype
    if dtype.is_integer() and len(series) > series.null_count():
        # Checked before conversion, which turns integers with missing values into (possibly rounded) float64.
        _check_integers(int(series.min()), int(series.max()), where)
    if dtype.is_integer() or dtype.is_float():
        values = series.to_numpy() if dtype not in (nw.Int128, nw.UInt128) else series.cast(nw.Float64).to_numpy()
    elif dtype == nw.Boolean and not series.null_count():
        values = series.to_numpy().astype(bool, copy=False)
    else:
        plain = [np.nan if is_missing(value) else value for value in series.to_list()]
        integers = [int(value) for value in plain if isinstance(value, int | np.integer)]
        _check_integers(min(integers, default=0), max(integers, default=0), where)
        values = np.array(plain, dtype=np.float64)
    if values.dtype.kind not in "biuf":
        values = series.cast(nw.Float64).to_numpy().astype(np.float64)
    if values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8):
        values = values.astype(np.float32 if values.dtype.itemsize == 2 else np.float64)
    check_values(values, where)
    return values


def _distinct(series: nw.Series[Any], where: str) -> list[Any]:
    try:
        return list(series.unique().to_list())
    except Exception as error:  # each library has its own errors for dtypes whose values it cannot compare
        try:
            return list(set(series.to_list()))
        except Exception:
            raise ValueError(
                f"{where} is of dtype {_native_dtype(series)}, whose values cannot be compared ({error}); wants {_SUPPORTED}"
            ) from error


def is_missing(value: Any) -> bool:
    """Return whether ``value`` is None, NaN, pandas' NA (neither true nor false in comparisons) or a masked cell."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating | Decimal) and value != value


def _value_kind(value: Any, where: str) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | np.bool_):
        return "booleans"
    if isinstance(value, int | float | np.integer | np.floating | Decimal):
        return "numbers"
    raise ValueError(f"{where} holds {value!r} of type {type(value).__name__}; wants {_SUPPORTED}")


#: Ways to read such text as numbers.
HOW_TO_READ = "astype(float), decimal= and thousands= of pandas.read_csv, or --decimal and --thousands of the command line"
_CURRENCY = r"[$\u00a2-\u00a5\u20a0-\u20cf]"
_DIGITS = r"(\d{1,3}(?P<group>[.,'\u2019 \u00a0\u202f])\d{3}((?P=group)\d{3})*|\d+)([.,]\d*)?|[.,]\d+"
_NUMBER = re.compile(rf"\s*[-+]?\s*{_CURRENCY}?\s*[-+]?({_DIGITS})([eE][-+]?\d+)?\s*({_CURRENCY}|%)?\s*")


def looks_like_number(text: str) -> bool:
    """Return whether a human reader would read a text as a number.

    Examples
    --------
    >>> [looks_like_number(text) for text in ["7", "-1.5e3", "1,5", "$1,234.50", "1.234,5 \u20ac", "12 %"]]
    [True, True, True, True, True, True]
    >>> [looks_like_number(text) for text in ["", "a1", "2024-01-31", "1.2.3", "12:30"]]
    [False, False, False, False, False]
    """
    return _NUMBER.fullmatch(text) is not None
