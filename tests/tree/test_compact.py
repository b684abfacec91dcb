"""Trees without what follows from the rest: they come back to the last bit, whatever they are."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.tree.compact import compact, expanded
from dtrees.tree.tree import Tree
from tests.tree.trees import random_tree


def arrays_of(tree: Tree) -> dict[str, Any]:
    return {name: getattr(tree, name) for name in Tree.ARRAYS}


def grown(tree: Tree, rng: np.random.Generator, most: int, fractions: bool, pure: bool) -> dict[str, Any]:
    """The arrays of a tree with the numbers that a grown one might have: those of inner nodes follow from their children's."""
    arrays = arrays_of(tree)
    leaf = tree.feature < 0
    n = np.where(leaf, rng.integers(1, most, leaf.shape[0], endpoint=True), 0)
    weight = n * np.where(rng.random(leaf.shape[0]) < 0.5, 0.3, 7.0) if fractions else n.astype(float)
    for i in range(leaf.shape[0] - 1, -1, -1):
        if not leaf[i]:
            children = tree.children_left[i], tree.children_right[i]
            n[i], weight[i] = (array[children[0]] + array[children[1]] for array in (n, weight))
    arrays["n_node_samples"], arrays["weighted_n_node_samples"] = n, weight
    arrays["gain"] = np.where(leaf, 0.0, tree.gain)
    if pure:
        arrays["impurity"] = np.where(leaf, 0.0, tree.impurity)
    return arrays


@given(
    st.integers(0, 2**32), st.integers(1, 300), st.integers(0, 7), st.integers(1, 3),
    st.sampled_from([1, 200, 70_000, 2**40]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_a_grown_tree_comes_back(seed: int, n_features: int, depth: int, n_values: int, most: int, fractions: bool, pure: bool) -> None:
    rng = np.random.default_rng(seed)
    arrays = grown(random_tree(rng, n_features, depth, n_values, [-1.0, np.inf, 1e300, 5e-324]), rng, most, fractions, pure)
    small = compact(arrays)
    assert small is not None
    assert Tree(**expanded(small)).equals(Tree(**arrays))
    assert sum(array.nbytes for array in small) < sum(array.nbytes for array in arrays.values())


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("n_node_samples", 0, 10**6),
        ("weighted_n_node_samples", 0, 1e6),
        ("weighted_n_node_samples", -1, np.nan),
        ("weighted_n_node_samples", -1, -1.0),
        ("threshold", -1, 3.0),
        ("gain", -1, -0.0),
        ("missing_go_to_left", -1, True),
        ("children_right", 0, 7),
        ("feature", -1, 0),
        ("feature", -1, -300),
    ],
)
def test_what_does_not_follow_is_not_left_out(name: str, place: int, value: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = grown(random_tree(rng, 5, 6), rng, 9, False, True)
    assert compact(arrays) is not None
    arrays[name] = arrays[name].copy()
    arrays[name][place] = value
    assert compact(arrays) is None


@pytest.mark.parametrize("broken", [False, True])
def test_large_trees_are_pickled_compactly(broken: bool) -> None:
    rng = np.random.default_rng(1)
    arrays = grown(random_tree(rng, 5, 18), rng, 9, False, True)
    if broken:
        arrays["gain"] = np.ones_like(arrays["gain"])
    tree = Tree(**arrays)
    assert tree.node_count > 1024
    content = pickle.dumps(tree)
    assert (len(content) < 25 * tree.node_count) != broken
    assert pickle.loads(content).equals(tree)
