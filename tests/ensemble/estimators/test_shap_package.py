"""Shapley values beside those of the shap package, which is given the very trees."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dtrees
from dtrees.tree.tree import Tree
from tests.ensemble.estimators.test_explaining import FRAME
from tests.ensemble.samples import BOOSTING, FORESTS, KINDS, every_kind, make, target, trees

pytestmark = pytest.mark.slow


def for_shap(tree: Tree, output: int, scale: float, n_categories: int) -> dict[str, Any]:
    """A tree in the form that shap takes of any library.

    Shap knows no sets of categories. A split by one becomes splits of the same column by thresholds, into stretches of category numbers
    that go the same way, each with its copy of what lies below; those of one side share its weight. That is the same game.
    """
    rows: list[list[Any]] = []  # left, right, missing, feature, threshold, value, weight

    def add(node: int, weight: float) -> int:
        mine = len(rows)
        rows.append([-1, -1, -1, -2, -2.0, [tree.value[node, output] / scale], weight])
        left, right = int(tree.children_left[node]), int(tree.children_right[node])
        if left < 0:
            return mine
        shares = tree.weighted_n_node_samples[[left, right]] / tree.weighted_n_node_samples[[left, right]].sum()
        if node not in tree.categories.node:
            children = add(left, weight * shares[0]), add(right, weight * shares[1])
            rows[mine][:5] = [*children, children[0 if tree.missing_go_to_left[node] else 1], tree.feature[node], tree.threshold[node]]
            return mine
        sent_left = np.isin(np.arange(n_categories), tree.categories.of_node(node))
        stretches = [(goes, len(list(some))) for goes, some in groupby(sent_left.tolist())]
        parts = {goes: sum(1 for one, _ in stretches if one == goes) for goes in (True, False)}
        if not parts[False]:  # which no category of the column goes to
            stretches, parts[False] = [*stretches, (False, 1)], 1
        at, remaining, passed = mine, weight, 0
        for number, (goes, length) in enumerate(stretches):
            part = weight * shares[0 if goes else 1] / parts[goes]
            child = left if goes else right
            last = number == len(stretches) - 2
            passed += length
            remaining -= part
            here = add(child, part)
            rest = add(right if goes else left, remaining) if last else len(rows)
            if not last:
                rows.append([-1, -1, -1, -2, -2.0, [0.0], remaining])
            missing = here if goes == bool(tree.missing_go_to_left[node]) else rest
            rows[at][:5] = [here, rest, missing, tree.feature[node], passed - 0.5]
            if last:
                break
            at = rest
        return mine

    add(0, 1.0)
    names = "children_left", "children_right", "children_default", "features", "thresholds", "values", "node_sample_weight"
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


@every_kind
def test_values_are_those_of_shap(kind):
    shap = pytest.importorskip("shap")
    y = target(kind)
    # Four of five rows have a category that tells of y, and not in the order of the categories, so that there are splits by sets.
    rank = np.unique(y, return_inverse=True)[1]
    told = np.array(["miller", "baker", "smith", "cook"])[rank * 4 // (rank.max() + 1)]
    frame = FRAME.assign(job=pd.Categorical(np.where(np.arange(len(y)) % 5, told, FRAME["job"])))
    parameters = {} if kind in KINDS[:4] else {"n_estimators": 20}
    model = make(kind, n_jobs=2, random_state=0, **parameters).fit(frame, y)
    assert any(len(tree.categories.node) for tree in trees(model))
    rows, background = frame.head(60), frame.tail(20)
    matrix, others = model._schema.matrix(rows).astype(float), model._schema.matrix(background).astype(float)
    groups = model._trees.groups
    pairs = [(group, 0) for group in groups] if kind in BOOSTING else [(groups[0], k) for k in range(groups[0][0].value.shape[1])]
    scale = float(len(groups[0])) if kind in FORESTS else 1.0
    n_outputs = len(pairs)
    values, expected = model.shap_values(rows).reshape(60, 5, n_outputs), np.atleast_1d(model.shap_expected_value())
    interactions = model.shap_interaction_values(rows).reshape(60, 5, 5, n_outputs)
    of_background = model.shap_values(rows, background).reshape(60, 5, n_outputs)
    for number, (group, output) in enumerate(pairs):
        described = [for_shap(tree, output, scale, 4) for tree in group]
        explainer = shap.TreeExplainer({"trees": described}, feature_perturbation="tree_path_dependent")
        start = 0.0 if model._trees.initial is None else model._trees.initial[number]
        np.testing.assert_allclose(values[..., number], explainer.shap_values(matrix, check_additivity=False), rtol=0, atol=1e-9)
        np.testing.assert_allclose(interactions[..., number], explainer.shap_interaction_values(matrix), rtol=0, atol=1e-9)
        np.testing.assert_allclose(expected[number], np.ravel(explainer.expected_value)[0] + start, rtol=0, atol=1e-9)
        explainer = shap.TreeExplainer({"trees": described}, others, feature_perturbation="interventional")
        found = explainer.shap_values(matrix, check_additivity=False)  # by weights of single precision
        np.testing.assert_allclose(of_background[..., number], found, rtol=0, atol=1e-6)


def test_shap_draws_our_values():
    shap = pytest.importorskip("shap")
    plt = pytest.importorskip("matplotlib.pyplot")
    model = dtrees.GradientBoostingRegressor(n_estimators=10).fit(FRAME, target(dtrees.GradientBoostingRegressor))
    explanation = shap.Explanation(
        values=model.shap_values(FRAME), base_values=np.full(len(FRAME), model.shap_expected_value()), data=FRAME, feature_names=list(FRAME)
    )
    shap.plots.beeswarm(explanation, show=False)
    assert plt.gcf().axes
    plt.close("all")
