"""Prediction kernels compared with walking each row through each tree."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.tree import predict
from dtrees.tree.category_sets import CategorySets
from dtrees.tree.mapping import packed_arrays, packed_of
from dtrees.tree.packing import Packed, pack
from dtrees.tree.predict import add_tree, apply, packed_for, sum_values
from dtrees.tree.predict_sets import PackedWithSets
from dtrees.tree.tree import Tree
from tests.tree.trees import naive_leaf, random_tree

# --- prediction kernels compared with walking each row through each tree ---


VALUES = np.array([-2.0, -1.0, np.nextafter(-1.0, 0), -0.0, 0.0, 0.25, np.nextafter(0.25, 1), 1.5, 9.0, np.nan, np.inf, -np.inf])
THRESHOLDS = np.array([-1.0, 0.0, 0.25, 1.5, np.inf, np.float64(np.float32(0.1)), 0.1, 1e300, -1e300, 1e-320])


def forest(rng: np.random.Generator, n_trees: int, n_features: int, n_values: int, depth: int = 5) -> list[Tree]:
    return [random_tree(rng, n_features, depth if t != 1 else 0, n_values, THRESHOLDS) for t in range(n_trees)]


def matrix(rng: np.random.Generator, n: int, n_features: int, dtype: Any) -> NDArray[Any]:
    values = np.concatenate([VALUES, THRESHOLDS])
    with np.errstate(over="ignore"):
        return rng.choice(values[~np.isnan(values)] if rng.random() < 0.3 else values, (n, n_features)).astype(dtype)


def naive_leaves(trees: list[Tree], X: NDArray[Any]) -> list[list[int]]:
    return [[naive_leaf(tree, x) for tree in trees] for x in X]


def naive_sum(trees: list[Tree], X: NDArray[Any]) -> NDArray[np.float64]:
    out = np.zeros((X.shape[0], trees[0].value.shape[1]))
    for row, x in enumerate(X):
        for tree in trees:  # floats are added in this order
            out[row] += tree.value[naive_leaf(tree, x)]
    return out


@given(
    seed=st.integers(0, 2**20),
    n_trees=st.integers(1, 5),
    n_values=st.integers(1, 3),
    depth=st.sampled_from([1, 3, 4, 6, 7, 9]),  # around the complete levels
    n=st.integers(0, 30),  # around the limit of row-by-row prediction
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_against_walking(seed: int, n_trees: int, n_values: int, depth: int, n: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    trees, X = forest(rng, n_trees, 3, n_values, depth), matrix(rng, n, 3, dtype)
    packed = pack(trees, dtype)
    assert packed.roots.shape == (n_trees + 1,)
    assert apply(packed, X).tolist() == naive_leaves(trees, X)
    assert sum_values(packed, X).tolist() == naive_sum(trees, X).tolist()
    start, stop = n_trees // 3, max(n_trees - 1, n_trees // 3)
    some = naive_sum(trees[start:stop], X) if stop > start else np.zeros((n, n_values))
    assert sum_values(packed, X, start=start, stop=stop).tolist() == some.tolist()
    staged = np.zeros((n, n_values))
    for t in range(n_trees):
        add_tree(packed, X, t, staged)
        assert staged.tolist() == naive_sum(trees[: t + 1], X).tolist()


def test_several_blocks_for_each_large_tree() -> None:
    rng = np.random.default_rng(3)
    trees = [random_tree(rng, 4, 18, 1, THRESHOLDS) for _ in range(2)]
    X = matrix(rng, 5000, 4, np.float32)
    X[1000:2000] = np.nan_to_num(X[1000:2000])  # blocks without missing values next to others
    packed = pack(trees, np.float32)
    assert packed.nodes.shape[0] // 2 > 4 * 3 * 512  # at least three blocks in a chunk
    rows = rng.choice(5000, 300, replace=False)
    assert apply(packed, X)[rows].tolist() == naive_leaves(trees, X[rows])
    assert sum_values(packed, X)[rows].tolist() == naive_sum(trees, X[rows]).tolist()


@pytest.mark.slow  # kernels that no other test needs
def test_trees_too_large_for_small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    trees, X = forest(rng, 3, 3, 1, 8), matrix(rng, 40, 3, np.float32)
    small = pack(trees, np.float32)
    monkeypatch.setattr("dtrees.tree.packing._SMALL_PLACES", 2**8)
    large = pack(trees, np.float32)
    assert large.nodes.itemsize == 2 * small.nodes.itemsize
    assert apply(large, X).tolist() == apply(small, X).tolist() == naive_leaves(trees, X)
    assert sum_values(large, X).tolist() == sum_values(small, X).tolist() == naive_sum(trees, X).tolist()


def test_trees_packed_for_float32_take_nothing_wider() -> None:
    packed = pack(forest(np.random.default_rng(0), 2, 3, 1), np.float32)
    for function in (sum_values, apply):
        with pytest.raises(ValueError, match="X has dtype float64, but the trees are packed for float32"):
            function(packed, np.zeros((2, 3)))


@pytest.fixture(scope="module")
def large() -> tuple[list[Tree], Packed, NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    trees = forest(rng, 20, 4, 2, depth=8)
    return trees, pack(trees), matrix(rng, 6001, 4, np.float64)


@pytest.mark.parametrize("n_threads", [2, 3, 4, 64])
def test_threads_change_nothing(large: tuple[list[Tree], Packed, NDArray[np.float64]], n_threads: int) -> None:
    _, packed, X = large
    assert apply(packed, X, n_threads).tobytes() == apply(packed, X).tobytes()
    assert sum_values(packed, X, n_threads).tobytes() == sum_values(packed, X).tobytes()
    big = np.tile(X, (10, 1))
    out = np.ones((big.shape[0], 2))
    add_tree(packed, big, 3, out, n_threads)
    assert (out[:6001] - 1).tolist() == (sum_values(packed, X, start=3, stop=4) + 1 - 1).tolist()
    assert np.array_equal(out, np.tile(out[:6001], (10, 1)))


def test_blocks_change_nothing(large: tuple[list[Tree], Packed, NDArray[np.float64]]) -> None:
    trees, packed, X = large
    rows = [0, 511, 512, 513, 1023, 1024, 6000]
    assert apply(packed, X)[rows].tolist() == naive_leaves(trees, X[rows])
    assert sum_values(packed, X)[rows].tolist() == sum_values(packed, X[rows]).tolist() == naive_sum(trees, X[rows]).tolist()


def test_any_memory_layout(large: tuple[list[Tree], Packed, NDArray[np.float64]]) -> None:
    _, packed, X = large
    expected = apply(packed, X[:100])
    for view in (np.asfortranarray(X[:100]), np.repeat(X[:100], 2, axis=0)[::2], np.repeat(X[:100], 2, axis=1)[:, ::2]):
        assert apply(packed, view).tolist() == expected.tolist()
    frozen = X[:100].copy()
    frozen.flags.writeable = False
    assert apply(packed, frozen).tolist() == expected.tolist()


def test_no_memory_layout_is_compiled_for() -> None:
    """One kernel takes arrays of any layout and address, including read-only ones."""
    X = np.random.default_rng(0).normal(size=(40, 6))
    packed = pack(forest(np.random.default_rng(1), 2, 3, 1), X.dtype)
    expected = sum_values(packed, np.ascontiguousarray(X[:, :3])), apply(packed, np.ascontiguousarray(X[:, :3]))
    before = len(predict._visit.overloads)
    frozen = X[:, :3].copy()
    frozen.flags.writeable = False
    unaligned = np.frombuffer(b"." + frozen.tobytes(), offset=1).reshape(frozen.shape)
    for view in (np.asfortranarray(X[:, :3]), X[:, :3], X[::-1, :3][::-1], frozen, unaligned):
        np.testing.assert_array_equal(sum_values(packed, view), expected[0])
        np.testing.assert_array_equal(apply(packed, view), expected[1])
    assert len(predict._visit.overloads) == before


def test_thresholds_are_not_cut_to_float32() -> None:
    tree = random_tree(np.random.default_rng(0), 1, 1, 1, np.array([1.0 + 2.0**-40]))
    X = np.array([[1.0], [1.0 + 2.0**-40], [1.0 + 2.0**-39], [1.0 + 2.0**-23]])
    assert apply(pack([tree]), X).ravel().tolist() == [1, 1, 2, 2]
    assert apply(pack([tree], np.float32), X.astype(np.float32)).ravel().tolist() == [1, 1, 1, 2]


def test_integers_up_to_2_53() -> None:
    tree = random_tree(np.random.default_rng(0), 1, 1, 1, np.array([2.0**53 - 1]))
    assert apply(pack([tree]), np.array([[2**53 - 1], [2**53]], np.float64)).ravel().tolist() == [1, 2]


def test_infinite_threshold_parts_values_from_missing_ones() -> None:
    tree = random_tree(np.random.default_rng(1), 1, 1, 1, np.array([np.inf]))
    tree.missing_go_to_left[0] = False
    assert apply(pack([tree]), np.array([[-np.inf], [1e308], [np.inf], [np.nan]])).ravel().tolist() == [1, 1, 1, 2]


def test_packed_trees_can_be_pickled(large: tuple[list[Tree], Packed, NDArray[np.float64]]) -> None:
    _, packed, X = large
    again = pickle.loads(pickle.dumps(packed))
    assert sum_values(again, X[:50]).tolist() == sum_values(packed, X[:50]).tolist()


def test_no_rows(large: tuple[list[Tree], Packed, NDArray[np.float64]]) -> None:
    _, packed, X = large
    assert apply(packed, X[:0], 4).shape == (0, 20)
    assert sum_values(packed, X[:0], 4).shape == (0, 2)


# --- prediction with trees that split on categories, compared with walking through them row by row ---


def with_sets(random: np.random.Generator, tree: Tree, n_levels: int) -> Tree:
    """Return a tree with sets of categories at most of its nodes that split on columns 1, 3 or 4."""
    nodes = np.flatnonzero(np.isin(tree.feature, [1, 3, 4]) & (random.random(tree.node_count) < 0.9))
    some = [np.flatnonzero(random.random(random.integers(1, n_levels + 1)) < 0.5) for _ in nodes]
    return tree.with_categories(CategorySets.of(nodes, some))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("depth", "n_levels", "n"), [(1, 3, 100), (3, 5, 300), (6, 40, 900), (6, 2000, 40), (9, 200, 600), (12, 70, 20)])
def test_sets_against_walking(depth: int, n_levels: int, n: int, dtype: Any) -> None:
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
    """As in a model from another library: nothing is written beyond the tables."""
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
    """Columns of few categories are looked up together, up to 512 entries a table; some sets are empty, also in a last split."""
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
