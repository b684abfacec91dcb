"""Draw models with matplotlib: trees, importances of columns, and learning curves of boosting.

The boxes of a tree are as close as possible, and parents are centred above their children (Reingold and Tilford, 1981).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.node_texts import (
    Drawn,
    NodeOptions,
    NodeTexts,
    check_integers,
    check_optional,
    column_names,
    no_estimator,
    node_colours,
)
from dtrees.selection.curves import CrossValidation
from dtrees.version import needed

_MEANINGS = {"gain": "gain of the splits", "split": "number of splits", "cover": "weight of the rows that are split"}
COLOUR, INCHES, _MAX_NAME = "#3c82c8", 0.28, 40


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
    """Draw the importances of columns as bars, the most important one on top.

    Parameters
    ----------
    model : estimator of dtrees
        Fitted.
    importance_type : {"gain", "split", "cover"} or None, default=None
        Kind of importance. None uses the model's ``importance_type``.
    max_num_features : int or None, default=20
        Maximum number of columns shown. None shows all.
    importances : array-like of shape (n_features,) or (n_features, n_repeats), or None, default=None
        Importances to draw instead of the model's, such as ``forest.oob_permutation_importances(X, y)``. Repeated measurements, such as
        ``importances`` of :func:`sklearn.inspection.permutation_importance`, are shown as means with standard deviations.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        Names of columns. None uses the names at fit, or ``feature_0``, ``feature_1``, ... for an array.
    precision : int, default=3
        Digits after the decimal point at the ends of bars.
    title : str or None, default="Feature importances"
    ax : matplotlib.axes.Axes or None, default=None
        Axes to draw in. None makes a new figure.
    figsize : pair of float or None, default=None
        Size of the new figure in inches. None chooses it by the number of bars.

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
    check_optional(max_num_features=(max_num_features, 1))
    check_integers(precision=(precision, 0))
    if importances is not None and importance_type is not None:
        raise ValueError(f"importance_type is {importance_type!r}, but importances are given; pass one of them")
    if importances is None:
        kind = model.importance_type if importance_type is None else importance_type
        mean, deviation, meaning = importance_by(model, kind), None, f"share of the {_MEANINGS[kind]}"
    else:
        mean, deviation = _given(importances, model.n_features_in_)
        meaning = "importance"
    names = column_names(model, feature_names)
    order = np.argsort(-mean, kind="stable")[:max_num_features]
    ax = axes_for(ax, (7.0, 1.2 + INCHES * len(order)) if ax is None and figsize is None else figsize)
    _draw(ax, mean[order], None if deviation is None else deviation[order], precision)
    ax.set_yticks(range(len(order)), [short_name(names[j]) for j in order.tolist()], parse_math=False)
    left_out = len(mean) - len(order)
    ax.set_xlabel(f"{meaning}{f' ({left_out} columns of less are not shown)' if left_out else ''}")
    if title is not None:
        ax.set_title(title)
    return ax


def check_model(model: Any) -> None:
    """Raise TypeError for an object that is not an estimator of dtrees, and NotFittedError for one that is not fitted."""
    if not isinstance(model, TreeEstimator):
        raise no_estimator("model", model)
    model._check_fitted()


def importance_by(model: Any, importance_type: str) -> NDArray[np.float64]:
    """Return the importances of a model by a given type, shape (n_features,)."""
    if importance_type not in _MEANINGS:
        raise ValueError(f"importance_type is {importance_type!r}; wants {', '.join(map(repr, _MEANINGS))}")
    if not hasattr(model, "feature_importances_"):
        raise ValueError(f"model is of type {type(model).__name__}, which has no importances of columns; wants one that learns a target")
    importances: NDArray[np.float64] = copy.copy(model).set_params(importance_type=importance_type).feature_importances_
    return importances


def _given(importances: ArrayLike, n_features: int) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    values = np.asarray(importances, np.float64)
    if values.ndim not in (1, 2) or values.shape[0] != n_features or not np.isfinite(values).all():
        raise ValueError(f"importances has shape {values.shape}; wants ({n_features},) or ({n_features}, n_repeats), finite numbers")
    return (values, None) if values.ndim == 1 else (values.mean(axis=1), values.std(axis=1))


def _draw(ax: Any, mean: NDArray[np.float64], deviation: NDArray[np.float64] | None, precision: int) -> None:
    places = np.arange(len(mean))
    bars = ax.barh(places, mean, xerr=deviation, color=COLOUR, height=0.7, error_kw={"ecolor": "#303030", "capsize": 2})
    ax.bar_label(bars, [f"{round(value, precision) + 0.0:.{precision}f}" for value in mean.tolist()], padding=3, fontsize="small")
    low, high = min(0.0, float(mean.min())), max(0.0, float(mean.max()))
    beyond = 0.14 * ((high - low) or 1.0) + (0.0 if deviation is None else float(deviation.max()))
    ax.set_xlim(low - (beyond if low < 0 else 0.0), high + beyond)
    ax.set_ylim(len(mean) - 0.4, -0.6)
    ax.locator_params(axis="x", nbins=6)
    ax.spines[["top", "right"]].set_visible(False)


def short_name(name: Any, most: int = _MAX_NAME) -> str:
    """Return the name of something, shortened if it is long.

    >>> short_name("a very long name", 9)
    'a very...'
    """
    text = str(name)
    return text if len(text) <= most else f"{text[: most - 3]}..."


_LOSS = "loss"
#: Metrics that can be computed from a loss, so that the loss of the training rows can be drawn with them.
_OF_LOSS: dict[tuple[str, str], Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    ("squared_error", "rmse"): np.sqrt,
    ("log_loss", "logloss"): np.array,
}


def plot_metric(
    model: Any, metric: str | None = None, *, title: str | None = "Learning curves", ax: Any = None, figsize: Any = None
) -> Any:
    """Draw a loss or a metric of a boosting model by round, for the training rows, the held-out rows and the evaluation sets.

    The best round of early stopping is marked.

    For the result of :func:`dtrees.cross_validate`, the function draws the curve of each fold's held-out rows and their mean, and marks the
    best mean.

    Parameters
    ----------
    model : GradientBoostingRegressor, GradientBoostingClassifier or CrossValidation
        Fitted.
    metric : str or None, default=None
        "loss", or the name of a metric of ``scoring`` or ``eval_metric``, such as "rmse". None uses the metric that chose the best round,
        or else the last metric of the evaluation sets, or else the loss.
    title : str or None, default="Learning curves"
    ax : matplotlib.axes.Axes or None, default=None
        Axes to draw in. None makes a new figure.
    figsize : pair of float or None, default=None
        Size of the new figure in inches.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If ``model`` is not a boosting estimator of dtrees.
    ValueError
        If the model does not have this metric, or has no metric, as a loaded model may.

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
    validated = isinstance(model, CrossValidation)
    if not curves:
        raise ValueError(f"model, a {type(model).__name__}, has no scores of its rounds; fit it with eval_set or n_iter_no_change")
    if metric is None:
        metric = list(curves)[-1] if validated else deciding_metric(model) or next(iter(curves))
    if metric not in curves:
        raise ValueError(f"metric is {metric!r}; wants one that the model has: {', '.join(map(repr, curves))}")
    ax = axes_for(ax, (7.0, 4.2) if ax is None and figsize is None else figsize)
    for name, values in curves[metric].items():
        rounds = np.arange(1, len(values) + 1)
        ax.plot(rounds, values, label=name, linewidth=1.5, marker="o" if len(values) == 1 else None)
    best = getattr(model, "best_iteration_", None)
    if validated:
        curve = model.curves[metric]
        ax.plot(np.arange(1, curve.by_fold.shape[1] + 1), curve.by_fold.T, color="#808080", linewidth=0.7, zorder=1)
        best = None if curve.greater_is_better is None else curve.best_n_estimators - 1
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
    """Return the curves of a boosting model by metric, and then by rows, as arrays of shape (n_rounds,).

    Examples
    --------
    >>> from dtrees import GradientBoostingRegressor
    >>> model = GradientBoostingRegressor(n_estimators=3).fit([[1.0], [2.0]] * 9, [1.0, 2.0] * 9)
    >>> {metric: list(rows) for metric, rows in learning_curves(model).items()}
    {'loss': ['training']}
    """
    if isinstance(model, CrossValidation):
        return {metric: {f"mean of {len(curve.by_fold)} folds": curve.mean} for metric, curve in model.curves.items()}
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
    """Return the metric of evaluation sets that chose the best round, otherwise the last one; None if there is none."""
    evaluated = getattr(model, "evals_result_", {})
    best = getattr(model, "best_iteration_", None)
    for metrics in reversed(evaluated.values()) if best is not None else ():
        for metric, values in reversed(metrics.items()):
            if values[best] == model.best_score_:
                return str(metric)
    return next((str(metric) for metrics in reversed(evaluated.values()) for metric in reversed(metrics)), None)


def pyplot() -> Any:
    """Return :mod:`matplotlib.pyplot`; its ImportError says how to install it."""
    return needed("matplotlib.pyplot", "plot")


def axes_for(ax: Any, figsize: Any) -> Any:
    """Return the given axes, or those of a new figure of a size in inches (None for matplotlib's default).

    Raises
    ------
    TypeError
        If ``ax`` is something else.
    ValueError
        If both are given, or ``figsize`` is not a pair of positive numbers.
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
    """Return a size in inches, or None if none is given."""
    if figsize is None:
        return None
    try:
        width, height = (float(number) for number in figsize)
    except (TypeError, ValueError):
        raise ValueError(f"figsize is {figsize!r}; wants a pair of numbers, width and height in inches") from None
    if not (width > 0 and height > 0):
        raise ValueError(f"figsize is {figsize!r}; wants positive numbers")
    return width, height


#: Lengths are in points, for text of this size.
_FONT_SIZE = 9.0
_LINE, _PADDING, _GAP, _EDGE, _MARGIN = 1.25 * _FONT_SIZE, 5.0, 12.0, 34.0, 8.0
#: Largest size of a new figure, in points; larger drawings are scaled down.
_LARGEST = 150 * 72.0
#: Largest size of text in given axes.
_LARGEST_FONT = 14.0
_EDGE_COLOUR, _LEFT_OUT = "#808080", "#e0e0e0"


def plot_tree(
    decision_tree: Any,
    *,
    tree_index: int = 0,
    max_depth: int | None = 3,
    feature_names: ArrayLike | None = None,
    class_names: ArrayLike | None = None,
    label: str = "all",
    filled: bool = True,
    impurity: bool = True,
    node_ids: bool = False,
    proportion: bool = False,
    rounded: bool = True,
    precision: int = 3,
    show_missing: bool = True,
    max_categories: int = 5,
    ax: Any = None,
    figsize: Any = None,
    fontsize: float | None = None,
) -> Any:
    """Draw a tree with matplotlib.

    A node shows its test, impurity, number of rows and prediction, which also sets its colour. Edges show which rows take them, and are
    wider for more rows. Below ``max_depth``, a grey box stands for each subtree.

    Parameters
    ----------
    decision_tree : estimator of dtrees
        A fitted tree or ensemble.
    tree_index : int, default=0
        The tree of an ensemble, from 0. Trees of boosting are numbered round by round.
    max_depth : int or None, default=3
        Nodes below this depth are left out. None draws all nodes.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        Names of columns. None uses the names at fit, or ``feature_0``, ``feature_1``, ... for an array.
    class_names : array-like of str of shape (n_classes,), or list of such arrays for multi-output models, or None, default=None
        Names of classes in the order of ``classes_``. None uses the classes themselves.
    label : {"all", "root", "none"}, default="all"
        Nodes in which numbers are labelled, such as ``samples = 3``.
    filled : bool, default=True
        Whether the colour of a node shows its prediction. It is stronger for purer nodes, or for larger numbers.
    impurity : bool, default=True
        Show the impurity of each node; boosted trees have none.
    node_ids : bool, default=False
        Show the number of each node.
    proportion : bool, default=False
        Show shares instead of numbers of rows and weights of classes.
    rounded : bool, default=True
        Round the corners.
    precision : int, default=3
        Digits after the decimal point.
    show_missing : bool, default=True
        Show on edges which way missing values go.
    max_categories : int, default=5
        Maximum number of categories named per subset.
    ax : matplotlib.axes.Axes or None, default=None
        Axes to draw in. None makes a new figure.
    figsize : pair of float or None, default=None
        Size of the new figure in inches. None chooses it by the tree.
    fontsize : float or None, default=None
        Size of the text in points. None chooses the largest that fits, up to a limit.

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
        If the number of names differs from that of columns or classes, a number is too small, or there is no tree ``tree_index``.

    Examples
    --------
    >>> from dtrees import DecisionTreeClassifier, plot_tree
    >>> tree = DecisionTreeClassifier().fit([[1.0], [2.0], [3.0]], ["no", "no", "yes"])
    >>> ax = plot_tree(tree)
    >>> ax.figure.savefig("tree.svg")  # doctest: +SKIP
    """
    options = NodeOptions(
        max_depth, feature_names, class_names, label, impurity, node_ids, proportion, precision, show_missing, max_categories
    )
    figure = pyplot().figure
    return draw_tree(NodeTexts(decision_tree, tree_index, options), figure, ax, checked_size(figsize), fontsize, filled, rounded)


def draw_tree(
    texts: NodeTexts,
    make_figure: Callable[..., Any],
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
    fontsize: float | None = None,
    filled: bool = True,
    rounded: bool = True,
) -> Any:
    """Draw the nodes of a tree, and return the axes; ``make_figure`` creates a new figure, given ``figsize``."""
    layout = _Layout.of(list(texts.drawn()))
    scale, ax = _canvas(layout, make_figure, ax, figsize, fontsize)
    colours = node_colours(texts.tree, texts.classify) if filled else ["#ffffff"] * texts.tree.node_count
    shares = texts.tree.weighted_n_node_samples / max(float(texts.tree.weighted_n_node_samples[0]), 1e-300)
    for i, drawn in enumerate(layout.drawn):
        if drawn.parent >= 0:
            _draw_edge(ax, layout, i, scale, float(shares[drawn.number]))
    for i, drawn in enumerate(layout.drawn):
        _draw_node(ax, layout, i, scale, _LEFT_OUT if drawn.left_out else colours[drawn.number], rounded)
    return ax


@dataclass(frozen=True)
class _Layout:
    """The positions of boxes, in points from the upper left corner, y downwards."""

    drawn: Sequence[Drawn]
    parent: Sequence[int]
    x: NDArray[np.float64]
    top: NDArray[np.float64]
    width: NDArray[np.float64]
    height: NDArray[np.float64]
    size: tuple[float, float]

    @classmethod
    def of(cls, drawn: Sequence[Drawn]) -> _Layout:
        place = {node.number: i for i, node in enumerate(drawn)}
        parent = [place.get(node.parent, -1) for node in drawn]
        left, right, depth = [-1] * len(drawn), [-1] * len(drawn), np.zeros(len(drawn), np.int64)
        for i, above in enumerate(parent[1:], 1):
            side = right if left[above] >= 0 else left
            side[above] = i
            depth[i] = depth[above] + 1
        width = np.array([max(map(_text_width, node.lines)) + 2 * _PADDING for node in drawn])
        height = np.array([len(node.lines) * _LINE + 2 * _PADDING for node in drawn])
        rows = np.zeros(depth.max() + 1)
        np.maximum.at(rows, depth, height)
        tops = np.concatenate([[0.0], np.cumsum(rows + _EDGE)]) + _MARGIN
        x = centres(left, right, width.tolist(), _GAP) + _MARGIN
        size = float((x + width / 2).max()) + _MARGIN, float(tops[-1]) - _EDGE + _MARGIN
        return cls(drawn, parent, x, tops[depth], width, height, size)


def _text_width(line: str) -> float:
    """Return the width of a line in bold."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width: float = text_to_path.get_text_width_height_descent(line, FontProperties(size=_FONT_SIZE, weight="bold"), ismath=False)[0]
    return width


def _canvas(
    layout: _Layout, make_figure: Callable[..., Any], ax: Any, figsize: tuple[float, float] | None, fontsize: float | None
) -> tuple[float, Any]:
    """Return the scale of text relative to the layout, and axes without frame whose data coordinates are the layout's."""
    if fontsize is not None and not fontsize > 0:
        raise ValueError(f"fontsize is {fontsize!r}; wants a positive number, or None")
    wanted = 1.0 if fontsize is None else fontsize / _FONT_SIZE
    width, height = layout.size
    if ax is None:
        fits = min(wanted, _LARGEST / width, _LARGEST / height)
        figure = make_figure(figsize=figsize or (width * fits / 72, height * fits / 72))
        ax = figure.add_axes((0, 0, 1, 1))
    else:
        ax = axes_for(ax, figsize)
        ax.clear()
    ax.set_axis_off()
    inches = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())
    # Points of the page for a point of the layout, so that all of it fits.
    scale = min(72 * inches.width / width, 72 * inches.height / height, _LARGEST_FONT / _FONT_SIZE if fontsize is None else np.inf)
    spare_x, spare_y = 72 * inches.width / scale - width, 72 * inches.height / scale - height
    ax.set_xlim(-spare_x / 2, width + spare_x / 2)
    ax.set_ylim(height + spare_y / 2, -spare_y / 2)
    return (scale if fontsize is None else wanted), ax


def _draw_edge(ax: Any, layout: _Layout, i: int, scale: float, share: float) -> None:
    above = layout.parent[i]
    x, y = [layout.x[above], layout.x[i]], [layout.top[above] + layout.height[above], layout.top[i]]
    ax.plot(x, y, color=_EDGE_COLOUR, linewidth=scale * (0.6 + 2.4 * share), zorder=1, solid_capstyle="round")
    text = ax.text(
        (x[0] + 2 * x[1]) / 3,
        (y[0] + 2 * y[1]) / 3,
        layout.drawn[i].edge,
        fontsize=0.85 * _FONT_SIZE * scale,
        ha="center",
        va="center",
        color="#404040",
        zorder=2,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": ax.get_facecolor(), "edgecolor": "none"},
    )
    text.set_gid(f"edge-{layout.drawn[i].number}")


def _draw_node(ax: Any, layout: _Layout, i: int, scale: float, colour: str, rounded: bool) -> None:
    from matplotlib.patches import FancyBboxPatch

    drawn, x, top = layout.drawn[i], layout.x[i], layout.top[i]
    # Corners are drawn around a rectangle that is smaller by their radius.
    radius = _PADDING if rounded else 0.0
    box = FancyBboxPatch(
        (x - layout.width[i] / 2 + radius, top + radius),
        layout.width[i] - 2 * radius,
        layout.height[i] - 2 * radius,
        boxstyle=f"round,pad={radius}" if rounded else "square,pad=0",
        facecolor=colour,
        edgecolor="#303030",
        linewidth=0.8 * scale,
        linestyle="--" if drawn.left_out else "-",
        zorder=3,
    )
    box.set_gid(f"box-{drawn.number}")
    ax.add_patch(box)
    for k, line in enumerate(drawn.lines):
        text = ax.text(
            x,
            top + _PADDING + (k + 0.5) * _LINE,
            line,
            fontsize=_FONT_SIZE * scale,
            fontweight="bold" if k in drawn.bold else "normal",
            ha="center",
            va="center_baseline",
            color="black",
            zorder=4,
            parse_math=False,
        )
        text.set_gid(f"node-{drawn.number}")


def centres(left: Sequence[int], right: Sequence[int], width: Sequence[float], gap: float) -> NDArray[np.float64]:
    """Return the centre of each box, shape (n,); the leftmost box begins at 0.

    Parameters
    ----------
    left, right : sequence of int
        The children of each node, -1 if it has none. Nodes are in preorder.
    width : sequence of float
        Widths of the boxes.
    gap : float
        Least distance between boxes of a level.

    Examples
    --------
    >>> centres([1, -1, -1], [2, -1, -1], [4.0, 2.0, 6.0], 1.0).tolist()
    [3.5, 1.0, 6.0]
    """
    n = len(width)
    shift = np.zeros(n)
    # Outlines of subtrees: how far they extend to the left and to the right of their root, level by level.
    outlines: list[tuple[list[float], list[float]]] = [([], [])] * n
    for node in range(n - 1, -1, -1):
        half = width[node] / 2
        begin, end = [-half], [half]
        if left[node] >= 0:
            (left_begin, left_end), (right_begin, right_end) = outlines[left[node]], outlines[right[node]]
            apart = (max(a - b for a, b in zip(left_end, right_begin, strict=False)) + gap) / 2
            shift[left[node]], shift[right[node]] = -apart, apart
            begin += [x - apart for x in left_begin] + [x + apart for x in right_begin[len(left_begin) :]]
            end += [x + apart for x in right_end] + [x - apart for x in left_end[len(right_end) :]]
            outlines[left[node]] = outlines[right[node]] = ([], [])
        outlines[node] = begin, end
    middle = np.zeros(n)
    for node in range(n):
        if left[node] >= 0:
            for child in (left[node], right[node]):
                middle[child] = middle[node] + shift[child]
    return middle - min(outlines[0][0]) if n else middle
