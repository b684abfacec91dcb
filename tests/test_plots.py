"""Pictures: they agree with the model."""

import importlib
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest

import dtrees
from dtrees import plot_importance, plot_metric, plot_tree
from dtrees.node_texts import NodeOptions, NodeTexts
from dtrees.plots import centres, learning_curves
from tests.ensemble.samples import LABELS, SIGNAL, X, every_kind, make, target
from tests.slow import one_quick

matplotlib.use("Agg")
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def texts_of(ax, kind):
    """Return the texts of each node, or edge, in the order in which they are drawn."""
    found = {}
    for text in ax.texts:
        what, number = text.get_gid().split("-")
        if what == kind:
            found.setdefault(int(number), []).append(text.get_text())
    return found


@every_kind
def test_a_picture_says_what_the_nodes_are(kind):
    model = make(kind).fit(X, target(kind))
    ax = plot_tree(model, max_depth=3)
    drawn = list(NodeTexts(model, 0, NodeOptions(max_depth=3)).drawn())
    assert texts_of(ax, "node") == {node.number: list(node.lines) for node in drawn}
    assert texts_of(ax, "edge") == {node.number: [node.edge] for node in drawn if node.parent >= 0}
    boxes = [patch for patch in ax.patches if patch.get_gid()]
    assert sorted(box.get_gid() for box in boxes) == sorted(f"box-{node.number}" for node in drawn)


def boxes_of(ax):
    ax.figure.canvas.draw()
    renderer = ax.figure.canvas.get_renderer()
    boxes = {patch.get_gid(): patch.get_window_extent(renderer) for patch in ax.patches}
    texts = {}
    for text in ax.texts:
        what, number = text.get_gid().split("-")
        if what == "node":
            texts.setdefault(f"box-{number}", []).append(text.get_window_extent(renderer))
    return boxes, texts


@pytest.mark.parametrize("given", one_quick([False, True]))
def test_boxes_hold_their_texts_and_do_not_overlap(given):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a long name of a column": random.choice([f"kind {k}" for k in range(40)], 600), "x": random.normal(size=600)})
    y = frame["x"] + frame["a long name of a column"].str.len()
    tree = dtrees.DecisionTreeRegressor(max_depth=5).fit(frame, y)
    ax = plot_tree(tree, max_depth=None, ax=plt.subplots(figsize=(9, 4))[1] if given else None)
    boxes, texts = boxes_of(ax)
    assert len(boxes) == tree.tree_.node_count
    page = ax.figure.bbox
    names = list(boxes)
    for i, name in enumerate(names):
        box = boxes[name]
        assert page.x0 <= box.x0 <= box.x1 <= page.x1
        assert page.y0 <= box.y0 <= box.y1 <= page.y1
        slack = 1.5 if not given else 3  # glyphs are hinted to whole pixels, which matters for small ones
        for text in texts[name]:
            assert box.x0 - slack <= text.x0 <= text.x1 <= box.x1 + slack
            assert box.y0 - slack <= text.y0 <= text.y1 <= box.y1 + slack
        for other in names[:i]:
            assert not box.overlaps(boxes[other])


def test_layout_keeps_distances_and_puts_parents_in_the_middle():
    random = np.random.default_rng(0)
    tree = dtrees.DecisionTreeRegressor().fit(random.normal(size=(300, 3)), random.normal(size=300)).tree_
    width = random.uniform(1, 20, tree.node_count)
    x = centres(tree.children_left.tolist(), tree.children_right.tolist(), width.tolist(), 2.0)
    assert (x - width / 2).min() == pytest.approx(0)
    for depth in range(tree.max_depth + 1):
        level = np.flatnonzero(tree.node_depth == depth)  # in preorder, so from the left
        gaps = (x - width / 2)[level[1:]] - (x + width / 2)[level[:-1]]
        assert np.all(gaps >= 2 - 1e-9)
    inner = np.flatnonzero(tree.feature >= 0)
    np.testing.assert_allclose(x[inner], (x[tree.children_left[inner]] + x[tree.children_right[inner]]) / 2)


def test_a_deep_tree_needs_no_deep_stack():
    n = 1500
    left, right = [-1] * (2 * n + 1), [-1] * (2 * n + 1)
    for node in range(n):
        left[node], right[node] = node + 1, 2 * n - node
    x = centres(left, right, [1.0] * (2 * n + 1), 0.0)
    assert np.isfinite(x).all()


def test_names_are_no_mathematics():
    frame = pd.DataFrame({"$x^2": X[:, 0], "$y$_": X[:, 1]})
    tree = dtrees.DecisionTreeClassifier(max_depth=2).fit(frame, LABELS)
    for ax in (plot_tree(tree, class_names=["$a", "$\\frac", "$b$"]), plot_importance(tree)):
        ax.figure.canvas.draw()
    assert ax.get_yticklabels()[0].get_text() in frame.columns


def test_sizes():
    tree = dtrees.DecisionTreeRegressor(max_depth=2).fit(X, SIGNAL)
    assert plot_tree(tree, figsize=(3, 2)).figure.get_size_inches().tolist() == [3, 2]
    ax = plot_tree(tree, fontsize=20)
    assert {text.get_fontsize() for text in ax.texts if text.get_gid().startswith("node")} == {20}
    for options, error, message in (
        ({"fontsize": -1}, ValueError, "fontsize is -1"),
        ({"figsize": 3}, ValueError, "figsize is 3; wants a pair"),
        ({"figsize": (0, 1)}, ValueError, "wants positive numbers"),
        ({"ax": "here"}, TypeError, "ax is of type str"),
        ({"ax": ax, "figsize": (1, 1)}, ValueError, "but ax is given"),
    ):
        with pytest.raises(error, match=message):
            plot_tree(tree, **options)


@every_kind
def test_importances_are_those_of_the_model(kind):
    model = make(kind).fit(X, target(kind))
    for importance_type in (None, "gain", "split", "cover"):
        ax = plot_importance(model, importance_type=importance_type, max_num_features=3)
        wanted = type(model)(**{**model.get_params(), "importance_type": importance_type or model.importance_type}).fit(X, target(kind))
        order = np.argsort(-wanted.feature_importances_, kind="stable")[:3]
        assert [label.get_text() for label in ax.get_yticklabels()] == [f"feature_{j}" for j in order]
        assert [bar.get_width() for bar in ax.patches] == wanted.feature_importances_[order].tolist()
        assert "(2 columns of less are not shown)" in ax.get_xlabel()
    assert model.importance_type == "gain"


def test_importances_that_are_given():
    tree = dtrees.DecisionTreeRegressor(max_depth=2).fit(X, SIGNAL)
    given = np.array([[0.0, 0.2], [1.0, 2.0], [-1.0, 0.0], [0.0, 0.0], [0.5, 0.5]])
    ax = plot_importance(tree, importances=given, feature_names=list("abcde"), title=None)
    assert [label.get_text() for label in ax.get_yticklabels()] == list("beadc")
    assert [bar.get_width() for bar in ax.patches] == [1.5, 0.5, 0.1, 0.0, -0.5]
    for options, message in (
        ({"importances": [1.0]}, r"importances has shape \(1,\); wants \(5,\)"),
        ({"importances": given, "importance_type": "gain"}, "but importances are given"),
        ({"importance_type": "weight"}, "importance_type is 'weight'; wants 'gain', 'split', 'cover'"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_importance(tree, **options)
    with pytest.raises(TypeError, match="model is of type str; wants an estimator of dtrees"):
        plot_importance("tree")


def lines_of(ax):
    return {line.get_label(): np.asarray(line.get_ydata(), float) for line in ax.get_lines()}


def test_curves_are_those_of_the_fit():
    model = dtrees.GradientBoostingRegressor(
        n_estimators=60, learning_rate=0.6, eval_metric=["mae", "rmse"], early_stopping_rounds=3, subsample=0.5, random_state=0
    )
    model.fit(X[:200], SIGNAL[:200], eval_set={"new": (X[200:], SIGNAL[200:])})
    ax = plot_metric(model)
    assert ax.get_ylabel() == "rmse"
    lines = lines_of(ax)
    np.testing.assert_array_equal(lines["new"], model.evals_result_["new"]["rmse"])
    np.testing.assert_array_equal(lines["training"], np.sqrt(model.train_score_))
    best = f"best round: {model.best_iteration_ + 1}"
    assert ax.get_lines()[-1].get_label() == best
    assert set(ax.get_lines()[-1].get_xdata()) == {model.best_iteration_ + 1}
    assert lines_of(plot_metric(model, "mae")).keys() == {"new", best}
    assert lines_of(plot_metric(model, "loss")).keys() == {"training", "out of bag", best}
    with pytest.raises(ValueError, match="metric is 'auc'; wants one that the model has: 'loss', 'mae', 'rmse'"):
        plot_metric(model, "auc")


@pytest.mark.parametrize("labels", [LABELS, LABELS == "low"])
def test_the_loss_of_classes_is_the_metric_of_classes(labels):
    """The training rows as an evaluation set have the same curve as the training loss."""
    model = dtrees.GradientBoostingClassifier(n_estimators=5, subsample=1.0).fit(X, labels, eval_set={"same": (X, labels)})
    lines = lines_of(plot_metric(model))
    np.testing.assert_allclose(lines["training"], lines["same"], rtol=1e-6)


def test_scores_of_rows_held_out():
    model = dtrees.GradientBoostingClassifier(n_estimators=5, n_iter_no_change=9, scoring="roc_auc").fit(X, LABELS == "low")
    assert {metric: list(rows) for metric, rows in learning_curves(model).items()} == {"loss": ["training"], "roc_auc": ["held out"]}
    model = dtrees.GradientBoostingRegressor(n_estimators=5, n_iter_no_change=9).fit(X, SIGNAL)
    assert list(learning_curves(model)["loss"]) == ["training", "held out"]


def test_several_targets():
    y = np.column_stack([SIGNAL, 100 * X[:, 2]])
    y[np.isnan(y)] = 0
    model = dtrees.GradientBoostingRegressor(n_estimators=4).fit(X, y, eval_set={"same": (X, y)})
    assert lines_of(plot_metric(model)).keys() == {"same"}  # a mean of roots is not a root of a mean
    assert texts_of(plot_tree(model, tree_index=7), "node")
    assert plot_importance(model).patches


def test_what_has_no_curves():
    with pytest.raises(TypeError, match="model is a RandomForestRegressor; wants a boosting estimator"):
        plot_metric(dtrees.RandomForestRegressor(2).fit(X, SIGNAL))


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib" or name.startswith("dtrees.plots")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(dtrees, "plots", dtrees.plots)  # to restore it afterwards
    draw_tree = importlib.import_module("dtrees.plots").plot_tree
    draw_importance = importlib.import_module("dtrees.plots").plot_importance
    tree = dtrees.DecisionTreeRegressor().fit([[1.0], [2.0]], [1.0, 2.0])
    assert "digraph" in dtrees.export_graphviz(tree)
    for draw in (draw_tree, draw_importance):
        with pytest.raises(ImportError, match=r"pip install 'dask-dtrees\[plot\]'"):
            draw(tree)
