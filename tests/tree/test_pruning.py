"""Pruning, compared with scikit-learn's pruning of trees with the same arrays."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.tree._tree import NODE_DTYPE, _build_pruned_tree_ccp, ccp_pruning_path
from sklearn.tree._tree import Tree as SklearnTree

from dtrees.tree.pruning import cost, kept_nodes, nodes_above, pruned, pruning_path
from dtrees.tree.tree import Tree
from tests.tree.trees import grown, naive_leaf, random_tree

N_FEATURES = 3


def theirs(tree: Tree) -> Any:
    """Return scikit-learn's tree with the same arrays."""
    nodes = np.zeros(tree.node_count, NODE_DTYPE)
    names = {"left_child": "children_left", "right_child": "children_right"}
    for name in NODE_DTYPE.names:
        nodes[name] = getattr(tree, names.get(name, name))
    other = SklearnTree(N_FEATURES, np.array([1], np.intp), 1)
    value = np.ascontiguousarray(tree.value[:, np.newaxis])
    other.__setstate__({"max_depth": tree.max_depth, "node_count": tree.node_count, "nodes": nodes, "values": value})
    return other


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Trees with few distinct impurities, so that links tie, with zero impurities, and with children's above their parents'."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tree = random_tree(rng, N_FEATURES, draw(st.integers(0, 7)))
    arrays = grown(tree, rng, most=draw(st.sampled_from([1, 5])), fractions=draw(st.booleans()), pure=draw(st.booleans()))
    n = tree.node_count
    kind = draw(st.sampled_from(["random", "few values", "none", "falling"]))
    if kind == "few values":
        arrays["impurity"] = rng.integers(0, 3, n) / 4
    elif kind == "none":
        arrays["impurity"] = np.zeros(n)
    elif kind == "falling":
        arrays["impurity"] = rng.random(n) / (1 + tree.node_depth) ** 3
    return Tree.from_arrays(**arrays)


def alphas_of(path: Any) -> list[float]:
    """Return alphas around and between those of a path."""
    return [*path, *np.nextafter(path, -np.inf), *(np.array(path[1:]) + path[:-1]) / 2]


@given(trees())
def test_the_path_is_scikit_learns(tree: Tree) -> None:
    path = ccp_pruning_path(theirs(tree))
    alphas, costs = pruning_path(tree)
    assert_array_equal(alphas, path["ccp_alphas"])
    assert_array_equal(costs, path["impurities"])


@given(trees(), st.data())
def test_a_pruned_tree_is_scikit_learns(tree: Tree, data: st.DataObject) -> None:
    alpha = data.draw(st.sampled_from(alphas_of(pruning_path(tree)[0])))
    original = theirs(tree)
    wanted = SklearnTree(N_FEATURES, np.array([1], np.intp), 1)
    _build_pruned_tree_ccp(wanted, original, alpha)
    ours = pruned(tree, kept_nodes(tree.children_left, tree.children_right, cost(tree), alpha))
    ours.validate(N_FEATURES)
    for name in ("children_left", "children_right", "feature", "threshold", "impurity", "n_node_samples", "weighted_n_node_samples"):
        assert_array_equal(getattr(ours, name), getattr(wanted, name))
    assert_array_equal(ours.missing_go_to_left[ours.feature >= 0], wanted.missing_go_to_left[ours.feature >= 0])
    assert_array_equal(ours.value, wanted.value[:, 0])
    assert ours.max_depth == wanted.max_depth
    assert not ours.gain[ours.feature < 0].any()


@given(trees(), st.data())
def test_rows_fall_into_the_nodes_above_their_leaves(tree: Tree, data: st.DataObject) -> None:
    alpha = data.draw(st.sampled_from(alphas_of(pruning_path(tree)[0])))
    kept = kept_nodes(tree.children_left, tree.children_right, cost(tree), alpha)
    smaller = pruned(tree, kept)
    rows = np.random.default_rng(0).normal(size=(20, N_FEATURES))
    above = nodes_above(kept, np.array([naive_leaf(tree, row) for row in rows]))
    assert_array_equal(above, np.flatnonzero(kept)[[naive_leaf(smaller, row) for row in rows]])


def test_impurities_that_are_no_numbers_are_left_alone() -> None:
    tree = random_tree(np.random.default_rng(1), N_FEATURES, 4)
    assert tree.node_count > 3
    for impurity in (np.nan, np.inf):
        tree.impurity[:] = impurity
        assert kept_nodes(tree.children_left, tree.children_right, cost(tree), 5.0).all()
