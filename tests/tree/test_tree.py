"""The finished tree: its properties, and damage that it refuses."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.tree.tree import Tree
from tests.tree.trees import random_tree


def example() -> Tree:
    """Five nodes: 0 -> (1 -> (2, 3), 4)."""
    return Tree.from_arrays(
        children_left=[1, 2, -1, -1, -1],
        children_right=[4, 3, -1, -1, -1],
        feature=[0, 2, -2, -2, -2],
        threshold=[0.5, np.inf, -2.0, -2.0, -2.0],
        missing_go_to_left=[True, False, False, False, False],
        impurity=np.arange(5.0),
        gain=[2.0, 1.0, 0.0, 0.0, 0.0],
        n_node_samples=[6, 4, 3, 1, 2],
        weighted_n_node_samples=[6.0, 4.0, 3.0, 1.0, 2.0],
        value=np.arange(10.0).reshape(5, 2),
    )


def replaced(**changes: Any) -> Tree:
    return Tree(**{name: changes.get(name, getattr(example(), name)) for name in Tree.ARRAYS})


def changed(name: str, place: int, value: Any) -> Callable[[], Tree]:
    """The example with one number changed."""

    def make() -> Tree:
        array = getattr(example(), name).copy()
        array[place] = value
        return replaced(**{name: array})

    return make


def test_what_a_tree_says_of_itself() -> None:
    tree = example()
    assert (tree.node_count, tree.n_leaves, tree.max_depth) == (5, 3, 2)
    assert tree.node_depth.tolist() == [0, 1, 2, 2, 1]
    assert {name: getattr(tree, name).dtype for name in Tree.ARRAYS} == {k: np.dtype(v) for k, v in Tree.ARRAYS.items()}
    tree.validate(3)
    tree.validate(3, n_values=2)


def test_a_single_leaf() -> None:
    arrays = {name: [-1] if name.startswith("children") else [1] for name in Tree.ARRAYS}
    leaf = Tree.from_arrays(**arrays | {"feature": [-2], "value": [[0.5]]})
    assert (leaf.node_count, leaf.n_leaves, leaf.max_depth) == (1, 1, 0)
    leaf.validate(1)


@given(st.integers(0, 2**20), st.integers(0, 6))
def test_random_trees_are_valid(seed: int, depth: int) -> None:
    tree = random_tree(np.random.default_rng(seed), 3, depth)
    tree.validate(3, n_values=1)
    depths = {0: 0}
    for node in range(tree.node_count):
        if tree.children_left[node] >= 0:
            depths[int(tree.children_left[node])] = depths[int(tree.children_right[node])] = depths[node] + 1
    assert tree.node_depth.tolist() == [depths[node] for node in range(tree.node_count)]


def test_equals_is_byte_for_byte() -> None:
    tree = example()
    assert tree.equals(example())
    assert tree.equals(pickle.loads(pickle.dumps(tree)))
    for name in Tree.ARRAYS:
        array = getattr(tree, name).copy()
        array.flat[2] = not array.flat[2] if array.dtype == bool else array.flat[2] + 1
        assert not tree.equals(replaced(**{name: array}))
    assert not changed("gain", 3, -0.0)().equals(tree)


@pytest.mark.parametrize(
    "damaged",
    [
        changed("children_left", 0, 0),  # a cycle
        changed("children_left", 1, 0),
        changed("children_left", 1, 3),
        changed("children_left", 0, 5),  # beyond the end
        changed("children_left", 0, -7),
        changed("children_left", 0, -1),  # half a leaf
        changed("children_left", 2, 3),
        changed("children_right", 0, 5),
        changed("children_right", 0, 1),  # both children are the same node
        changed("children_right", 0, 3),  # two parents
        changed("children_right", 0, 0),
        changed("children_right", 0, -1),
        changed("children_right", 0, 2**31 - 1),
        changed("feature", 0, 3),
        changed("feature", 0, -1),
        changed("feature", 0, -2),
        changed("feature", 2, 0),
        changed("feature", 2, -1),
        changed("threshold", 0, np.nan),
        changed("threshold", 0, -np.inf),
        changed("value", 0, np.nan),
        changed("value", (4, 1), np.inf),
        lambda: replaced(threshold=example().threshold[:4]),
        lambda: replaced(feature=example().feature[:4]),
        lambda: replaced(value=example().value[:4]),
        lambda: replaced(value=example().value.ravel()),
        lambda: replaced(children_left=example().children_left.astype(np.int64)),
        lambda: replaced(threshold=example().threshold.astype(np.float32)),
        lambda: replaced(threshold=example().threshold[:, None]),
        lambda: Tree(**{name: getattr(example(), name)[:0] for name in Tree.ARRAYS}),
        lambda: Tree(**{name: getattr(example(), name)[:4] for name in Tree.ARRAYS}),
        lambda: Tree(**{name: np.concatenate([getattr(example(), name), getattr(example(), name)[4:]]) for name in Tree.ARRAYS}),
    ],
)
def test_damage_is_refused(damaged: Callable[[], Tree]) -> None:
    with pytest.raises(ValueError, match="tree"):
        damaged().validate(3)


def test_too_few_features_or_other_values() -> None:
    with pytest.raises(ValueError, match=r"feature that is not in 0\.\.1"):
        example().validate(2)
    with pytest.raises(ValueError, match="'value' has dtype float64 and shape"):
        example().validate(3, n_values=1)


@given(st.integers(0, 2**20), st.sampled_from(["children_left", "children_right", "feature"]), st.data())
def test_what_passes_can_be_walked(seed: int, name: str, data: st.DataObject) -> None:
    """For any changed index: the tree is refused, or every path still ends within the arrays."""
    tree = random_tree(np.random.default_rng(seed), 3, 4)
    array = getattr(tree, name).copy()
    array[data.draw(st.integers(0, tree.node_count - 1))] = data.draw(st.integers(-3, tree.node_count + 1))
    tree = Tree(**{other: array if other == name else getattr(tree, other) for other in Tree.ARRAYS})
    try:
        tree.validate(3)
    except ValueError:
        return
    for node in range(tree.node_count):
        left, right = tree.children_left[node], tree.children_right[node]
        assert (left == right == -1 and tree.feature[node] == -2) or (
            left == node + 1 < right < tree.node_count and 0 <= tree.feature[node] < 3
        )
