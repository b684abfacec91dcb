"""Random trees, and the simple way to walk one."""

import math
from typing import Any

import numpy as np

from dtrees.tree.tree import Tree


def random_tree(rng: np.random.Generator, n_features: int, depth: int, n_values: int = 1, thresholds: Any = None) -> Tree:
    """Return a tree of at most ``depth`` levels, split at random; thresholds are drawn from the given ones."""
    rows: list[list[Any]] = []  # left, right, feature, threshold, missing_left

    def add(level: int) -> int:
        node = len(rows)
        rows.append([-1, -1, -2, -2.0, False])
        if level < depth and (level == 0 or rng.random() < 0.8):
            threshold = rng.choice(np.array([-1.0, 0.0, 0.25, 1.5]) if thresholds is None else thresholds)
            left, right = add(level + 1), add(level + 1)
            rows[node] = [left, right, int(rng.integers(n_features)), threshold, bool(rng.random() < 0.5)]
        return node

    add(0)
    n = len(rows)
    left, right, feature, threshold, missing_left = zip(*rows, strict=True)
    return Tree.from_arrays(
        children_left=left,
        children_right=right,
        feature=feature,
        threshold=threshold,
        missing_go_to_left=missing_left,
        impurity=rng.random(n),
        gain=rng.random(n),
        n_node_samples=rng.integers(1, 9, n),
        weighted_n_node_samples=rng.random(n),
        value=rng.normal(size=(n, n_values)),
    )


def goes_left(tree: Tree, node: int, x: Any) -> bool:
    """Return whether a row goes left at a node."""
    value = float(x[tree.feature[node]])
    if math.isnan(value):
        return bool(tree.missing_go_to_left[node])
    if node in tree.categories.node:
        return int(value) in tree.categories.of_node(node)
    return value <= float(tree.threshold[node])


def naive_leaf(tree: Tree, x: Any) -> int:
    """Return the leaf that a row falls into."""
    node = 0
    while tree.children_left[node] != -1:
        node = int(tree.children_left[node] if goes_left(tree, node, x) else tree.children_right[node])
    return node


def arrays_of(tree: Tree) -> dict[str, Any]:
    return {name: getattr(tree, name) for name in Tree.ARRAYS}


def grown(tree: Tree, rng: np.random.Generator, most: int, fractions: bool, pure: bool) -> dict[str, Any]:
    """Return the arrays of a tree with numbers that a grown one might have: those of inner nodes follow from their children's."""
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
