"""The importances of columns as a picture."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.export.branches import check_integer, names_for, no_estimator
from dtrees.plots.canvas import axes_for

_MEANINGS = {"gain": "gain of the splits", "split": "number of splits", "cover": "weight of the rows that are split"}
_COLOUR, _INCHES, _MAX_NAME = "#3c82c8", 0.28, 40


def plot_importance(
    model: Any,
    *,
    importance_type: str | None = None,
    max_num_features: int | None = 20,
    importances: ArrayLike | None = None,
    feature_names: ArrayLike | None = None,
    precision: int = 3,
    title: str | None = "Feature importances",
    ax: Any = None,
    figsize: Any = None,
) -> Any:
    """Draw how much columns matter as bars, the most important one on top.

    Parameters
    ----------
    model : estimator of dtrees
        Fitted.
    importance_type : {"gain", "split", "cover"} or None, default=None
        What is counted of splits; None for the model's ``importance_type``.
    max_num_features : int or None, default=20
        How many columns are shown; None for all.
    importances : array-like of shape (n_features,) or (n_features, n_repeats), or None, default=None
        Others to draw instead of those of the model, such as ``forest.oob_permutation_importances(X, y)``. Those that were measured several
        times, such as ``importances`` of :func:`sklearn.inspection.permutation_importance`, are shown as means with standard deviations.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        None for the names at fit, or ``feature_0``, ``feature_1``, ... if it was fitted on an array.
    precision : int, default=3
        Digits after the point at the ends of bars.
    title : str or None, default="Feature importances"
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw; None makes a new figure.
    figsize : pair of float or None, default=None
        The size of the new figure in inches; None is what the bars need.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If this is no estimator of dtrees, or a number is no integer.
    ValueError
        If a name or a shape is wrong.

    Examples
    --------
    >>> from dtrees import RandomForestRegressor, plot_importance
    >>> forest = RandomForestRegressor(5, random_state=0).fit([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [4.0, 5.0]], [1.0, 2.0, 3.0, 4.0])
    >>> ax = plot_importance(forest, importance_type="split")
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['feature_0', 'feature_1']
    """
    check_model(model)
    if max_num_features is not None:
        check_integer("max_num_features", max_num_features, 1)
    check_integer("precision", precision, 0)
    if importances is not None and importance_type is not None:
        raise ValueError(f"importance_type is {importance_type!r}, but importances are given; pass one of them")
    if importances is None:
        kind = model.importance_type if importance_type is None else importance_type
        mean, deviation, meaning = importance_by(model, kind), None, f"share of the {_MEANINGS[kind]}"
    else:
        mean, deviation = _given(importances, model.n_features_in_)
        meaning = "importance"
    known = getattr(model, "feature_names_in_", [f"feature_{j}" for j in range(model.n_features_in_)])
    names = names_for("feature_names", feature_names, known, "column of the fit")
    order = np.argsort(-mean, kind="stable")[:max_num_features]
    ax = axes_for(ax, (7.0, 1.2 + _INCHES * len(order)) if ax is None and figsize is None else figsize)
    _draw(ax, mean[order], None if deviation is None else deviation[order], precision)
    ax.set_yticks(range(len(order)), [_short(names[j]) for j in order.tolist()], parse_math=False)
    left_out = len(mean) - len(order)
    ax.set_xlabel(f"{meaning}{f' ({left_out} columns of less are not shown)' if left_out else ''}")
    if title is not None:
        ax.set_title(title)
    return ax


def check_model(model: Any) -> None:
    """Raise TypeError for what is no estimator of dtrees, and NotFittedError for one that is not fitted."""
    if not isinstance(model, TreeEstimator):
        raise no_estimator("model", model)
    model._check_fitted()


def importance_by(model: Any, importance_type: str) -> NDArray[np.float64]:
    """Return the importances of a model by another count than its own, shape (n_features,)."""
    if importance_type not in _MEANINGS:
        raise ValueError(f"importance_type is {importance_type!r}; wants {', '.join(map(repr, _MEANINGS))}")
    importances: NDArray[np.float64] = copy.copy(model).set_params(importance_type=importance_type).feature_importances_
    return importances


def _given(importances: ArrayLike, n_features: int) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    values = np.asarray(importances, np.float64)
    if values.ndim not in (1, 2) or values.shape[0] != n_features or not np.isfinite(values).all():
        raise ValueError(f"importances has shape {values.shape}; wants ({n_features},) or ({n_features}, n_repeats), finite numbers")
    return (values, None) if values.ndim == 1 else (values.mean(axis=1), values.std(axis=1))


def _draw(ax: Any, mean: NDArray[np.float64], deviation: NDArray[np.float64] | None, precision: int) -> None:
    places = np.arange(len(mean))
    ax.barh(places, mean, xerr=deviation, color=_COLOUR, height=0.7, error_kw={"ecolor": "#303030", "capsize": 2})
    low, high = min(0.0, float(mean.min())), max(0.0, float(mean.max()))
    reach = (high - low) or 1.0
    spread = np.zeros(len(mean)) if deviation is None else deviation
    for place, value, more in zip(places.tolist(), mean.tolist(), spread.tolist(), strict=True):
        ax.text(max(value, 0.0) + more + 0.01 * reach, place, f"{value:.{precision}f}", va="center", fontsize="small")
    ax.set_xlim(low - (0.05 * reach if low < 0 else 0.0), high + float(spread.max()) + 0.14 * reach)
    ax.set_ylim(len(mean) - 0.4, -0.6)
    ax.spines[["top", "right"]].set_visible(False)


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 3]}..."
