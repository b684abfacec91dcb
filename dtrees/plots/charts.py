"""The importances of columns and the learning curves of boosting as pictures, and what all pictures need of matplotlib."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.export.text import check_integer, names_for, no_estimator
from dtrees.version import pip_install

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


_LOSS = "loss"
#: Metrics that follow from a loss, so that the loss of the training rows can stand beside them.
_OF_LOSS: dict[tuple[str, str], Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    ("squared_error", "rmse"): np.sqrt,
    ("log_loss", "logloss"): np.array,
}


def plot_metric(
    model: Any, metric: str | None = None, *, title: str | None = "Learning curves", ax: Any = None, figsize: Any = None
) -> Any:
    """Draw a loss or a metric of a boosting model against rounds: of the training rows, rows held out, and evaluation sets.

    Where early stopping chose a best round, it is marked.

    Parameters
    ----------
    model : GradientBoostingRegressor or GradientBoostingClassifier
        Fitted.
    metric : str or None, default=None
        "loss", or what ``scoring`` or ``eval_metric`` named, say "rmse". None is what chose the best round, or else the last metric
        of evaluation sets; the loss if there are none.
    title : str or None, default="Learning curves"
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw; None makes a new figure.
    figsize : pair of float or None, default=None
        The size of the new figure in inches.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If this is no boosting estimator of dtrees.
    ValueError
        If the model does not have that metric, or none: one from a file may have none.

    Examples
    --------
    >>> from dtrees import GradientBoostingRegressor, plot_metric
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]] * 5, [1.0, 2.0, 3.0, 4.0] * 5
    >>> ax = plot_metric(GradientBoostingRegressor(n_estimators=10).fit(X, y, eval_set={"others": (X, y)}))
    >>> [line.get_label() for line in ax.get_lines()]
    ['training', 'others']
    >>> ax.get_ylabel()
    'rmse'
    """
    curves = learning_curves(model)
    if not curves:
        raise ValueError(f"model, a {type(model).__name__}, has no scores of its rounds; fit it with eval_set or n_iter_no_change")
    if metric is None:
        metric = deciding_metric(model) or next(iter(curves))
    if metric not in curves:
        raise ValueError(f"metric is {metric!r}; wants one that the model has: {', '.join(map(repr, curves))}")
    ax = axes_for(ax, (7.0, 4.2) if ax is None and figsize is None else figsize)
    for name, values in curves[metric].items():
        rounds = np.arange(1, len(values) + 1)
        ax.plot(rounds, values, label=name, linewidth=1.5, marker="o" if len(values) == 1 else None)
    best = getattr(model, "best_iteration_", None)
    if best is not None:
        ax.axvline(best + 1, color="#808080", linestyle="--", linewidth=1, label=f"best round: {best + 1}")
    ax.set_xlabel("round")
    ax.set_ylabel(metric, parse_math=False)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.3)
    for text in ax.legend().get_texts():
        text.set_parse_math(False)
    if title is not None:
        ax.set_title(title)
    return ax


def learning_curves(model: Any) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return what a boosting model knows of its rounds: by metric, and then by rows, an array of shape (n_rounds,).

    Examples
    --------
    >>> from dtrees import GradientBoostingRegressor
    >>> model = GradientBoostingRegressor(n_estimators=3).fit([[1.0], [2.0]] * 9, [1.0, 2.0] * 9)
    >>> {metric: list(rows) for metric, rows in learning_curves(model).items()}
    {'loss': ['training']}
    """
    check_model(model)
    if not hasattr(model, "learning_rate"):
        raise TypeError(f"model is a {type(model).__name__}; wants a boosting estimator, which is the only one that has learning curves")
    scoring = getattr(model, "scoring", _LOSS)
    scored = _LOSS if scoring in (None, _LOSS) else scoring if isinstance(scoring, str) else "score"
    curves: dict[str, dict[str, NDArray[np.float64]]] = {}
    for metric, rows, attribute in (
        (_LOSS, "training", "train_score_"),
        (_LOSS, "out of bag", "oob_scores_"),
        (scored, "held out" if getattr(model, "validation_fraction", None) is not None else "training", "validation_score_"),
    ):
        values = np.asarray(getattr(model, attribute, ()), np.float64)
        if np.isfinite(values).any():
            curves.setdefault(metric, {})[rows] = values
    for rows, metrics in getattr(model, "evals_result_", {}).items():
        for metric, values in metrics.items():
            as_metric = _OF_LOSS.get((model.loss, metric)) if isinstance(model.loss, str) and getattr(model, "n_outputs_", 1) == 1 else None
            if metric not in curves and as_metric is not None:
                curves[metric] = {training: as_metric(losses) for training, losses in curves.get(_LOSS, {}).items()}
            curves.setdefault(metric, {})[rows] = np.asarray(values, np.float64)
    return curves


def deciding_metric(model: Any) -> str | None:
    """Return the metric of evaluation sets that chose the best round, or else the last one; None without any."""
    evaluated = getattr(model, "evals_result_", {})
    best = getattr(model, "best_iteration_", None)
    for metrics in reversed(evaluated.values()) if best is not None else ():
        for metric, values in reversed(metrics.items()):
            if values[best] == model.best_score_:
                return str(metric)
    return next((str(metric) for metrics in reversed(evaluated.values()) for metric in reversed(metrics)), None)


def pyplot() -> Any:
    """Return :mod:`matplotlib.pyplot`.

    Raises
    ------
    ImportError
        If matplotlib is not installed; it says how to install it.
    """
    try:
        import matplotlib.pyplot
    except ImportError as error:
        raise ImportError(f"dtrees draws with matplotlib, which cannot be imported ({error}); {pip_install('plot')}") from error
    return matplotlib.pyplot


def axes_for(ax: Any, figsize: Any) -> Any:
    """Return the axes to draw in: those given, or those of a new figure of a size in inches (None for matplotlib's default).

    Raises
    ------
    TypeError
        If ``ax`` is something else.
    ValueError
        If both are given, or ``figsize`` is no pair of positive numbers.
    """
    plt = pyplot()
    if ax is None:
        return plt.subplots(figsize=checked_size(figsize), layout="constrained")[1]
    if not hasattr(ax, "transData"):
        raise TypeError(f"ax is of type {type(ax).__name__}; wants axes of matplotlib, or None for a new figure")
    if figsize is not None:
        raise ValueError(f"figsize is {figsize!r}, but ax is given, whose figure has a size; pass one of them")
    return ax


def checked_size(figsize: Any) -> tuple[float, float] | None:
    """Return a size in inches, or None where none is given."""
    if figsize is None:
        return None
    try:
        width, height = (float(number) for number in figsize)
    except (TypeError, ValueError):
        raise ValueError(f"figsize is {figsize!r}; wants a pair of numbers, width and height in inches") from None
    if not (width > 0 and height > 0):
        raise ValueError(f"figsize is {figsize!r}; wants positive numbers")
    return width, height
