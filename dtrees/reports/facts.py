"""Facts about a model and about the columns of a table, in words and numbers, with the versions in use."""

from __future__ import annotations

import datetime
import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from dtrees.effects import as_numbers, importances_of, members_of
from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.ensemble.input.schema import Schema, is_sparse
from dtrees.ensemble.input.target import BOUNDS, OUTLIERS, QUERIES, VALUES, kind_of
from dtrees.node_texts import column_names, short_text
from dtrees.version import __version__, installed

#: By what y is.
_TASKS = {QUERIES: "ranking", BOUNDS: "survival", OUTLIERS: "outliers"}
_PACKAGES = ("numpy", "numba", "scikit-learn", "scipy", "pandas", "dask", "distributed", "matplotlib")


@dataclass(frozen=True)
class Parameter:
    """A parameter, with its value and its default as text, and whether they differ."""

    name: str
    value: str
    default: str
    changed: bool


def parameters_of(model: Any) -> list[Parameter]:
    """Return the parameters of a model, the changed ones first.

    >>> from dtrees import DecisionTreeRegressor
    >>> parameters_of(DecisionTreeRegressor(max_depth=3))[0]
    Parameter(name='max_depth', value='3', default='None', changed=True)
    """
    defaults = type(model)().get_params(deep=False)
    found = []
    for name, value in model.get_params(deep=False).items():
        default = defaults[name]
        same = value is default or (type(value) is type(default) and repr(value) == repr(default))
        found.append(Parameter(name, f"{value!r:.200}", f"{default!r:.200}", not same))
    return sorted(found, key=lambda parameter: not parameter.changed)


def figures_of(model: Any) -> dict[str, Any]:
    """Return a summary of a fitted model as plain data: counts, scores, and minimum, maximum and mean of leaves and depths."""
    return {name: value for figures, _, _ in _facts(model) for name, value in figures.items()}


def facts_of(model: Any) -> list[tuple[str, str]]:
    """Return the summary of a fitted model in words, as pairs of label and value."""
    return [(label, words) for _, label, words in _facts(model)]


def _facts(model: Any) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield facts as plain data, with a label and in words."""
    members = members_of(model)
    trees = [tree for member in members for group in member._trees.groups for tree in group]
    n_rounds = sum(member._trees.n_rounds for member in members)
    by_round = f": {n_rounds:,} rounds of {len(trees) // n_rounds}" if n_rounds < len(trees) else ""
    yield {"task": (task := _task(model))}, "task", task
    if len(members) > 1:
        yield {"n_boosters": len(members)}, "boosters", f"{len(members):,}"
    yield {"n_trees": len(trees), "n_rounds": n_rounds}, "trees", f"{len(trees):,}{by_round}"
    for name, numbers in (("leaves", [tree.n_leaves for tree in trees]), ("depth", [tree.max_depth for tree in trees])):
        spread = {"n": len(numbers), "min": min(numbers), "max": max(numbers), "mean": sum(numbers) / len(numbers)}
        yield {name: spread}, name, _range(spread)
    yield {"n_columns": model.n_features_in_}, "columns", f"{model.n_features_in_:,}"
    if hasattr(model, "best_iteration_"):
        best, score = model.best_iteration_ + 1, model.best_score_
        yield {"best_round": best, "best_score": score}, "best round", f"{best:,}, with a score of {score:.6g}"
    if hasattr(model, "oob_score_"):
        yield {"oob_score": model.oob_score_}, "out-of-bag score", f"{model.oob_score_:.6g}"
    if hasattr(model, "offset_"):
        yield {"threshold": model.offset_}, "outliers", f"rows with a score below {model.offset_:.6g}"
    if hasattr(model, "conformity_scores_"):
        n = len(model.conformity_scores_)
        yield {"calibration_rows": n}, "intervals", f"calibrated on {n:,} rows"
    if hasattr(model, "_leaf_targets"):
        n = len(model._leaf_targets.target)
        yield {"target_rows": n}, "quantiles, intervals", f"by the targets of {n:,} rows in the leaves"
    if hasattr(model, "placement_"):
        yield {"fitted": (fitted := str(model.placement_))}, "fitted", fitted


def times_of(model: Any) -> list[tuple[str, str]]:
    """Return the times of a fit as pairs of label and value; empty for a model from a file or another tool.

    After several fits by ``warm_start``, they are those of the last.
    """
    seconds = getattr(model, "_growing_seconds", None)
    if seconds is None:
        return []
    n, what = model._n_grown or 0, "round" if hasattr(model, "learning_rate") else "tree"  # a checkpoint may have contained some trees
    grown = f"{n:,} {what}s, {1000 * seconds / n:.3g} ms each" if n > 1 else "trees" if n == 0 else f"a {what}"
    return [("fit", f"{model._loading_seconds:.3g} s to check and sort the table, {seconds:.3g} s to grow {grown}")]


def speed_of(n_rows: int, seconds: float) -> tuple[str, str]:
    """Return the speed of predictions as a label and a value."""
    return "prediction", f"{seconds:.3g} s for {n_rows:,} rows here, {n_rows / max(seconds, 1e-9):,.0f} rows a second"


def _task(model: Any) -> str:
    if (kind := kind_of(members_of(model)[0])) != VALUES:
        return _TASKS[kind]
    task, n_targets = "classification" if is_classifier(model) else "regression", getattr(model, "n_outputs_", 1)
    if n_targets > 1:
        return f"{task}, {n_targets} targets"
    return f"{task}, {len(model.classes_):,} classes" if is_classifier(model) else task


def _range(spread: Mapping[str, float]) -> str:
    if spread["min"] == spread["max"]:
        return f"{spread['min']:,}{' each' if spread['n'] > 1 else ''}"
    return f"{spread['min']:,} to {spread['max']:,}, {spread['mean']:,.1f} on average"


def environment() -> list[tuple[str, str]]:
    """Return versions and the machine as pairs of label and value."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return [("dtrees", __version__), ("Python", platform.python_version()), *installed(_PACKAGES).items(), ("machine", machine)]


def now() -> str:
    """Return the date and time, with the offset of the time zone."""
    return datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z")


_BINS, _MOST_FREQUENT, _MAX_TEXT = 24, 3, 24


@dataclass(frozen=True)
class ColumnSummary:
    """A summary of one column.

    Attributes
    ----------
    name, kind : str
        Its name, and its dtype, or "categories".
    missing : float
        The share of missing values, including unseen categories.
    distinct : int
    values : str
        The smallest value, the median and the largest, or the most frequent categories.
    bars : list of float
        Histogram from the smallest to the largest value, or counts of the most frequent categories, as shares of the largest count.
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
    """Return the columns, the most important ones first, at most ``limit`` of them, and the total number."""
    importances = importances_of(model)
    schema: Schema = model._schema
    order = np.argsort(-importances, kind="stable")[:limit].tolist()
    if is_sparse(X):
        X = X.tocsc()[:, order].toarray()
        encoded = [X[:, i] for i in range(len(order))]
    else:
        every = schema.encode(X)
        encoded = [every[j] for j in order]
    names = column_names(model)
    found = [_summary(names[j], schema.columns[j], values, float(importances[j])) for j, values in zip(order, encoded, strict=True)]
    return found, len(importances)


def _summary(name: str, column: Any, values: NDArray[Any], importance: float) -> ColumnSummary:
    numbers = as_numbers(values)
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
    """Return a histogram; values beyond the middle 98 % are in its first and last bar, so that outliers do not flatten the others."""
    if not len(present):
        return []
    low, high = np.quantile(present, [0.01, 0.99])
    if low == high:
        low, high = present.min(), present.max()
    if low == high:
        return [1.0]
    edges = np.linspace(low, high, _BINS + 1)
    if np.array_equal(present, np.round(present)) and high - low < 2**50:  # equally many integers in each bar, so that none is empty
        width = np.ceil((high - low + 1) / _BINS)
        edges = np.arange(np.floor(low), high + width + 1, width) - 0.5
    counts, _ = np.histogram(np.clip(present, low, high), bins=edges)
    return (counts / counts.max()).tolist()
