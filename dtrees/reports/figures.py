"""Pictures of a report: drawn by scikit-learn's displays and by :mod:`dtrees.plots`, as SVG inside the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.effects import importances_of, members_of
from dtrees.node_texts import NodeOptions, NodeTexts
from dtrees.plots import deciding_metric, draw_tree, learning_curves, plot_importance, plot_metric, short_name
from dtrees.reports.orders import Order, label
from dtrees.reports.targets import Classes, Target

#: With more classes, only the most frequent ones are drawn.
_MAX_CLASSES_OF_MATRIX, _MAX_CURVES = 20, 8
#: With more rows, this many are drawn as points.
_MAX_POINTS = 2000
_BINS = 10


@dataclass(frozen=True)
class Picture:
    """A picture with title and caption.

    Attributes
    ----------
    title, caption : str
    uri : str
        A data URI that contains the picture.
    wide : bool
        Whether it takes the full width of the page.
    """

    title: str
    caption: str
    uri: str
    wide: bool = False


def curves(model: Any) -> list[Picture]:
    """Return a picture of each metric by round, the deciding one first."""
    if not hasattr(model, "learning_rate"):
        return []
    found, first = learning_curves(model), deciding_metric(model)
    if first is not None and list(found.get("loss", ())) == ["training"] and "training" in found[first]:
        del found["loss"]  # it is in the first picture
    caption = ""
    return [
        drawn(f"Learning curve: {name}", caption, partial(plot_in, plot_metric, model, metric=name))
        for name in sorted(found, key=lambda name: name != first)
    ]


def plot_in(plot: Callable[..., Any], model: Any, ax: Any, **options: Any) -> None:
    """Draw a public plot without its title."""
    plot(model, title=None, ax=ax, **options)


def predictions(target: Target) -> list[Picture]:
    """Return pictures that compare predictions with true values."""
    if isinstance(target, Order):
        return [drawn(*drawing, (6.0, 4.2)) for drawing in target.drawings()]
    return list(_of_classes(target) if isinstance(target, Classes) else _of_numbers(target))


def importances(model: Any) -> list[Picture]:
    """Return pictures of how much columns matter to trees, by gain and by number of splits; none of isolation forests."""
    first, *others = members_of(model)
    if not hasattr(first, "feature_importances_"):
        return []
    size = 4.8, 1.1 + 0.28 * min(model.n_features_in_, 20)
    found = []
    for kind, caption in (("gain", "Of all that splits gain, the share of those on a column."), ("split", "The share of the splits.")):
        options = {"importances": importances_of(model, kind)} if others else {"importance_type": kind}
        found.append(drawn(f"By {kind}", caption, partial(plot_in, plot_importance, first, **options), size))
    return found


def trees(model: Any, n_trees: int, max_depth: int | None) -> list[Picture]:
    """Return pictures of the first trees; for a bag, of its first booster."""
    model = members_of(model)[0]
    found = []
    groups, n_parallel = len(model._trees.groups), model._trees.n_parallel
    most = groups * len(model._trees.groups[0])
    for index in range(min(n_trees, most)):
        texts = NodeTexts(model, index, NodeOptions(max_depth))
        depth, what = texts.tree.max_depth, f"{texts.tree.n_leaves:,} leaves"
        cut = f", drawn down to depth {max_depth}" if max_depth is not None and depth > max_depth else ""
        title = f"Tree {index}" if most > 1 else "The tree"
        if groups > 1:
            title += f" (round {index // (groups * n_parallel) + 1}, {_output_in_words(model, index % groups)})"
        with _style():
            ax = draw_tree(texts, _new_figure)
            uri = _uri(ax.figure)
        found.append(Picture(title, f"{what}, depth {depth}{cut}.", uri, wide=True))
    return found


def _output_in_words(model: Any, output: int) -> str:
    """Return a description of one of several outputs of boosting."""
    losses = model._fitted_loss.by_target
    if quantiles := getattr(model, "_quantiles", ()):
        return f"{quantiles[output]:g} quantile"
    if not losses:
        return f"class {model.classes_[output]}"
    k, number = [(k, number) for k, loss in enumerate(losses) for number in range(loss.n_outputs)][output]
    return f"target {k}" if losses[k].n_outputs == 1 else f"target {k}, class {model.classes_[k][number]}"


def _of_numbers(target: Target) -> Iterator[Picture]:
    from sklearn.metrics import PredictionErrorDisplay

    n = len(target.actual)
    points = f" {_MAX_POINTS:,} rows, drawn at random." if n > _MAX_POINTS else ""
    for kind, title, caption in (
        ("actual_vs_predicted", "Actual and predicted", "On the diagonal, predictions are right."),
        ("residual_vs_predicted", "Residuals", "Actual less predicted values; a pattern is something that the model has not learnt."),
    ):

        def draw(ax: Any, kind: str = kind) -> None:
            PredictionErrorDisplay.from_predictions(
                target.actual,
                target.predicted,
                kind=kind,
                subsample=min(n, _MAX_POINTS),
                random_state=0,
                ax=ax,
                scatter_kwargs={"s": 9, "alpha": 0.4, "color": "#3c82c8", "rasterized": True},
                line_kwargs={"color": "#303030"},
            )
            if kind == "residual_vs_predicted":
                ax.set_aspect("auto")

        yield drawn(title, caption + points, draw, (4.6, 4.2))
    if n >= 2 * _BINS:
        yield drawn(
            "Calibration", f"Means of {_BINS} groups of rows, in the order of their predictions.", lambda ax: _means(ax, target), (4.6, 4.2)
        )


def _means(ax: Any, target: Target) -> None:
    """Draw mean true values against mean predictions."""
    groups = np.array_split(np.argsort(target.predicted, kind="stable"), _BINS)
    weight = target.weights
    groups = [rows for rows in groups if weight[rows].sum() > 0]
    x, y = ([float(np.average(values[rows], weights=weight[rows])) for rows in groups] for values in (target.predicted, target.actual))
    low, high = min(*x, *y), max(*x, *y)
    ax.plot([low, high], [low, high], color="#303030", linestyle="--", linewidth=1)
    ax.plot(x, y, marker="o", color="#3c82c8")
    ax.locator_params(axis="x", nbins=5)
    label(ax, "mean predicted value", "mean actual value")


def _of_classes(target: Classes) -> Iterator[Picture]:
    from sklearn.metrics import ConfusionMatrixDisplay

    classes = target.classes
    codes, found = np.searchsorted(classes, target.actual), np.searchsorted(classes, target.predicted)
    counts = np.bincount(codes, minlength=len(classes))
    shown = np.sort(np.argsort(-counts, kind="stable")[:_MAX_CLASSES_OF_MATRIX])
    inside = np.isin(codes, shown) & np.isin(found, shown)
    caption = "Rows by their class, and by the one that is predicted."
    if len(shown) < len(classes):
        caption += f" The {len(shown)} most frequent of {len(classes)} classes."

    def matrix(ax: Any) -> None:
        weight = None if target.weight is None else target.weight[inside]
        display = ConfusionMatrixDisplay.from_predictions(
            codes[inside],
            found[inside],
            labels=shown,
            display_labels=[short_name(classes[k], 20) for k in shown.tolist()],
            sample_weight=weight,
            cmap="Blues",
            colorbar=False,
            values_format="d" if weight is None else ".4g",
            xticks_rotation="vertical" if len(shown) > 4 else "horizontal",
            ax=ax,
        )
        if len(shown) > 10:
            for text in display.text_.ravel():
                text.set_fontsize("x-small")

    size = 4.4 + 0.25 * max(0, len(shown) - 6)
    yield drawn("Confusion matrix", caption, matrix, (size, size))
    if len(classes) < 2:
        return
    which = [1] if len(classes) == 2 else [int(k) for k in shown if 0 < counts[k] < len(codes)]
    which = sorted(sorted(which, key=lambda k: -counts[k])[:_MAX_CURVES])
    some = "" if len(classes) == 2 else " Each class against all others."
    some += f" The {len(which)} most frequent of {len(classes)} classes." if 2 < len(which) < len(classes) else ""
    if all(0 < counts[k] < len(codes) for k in which) and which:
        for title, caption, draw in (
            ("ROC curve", "The share of a class that is found, against that of others that are taken for it.", _roc),
            (
                "Precision and recall",
                "Of rows taken for a class, the share that is of it, against the share of the class that is found.",
                _precision_recall,
            ),
            (
                "Calibration",
                "Of rows with about the same probability, the share that is of the class; on the diagonal, it is right.",
                _calibration,
            ),
        ):
            yield drawn(title, caption + some, partial(draw, target=target, codes=codes, drawn=which), (4.6, 4.4))


def _against_others(ax: Any, target: Classes, codes: NDArray[np.intp], drawn: list[int], draw: Callable[..., Any], **options: Any) -> None:
    """Draw a curve of each class against all others; ``draw`` receives which rows have the class, and its probabilities."""
    for k in drawn:
        draw((codes == k).astype(int), np.clip(target.probabilities[:, k], 0, 1), name=short_name(target.classes[k], 20), ax=ax, **options)


def _roc(ax: Any, target: Classes, codes: NDArray[np.intp], drawn: list[int]) -> None:
    from sklearn.metrics import RocCurveDisplay

    draw = RocCurveDisplay.from_predictions
    _against_others(ax, target, codes, drawn[:-1], draw, sample_weight=target.weight)
    _against_others(ax, target, codes, drawn[-1:], draw, sample_weight=target.weight, plot_chance_level=True)
    label(ax, "false positive rate", "true positive rate", "lower right")


def _precision_recall(ax: Any, target: Classes, codes: NDArray[np.intp], drawn: list[int]) -> None:
    from sklearn.metrics import PrecisionRecallDisplay

    _against_others(ax, target, codes, drawn, PrecisionRecallDisplay.from_predictions, sample_weight=target.weight)
    label(ax, "recall", "precision", "lower left")


def _calibration(ax: Any, target: Classes, codes: NDArray[np.intp], drawn: list[int]) -> None:
    from sklearn.calibration import CalibrationDisplay

    draw, options = CalibrationDisplay.from_predictions, {"n_bins": _BINS, "strategy": "quantile"}
    _against_others(ax, target, codes, drawn[:1], draw, **options)
    _against_others(ax, target, codes, drawn[1:], draw, ref_line=False, **options)
    label(ax, "mean predicted probability", "share of the class", "upper left")


def drawn(title: str, caption: str, draw: Callable[[Any], Any], size: tuple[float, float] = (6.4, 4.0)) -> Picture:
    """Return the drawing of a function on axes as a picture; the size is in inches."""
    with _style():
        figure = _new_figure(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        return Picture(title, caption, _uri(figure))


def _style() -> Any:
    """Return a context in which pictures look the same for any settings of the user."""
    import matplotlib.style

    return matplotlib.style.context(["default", {"svg.hashsalt": "dtrees", "svg.fonttype": "path", "figure.dpi": 100, "font.size": 9.5}])


def _new_figure(**options: Any) -> Any:
    """Return a figure that pyplot, and so a notebook, does not manage."""
    from matplotlib.figure import Figure

    return Figure(**options)


def _uri(figure: Any) -> str:
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a dollar sign in a name is literal
    if (engine := figure.get_layout_engine()) is not None:  # once, which saves a drawing that only computes the layout
        engine.execute(figure)
        figure.set_layout_engine("none")
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, dpi=150)
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode()
