"""Prediction with trees that split on categories, against walking through them one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtrees.tree.category_sets import CategorySets
from dtrees.tree.mapping import packed_arrays, packed_of
from dtrees.tree.predict import add_tree, apply, packed_for, sum_values
from dtrees.tree.predict_sets import PackedWithSets
from dtrees.tree.tree import Tree
from tests.tree.trees import random_tree


def with_sets(random: np.random.Generator, tree: Tree, n_levels: int) -> Tree:
    """Return a tree with sets of categories at most of its nodes that split on columns 1, 3 or 4."""
    nodes = np.flatnonzero(np.isin(tree.feature, [1, 3, 4]) & (random.random(tree.node_count) < 0.9))
    some = [np.flatnonzero(random.random(random.integers(1, n_levels + 1)) < 0.5) for _ in nodes]
    return tree.with_categories(CategorySets.of(nodes, some))


def naive_leaf(tree: Tree, x: Any) -> int:
    node = 0
    while tree.children_left[node] != -1:
        value = float(x[tree.feature[node]])
        if np.isnan(value):
            left = tree.missing_go_to_left[node]
        elif node in tree.categories.node:
            left = int(value) in tree.categories.of_node(node)
        else:
            left = value <= tree.threshold[node]
        node = int(tree.children_left[node] if left else tree.children_right[node])
    return node


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("depth", "n_levels", "n"), [(1, 3, 100), (3, 5, 300), (6, 40, 900), (6, 2000, 40), (9, 200, 600), (12, 70, 20)])
def test_against_walking(depth: int, n_levels: int, n: int, dtype: Any) -> None:
    """Shallow and deep trees, few rows and many, missing values, categories that no set has, numbers that no category has."""
    random = np.random.default_rng(depth)
    trees = [with_sets(random, random_tree(random, 5, depth, 2), n_levels) for _ in range(3)]
    X = random.integers(-3, n_levels + 9, (n, 5)).astype(dtype)
    X[:, [0, 2]] = random.normal(size=(n, 2))
    X[random.random(X.shape) < 0.1] = np.nan
    X[random.random(X.shape) < 0.01] = 1e30
    packed = packed_for(trees, dtype)
    assert isinstance(packed, PackedWithSets) or not any(tree.categories.node.shape[0] for tree in trees)
    leaves = np.array([[naive_leaf(tree, x) for tree in trees] for x in X])
    np.testing.assert_array_equal(apply(packed, X, n_threads=2), leaves)
    wanted = np.zeros((n, 2))
    for t, tree in enumerate(trees):
        wanted += tree.value[leaves[:, t]]
        one = np.zeros((n, 2))
        add_tree(packed, X, t, one)
        np.testing.assert_array_equal(one, tree.value[leaves[:, t]])
    np.testing.assert_array_equal(sum_values(packed, X), wanted)


def test_sets_whose_last_words_are_empty() -> None:
    """As a model from elsewhere may have them: nothing is written beyond the room for tables."""
    random = np.random.default_rng(0)
    tree = with_sets(random, random_tree(random, 5, 6, 1), 9)
    node, offset, words = tree.categories
    longer = CategorySets(node, 4 * np.arange(node.shape[0] + 1), np.zeros(4 * node.shape[0], np.uint32))
    for i in range(node.shape[0]):
        longer.words[4 * i : 4 * i + offset[i + 1] - offset[i]] = words[offset[i] : offset[i + 1]]
    other = tree.with_categories(longer)
    packed = packed_for([other], np.float64)
    assert isinstance(packed, PackedWithSets)
    assert packed.n_words.max() == packed.tests["n_words"].max() == 4
    X = random.integers(-3, 200, (900, 5)).astype(np.float64)
    np.testing.assert_array_equal(sum_values(packed, X), sum_values(packed_for([tree], np.float64), X))


def test_trees_packed_as_before_are_packed_anew() -> None:
    random = np.random.default_rng(1)
    tree = with_sets(random, random_tree(random, 5, 4, 1), 9)
    arrays = packed_arrays(packed_for([tree], np.float64))
    for name in ("n_words", "n_codes", "stride", "table_of", "first_entry"):
        arrays.pop(name)
    arrays["first_code"] = np.zeros(3, np.int64)
    packed = packed_of([tree], arrays)
    X = random.integers(-3, 12, (50, 5)).astype(np.float64)
    np.testing.assert_array_equal(sum_values(packed, X), sum_values(packed_for([tree], np.float64), X))


@pytest.mark.parametrize(
    ("n_codes", "tables"), [([5, 5, 5, 5], [0, 0, 0, 1]), ([20, 20, 2], [0, 1, 0]), ([1, 600, 32], [0, 1, 0])], ids=["three", "two", "one"]
)
def test_columns_share_tables(n_codes: list[int], tables: list[int]) -> None:
    """Columns of few categories are looked up together, up to 512 entries a table; some sets are empty, and those of a last split too."""
    random, k = np.random.default_rng(0), len(n_codes)
    tree = random_tree(random, k, 6, 1)
    nodes = np.flatnonzero(tree.children_left >= 0)
    sets = [np.flatnonzero(random.random(n_codes[j]) < 0.5) for j in tree.feature[nodes]]
    for j, n in enumerate(n_codes):
        mine = np.flatnonzero(tree.feature[nodes] == j)
        assert mine.size > 1
        sets[mine[0]], sets[mine[-1]] = np.array([n - 1]), np.empty(0, np.int64)
    tree = tree.with_categories(CategorySets.of(nodes, sets))
    packed = packed_for([tree], np.float64)
    assert isinstance(packed, PackedWithSets)
    order = np.argsort(packed.by_set)
    assert packed.table_of[order].tolist() == tables
    assert (packed.n_codes[order] - 2).tolist() == n_codes
    X = np.column_stack([random.integers(-1, n + 2, 5000) for n in n_codes]).astype(np.float64)
    X[random.random(X.shape) < 0.1] = np.nan
    leaves = [naive_leaf(tree, x) for x in X]
    np.testing.assert_array_equal(apply(packed, X)[:, 0], leaves)
    np.testing.assert_array_equal(sum_values(packed, X), tree.value[leaves])
