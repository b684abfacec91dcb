import numpy as np
import pytest
from scipy import sparse

from dtrees.tree import shapley
from dtrees.tree.category_sets import CategorySets
from dtrees.tree.shapley import Paths, pack_paths
from dtrees.tree.tree import Tree
from tests.tree.naive_shapley import game_of, interaction_values, shapley_values
from tests.tree.trees import naive_leaf, random_tree

N_COLUMNS = 5


def some_trees(rng: np.random.Generator, n_values: int, depth: int = 6) -> list[Tree]:
    return [_with_sets(random_tree(rng, N_COLUMNS, depth, n_values), rng) for _ in range(4)]


def _with_sets(tree: Tree, rng: np.random.Generator) -> Tree:
    """Replace the splits by the last column by sets of categories."""
    nodes = np.flatnonzero(tree.feature == N_COLUMNS - 1)
    return tree.with_categories(CategorySets.of(nodes, [np.flatnonzero(rng.random(40) < 0.5) for _ in nodes]))


def some_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    X = rng.normal(size=(n, N_COLUMNS))
    X[:, -1] = rng.integers(0, 50, n)  # also categories that no set has
    X[rng.random(X.shape) < 0.15] = np.nan
    return X


def explained(paths: Paths, X: np.ndarray | sparse.csr_array, n_threads: int = 1) -> np.ndarray:
    out = np.zeros((X.shape[0], X.shape[1], paths.value.shape[1]))
    shapley.add_values(paths, X, n_threads, out)
    return out


@pytest.mark.parametrize("n_values", [1, 3])
def test_values_are_those_by_definition(n_values: int) -> None:
    rng = np.random.default_rng(n_values)
    trees, X = some_trees(rng, n_values), some_rows(rng, 12)
    paths = pack_paths(trees)
    found, pairs = explained(paths, X), np.zeros((12, N_COLUMNS, N_COLUMNS, n_values))
    shapley.add_values(paths, X, 1, pairs)
    for row, mine, my_pairs in zip(X, found, pairs, strict=True):
        game = game_of(trees, row, N_COLUMNS)
        np.testing.assert_allclose(mine, shapley_values(game, N_COLUMNS), rtol=0, atol=1e-13)
        np.testing.assert_allclose(my_pairs, interaction_values(game, N_COLUMNS), rtol=0, atol=1e-13)
        np.testing.assert_allclose(paths.mean.sum(axis=0), game[frozenset()], rtol=0, atol=1e-13)


@pytest.mark.parametrize("n_values", [1, 3])
@pytest.mark.parametrize("most_columns", [0, 8])  # by pairs of rows, or by tables
def test_interventional_values_are_those_by_definition(n_values: int, most_columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.tree.shapley_by_background.MOST_COLUMNS", most_columns)
    rng = np.random.default_rng(n_values)
    trees, X, background = some_trees(rng, n_values, 5), some_rows(rng, 6), some_rows(rng, 9)
    out = np.zeros((6, N_COLUMNS, n_values))
    paths = pack_paths(trees)
    assert {with_tables for _, with_tables in shapley._chunks(paths, 9)} == {most_columns > 0}
    shapley.add_interventional_values(paths, X, background, 1, out)
    for row, mine in zip(X, out, strict=True):
        game = game_of(trees, row, N_COLUMNS, background)
        np.testing.assert_allclose(mine, shapley_values(game, N_COLUMNS), rtol=0, atol=1e-13)


def test_rows_do_not_depend_on_blocks_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    paths, X, background = pack_paths(some_trees(rng, 2)), some_rows(rng, 333), some_rows(rng, 5)

    def all_kinds(n_threads: int) -> list[np.ndarray]:
        pairs, means = np.zeros((333, N_COLUMNS, N_COLUMNS, 2)), np.zeros((333, N_COLUMNS, 2))
        shapley.add_values(paths, X, n_threads, pairs)
        shapley.add_interventional_values(paths, X, background, n_threads, means)
        return [explained(paths, X, n_threads), pairs, means]

    expected = all_kinds(1)
    monkeypatch.setattr(shapley, "_BLOCK", 7)
    for one, other in zip(all_kinds(3), expected, strict=True):
        assert np.array_equal(one, other)
    monkeypatch.setattr(shapley, "_TABLES_BYTES", 1)  # each tree separately
    for one, other in zip(all_kinds(1), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-14)


def test_sparse_rows_are_explained_as_dense_ones() -> None:
    rng = np.random.default_rng(0)
    trees = [random_tree(rng, 9, 4, thresholds=[-0.5, 0.0, 0.5]) for _ in range(3)]
    X = rng.normal(size=(40, 9)) * (rng.random((40, 9)) < 0.3)
    rows = sparse.csr_array(X)
    paths = pack_paths(trees)
    assert np.array_equal(explained(paths, rows), explained(paths, X))
    out, same = np.zeros((40, 9, 1)), np.zeros((40, 9, 1))
    shapley.add_interventional_values(paths, rows, rows, 1, out)
    shapley.add_interventional_values(paths, X, X, 1, same)
    assert np.array_equal(out, same)


def chain(n_columns: int) -> Tree:
    """A tree that is one path, which splits on each column in turn."""
    n = 2 * n_columns + 1
    inner = np.arange(n) % 2 == 0
    inner[-1] = False
    left, right = np.where(inner, np.arange(n) + 1, -1), np.where(inner, np.arange(n) + 2, -1)
    weight = np.where(inner, (n - np.arange(n)) // 2 + 1.0, 1.0)
    weight[-1] = 1.0
    return Tree.from_arrays(
        children_left=left,
        children_right=right,
        feature=np.where(inner, np.arange(n) // 2, -2),
        threshold=np.where(inner, 0.0, -2.0),
        missing_go_to_left=np.zeros(n, bool),
        impurity=np.zeros(n),
        gain=np.zeros(n),
        n_node_samples=weight,
        weighted_n_node_samples=weight,
        value=np.linspace(-1.0, 1.0, n)[:, np.newaxis],
    )


@pytest.mark.parametrize("n_columns", [60, 300])
def test_long_paths_lose_no_digits(n_columns: int) -> None:
    tree = chain(n_columns)
    X = np.random.default_rng(0).normal(size=(20, n_columns))
    paths = pack_paths([tree])
    assert paths.n_distinct.tolist() == [n_columns]
    expected = [tree.value[naive_leaf(tree, row), 0] - paths.mean[0, 0] for row in X]
    np.testing.assert_allclose(explained(paths, X).sum(axis=(1, 2)), expected, rtol=0, atol=1e-12)


def test_columns_that_are_alike_get_the_same() -> None:
    """Symmetry: on a path of equal shares, columns that a row passes have equal values."""
    n_columns = 40
    tree = chain(n_columns)
    weight = tree.weighted_n_node_samples
    weight[-1] = weight[-2] = 1.0
    for node in range(weight.shape[0] - 3, -1, -2):
        weight[node] = 2 * weight[node + 2]
        weight[node + 1] = weight[node + 2]
    tree.value[:] = 0.0
    tree.value[-1] = 1.0
    found = explained(pack_paths([tree]), np.ones((1, n_columns)))[0, :, 0]
    np.testing.assert_allclose(found, np.full(n_columns, (1 - 0.5**n_columns) / n_columns), rtol=1e-12)


def test_nodes_without_weight_do_no_harm() -> None:
    rng = np.random.default_rng(0)
    trees, X = some_trees(rng, 1), some_rows(rng, 5)
    for tree in trees:
        tree.weighted_n_node_samples[rng.random(tree.node_count) < 0.5] = 0.0
    paths = pack_paths(trees)
    expected = [sum(tree.value[naive_leaf(tree, row), 0] for tree in trees) - paths.mean.sum() for row in X]
    np.testing.assert_allclose(explained(paths, X).sum(axis=(1, 2)), expected, rtol=0, atol=1e-13)


def test_a_tree_without_splits_explains_nothing() -> None:
    leaf = random_tree(np.random.default_rng(0), 2, 0)
    paths = pack_paths([leaf])
    out = np.zeros((3, 2, 1))
    shapley.add_interventional_values(paths, np.zeros((3, 2)), np.ones((1, 2)), 2, out)
    assert not explained(paths, np.zeros((3, 2))).any()
    assert not out.any()
    assert paths.mean.tolist() == leaf.value.tolist()
