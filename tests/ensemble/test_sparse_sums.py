"""Trees of limited leaves on sparse tables, whose nodes are searched by zone sums, compared with those of dense tables."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import dtrees
from dtrees.engine.plan import node_limits
from dtrees.engine.shard import runner, sparse_runner, tree_state, zone_sums
from dtrees.split.table import sparse_zones
from tests.ensemble.samples import assert_same_trees, is_classifier
from tests.ensemble.test_sparse import table, targets
from tests.examples import examples


def by_sums(patch: pytest.MonkeyPatch, cells_per_zone: int = 2) -> list[int]:
    """Have even small nodes of small tables searched by zone sums; return a list to which the number of slots of each tree is added."""
    for constant in ("WHOLE_BLOCK_CELLS", "BOUNDED_ROWS", "BLOCK_ROWS"):
        patch.setattr(node_limits, constant, 1)
    patch.setattr(sparse_runner, "SPARSE_SUMS_SHARE", 2**40)
    patch.setattr(tree_state, "SUMMED_CELLS", 0)
    patch.setattr(sparse_zones, "CELLS_PER_ZONE", cells_per_zone)
    used, make = list[int](), zone_sums.SparseSums.sum_slots

    def noted(self: Any, *arguments: Any, **named: Any) -> Any:
        slots = make(self, *arguments, **named)
        used.append(slots.sums.slots.shape[0])
        return slots

    patch.setattr(zone_sums.SparseSums, "sum_slots", noted)
    return used


@pytest.mark.parametrize(
    "kind",
    [
        dtrees.GradientBoostingRegressor,
        pytest.param(dtrees.GradientBoostingClassifier, marks=pytest.mark.slow),
        pytest.param(dtrees.DecisionTreeClassifier, marks=pytest.mark.slow),
        pytest.param(dtrees.RandomForestRegressor, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore")
@given(data=st.data())
@examples(150)
def test_same_trees(kind: type, data: st.DataObject) -> None:
    n_rows, n_columns, seed = data.draw(st.integers(5, 120)), data.draw(st.integers(1, 8)), data.draw(st.integers(0, 10**6))
    X = table(n_rows, n_columns, data.draw(st.sampled_from([0.05, 0.3, 0.9, 1.0])), seed, missing=data.draw(st.sampled_from([0.0, 0.2])))
    rng = np.random.default_rng(seed)
    X *= np.where(rng.random(n_columns) < 0.5, rng.random(X.shape), 1.0)
    y = targets(X, 2 if is_classifier(kind) else 0, seed)
    y = np.arange(n_rows) % 2 if is_classifier(kind) and len(np.unique(y)) < 2 else y
    weight = rng.integers(1, 4, n_rows).astype(float) if data.draw(st.booleans()) else None
    given = {"max_leaf_nodes": data.draw(st.integers(2, 12)), "min_samples_leaf": data.draw(st.sampled_from([1, 4])), "random_state": seed}
    if issubclass(kind, dtrees.GradientBoostingRegressor | dtrees.GradientBoostingClassifier):
        given |= {"n_estimators": 3, "reg_lambda": data.draw(st.sampled_from([0.0, 1.0])), "max_features": None, "max_depth": None}
        given["subsample"] = data.draw(st.sampled_from([1.0, 0.7]))
    elif issubclass(kind, dtrees.RandomForestRegressor):
        given |= {"n_estimators": 2, "max_features": None, "oob_score": n_rows > 20}
    dense = kind(**given, n_jobs=1).fit(X, y, weight) if "n_estimators" in given else kind(**given).fit(X, y, weight)
    with pytest.MonkeyPatch.context() as patch:
        used = by_sums(patch, data.draw(st.integers(1, 9)))
        if data.draw(st.booleans()):  # no slots for waiting nodes
            for constant in ("SLOTS_MIN_BYTES", "SLOTS_BYTES_PER_CELL"):
                patch.setattr(zone_sums, constant, 0)
        model = type(dense)(**dense.get_params()).fit(sparse.csr_array(X), y, weight)
        assert used or n_rows * n_columns == 1 or np.unique(y).shape[0] == 1
    assert_same_trees(model, dense)
    assert model.predict(X).tobytes() == dense.predict(X).tobytes()


@pytest.mark.slow  # compiles kernels of its own
def test_monotonic_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        X = table(400, 10, [0.05, 0.4][seed % 2], seed, missing=0.05)
        y = targets(X, 0, seed)
        signs = np.random.default_rng(seed).choice([-1, 0, 1], 10).tolist()
        model = dtrees.GradientBoostingRegressor(n_estimators=4, max_leaf_nodes=9, monotonic_cst=signs, max_features=None, random_state=0)
        dense = model.fit(X, y)
        with monkeypatch.context() as patch:
            used = by_sums(patch)
            found = dtrees.GradientBoostingRegressor(**model.get_params()).fit(sparse.csr_array(X), y)
            assert used
        assert_same_trees(found, dense)


def test_a_table_of_a_default_size() -> None:
    """Nodes of many rows are searched by sums, those of few rows by their cells."""
    rng = np.random.default_rng(0)
    S = sparse.random_array((12_000, 200), density=0.03, rng=rng, format="csr")
    y = np.asarray(S[:, :10].sum(axis=1)).ravel() + 0.1 * rng.normal(size=12_000)
    with pytest.MonkeyPatch.context() as patch:
        used = list[int]()
        make = zone_sums.SparseSums.sum_slots
        patch.setattr(zone_sums.SparseSums, "sum_slots", lambda *a, **k: used.append(1) or make(*a, **k))
        model = dtrees.GradientBoostingRegressor(n_estimators=3, max_leaf_nodes=31, max_features=None, random_state=0).fit(S, y)
        assert used == [1, 1, 1]
    dense = dtrees.GradientBoostingRegressor(n_estimators=3, max_leaf_nodes=31, max_features=None, random_state=0).fit(S.toarray(), y)
    assert_same_trees(model, dense)


@pytest.mark.parametrize("limits", [{"max_leaf_nodes": 40}, {"max_leaf_nodes": 5000}, {"max_leaf_nodes": None, "max_depth": 5}], ids=str)
@pytest.mark.parametrize("weighted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_same_trees_by_threads_that_share_nodes(limits: dict[str, Any], weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads search, sum and divide large nodes together, by sums of their own, or by those of the parent less few rows."""
    monkeypatch.setattr(sparse_runner, "SPARSE_THREAD_CELLS", 64)
    monkeypatch.setattr(runner, "SHARE_ROWS", 20)
    X = table(1500, 30, 0.2, 1, missing=0.01)
    X = np.hstack([X, X[:, ::-1]])  # of equal columns, which threads search at the same time, the first counts
    weight = np.random.default_rng(0).integers(1, 4, 1500).astype(float) if weighted else None
    given = {"n_estimators": 3, "max_depth": None, "max_features": None, "subsample": 0.8, "random_state": 0} | limits
    dense = dtrees.GradientBoostingRegressor(**given, n_jobs=1).fit(X, targets(X, 0, 1), weight)
    used = by_sums(monkeypatch)
    for n_jobs in (2, 3):
        found = dtrees.GradientBoostingRegressor(**given, n_jobs=n_jobs).fit(sparse.csr_array(X), targets(X, 0, 1), weight)
        assert len(used) == 3
        assert min(used) > n_jobs
        used.clear()
        assert_same_trees(found, dense)
