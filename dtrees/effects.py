"""Explain predictions with matplotlib: how they depend on columns, and what each column adds to them (Shapley values).

Both use a sample of rows. Partial dependence is the mean prediction if a column has the same value in all of these rows (Friedman, 2001);
individual conditional expectation is the prediction of each row (Goldstein et al., 2015). Both call ``predict`` instead of reading the
trees, so all models, losses, categories and missing values are treated alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dtrees.ensemble.bagging import Bagging
from dtrees.ensemble.estimators.starting import BY_MARGIN
from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.ensemble.input.schema import is_frame, is_sparse
from dtrees.ensemble.prediction import by_target
from dtrees.node_texts import check_integers, column_names, short_text
from dtrees.plots import COLOUR, INCHES, axes_for, check_model, checked_size, importance_by, pyplot, short_name

#: Limits: lines of rows; categories, and classes drawn; points of a grid for two columns; cells that are predicted at once.
_MAX_LINES, _MAX_LEVELS, _MAX_OUTPUTS, _GRID_OF_TWO, _CELLS = 50, 20, 8, 20, 2_000_000
_RED, _GREY, _DARK = "#d1495b", "#9a9a9a", "#303030"
_KINDS = ("average", "individual", "both")


def without_steps(model: Any, X: Any) -> tuple[Any, Any]:
    """Return the estimator at the end of a pipeline, if the model is one, and X after the steps before it.

    Raises
    ------
    TypeError
        If it is not an estimator of dtrees.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    """
    if isinstance(model, Pipeline):
        X = model[:-1].transform(X) if len(model) > 1 else X
        model = model[-1]
    if isinstance(model, Bagging):
        check_is_fitted(model)
    else:
        check_model(model)
    return model, X


def members_of(model: Any) -> list[Any]:
    """Return the boosters of a bag, or the estimator itself. The first one has the columns and the parameters of all."""
    return list(model.estimators_) if isinstance(model, Bagging) else [model]


class Outputs:
    """The outputs of a model: a number for each target or quantile, or a probability for each class (for two classes, of the second).

    Attributes
    ----------
    keys : list
        Values that users select outputs by: classes, numbers of targets, or pairs of both; quantiles; None if there is only one output.
    """

    def __init__(self, model: Any) -> None:
        classes = by_target(getattr(model, "classes_", None))
        every = [(k, label) for k, labels in enumerate(classes) for label in labels.tolist()]
        kept = [i for i, (k, label) in enumerate(every) if len(classes[k]) != 2 or label == classes[k][1]]
        self._n_all, self._kept = len(every), kept
        if not classes:
            n_targets, quantiles = int(getattr(model, "n_outputs_", 1)), getattr(members_of(model)[0], "_quantiles", ())
            self.keys: list[Any] = list(quantiles) or (list(range(n_targets)) if n_targets > 1 else [None])
            self.names = [f"the {q:g} quantile" for q in quantiles] or [f"target {k}" if n_targets > 1 else "" for k in range(n_targets)]
        else:
            self.keys = [every[i] if len(classes) > 1 else every[i][1] for i in kept]
            self.names = [f"target {every[i][0]}: {every[i][1]}" if len(classes) > 1 else str(every[i][1]) for i in kept]
        self.predicted = self.explained = "probability" if classes else "prediction"
        first = members_of(model)[0]
        if hasattr(model, "score_samples"):
            self.predicted, self.explained = "score", "path length"
        if hasattr(first, "learning_rate") and (classes or first._has_link):
            self.explained = "log odds" if first.loss == "log_loss" and self._n_all == 2 else "raw score"

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the outputs, given these or the probabilities of all classes along the last axis."""
        return values[..., self._kept] if self._n_all and values.shape[-1] == self._n_all else values

    def choose(self, target: Any) -> list[int]:
        """Return the outputs that a user selects: all for None; ValueError if there is none of that name."""
        if target is None:
            return list(range(len(self.keys)))
        if target not in self.keys:
            raise ValueError(f"target is {target!r:.60}; wants one of {', '.join(map(repr, self.keys))}"[:400])
        return [self.keys.index(target)]

    def said(self, what: str, chosen: Sequence[int]) -> str:
        """Return the label of an axis: ``what``, with the name of the output if only one is drawn."""
        name = self.names[chosen[0]] if len(chosen) == 1 else ""
        return f"{what} of {short_name(name)}" if name else what


@dataclass(frozen=True)
class Sample:
    """Some rows, in which values of columns can be replaced.

    Attributes
    ----------
    model : estimator or bag
    table : pandas.DataFrame of shape (n, n_columns)
        For an array, the columns are numbers, which are not names.
    encoded : sequence of ndarray of shape (n,)
        The columns as numbers; NaN for missing values, the extremes of the dtype for infinities.
    margin : ndarray or None
        Initial raw predictions, if the model was fitted with ``base_margin``.
    names : list of str
        Names of the columns.
    outputs : Outputs
        The outputs of the model.
    """

    model: Any
    table: Any
    encoded: Sequence[NDArray[Any]]
    margin: NDArray[np.float64] | None
    names: list[str]
    outputs: Outputs

    @classmethod
    def of(
        cls, model: Any, X: Any, max_rows: int | None = None, seed: int = 0, base_margin: Any = None, names: list[str] | None = None
    ) -> Sample:
        """Return at most ``max_rows`` rows of a table or of a Dask collection."""
        first = members_of(model)[0]
        _, (X, base_margin) = first._check_columns(X).draw_rows(max_rows, seed, X, base_margin)
        if not X.shape[0]:
            raise ValueError("X has no rows; wants at least one")
        if getattr(first, "_starts", None) == BY_MARGIN:
            base_margin = np.zeros(X.shape[0]) if base_margin is None else np.asarray(base_margin, np.float64)
        if not is_frame(X):
            X = pd.DataFrame(X.toarray() if is_sparse(X) else X)
        elif not hasattr(X, "iloc"):
            X = nw.from_native(X, eager_only=True).to_pandas()
        return cls(model, X, model._schema.encode(X), base_margin, names or column_names(model), Outputs(model))

    def take(self, rows: NDArray[np.integer]) -> Sample:
        """Return some of the rows, by number."""
        margin = None if self.margin is None else self.margin[rows]
        return replace(self, table=self.table.iloc[rows], encoded=[values[rows] for values in self.encoded], margin=margin)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.table)

    def numbers(self, j: int) -> NDArray[np.float64]:
        """Return a column as numbers, with numbers of categories, and NaN for missing values."""
        return as_numbers(self.encoded[j])

    def predict(self, replaced: Mapping[int, NDArray[Any]]) -> NDArray[np.float64]:
        """Return predictions, or probabilities of all classes, of all rows for each of several replacements.

        Parameters
        ----------
        replaced : mapping of int to ndarray of shape (n_points,) or (n_points, n)
            For some columns, the values that replace those of the rows.

        Returns
        -------
        ndarray of float64 of shape (n_points, n, n_outputs)
        """
        n, n_points = len(self), len(next(iter(replaced.values())))
        step = max(1, _CELLS // (n * len(self.encoded)))
        parts = []
        for begin in range(0, n_points, step):
            points = np.arange(begin, min(begin + step, n_points))
            rows = np.tile(np.arange(n), len(points))
            table = self.table.iloc[rows].reset_index(drop=True)
            for j, values in replaced.items():
                table.isetitem(j, values[points].ravel() if values.ndim == 2 else np.repeat(values[points], n))
            parts.append(self._predicted(table, rows).reshape(len(points), n, -1))
        return np.concatenate(parts)

    def _predicted(self, table: Any, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        more = {} if self.margin is None else {"base_margin": self.margin[rows]}
        if not is_classifier(self.model):
            predict = getattr(self.model, "score_samples", self.model.predict)
            return np.asarray(predict(table, **more), np.float64).reshape(len(rows), -1)
        shares = self.model.predict_proba(table, **more)
        return np.hstack(shares) if isinstance(shares, list) else np.asarray(shares)

    def text(self, j: int, i: int) -> str:
        """Return the text of a row's value in a column."""
        value, column = float(self.numbers(j)[i]), self.model._schema.columns[j]
        if np.isnan(value):
            return "missing"
        if column.kind == CATEGORICAL:
            return _level(column.categories[int(value)])
        return str(bool(value)) if self.encoded[j].dtype == bool else short_text(value, 3)


def _level(category: Any) -> str:
    return short_text(category, 3) if isinstance(category, float) else str(category)


def as_numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the encoded values of a column as float64, with infinities in place of the extremes of the dtype."""
    numbers = values.astype(np.float64)
    if values.dtype.kind == "f":
        extreme = np.abs(values) == np.finfo(values.dtype).max
        numbers[extreme] = np.copysign(np.inf, numbers[extreme])
    return numbers


@dataclass(frozen=True)
class Axis:
    """The points of a column at which predictions are computed: numbers, or the names of categories.

    Attributes
    ----------
    values : ndarray of shape (n_points,)
        Values in the form of X; the last is NaN or None if it stands for missing values.
    labels : list of str or None
        Names of categories.
    ordered : bool
        Whether the categories have an order.
    deciles : ndarray of float64
        Deciles of a numeric column.
    missing : bool
        Whether the last point is the missing value.
    said : str
        The name of the column, and the categories that are left out.
    """

    values: NDArray[Any]
    labels: list[str] | None
    ordered: bool
    deciles: NDArray[np.float64]
    missing: bool
    said: str

    @classmethod
    def of(cls, sample: Sample, j: int, resolution: int) -> Axis:
        """Return the points of a column, at most ``resolution`` for a numeric one."""
        column, numbers, name = sample.model._schema.columns[j], sample.numbers(j), short_name(sample.names[j])
        present, missing = numbers[np.isfinite(numbers)], bool(np.isnan(numbers).any())
        distinct, counts = np.unique(present, return_counts=True)
        if column.kind == CATEGORICAL or sample.encoded[j].dtype == bool or not len(present):
            shown = np.sort(np.argsort(-counts, kind="stable")[:_MAX_LEVELS])
            levels = [column.categories[int(k)] if column.kind == CATEGORICAL else bool(k) for k in distinct[shown]]
            values, labels = np.array([*levels, *[None] * missing], object), [*map(_level, levels), *["missing"] * missing]
            rarer = len(distinct) - len(shown)
            said = f"{name} ({rarer} rarer ones are not shown)" if rarer else name
            return cls(values, labels, bool(column.order), np.empty(0), missing, said)
        low, high = np.quantile(present, [0.01, 0.99])
        if len(distinct) > 10:  # without the extremes, unless there are only a few numbers
            distinct = distinct[(distinct >= low) & (distinct <= high)]
        if len(distinct) > resolution:
            grid = np.linspace(low, high, resolution) if low < high else distinct[[0, -1]]
            distinct = np.unique(np.round(grid)) if np.array_equal(present, np.round(present)) else grid
        deciles = np.quantile(present, np.linspace(0.1, 0.9, 9))
        return cls(np.append(distinct, [np.nan] * missing), None, True, deciles, missing, name)


def plot_partial_dependence(
    model: Any,
    X: Any,
    features: Any = None,
    *,
    target: Any = None,
    kind: str = "both",
    grid_resolution: int = 50,
    max_rows: int = 500,
    seed: int = 0,
    feature_names: Any = None,
    title: str | None = None,
    ax: Any = None,
    figsize: Any = None,
) -> Any:
    """Draw how predictions depend on one column, on a pair of columns, or on each of several.

    The blue line is the mean prediction if all rows have the same value in this column; grey lines are single rows. Ticks along the axis
    are deciles of the column. For categories, grey bars cover the middle 80 % of the rows, each shifted so that its mean over the
    categories equals the overall mean. A pair of columns is drawn as a map, with white points for the rows. The plot ignores correlations
    between columns: where no rows are nearby, it shows predictions for rows that do not exist.

    Parameters
    ----------
    model : estimator or bag of dtrees, or pipeline that ends with one
        Fitted. For a pipeline, the columns are those that its last step receives.
    X : array-like, sparse table, frame or Dask collection of shape (n, n_features)
        Rows to predict.
    features : str, int, pair of these, list of these and of pairs, or None, default=None
        Names or numbers of columns: one column, a pair as a tuple, or a list of these with a plot for each. None draws the six columns of
        the largest ``feature_importances_``, or the first six of an isolation forest, which has no importances.
    target : object, default=None
        Output to draw: a class, a quantile, the number of a target, or a pair of target number and class. None draws a line for each
        output; for two classes, the second one.
    kind : {"average", "individual", "both"}, default="both"
        Draw the mean, single rows, or both. For several classes or targets, only means are drawn.
    grid_resolution : int, default=50
        Number of points of a numeric column, between its first and last percentile. A column of fewer distinct values has a point for each
        of them.
    max_rows : int, default=500
        Maximum number of rows used. Of more rows, a random sample is drawn.
    seed : int, default=0
        Seed of the random sample.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        Names of columns. None uses the names at fit, or ``feature_0``, ``feature_1``, ... for an array.
    title : str or None, default=None
    ax : matplotlib.axes.Axes or None, default=None
        Axes to draw in, unless ``features`` is a list. None makes a new figure.
    figsize : pair of float or None, default=None
        Size of the new figure in inches.

    Returns
    -------
    matplotlib.axes.Axes, or ndarray of these of shape (n,)
        An array if ``features`` is a list or None.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If the model is not an estimator of dtrees, or a number is not an integer.
    ValueError
        If there is no such column, class or target, or the model cannot predict X.

    Notes
    -----
    A model that was fitted with ``base_margin`` predicts from scores of 0; the outputs of an isolation forest are ``score_samples``. The
    numbers equal those of :func:`sklearn.inspection.partial_dependence` with ``method="brute"``, which does not support missing values.

    Examples
    --------
    >>> from dtrees import DecisionTreeRegressor, plot_partial_dependence
    >>> X, y = [[1.0, 5.0], [2.0, 5.0], [3.0, 6.0], [4.0, 6.0]], [1.0, 1.0, 1.0, 5.0]
    >>> ax = plot_partial_dependence(DecisionTreeRegressor().fit(X, y), X, 0, kind="average")
    >>> ax.get_lines()[0].get_ydata().tolist()
    [1.0, 1.0, 1.0, 5.0]
    """
    model, X = without_steps(model, X)
    names, chosen = column_names(model, feature_names), Outputs(model).choose(target)
    if kind not in _KINDS:
        raise ValueError(f"kind is {kind!r}; wants {', '.join(map(repr, _KINDS))}")
    check_integers(grid_resolution=(grid_resolution, 2), max_rows=(max_rows, 1), seed=(seed, 0))
    several = features is None or isinstance(features, list | np.ndarray)
    wanted = most_important(model, 6) if features is None else features if several else [features]
    places = [[_place(one, names) for one in (each if isinstance(each, tuple) else (each,))] for each in wanted]
    if not all(len(each) in (1, 2) for each in places) or not places:
        raise ValueError(f"features is {features!r:.100}; wants columns, or pairs of them as tuples")
    if several and ax is not None:
        raise ValueError("ax is given, but features is a list; pass one column, or a pair, for these axes")
    sample = Sample.of(model, X, max_rows, seed, names=names)
    if several:
        drawn = _panels(len(places), figsize)
    else:
        drawn = np.array([axes_for(ax, (6.4, 4.2) if ax is None and figsize is None else figsize)], object)
    for axes, each in zip(drawn, places, strict=True):
        draw_dependence(axes, sample, each, chosen, kind, grid_resolution)
        if title is not None:
            axes.set_title(title, parse_math=False)
    return drawn if several else drawn[0]


def importances_of(model: Any, kind: str | None = None) -> NDArray[np.float64]:
    """Return the importances of columns by a type, by default the model's, of a bag the means of its boosters; NaN if there are none."""
    members = members_of(model)
    if not hasattr(members[0], "feature_importances_"):  # isolation forests
        return np.full(model.n_features_in_, np.nan)
    return np.asarray(np.mean([importance_by(member, kind or member.importance_type) for member in members], axis=0))


def most_important(model: Any, n: int) -> list[int]:
    """Return the ``n`` most important columns, or fewer; the first ones if there are no importances."""
    return [int(j) for j in np.argsort(-importances_of(model), kind="stable")[:n]]


def _place(feature: Any, names: list[str]) -> int:
    """Return the number of a column, given its number or its name."""
    if isinstance(feature, str) and feature in names:
        return names.index(feature)
    if isinstance(feature, int | np.integer) and 0 <= feature < len(names):
        return int(feature)
    known = f"{', '.join(map(repr, names[:10]))}{', ...' if len(names) > 10 else ''}"
    raise ValueError(f"features names {feature!r:.60}; wants columns by name ({known}) or number (0 to {len(names) - 1})")


def _panels(n: int, figsize: Any) -> NDArray[Any]:
    """Return axes of a new figure, three in a row."""
    n_columns = min(n, 3)
    n_rows = -(-n // n_columns)
    size = checked_size(figsize) or (4.4 * n_columns, 3.6 * n_rows)
    figure, axes = pyplot().subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.15)
    for unused in axes.ravel()[n:]:
        unused.remove()
    return np.array(axes.ravel()[:n], object)


def draw_dependence(
    ax: Any, sample: Sample, places: Sequence[int], chosen: Sequence[int], kind: str = "both", resolution: int = 50
) -> None:
    """Draw how chosen outputs depend on one column, or the first of them on two."""
    outputs = sample.outputs
    if len(places) == 2:
        _draw_map(ax, sample, places, chosen[0], min(resolution, _GRID_OF_TWO))
        return
    axis = Axis.of(sample, places[0], resolution)
    values = outputs.of(sample.predict({places[0]: axis.values}))[:, :, chosen]
    if len(chosen) > _MAX_OUTPUTS:  # the outputs that change most
        most = np.sort(np.argsort(-np.ptp(values.mean(axis=1), axis=0), kind="stable")[:_MAX_OUTPUTS])
        values, chosen = values[:, :, most], [chosen[k] for k in most]
    draw = _draw_numbers if axis.labels is None else _draw_levels
    # A label that begins with an underscore is left out of the legend.
    labels = [(f" {short_name(outputs.names[k])}", f"C{i}") for i, k in enumerate(chosen)] if len(chosen) > 1 else [("_", COLOUR)]
    draw(ax, axis, values, labels, kind if len(chosen) == 1 else "average")
    (ax.set_ylabel if axis.labels is None else ax.set_xlabel)(outputs.said(outputs.predicted, chosen), parse_math=False)
    (ax.set_xlabel if axis.labels is None else ax.set_ylabel)(axis.said, parse_math=False)
    if ax.get_legend_handles_labels()[1]:
        _legend(ax, **({"loc": "upper left", "bbox_to_anchor": (1, 1), "frameon": False} if len(chosen) > 1 else {}))
    ax.locator_params(axis="x" if axis.labels is not None else "both", nbins=6)
    ax.spines[["top", "right"]].set_visible(False)


def _legend(ax: Any, **options: Any) -> None:
    for text in ax.legend(fontsize="small", **options).get_texts():
        text.set_parse_math(False)


def _draw_numbers(ax: Any, axis: Axis, values: NDArray[np.float64], labels: list[tuple[str, str]], kind: str) -> None:
    """Draw lines of rows, and of the mean of each output with its label and colour."""
    n = len(axis.values) - axis.missing
    points, marker = axis.values[:n], "o" if n == 1 else None
    if kind != "average":
        rows = values[:n, :: -(-values.shape[1] // _MAX_LINES), 0]
        ax.plot(points, rows, color=_GREY, linewidth=0.5, alpha=0.6, zorder=1, marker=marker)
    means = values.mean(axis=1)
    for k, (label, colour) in enumerate(labels) if kind != "individual" else ():
        ax.plot(points, means[:n, k], color=colour, label=label, linewidth=2, marker=marker)
        if axis.missing:
            ax.axhline(means[n, k], color=colour, label="_" if k else "missing values", linestyle="--", linewidth=1)
    ax.vlines(axis.deciles, 0, 0.03, color=_DARK, linewidth=1, transform=ax.get_xaxis_transform())
    ax.grid(alpha=0.3)


def _draw_levels(ax: Any, axis: Axis, values: NDArray[np.float64], labels: list[tuple[str, str]], kind: str) -> None:
    """Draw the means of categories; if these have no order, the largest mean is at the top."""
    assert axis.labels is not None
    means = values.mean(axis=1)
    order = np.arange(len(means)) if axis.ordered or len(labels) > 1 else np.argsort(means[:, 0], kind="stable")
    places = np.arange(len(order))
    if kind != "average":
        centred = values[..., 0] - values[..., 0].mean(axis=0) + means[:, 0].mean()
        low, high = np.quantile(centred[order], [0.1, 0.9], axis=1)
        ax.hlines(places, low, high, color=_GREY, linewidth=3, alpha=0.6, zorder=1)
    for k, (label, colour) in enumerate(labels) if kind != "individual" else ():
        ax.plot(means[order, k], places, "o", color=colour, label=label)
    ax.set_yticks(places, [short_name(axis.labels[i], 24) for i in order.tolist()], parse_math=False)
    ax.set_ylim(-0.6, len(order) - 0.4)
    ax.grid(alpha=0.3, axis="x")


def _draw_map(ax: Any, sample: Sample, places: Sequence[int], chosen: int, resolution: int) -> None:
    """Draw the mean prediction at pairs of values, without missing values of numeric columns."""
    axes, outputs = [Axis.of(sample, j, resolution) for j in places], sample.outputs
    values = [axis.values[: len(axis.values) - (axis.missing and axis.labels is None)] for axis in axes]
    x, y = (np.repeat(values[0], len(values[1])), np.tile(values[1], len(values[0])))
    means = outputs.of(sample.predict(dict(zip(places, (x, y), strict=True))))[:, :, chosen].mean(axis=1)
    where = [np.arange(len(one)) if axis.labels is not None else one for axis, one in zip(axes, values, strict=True)]
    mesh = ax.pcolormesh(*where, means.reshape(len(values[0]), -1).T, shading="nearest", cmap="viridis", rasterized=True)
    ax.figure.colorbar(mesh, ax=ax).set_label(outputs.said(outputs.predicted, [chosen]), parse_math=False)
    for axis, ticks, say, turn in ((axes[0], ax.set_xticks, ax.set_xlabel, 90), (axes[1], ax.set_yticks, ax.set_ylabel, 0)):
        if axis.labels is not None:
            ticks(range(len(axis.labels)), [short_name(label, 24) for label in axis.labels], rotation=turn, parse_math=False)
        say(axis.said, parse_math=False)
    if axes[1].labels is not None:
        ax.invert_yaxis()
    elif axes[0].labels is None:
        held = [sample.numbers(j) for j in places]
        inside = np.all([(one >= axis[0]) & (one <= axis[-1]) for one, axis in zip(held, values, strict=True)], axis=0)
        ax.scatter(*(one[inside] for one in held), s=2, color="white", linewidths=0, rasterized=True)


def plot_shap(
    model: Any,
    X: Any,
    *,
    row: int | None = None,
    target: Any = None,
    background: Any = None,
    max_num_features: int = 12,
    max_rows: int = 1000,
    seed: int = 0,
    feature_names: Any = None,
    title: str | None = None,
    ax: Any = None,
    figsize: Any = None,
) -> Any:
    """Draw what columns add to the predictions of many rows, or of one row (Shapley values).

    For many rows, each column has a point for each row. The colour shows the row's value: blue is low, red is high, and grey is a category
    or a missing value. The column with the largest mean absolute value is on top. For several classes or targets, bars show the mean
    absolute values for each. For one row, bars lead from the expected value at the bottom to the prediction at the top.

    Parameters
    ----------
    model : estimator or bag of dtrees, or pipeline that ends with one
        Fitted. For a pipeline, the columns are those that its last step receives. For a bag, values are means over its boosters.
    X : array-like, sparse table, frame or Dask collection of shape (n, n_features)
        Rows to explain.
    row : int or None, default=None
        Position in X of the row to explain. None explains many rows. With a row, a Dask collection is computed in full.
    target : object, default=None
        Output to explain: a class, a quantile, the number of a target, or a pair of target number and class. None draws all outputs; for
        two classes, the second one. With ``row``, a model of several outputs requires a target.
    background : array-like, sparse table, frame or Dask collection of shape (m, n_features), or None, default=None
        As for ``shap_values``.
    max_num_features : int, default=12
        Maximum number of columns shown.
    max_rows : int, default=1000
        Maximum number of rows used. Of more rows, a random sample is drawn.
    seed : int, default=0
        Seed of the random sample and of the order in which points are drawn.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        Names of columns. None uses the names at fit, or ``feature_0``, ``feature_1``, ... for an array.
    title : str or None, default=None
    ax : matplotlib.axes.Axes or None, default=None
        Axes to draw in. None makes a new figure.
    figsize : pair of float or None, default=None
        Size of the new figure in inches. None chooses it by the number of columns.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If the model is not an estimator of dtrees, or a number is not an integer.
    ValueError
        If there is no such row, class or target, or the model cannot predict X.

    Examples
    --------
    >>> from dtrees import DecisionTreeRegressor, plot_shap
    >>> X, y = [[1.0, 5.0], [2.0, 5.0], [3.0, 6.0], [4.0, 6.0]], [1.0, 1.0, 1.0, 5.0]
    >>> ax = plot_shap(DecisionTreeRegressor().fit(X, y), X, row=3)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['feature_1 = 6', 'feature_0 = 4']
    >>> ax.get_xlabel()
    'prediction: from 2.00, the expected value, to 5.00'
    """
    model, X = without_steps(model, X)
    names, outputs = column_names(model, feature_names), Outputs(model)
    chosen = outputs.choose(target)
    check_integers(max_num_features=(max_num_features, 1), max_rows=(max_rows, 1), seed=(seed, 0))
    if row is not None and len(chosen) > 1:
        raise ValueError(f"target is None, but one of several is explained; wants one of {', '.join(map(repr, outputs.keys))}"[:400])
    sample = Sample.of(model, X, None if row is not None else max_rows, seed, names=names)
    if row is not None:
        check_integers(row=(row, 0))
        if row >= len(sample):
            raise ValueError(f"row is {row}, but X has {len(sample)} rows; the first one is 0")
        sample = sample.take(np.array([row]))
    size = (7.0, 1.2 + INCHES * min(max_num_features, len(names)))
    ax = axes_for(ax, size if ax is None and figsize is None else figsize)
    draw_shap(ax, sample, chosen, max_num_features, row is not None, seed, background)
    if title is not None:
        ax.set_title(title, parse_math=False)
    return ax


def draw_shap(
    ax: Any, sample: Sample, chosen: Sequence[int], n_columns: int, one: bool = False, seed: int = 0, background: Any = None
) -> None:
    """Draw the Shapley values of chosen outputs: points of all rows for one output, bars for several; or those of the first row."""
    members, outputs = members_of(sample.model), sample.outputs
    values = np.mean([member.shap_values(sample.table, background) for member in members], axis=0)
    values = outputs.of(values.reshape(*values.shape[:2], -1))[:, :, chosen]
    order = np.argsort(-np.abs(values).mean(axis=0).sum(axis=1), kind="stable")
    shown = order[:n_columns]
    said = outputs.said(outputs.explained, chosen)
    if one:
        expected = np.mean([np.atleast_1d(member.shap_expected_value(background)) for member in members], axis=0)
        _draw_waterfall(ax, sample, values[0, :, 0], float(outputs.of(expected)[chosen[0]]), n_columns, said)
        return
    if len(chosen) == 1:
        _draw_swarm(ax, sample, values[:, :, 0], shown, seed)
        said = f"Shapley value: added to the {said}"
    else:
        _draw_stacked(ax, np.abs(values).mean(axis=0)[shown], [outputs.names[k] for k in chosen])
        said = f"mean size of the Shapley values, in {said}"
    ax.set_xlabel(said + (f" ({len(shown)} of {len(order)} columns)" if len(shown) < len(order) else ""), parse_math=False)
    ax.locator_params(axis="x", nbins=6)
    ax.set_yticks(range(len(shown)), [short_name(sample.names[j], 30) for j in shown.tolist()], parse_math=False)
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.spines[["top", "right"]].set_visible(False)


def _draw_swarm(ax: Any, sample: Sample, values: NDArray[np.float64], shown: NDArray[np.intp], seed: int) -> None:
    """Draw a point for each row and column; points with similar values are stacked vertically."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("low to high", [COLOUR, "#8d55a8", _RED])
    shuffled = np.random.default_rng(seed).permutation(len(values))  # a random order, so that which points are on top has no meaning
    reach = np.ptp(values[:, shown]) or 1.0
    for place, j in enumerate(shown.tolist()):
        x, held = values[shuffled, j], sample.numbers(j)[shuffled]
        bins = np.round(80 * (x - x.min()) / reach).astype(np.int64)
        order = np.argsort(bins, kind="stable")
        rank = np.empty(len(x), np.int64)
        rank[order] = np.arange(len(x)) - np.searchsorted(bins[order], bins[order])  # among those of a bin
        aside = (rank + 1) // 2 * (2 * (rank % 2) - 1)
        y = place + 0.42 * aside / max(20, np.abs(aside).max())
        grey = np.isnan(held) | (sample.model._schema.columns[j].kind == CATEGORICAL)
        finite = held[~grey & np.isfinite(held)]
        low, high = np.quantile(finite, [0.05, 0.95]) if len(finite) else (0.0, 1.0)
        share = (np.clip(held, low, high) - low) / ((high - low) or 1.0)
        points = {"s": 7, "linewidths": 0, "rasterized": True, "zorder": 3}
        ax.scatter(x[grey], y[grey], color=_GREY, **points)
        ax.scatter(x[~grey], y[~grey], c=share[~grey], cmap=colours, vmin=0, vmax=1, **points)
    bar = ax.figure.colorbar(ax.collections[-1], ax=ax, ticks=[0, 1], aspect=40, pad=0.02)
    bar.set_ticklabels(["low", "high"])
    bar.set_label("value of the column (grey: category, missing)", fontsize="small")
    ax.axvline(0, color=_DARK, linewidth=0.8, zorder=2)
    ax.grid(alpha=0.3, axis="y")


def _draw_stacked(ax: Any, sizes: NDArray[np.float64], labels: list[str]) -> None:
    """Draw a bar for each column, with a segment for each output; small ones share a segment."""
    order = np.argsort(-sizes.sum(axis=0), kind="stable")
    groups = [[k] for k in order[:_MAX_OUTPUTS].tolist()] + [order[_MAX_OUTPUTS:].tolist()] * (len(order) > _MAX_OUTPUTS)
    begin = np.zeros(len(sizes))
    for group in groups:
        label = short_name(labels[group[0]]) if len(group) == 1 else f"{len(group)} others"
        width = sizes[:, group].sum(axis=1)
        ax.barh(range(len(sizes)), width, left=begin, height=0.7, label=f" {label}", color=None if len(group) == 1 else _GREY)
        begin += width
    _legend(ax, loc="lower right")


def digits_of(reach: float) -> int:
    """Return the number of decimals that distinguishes numbers within a range.

    >>> digits_of(0.2), digits_of(3.0), digits_of(40000.0), digits_of(0.0)
    (3, 2, 0, 2)
    """
    return max(0, 2 - math.floor(math.log10(reach))) if reach > 0 else 2


def _draw_waterfall(ax: Any, sample: Sample, values: NDArray[np.float64], expected: float, n: int, said: str) -> None:
    """Draw bars from the expected value at the bottom to the prediction of the first row at the top."""
    order = np.argsort(-np.abs(values), kind="stable")
    shown, rest = (order, order[:0]) if len(order) <= n else (order[: n - 1], order[n - 1 :])
    sizes = np.append(values[shown], [values[rest].sum()] * bool(len(rest)))[::-1]
    labels = [f"{short_name(sample.names[j], 24)} = {short_name(sample.text(j, 0), 20)}" for j in shown.tolist()]
    labels = [*labels, *[f"{len(rest)} other columns"] * bool(len(rest))][::-1]
    ends = expected + np.cumsum(sizes)
    begins = np.concatenate([[expected], ends[:-1]])
    places = np.arange(len(sizes))
    bars = ax.barh(places, sizes, left=begins, height=0.6, color=np.where(sizes < 0, COLOUR, _RED), zorder=3)
    ax.vlines(ends[:-1], places[:-1], places[1:], color=_GREY, linewidth=0.8, zorder=2)
    low, high = min(begins.min(), ends.min()), max(begins.max(), ends.max())
    reach = (high - low) or 1.0
    digits = digits_of(reach)
    ax.bar_label(bars, [f"{size:+,.{digits}f}" for size in sizes.tolist()], padding=3, fontsize="small")
    ax.set_xlim(low - 0.2 * reach, high + 0.2 * reach)
    ax.locator_params(axis="x", nbins=6)
    ax.set_ylim(-0.6, len(sizes) - 0.4)
    ax.axvline(expected, color=_DARK, linestyle=":", linewidth=1, zorder=1)
    ax.set_yticks(places, labels, parse_math=False)
    ax.set_xlabel(f"{said}: from {expected:,.{digits}f}, the expected value, to {ends[-1]:,.{digits}f}", parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
