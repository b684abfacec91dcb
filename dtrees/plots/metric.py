"""How boosting got better round by round, as a picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.plots.canvas import axes_for
from dtrees.plots.importance import check_model

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
