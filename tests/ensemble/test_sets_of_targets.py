"""Columns of categories where y has several columns: how their sets are explained, drawn, written and kept."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import dtrees
from dtrees.node_texts import Branches, Drawn, NodeOptions, NodeTexts
from tests.ensemble.estimators.test_explaining import explained
from tests.ensemble.samples import is_classifier, trees
from tests.export.test_graphviz import graph
from tests.export.test_text import goes, people
from tests.plots.test_plots import texts_of
from tests.tree.naive_shapley import game_of, interaction_values, shapley_values

FRAME, VALUE = people()
SECOND = FRAME["job"].isin(["baker", "smith"]) * 2.0 - (FRAME["size"] == "medium") + FRAME["age"].fillna(0) / 40
Y = np.column_stack([VALUE, SECOND, VALUE * SECOND])
CLASSES = np.column_stack([np.digitize(VALUE, [2, 4]), SECOND > 1])
ROWS = FRAME.iloc[:4].copy()
ROWS["job"] = ["cook", "potter", None, "smith"]


@pytest.fixture(
    scope="module",
    params=[  # with kernels of their own
        pytest.param(dtrees.DecisionTreeRegressor, marks=pytest.mark.slow),
        pytest.param(dtrees.RandomForestRegressor, marks=pytest.mark.slow),
        pytest.param(dtrees.ExtraTreeRegressor, marks=pytest.mark.thorough),
        pytest.param(dtrees.DecisionTreeClassifier, marks=pytest.mark.slow),
        pytest.param(dtrees.ExtraTreesClassifier, marks=pytest.mark.thorough),
    ],
    ids=lambda kind: kind.__name__,
)
def model(request: pytest.FixtureRequest) -> Any:
    """A fitted model with sets of both columns of categories."""
    kind = request.param
    some = {"n_estimators": 3} if hasattr(kind(), "n_estimators") else {}
    of_job_and_size = kind(max_depth=4, min_samples_category=2, random_state=0, **some, categorical_features=["job", "size"])
    return of_job_and_size.fit(FRAME, CLASSES if is_classifier(kind) else Y)


def members(model: Any) -> list[Any]:
    """The trees of a model as estimators."""
    return list(np.ravel(model.estimators_)) if hasattr(model, "estimators_") else [model]


def test_there_are_sets_of_each_column(model: Any) -> None:
    split_by_sets = {int(tree.feature[node]) for tree in trees(model) for node in tree.categories.node}
    assert split_by_sets == {0, 1}
    assert all(tree.value.shape[1] > 1 for tree in trees(model))


@pytest.mark.parametrize("with_background", [False, True])
def test_shapley_values_are_those_by_definition(model: Any, with_background: bool) -> None:
    background = FRAME.tail(5) if with_background else None
    values, expected = model.shap_values(ROWS, background), model.shap_expected_value(background)
    predicted = _side_by_side(model, ROWS)
    assert values.shape == (4, 3, predicted.shape[1])
    assert_allclose(values.sum(axis=1) + expected, predicted, rtol=0, atol=1e-12)
    seen = None if background is None else model._schema.matrix(background)
    for number, row in enumerate(model._schema.matrix(ROWS)):
        game = game_of(trees(model), row, 3, seen)
        assert_allclose(values[number] * len(trees(model)), shapley_values(game, 3), rtol=0, atol=1e-11)
        if background is None:
            pairs = model.shap_interaction_values(ROWS)
            assert_allclose(pairs[number] * len(trees(model)), interaction_values(game, 3), rtol=0, atol=1e-11)


def _side_by_side(model: Any, rows: pd.DataFrame) -> Any:
    """What is explained: the values of all targets, or the probabilities of all their classes, side by side."""
    found = explained(model, rows)
    return np.hstack(found) if isinstance(found, list) else found


def test_rows_go_where_texts_and_drawings_say(model: Any) -> None:
    for tree in members(model):
        path, nodes = tree.decision_path(FRAME).toarray().astype(bool), tree.tree_
        text = dtrees.export_text(tree, decimals=17, show_missing=True, max_categories=100)
        branches = Branches(tree, None, "{:.17f}".format, True, 100)
        drawn = {node.number: node for node in NodeTexts(tree, 0, NodeOptions(precision=17, max_categories=100)).drawn()}
        assert list(drawn) == list(range(nodes.node_count))
        for node in np.flatnonzero(nodes.feature >= 0):
            for branch, child in zip(branches.of(node), (nodes.children_left[node], nodes.children_right[node]), strict=True):
                assert f" {branch}\n" in text
                assert_array_equal(goes(FRAME, branch) & path[:, node], path[:, child])
                assert_array_equal(_taken(drawn[int(node)], drawn[int(child)]) & path[:, node], path[:, child])
        for number, said in drawn.items():
            value = next(line for line in said.lines if line.startswith("value = ")).removeprefix("value = ")
            amounts = tree._tree.value[number]  # of all targets, or all their classes, side by side
            wanted = amounts * nodes.weighted_n_node_samples[number] if is_classifier(type(tree)) else amounts
            assert_allclose(np.concatenate(json.loads(f"[{value}]")), wanted, rtol=1e-12)


def _taken(above: Drawn, node: Drawn) -> NDArray[np.bool_]:
    """Which rows an edge is for, as it and the node above say."""
    test = " ".join(above.lines[k] for k in above.bold)
    answer, _, missing = node.edge.partition(", ")
    taken = goes(FRAME, test) == (answer == "yes")
    return taken if test.endswith("is not missing") else np.where(FRAME[test.split(" ")[0]].isna(), missing == "missing", taken)


def test_pictures_and_graphs_show_the_texts(model: Any) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    drawn = list(NodeTexts(model, 0, NodeOptions(max_categories=3)).drawn())
    assert any(" in {" in line for node in drawn for line in node.lines)
    ax = dtrees.plot_tree(model, max_depth=None, max_categories=3)
    assert texts_of(ax, "node") == {node.number: list(node.lines) for node in drawn}
    assert texts_of(ax, "edge") == {node.number: [node.edge] for node in drawn if node.parent >= 0}
    pyplot.close("all")
    nodes, edges = graph(dtrees.export_graphviz(model, max_categories=3))
    assert nodes == {node.number: list(node.lines) for node in drawn}
    assert edges == {(node.parent, node.number): node.edge for node in drawn if node.parent >= 0}
