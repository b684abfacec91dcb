"""Where a model is worst: rows with certain values of one column whose loss is higher than that of others beyond chance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtrees.effects import Sample
from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.node_texts import short_text
from dtrees.plots import short_name
from dtrees.reports.targets import Losses, Target

#: Ranges of a numeric column; with few values, each value, and each of the most frequent categories, is a slice. Most slices shown.
_N_RANGES, _MAX_LEVELS, _MAX_SLICES = 5, 12, 10
#: Smallest slices that are considered: rows, and their share.
_LEAST_ROWS, _LEAST_SHARE = 20, 0.01
#: Standard errors by which the mean loss must exceed that of the other rows, since there are many slices and few should be by chance.
_STANDARD_ERRORS = 3.0
#: If two slices share more than this part of the rows of either, only the worse one is shown.
_SAME = 0.5


@dataclass(frozen=True)
class Slice:
    """A slice: some rows of a table.

    Attributes
    ----------
    name : str
        Description of the rows.
    n : int
    share : float
        Their share of all rows.
    loss, ratio : float
        Their loss, and its ratio to that of all rows.
    means : list of float
        Mean true and mean predicted values, or the share of rows with a correct class; see :func:`means_named`.
    """

    name: str
    n: int
    share: float
    loss: float
    ratio: float
    means: list[float]


def means_named(target: Target) -> list[str]:
    """Return the names of the means of slices."""
    if target.classes is None:
        return ["mean actual", "mean predicted"]
    if len(target.classes) == 2:
        return [f"share of {short_name(target.classes[1], 20)}", "mean probability"]
    return ["accuracy"]


def worst_slices(sample: Sample, target: Target, losses: Losses) -> list[Slice]:
    """Return the slices whose loss is the highest, the worst one first; none without losses of rows.

    They are ordered by the lower end of what the mean loss may be.
    """
    if losses.of_rows is None:
        return []
    n, total, squares = len(sample), losses.of_rows.sum(), (losses.of_rows**2).sum()
    found: list[tuple[float, str, NDArray[np.bool_]]] = []
    for name, rows in (each for j in range(len(sample.names)) for each in _slices(sample, j)):
        inside = losses.of_rows[rows]
        others = n - len(inside)
        if len(inside) < max(_LEAST_ROWS, _LEAST_SHARE * n) or others < _LEAST_ROWS:
            continue
        mean, rest = inside.mean(), (total - inside.sum()) / others
        variance = max(0.0, (squares - (inside**2).sum()) / others - rest**2) / others
        error = np.sqrt(inside.var() / len(inside) + variance)
        if mean - rest > _STANDARD_ERRORS * error:
            found.append((float(mean - _STANDARD_ERRORS * error), name, rows))
    shown: list[tuple[str, NDArray[np.bool_]]] = []
    for _, name, rows in sorted(found, key=lambda each: -each[0]):
        if len(shown) < _MAX_SLICES and all((rows & other).sum() <= _SAME * (rows | other).sum() for _, other in shown):
            shown.append((name, rows))
    overall = losses.mean() or 1.0
    return [
        Slice(name, int(rows.sum()), float(rows.mean()), losses.mean(rows), losses.mean(rows) / overall, _means(target, rows))
        for name, rows in shown
    ]


def _means(target: Target, rows: NDArray[np.bool_]) -> list[float]:
    if target.classes is None:
        return [float(target.actual[rows].mean()), float(target.predicted[rows].mean())]
    assert target.probabilities is not None
    if len(target.classes) == 2:
        return [float((target.actual[rows] == target.classes[1]).mean()), float(target.probabilities[rows, 1].mean())]
    return [float((target.actual[rows] == target.predicted[rows]).mean())]


def _slices(sample: Sample, j: int) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield the slices of a column with their names."""
    column, values, name = sample.model._schema.columns[j], sample.numbers(j), short_name(sample.names[j])
    missing = np.isnan(values)
    if missing.any():
        yield f"{name} is missing", missing
    present = values[~missing]
    distinct, counts = np.unique(present, return_counts=True)
    if column.kind == CATEGORICAL or len(distinct) <= _N_RANGES:
        for k in np.argsort(-counts, kind="stable")[:_MAX_LEVELS].tolist():
            rows = values == distinct[k]
            yield f"{name} = {short_name(sample.text(j, int(rows.argmax())))}", rows
        return
    edges = np.unique(np.quantile(present, np.linspace(0, 1, _N_RANGES + 1)[1:-1], method="lower"))
    for low, high in zip([None, *edges], [*edges, None], strict=True):
        rows = ~missing & (True if low is None else values > low) & (True if high is None else values <= high)
        start = "" if low is None or high is None else f"{short_text(float(low), 3)} < "
        end = f"{name} > {short_text(float(low), 3)}" if high is None else f"{name} \u2264 {short_text(float(high), 3)}"
        if rows.any():
            yield start + end, rows
