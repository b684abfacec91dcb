"""What the columns of a table hold, in a line each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.sparse import is_sparse
from dtrees.export.node_text import short_text
from dtrees.reports.members import importances_of, members_of

_BINS, _MOST_FREQUENT, _MAX_TEXT = 24, 3, 24


@dataclass(frozen=True)
class ColumnSummary:
    """One column.

    Attributes
    ----------
    name, kind : str
        What it is called, and its dtype, or "categories".
    missing : float
        The share of missing values; of categories, those not seen at fit as well.
    distinct : int
    values : str
        The smallest value, the median and the largest, or the most frequent categories.
    bars : list of float
        How many values there are from the smallest to the largest, or of the most frequent categories, as shares of the most.
    importance : float
    """

    name: str
    kind: str
    missing: float
    distinct: int
    values: str
    bars: list[float]
    importance: float


def summarise_columns(model: Any, X: Any, limit: int) -> tuple[list[ColumnSummary], int]:
    """Return the columns, the most important ones first, at most ``limit`` of them, and how many there are."""
    importances = importances_of(model, members_of(model)[0].importance_type)
    schema: Schema = model._schema
    order = np.argsort(-importances, kind="stable")[:limit].tolist()
    if is_sparse(X):
        X = X.tocsc()[:, order].toarray()
        encoded = [X[:, i] for i in range(len(order))]
    else:
        every = schema.encode(X)
        encoded = [every[j] for j in order]
    names = getattr(model, "feature_names_in_", [f"feature_{j}" for j in range(model.n_features_in_)])
    found = [_summary(str(names[j]), schema.columns[j], values, float(importances[j])) for j, values in zip(order, encoded, strict=True)]
    return found, len(importances)


def _summary(name: str, column: Any, values: NDArray[Any], importance: float) -> ColumnSummary:
    numbers = values.astype(np.float64)
    if values.dtype.kind == "f":  # infinities are encoded as the extremes of the dtype
        extreme = np.abs(values) == np.finfo(values.dtype).max
        numbers[extreme] = np.copysign(np.inf, numbers[extreme])
    present = numbers[~np.isnan(numbers)]
    missing = 1 - len(present) / max(len(numbers), 1)
    if column.kind == CATEGORICAL:
        counts = Counter(present.astype(np.int64).tolist())
        most = counts.most_common(_BINS)
        shown = [f"{column.categories[k]!s:.{_MAX_TEXT}} ({count / len(present):.0%})" for k, count in most[:_MOST_FREQUENT]]
        bars = [count / most[0][1] for _, count in most]
        return ColumnSummary(name, "categories", missing, len(counts), ", ".join(shown), bars, importance)
    kind = values.dtype.name
    if not len(present):
        return ColumnSummary(name, kind, missing, 0, "", [], importance)
    low, middle, high = (short_text(float(value), 3) for value in (present.min(), np.median(present), present.max()))
    return ColumnSummary(
        name, kind, missing, len(np.unique(present)), f"{low} · {middle} · {high}", _bars(present[np.isfinite(present)]), importance
    )


def _bars(present: NDArray[np.float64]) -> list[float]:
    """Return a histogram; values beyond the middle 98 % are in its first and last bar, lest a single one flatten the others."""
    if not len(present):
        return []
    low, high = np.quantile(present, [0.01, 0.99])
    if low == high:
        low, high = present.min(), present.max()
    if low == high:
        return [1.0]
    edges = np.linspace(low, high, _BINS + 1)
    if np.array_equal(present, np.round(present)) and high - low < 2**50:  # as many integers in each bar, lest some have none
        width = np.ceil((high - low + 1) / _BINS)
        edges = np.arange(np.floor(low), high + width + 1, width) - 0.5
    counts, _ = np.histogram(np.clip(present, low, high), bins=edges)
    return (counts / counts.max()).tolist()
