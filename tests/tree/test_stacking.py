"""Trees of a model as a few arrays: they are restored to the last bit, and only trees are accepted."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.tree import stacking
from dtrees.tree.stacking import stacked, unstacked
from dtrees.tree.tree import Tree
from tests.tree.trees import grown, naive_leaf, random_tree


@pytest.fixture(autouse=True, scope="module")
def no_tree_is_small() -> Any:
    """Trees are stacked in the compact layout for any number of nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacking, "LARGE", 0)
        yield


def tree_of(rng: np.random.Generator, n_features: int = 5, depth: int = 4, n_values: int = 2) -> Tree:
    most = int(rng.choice([1, 200, 70_000, 2**40]))
    fractions, pure = rng.random(2) < 0.5
    return Tree(**grown(random_tree(rng, n_features, depth, n_values), rng, most, bool(fractions), bool(pure)))


@given(st.integers(0, 2**32), st.integers(1, 2), st.integers(1, 4), st.integers(0, 5), st.integers(1, 3), st.integers(1, 300))
def test_trees_come_back(seed: int, n_groups: int, per_group: int, depth: int, n_values: int, n_features: int) -> None:
    rng = np.random.default_rng(seed)
    groups = [[tree_of(rng, n_features, depth, n_values) for _ in range(per_group)] for _ in range(n_groups)]
    arrays = stacked(groups)
    assert "trees.children_left" not in arrays
    for found, group in zip(unstacked(arrays, n_groups, n_values, n_features), groups, strict=True):
        assert all(a.equals(b) for a, b in zip(found, group, strict=True))


@pytest.mark.parametrize("least", [0, 10**6])
def test_layouts(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of few nodes, and trees without a compact form, are stored in full."""
    rng = np.random.default_rng(0)
    trees = [tree_of(rng) for _ in range(3)]
    small = stacked([trees])
    if least:
        monkeypatch.setattr(stacking, "LARGE", least)
    else:
        trees[1].gain[trees[1].feature < 0] = 1.0
    plain = stacked([trees])
    assert sum(array.nbytes for array in small.values()) < 0.7 * sum(array.nbytes for array in plain.values())
    np.testing.assert_array_equal(plain["trees.children_left"], np.concatenate([tree.children_left for tree in trees]))
    assert all(a.equals(b) for a, b in zip(unstacked(plain, 1, 2, 5)[0], trees, strict=True))


def stump_and_tree() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    arrays = stacked([[Tree(**grown(random_tree(rng, 5, depth, 2), rng, 9, False, False)) for depth in (1, 3)]])
    assert arrays["trees.node_counts"].min() == 3
    return arrays


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("feature", lambda a: np.full_like(a, 0)),
        ("feature", lambda a: np.full_like(a, -2)),
        ("feature", lambda a: a[::-1]),
        ("feature", lambda a: a[:-1]),
        ("feature", lambda a: np.append(a, a[-1])),
        ("feature", lambda a: np.where(a < 0, -3, a).astype(a.dtype)),
        ("feature", lambda a: np.where(a < 0, a, 5).astype(a.dtype)),
        ("feature", lambda a: a.astype(np.int64)),
        ("feature", lambda a: a.astype(float)),
        ("feature", lambda a: a[:, None]),
        ("feature", lambda a: np.int8(0)),
        ("threshold", lambda a: a[:-1]),
        ("threshold", lambda a: np.append(a, 0.0)),
        ("threshold", lambda a: np.full_like(a, np.nan)),
        ("threshold", lambda a: a.astype(np.float32)),
        ("gain", lambda a: a[:0]),
        ("missing_go_to_left", lambda a: a.astype(np.uint8)),
        ("impurity", lambda a: a[:-1]),
        ("impurity", lambda a: a[:0]),
        ("n_node_samples", lambda a: a[:-1]),
        ("n_node_samples", lambda a: a.astype(np.uint64)),
        ("weighted_n_node_samples", lambda a: np.append(a, a[0])),
        ("weighted_n_node_samples", lambda a: a.astype(complex)),
        ("value", lambda a: a[:, :1]),
        ("value", lambda a: a[:-1]),
        ("value", lambda a: np.full_like(a, np.inf)),
        ("value", lambda a: a[:, 0]),
        ("node_counts", lambda a: a[:, ::-1]),
        ("node_counts", lambda a: a + np.array([1, -1])),
        ("node_counts", lambda a: a[:, :1]),
        ("node_counts", lambda a: a.sum(keepdims=True)),
        ("node_counts", lambda a: np.array([[2**62, 2**62, 2**62, 2**62 + a.sum()]])),
        ("node_counts", lambda a: a.astype(np.int32)),
    ],
)
def test_what_are_no_trees(name: str, change: Any) -> None:
    arrays = stump_and_tree()
    arrays[f"trees.{name}"] = np.ascontiguousarray(change(arrays[f"trees.{name}"]))
    with pytest.raises((ValueError, TypeError)):
        unstacked(arrays, 1, 2, 5)


@given(st.data())
def test_arrays_of_anybodys_making(data: st.DataObject) -> None:
    """Arrays with any content are either refused, or are trees in which every row finds a leaf."""
    arrays = stump_and_tree()
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(arrays)))
        array = arrays[name] = arrays[name].copy()
        kind = data.draw(st.sampled_from(["bytes", "length", "swap"]))
        if kind == "bytes" and array.size:
            raw = array.reshape(-1).view(np.uint8)
            raw[data.draw(st.integers(0, raw.size - 1))] = data.draw(st.integers(0, 1 if array.dtype == np.bool_ else 255))
        elif kind == "length":
            arrays[name] = np.resize(array, (data.draw(st.integers(0, len(array) + 2)), *array.shape[1:]))
        elif array.size:
            i, j = (data.draw(st.integers(0, len(array) - 1)) for _ in range(2))
            array[[i, j]] = array[[j, i]]
    try:
        (trees,) = unstacked(arrays, 1, 2, 5)
    except ValueError:
        return
    for tree in trees:
        for row in np.random.default_rng(0).normal(size=(8, 5)):
            assert tree.feature[naive_leaf(tree, row)] == -2
