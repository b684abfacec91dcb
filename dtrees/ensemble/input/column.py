"""Columns of a table: of which kind each is, and how its values become numbers.

Terms
-----
kind
    ``"numeric"``, ``"categorical"``, or ``"unknown"`` for a column without a single value (all missing, of whatever dtype), which
    says nothing about its kind: it takes on the kind that other partitions show.
dictionary
    the sorted distinct categories of a column. Missing values and categories it does not hold become NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.input.plain_data import check_labels, check_text, take
from dtrees.ensemble.input.text_numbers import HOW_TO_READ, looks_like_number

NUMERIC, CATEGORICAL, UNKNOWN = "numeric", "categorical", "unknown"
#: Integers beyond this are not exact in float64.
MAX_INTEGER = 2**53
#: Dictionaries up to this size have category numbers exact in float32.
_MAX_FLOAT32_INTEGER = 2**24
#: What columns of numbers can be.
_DTYPES = {np.dtype(code).name for code in "?bBhHiIlLqQfd"}
_SUPPORTED = "numbers, booleans, text or categories"


@dataclass(frozen=True)
class Column:
    """One column: its name (None for arrays), kind, dtype when numeric, dictionary when categorical.

    ``is_text`` says of a categorical column that it came as plain text, not as a dtype of categories; it is no part of what it is.
    """

    name: str | None
    kind: str
    dtype: str = "float64"
    categories: tuple[Any, ...] = ()
    is_text: bool = field(default=False, compare=False)

    @property
    def holds_numbers(self) -> bool:
        """Whether all categories are numbers."""
        return all(isinstance(category, int | float) and not isinstance(category, bool) for category in self.categories)


def column_from_json(item: Any) -> Column:
    """Return the column that a dict describes; raises ValueError if it does not describe one."""
    owner = "a column"
    name, kind = take(item, "name", (str, type(None)), owner), take(item, "kind", str, owner)
    dtype, categories = take(item, "dtype", str, owner), take(item, "categories", list, owner)
    if name is not None:
        check_text(name, "the names of columns")
    if kind == CATEGORICAL:
        check_labels(categories, f"the categories of column {name!r}")
        if dtype:
            raise ValueError(f"column {name!r} is categorical, but has the dtype {dtype!r:.40}")
        return Column(name, kind, dtype, tuple(categories))
    if kind not in (NUMERIC, UNKNOWN) or dtype not in _DTYPES or categories:
        raise ValueError(f"column {name!r} is of kind {kind!r:.40} and dtype {dtype!r:.40}")
    return Column(name, kind, dtype)


def float_dtype(*dtypes: np.dtype[Any]) -> type[np.floating[Any]]:
    """Return float32 if it holds all values of these dtypes exactly, else float64."""
    small = all(dtype.itemsize <= 2 or (dtype.kind == "f" and dtype.itemsize == 4) for dtype in dtypes)
    return np.float32 if small else np.float64


def check_values(values: NDArray[Any], where: str) -> None:
    """Raise if there is an infinity or an integer that float64 cannot hold."""
    if values.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            total = values.sum()
        if not np.isfinite(total) and np.isinf(values).any():
            raise ValueError(f"{where} contains infinity; wants finite numbers (NaN marks missing values)")
    elif values.dtype.kind in "iu" and values.dtype.itemsize == 8 and values.size:
        _check_integers(int(values.min()), int(values.max()), where)


def _check_integers(low: int, high: int, where: str) -> None:
    if low < -MAX_INTEGER or high > MAX_INTEGER:
        extreme = high if high > MAX_INTEGER else low
        raise ValueError(
            f"{where} contains the integer {extreme}; integers must lie within +-2**53 to be exact as float64. "
            "Drop identifiers, or pass them as text to be categories"
        )


def numbers_as_categories(name: str | None, values: NDArray[Any]) -> Column:
    """Return the column of numbers that are categories."""
    integers = _small_integers(values)
    if integers is None:
        distinct = np.unique(values.astype(np.float64, copy=False))
        distinct = distinct[~np.isnan(distinct)] + 0.0  # no negative zero
    else:
        distinct = np.flatnonzero(np.bincount(integers + 1)[1:]).astype(np.float64)
    return Column(name, CATEGORICAL, "", tuple(distinct.tolist())) if len(distinct) else Column(name, UNKNOWN)


def numbers_of(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    """Return the category number of each value of a column of numbers, NaN for missing values and other categories."""
    distinct = np.array(column.categories, np.float64)
    dtype = np.float32 if len(distinct) <= _MAX_FLOAT32_INTEGER else np.float64
    if np.array_equal(distinct, np.arange(len(distinct))):
        values = _side_by_side(values)
        known_values = (values >= 0.0) & (values < len(distinct)) & (values == np.floor(values))
        return np.where(known_values, values + 0.0, np.nan).astype(dtype, copy=False)  # no negative zero
    integers, known = _small_integers(values), _small_integers(distinct)
    if integers is None or known is None:
        values = values.astype(np.float64, copy=False)
        place = np.minimum(np.searchsorted(distinct, values), len(distinct) - 1)
        return np.where(distinct[place] == values, place, np.nan).astype(dtype)
    number_of = np.full(known.max(initial=-1) + 2, np.nan, dtype)  # the last is that of missing values, and of higher ones
    number_of[known] = np.arange(len(distinct))
    return number_of.take(np.minimum(integers, len(number_of) - 1, out=integers))


def _small_integers(values: NDArray[Any]) -> NDArray[np.signedinteger[Any]] | None:
    """Return values as integers, -1 where missing, if they are integers from 0 to not many times their number; otherwise None.

    They are looked up in a table then, in a tenth of the time that it takes to sort them.
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
    """Return values as floats next to each other, for what goes through them several times: those of a column may be far apart."""
    return np.ascontiguousarray(values, None if values.dtype in (np.float32, np.float64) else np.float64)


def infer_column(name: str, series: nw.Series[Any], is_categorical: bool = False) -> Column:
    """Return the column of a frame, or of one partition of it; the values of a categorical one are categories, also if they are numbers."""
    where = f"X column {name!r}"
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        numbers = _numeric(series, where)
        if is_categorical:
            return numbers_as_categories(name, numbers)
        # A partition of a text column without a single word may be read as numbers, all NaN.
        empty = numbers.dtype.kind == "f" and np.isnan(numbers[:1]).all() and np.isnan(numbers).all()
        return Column(name, UNKNOWN if empty else NUMERIC, numbers.dtype.name)
    if dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object, nw.Unknown):
        values = {value for value in _distinct(series, where) if not is_missing(value)}
        kinds = {_value_kind(value, where) for value in values}
        if not kinds:
            return Column(name, UNKNOWN)
        if len(kinds) > 1:
            raise ValueError(f"{where} mixes {' and '.join(sorted(kinds))}; convert it to one of them, for example with astype(str)")
        if kinds != {"text"} and dtype not in (nw.Categorical, nw.Enum):
            if is_categorical:
                return numbers_as_categories(name, _numeric(series, where))
            return Column(name, NUMERIC, _numeric(series, where).dtype.name)
        return Column(name, CATEGORICAL, "", tuple(sorted(map(_plain, values))), is_text=dtype not in (nw.Categorical, nw.Enum))
    raise ValueError(f"{where} is of dtype {dtype}; wants {_SUPPORTED} (turn dates into numbers, such as days since a fixed date)")


def merge_column(parts: list[Column]) -> Column:
    """Return the column of all partitions together."""
    names = {part.name for part in parts}
    if len(names) > 1:
        raise ValueError(f"X has partitions that name a column differently: {sorted(map(str, names))}; all must have the same columns")
    name = parts[0].name
    kinds = {part.kind for part in parts if part.kind != UNKNOWN}
    if len(kinds) > 1:
        raise ValueError(f"X column {name!r} holds text or categories in some partitions and numbers in others; give it one dtype")
    if kinds != {CATEGORICAL}:
        # Unknown ones count: their missing values are floats.
        return Column(name, kinds.pop() if kinds else UNKNOWN, np.result_type(*(np.dtype(part.dtype) for part in parts)).name)
    categories = {category for part in parts for category in part.categories}
    value_kinds = {_value_kind(category, f"X column {name!r}") for category in categories}
    if len(value_kinds) > 1:
        raise ValueError(f"X column {name!r} has partitions with categories of {' and '.join(sorted(value_kinds))}; give it one dtype")
    return Column(name, CATEGORICAL, "", tuple(sorted(categories)), is_text=any(part.is_text for part in parts))


def encode_column(column: Column, series: nw.Series[Any]) -> NDArray[Any]:
    """Return the values of a frame's column as numbers of the column's dtype (of their own, if that is empty), NaN where missing."""
    where = f"X column {column.name!r}"
    if column.kind == CATEGORICAL:
        return _category_numbers(column, series, where)
    if column.kind == UNKNOWN:
        return np.full(len(series), np.nan, column.dtype or np.float32)
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        now = infer_column(str(column.name), series)
        if now.kind == CATEGORICAL:
            example = now.categories[-1]
            how = f" ({HOW_TO_READ})" if isinstance(example, str) and looks_like_number(example) else ""
            raise ValueError(
                f"{where} was numeric at fit, but now holds text or categories, such as {example!r:.40}; convert it to numbers{how}"
            )
    values = _numeric(series, where)
    return values.astype(column.dtype, copy=False) if column.dtype else values


def _category_numbers(column: Column, series: nw.Series[Any], where: str) -> NDArray[Any]:
    if column.holds_numbers and (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        return numbers_of(column, _numeric(series, where))
    numbers = {category: number for number, category in enumerate(column.categories)}
    values = series.to_list()
    dtype = np.float32 if len(numbers) <= _MAX_FLOAT32_INTEGER else np.float64
    codes = np.fromiter(map(numbers.get, values, repeat(np.nan)), dtype, len(values))
    if numbers and series.dtype not in (nw.String, nw.Enum) and np.isnan(codes).any():
        # Unseen categories are missing values, but numbers where there was text are a mistake: none could ever match.
        wanted = _value_kind(column.categories[0], where)
        for value in _distinct(series, where):
            if not is_missing(value) and _value_kind(value, where) != wanted:
                raise ValueError(f"{where} held categories of {wanted} at fit, but now holds {value!r}; convert it to {wanted}")
    return codes


def _numeric(series: nw.Series[Any], where: str) -> NDArray[Any]:
    """Return a numeric or bool column as an array, NaN where missing, its values checked."""
    dtype = series.dtype
    if dtype.is_integer() and len(series) > series.null_count():
        # Before conversion: an integer column with missing values comes out of it as (possibly rounded) float64.
        _check_integers(int(series.min()), int(series.max()), where)
    if dtype.is_integer() or dtype.is_float():
        values = series.to_numpy() if dtype not in (nw.Int128, nw.UInt128) else series.cast(nw.Float64).to_numpy()
    elif dtype == nw.Boolean and not series.null_count():
        values = series.to_numpy().astype(bool, copy=False)
    else:
        plain = [np.nan if is_missing(value) else value for value in series.to_list()]
        _check_integers(*_integer_range(plain), where)
        values = np.array(plain, dtype=np.float64)
    if values.dtype.kind not in "biuf":
        values = series.cast(nw.Float64).to_numpy().astype(np.float64)
    if values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8):
        values = values.astype(np.float32 if values.dtype.itemsize == 2 else np.float64)
    check_values(values, where)
    return values


def _integer_range(values: list[Any]) -> tuple[int, int]:
    integers = [int(value) for value in values if isinstance(value, int | np.integer)]
    return (min(integers), max(integers)) if integers else (0, 0)


def _distinct(series: nw.Series[Any], where: str) -> list[Any]:
    try:
        return list(series.unique().to_list())
    except TypeError as error:
        raise ValueError(f"{where} holds values that cannot be compared ({error}); wants {_SUPPORTED}") from error


def is_missing(value: Any) -> bool:
    """Return whether ``value`` is None, NaN or pandas' NA, which is neither true nor false when compared."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float | np.floating) and value != value)


def _value_kind(value: Any, where: str) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | np.bool_):
        return "booleans"
    if isinstance(value, int | float | np.integer | np.floating) or type(value).__name__ == "Decimal":
        return "numbers"
    raise ValueError(f"{where} holds {value!r} of type {type(value).__name__}; wants {_SUPPORTED}")


def _plain(value: Any) -> Any:
    """Return ``value`` as the Python scalar that JSON holds."""
    return value.item() if isinstance(value, np.generic) else value
