"""Hypothesis strategies for tables that are hard for trees."""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dtrees.split.criteria.criterion import criteria_for, criterion_named
from tests import naive
from tests.naive import ABSOLUTE_ERROR, QUANTILE


def _neighbours(x: np.floating[Any], n: int) -> NDArray[Any]:
    """``n`` consecutive floats from ``x`` on."""
    out = [x]
    for _ in range(n - 1):
        out.append(np.nextafter(out[-1], x.dtype.type(np.inf)))
    return np.array(out, dtype=x.dtype)


#: Values that columns consist of; those of a float dtype may be missing.
POOLS: dict[str, NDArray[Any]] = {
    "few": np.array([0.0, 1.0, 2.0]),
    "integers": np.arange(-8.0, 8.0),
    "signed zeros": np.array([-1.0, -0.0, 0.0, 5e-324, -5e-324]),
    "subnormal": np.arange(-4, 5) * 5e-324,
    "huge": np.array([-np.finfo(float).max, -1e300, -1.0, 1e-300, 1.0, 1e300, np.nextafter(np.finfo(float).max, 0), np.finfo(float).max]),
    "neighbours": _neighbours(np.float64(1.0), 8),
    "below a power of two": _neighbours(np.float64(2.0) - 4 * np.finfo(float).eps, 8),
    "float32 neighbours": _neighbours(np.float32(0.1), 8),
    "float32 extremes": np.array([np.finfo(np.float32).min, -1e-45, 0.0, 1e-45, 3e-45, np.finfo(np.float32).max], np.float32),
    "int64": np.array([-(2**53), -(2**53) + 1, -1, 0, 1, 2**53 - 2, 2**53 - 1, 2**53]),
    "uint8": np.arange(256, dtype=np.uint8)[::17],
    "int16": np.array([-32768, -1, 0, 32767], np.int16),
    "bool": np.array([False, True]),
    "float16": np.array([-1.0, 0.1, 6e-8, 65504.0], np.float16),
    "constant": np.array([0.3]),
    "missing": np.array([np.nan]),
}


@st.composite
def columns(draw: st.DrawFn, n_rows: int, kinds: tuple[str, ...] = (*POOLS, "continuous")) -> NDArray[Any]:
    """A column of ``n_rows`` values, in a dtype that users use."""
    kind = draw(st.sampled_from(kinds))
    picks = draw(arrays(np.uint8, n_rows))
    if kind == "continuous":
        rng = np.random.default_rng(draw(st.integers(0, 2**16)))
        out = rng.permutation(np.exp(rng.normal(0, 20, n_rows)))
    else:
        pool = POOLS[kind]
        out = pool[(picks & 15) % pool.shape[0]]
    if out.dtype.kind == "f":
        level = draw(st.sampled_from([0, 0, 1, 6, 15]))
        out = np.where(picks >> 4 < level, out.dtype.type(np.nan), out)
    return out


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 25, max_columns: int = 4, min_rows: int = 1) -> list[NDArray[Any]]:
    """Columns of the same rows."""
    n = draw(st.integers(min_rows, max_rows))
    return draw(st.lists(columns(n), min_size=1, max_size=max_columns))


def as_lists(table: list[NDArray[Any]]) -> list[list[float]]:
    """The columns as Python floats, which hold every value exactly."""
    return [column.astype(np.float64).tolist() for column in table]


def criteria_by_sums() -> list[str]:
    """The registered criteria of sums: all registered ones are tested."""
    return [name for task in ("regression", "classification", "boosting") for name, one in criteria_for(task).items() if one.by_sums]


class Task(NamedTuple):
    """A node to be split: the integers to be summed by row number, the rows in it, and the limits."""

    table: list[NDArray[Any]]
    g: NDArray[np.int64]
    h: NDArray[np.int64]  # empty: all 1
    inside: NDArray[np.bool_]
    limits: naive.SplitLimits


@st.composite
def integers_of(draw: st.DrawFn, n: int, low: int, high: int) -> NDArray[np.int64]:
    """``n`` integers in low..high, with many ties or none."""
    few = draw(st.booleans())
    elements = st.sampled_from(sorted({low, high, (low + high) // 2})) if few else st.integers(low, high)
    return draw(arrays(np.int64, n, elements=elements))


@st.composite
def tasks(draw: st.DrawFn, max_rows: int = 25, max_columns: int = 3, random: bool = False, criteria: tuple[str, ...] = ()) -> Task:
    """A node for any criterion of sums (or one of ``criteria``), and any number of classes."""
    table = draw(tables(max_rows, max_columns))
    n = table[0].shape[0]
    criterion = draw(st.sampled_from(criteria or criteria_by_sums()))
    of_classes = criterion_named(criterion).row_statistic == "class"
    n_classes = draw(st.sampled_from([0, 0, 3, 5])) if of_classes else 0
    largest = draw(st.sampled_from([1, 5, 2**20, 2**60 // n]))
    weighted = draw(st.booleans())
    boosts = criterion_named(criterion).task == "boosting"
    lowest = 0 if boosts else 1  # a weight of zero is out of sample, a hessian may vanish
    b = draw(integers_of(n, lowest, largest)) if weighted else np.empty(0, np.int64)
    if n_classes:
        a = draw(integers_of(n, 0, n_classes - 1))
    elif of_classes:
        a = draw(integers_of(n, 0, 1)) * (b if weighted else 1)
    else:
        largest = draw(st.sampled_from([1, 5, 2**20, 2**60 // n]))
        a = draw(integers_of(n, 0 if criterion_named(criterion).row_statistic == "amount" else -largest, largest))
    inside = draw(arrays(np.bool_, n, elements=st.booleans(), fill=st.just(True)))
    inside[draw(st.integers(0, n - 1))] = True
    weight = int(b[inside].sum()) if weighted else int(inside.sum())
    limits = naive.SplitLimits(
        criterion=criterion,
        n_classes=n_classes,
        random=random,
        l1=draw(st.sampled_from([0.0, 1.0, 0.3 * float(np.abs(a).sum())])) if criterion == naive.NEWTON_L1 else 0.0,
        penalty=draw(st.sampled_from([0.0, 1.0, 0.1 * weight])) if boosts else 0.0,
        min_samples=draw(st.sampled_from([1, 1, 2, n // 3 + 1])),
        min_weight=draw(st.sampled_from([0, 0, 1, weight // 4])),
        min_gain=draw(st.sampled_from([-float("inf"), 0.0, 1.0])),
    )
    return Task(table, a, b, inside, limits)


#: Quantiles: those that are exact for some rows, others, and the most extreme ones.
ALPHAS = [Fraction(alpha) for alpha in ("1/2", "1/4", "9/10", "1/3", "1/10000", "9999/10000", "1234/9999")]


@st.composite
def tasks_by_order(draw: st.DrawFn, max_rows: int = 25, max_columns: int = 3, random: bool = False) -> Task:
    """A node to be split by absolute error or a quantile: weights and levels may have the largest possible numbers of bits."""
    alpha = draw(st.sampled_from([Fraction(0), *ALPHAS]))
    criterion, alpha = (QUANTILE, alpha) if alpha else (ABSOLUTE_ERROR, Fraction(1, 2))
    factor = max(alpha.numerator, alpha.denominator - alpha.numerator)
    table = draw(tables(max_rows, max_columns))
    n = table[0].shape[0]
    weighted = draw(st.booleans())
    largest = min(draw(st.sampled_from([1, 3, 2**20, 2**40])), 2**40 // (n * factor))
    b = draw(integers_of(n, 1, largest)) if weighted else np.empty(0, np.int64)
    if weighted and draw(st.booleans()):
        b = np.where(draw(arrays(np.bool_, n)), b, 1)  # unequal
    bits = min(61, 84 - (factor * int(b.sum() if weighted else n)).bit_length())
    largest = draw(st.sampled_from([1, 5, 2**20, 2 ** (bits - 1) - 1]))
    levels, a = np.unique(draw(integers_of(n, -largest, largest)), return_inverse=True)
    inside = draw(arrays(np.bool_, n, elements=st.booleans(), fill=st.just(True)))
    inside[draw(st.integers(0, n - 1))] = True
    weight = int(b[inside].sum()) if weighted else int(inside.sum())
    limits = naive.SplitLimits(
        criterion=criterion,
        alpha=alpha,
        random=random,
        min_samples=draw(st.sampled_from([1, 1, 2, n // 3 + 1])),
        min_weight=draw(st.sampled_from([0, 0, 1, weight // 4])),
        min_gain=draw(st.sampled_from([-float("inf"), 0.0, 1.0])),
        levels=tuple(levels.tolist()),
    )
    return Task(table, a.astype(np.int64), b, inside, limits)
