"""Sparse tables: the same models and predictions as from the dense table, byte for byte, without converting it to dense."""

import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

import dtrees
from dtrees.engine.shard import runner, sparse_runner
from dtrees.tree import predict
from tests.ensemble.samples import (
    BOOSTING,
    FORESTS,
    KINDS,
    SLOW_KINDS,
    assert_same_trees,
    every_ensemble,
    every_kind,
    is_classifier,
    make,
    trees,
)
from tests.examples import examples
from tests.plain import classifier, regressor
from tests.slow import one_of_each, slow_for

# The trees of some synthetic tables have no split.
pytestmark = pytest.mark.filterwarnings("ignore:no tree found a split", "ignore:Some inputs do not have OOB scores")

FORMATS = ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"]


def table(n_rows: int, n_columns: int, density: float, seed: int, dtype: Any = np.float64, missing: float = 0.0) -> NDArray[Any]:
    """Return a table of few distinct values, some negative, and thus many ties; some columns and rows may be empty."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 5, (n_rows, n_columns)) * (rng.random((n_rows, n_columns)) < density)
    X = X.astype(dtype)
    if X.dtype.kind == "f":
        X[rng.random(X.shape) < missing] = np.nan
        X *= np.where(rng.random(n_columns) < 0.5, np.array(0.1, dtype), np.array(1, dtype))
    return X


def targets(X: NDArray[Any], n_classes: int, seed: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    signal = np.nan_to_num(X).astype(float) @ rng.normal(size=X.shape[1]) + rng.normal(scale=0.3, size=len(X))
    return signal if n_classes == 0 else np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes))


def as_sparse(X: NDArray[Any], rng: np.random.Generator, form: str = "csr", untidy: bool = True) -> Any:
    """Return a sparse table; an untidy one has stored zeros, cells in two parts and out of order, if numbers allow."""
    rows, columns = np.nonzero(X)
    values = X[rows, columns]
    if untidy:
        zeros = np.flatnonzero((X == 0).ravel() & (rng.random(X.size) < 0.1))
        rows, columns = np.append(rows, zeros // X.shape[1]), np.append(columns, zeros % X.shape[1])
        values = np.append(values, np.zeros(len(zeros), X.dtype))
        if X.dtype.kind in "iu":
            values[: len(rows)] -= 1
            rows, columns, values = np.tile(rows, 2), np.tile(columns, 2), np.append(values, np.ones_like(values))
        order = rng.permutation(len(rows))
        rows, columns, values = rows[order], columns[order], values[order]
    major, minor, n = (rows, columns, X.shape[0]) if form == "csr" else (columns, rows, X.shape[1])
    order = np.argsort(major, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(major, minlength=n)))
    kind = sparse.csr_array if form == "csr" else sparse.csc_array
    index = rng.choice([np.int32, np.int64])
    made = kind((values[order], minor[order].astype(index), starts.astype(index)), shape=X.shape)
    np.testing.assert_array_equal(made.toarray(), X)
    return made


#: Parameters that change how nodes are searched, by estimator.
ANY = {
    "max_features": st.sampled_from([None, 1, 0.5]),
    "max_depth": st.sampled_from([1, 3, 12]),
    "max_leaf_nodes": st.sampled_from([None, 4]),
    "min_samples_leaf": st.sampled_from([1, 3]),
    "n_jobs": st.sampled_from([1, 2]),
}
MORE = {
    "criterion": st.none(),
    "bootstrap": st.booleans(),
    "max_samples": st.sampled_from([None, 0.6]),
    "colsample_bytree": st.sampled_from([1.0, 0.5]),
    "subsample": st.sampled_from([1.0, 0.6]),
    "n_iter_no_change": st.sampled_from([None, 2]),
    "splitter": st.sampled_from(["best", "random"]),
}


@st.composite
def parameters(draw: st.DrawFn, kind: type, criterion: str | None) -> dict[str, Any]:
    known = kind().get_params()
    given = {name: draw(values) for name, values in (ANY | MORE).items() if name in known}
    given.pop("criterion", None)
    if "criterion" in known:
        given["criterion"] = criterion or ("gini" if is_classifier(kind) else "squared_error")
    if given.get("criterion") not in ("squared_error", "gini"):
        given.pop("splitter", None)  # few kernels: other criteria find thresholds of one kind only
    if "max_samples" in given and not given["bootstrap"]:
        given["max_samples"] = None
    if "loss" in known and not is_classifier(kind):
        given["loss"] = draw(st.sampled_from(["squared_error", "quantile", "poisson"]))
    given |= {"random_state": draw(st.integers(0, 3))}
    return given | ({"n_estimators": 3} if "n_estimators" in known else {})


@pytest.mark.parametrize(
    ("kind", "criterion"),
    [
        *slow_for(SLOW_KINDS, [(kind, None) for kind in KINDS]),
        pytest.param(dtrees.DecisionTreeClassifier, "entropy", marks=pytest.mark.thorough),  # kernels of their own
        pytest.param(dtrees.DecisionTreeRegressor, "poisson", marks=pytest.mark.thorough),
        pytest.param(dtrees.DecisionTreeRegressor, "absolute_error", marks=pytest.mark.slow),
        pytest.param(dtrees.RandomForestRegressor, "quantile", marks=pytest.mark.slow),
        pytest.param(dtrees.ExtraTreeRegressor, "quantile", marks=pytest.mark.thorough),
    ],
)
@given(data=st.data())
@examples(300)
def test_same_model_as_of_the_dense_table(kind: type, criterion: str | None, data: st.DataObject) -> None:
    n_rows, n_columns = data.draw(st.integers(2, 60)), data.draw(st.integers(1, 12))
    density, missing = data.draw(st.sampled_from([0.0, 0.05, 0.3, 0.9, 1.0])), data.draw(st.sampled_from([0.0, 0.0, 0.2]))
    dtype, seed = data.draw(st.sampled_from([np.float64, np.float32, np.int64, np.int8])), data.draw(st.integers(0, 10**6))
    X = table(n_rows, n_columns, density, seed, dtype, missing)
    given = data.draw(parameters(kind, criterion))
    n_classes = data.draw(st.integers(2, 3)) if is_classifier(kind) else 0
    y = targets(X, n_classes, seed)
    y = abs(y) + 0.1 if "poisson" in given.values() else y
    if is_classifier(kind) and len(np.unique(y)) < 2:
        y = np.arange(n_rows) % 2
    if given.get("n_iter_no_change") and is_classifier(kind) and np.bincount(y).min() < 2:
        given["n_iter_no_change"] = None
    rng = np.random.default_rng(seed)
    weight = rng.integers(1, 4, n_rows).astype(float) if data.draw(st.booleans()) else None
    S = as_sparse(X, rng, data.draw(st.sampled_from(["csr", "csc"])), data.draw(st.booleans()))
    before = [array.copy() for array in (S.data, S.indices, S.indptr)]
    try:
        dense = kind(**given).fit(X, y, sample_weight=weight)
    except ValueError as error:
        with pytest.raises(type(error)):
            kind(**given).fit(S, y, sample_weight=weight)
        return
    model = kind(**given).fit(S, y, sample_weight=weight)
    assert_same_trees(model, dense)
    for array, copy in zip((S.data, S.indices, S.indptr), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    wanted = dense.predict(X)
    for one, of in ((model, S), (model, X), (dense, S)):
        assert one.predict(of).tobytes() == wanted.tobytes()
    assert (model.apply(S) == dense.apply(X)).all()
    if is_classifier(kind):
        assert model.predict_proba(S).tobytes() == dense.predict_proba(X).tobytes()


@pytest.mark.parametrize(
    ("kind", "n_rows", "n_columns", "density"), one_of_each(KINDS, [(3000, 8, 0.02), (1500, 300, 0.02), (1200, 20, 0.6)])
)
def test_same_model_of_larger_tables(kind: type, n_rows: int, n_columns: int, density: float) -> None:
    """Every way to find and sort the cells of a node is used."""
    X = table(n_rows, n_columns, density, 1, missing=0.01)
    X[:, ::3] *= np.random.default_rng(2).random((n_rows, (n_columns + 2) // 3))
    X[:, 1] = np.arange(n_rows) + 1.0
    y = targets(X, 3 if is_classifier(kind) else 0, 1)
    few = {"random_state": 0} | ({"n_estimators": 3} if kind in FORESTS + BOOSTING else {})
    for some in ({"max_features": None, "max_depth": 8}, {"max_features": "sqrt"}, {"max_features": 1}):
        assert_same_trees(kind(**some, **few).fit(sparse.csr_array(X), y), kind(**some, **few).fit(X, y))


@pytest.mark.slow  # threads that share work have kernels of their own
@pytest.mark.parametrize(
    "model",
    [
        regressor(n_estimators=4, subsample=0.7, colsample_bytree=0.8, random_state=0),
        classifier(n_estimators=2, max_depth=12, random_state=0),
        dtrees.DecisionTreeClassifier(random_state=0),
        pytest.param(dtrees.DecisionTreeRegressor(criterion="absolute_error", max_depth=6, random_state=0), marks=pytest.mark.thorough),
        pytest.param(dtrees.ExtraTreeRegressor(max_features=None, min_samples_leaf=5, random_state=0), marks=pytest.mark.thorough),
        dtrees.RandomForestRegressor(2, max_features=None, oob_score=True, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_same_tree_by_any_number_of_threads(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share the large nodes of a tree, which they would not do in such a small table."""
    monkeypatch.setattr(sparse_runner, "SPARSE_THREAD_CELLS", 64)
    monkeypatch.setattr(runner, "SHARE_ROWS", 20)
    X = table(1500, 60, 0.05, 1, missing=0.01)
    X[:, ::3] *= np.random.default_rng(2).random((1500, 20))
    y = targets(X, 3 if is_classifier(type(model)) else 0, 1)
    S, shared = sparse.csr_array(X), []
    begin = sparse_runner.begin

    def noted(work_pool: Any, opening: Any, roots: Any, share_rows: int, n_threads: int) -> Any:
        shared.extend([n_threads] * (roots.places[0][1] - roots.places[0][0] > share_rows))
        return begin(work_pool, opening, roots, share_rows, n_threads)

    monkeypatch.setattr(sparse_runner, "begin", noted)
    wanted = model.set_params(n_jobs=1).fit(X, y)
    trees_of_one = trees(wanted)
    assert not shared
    for n_jobs in (1, 2, 5):
        found = trees(model.set_params(n_jobs=n_jobs).fit(S, y))
        assert all(tree.equals(twin) for tree, twin in zip(found, trees_of_one, strict=True))
        assert bool(shared) == (n_jobs > (2 if "Forest" in type(model).__name__ else 1))


@pytest.mark.slow  # compiles kernels of its own
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(dtrees.DecisionTreeRegressor(), marks=pytest.mark.thorough),
        pytest.param(dtrees.DecisionTreeRegressor(criterion="quantile", alpha=0.7), marks=pytest.mark.thorough),
        pytest.param(dtrees.ExtraTreesClassifier(3), marks=pytest.mark.thorough),
        pytest.param(dtrees.RandomForestClassifier(3), marks=pytest.mark.thorough),
        dtrees.GradientBoostingRegressor(n_estimators=4, reg_lambda=1.0, max_depth=5),
        dtrees.GradientBoostingClassifier(n_estimators=4),
    ],
    ids=lambda model: type(model).__name__,
)
def test_constraints(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Monotonic columns, most of them against the signal, and few that may interact; also with threads that share large nodes."""
    monkeypatch.setattr(sparse_runner, "SPARSE_THREAD_CELLS", 64)
    monkeypatch.setattr(runner, "SHARE_ROWS", 20)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = table(600, 12, [0.05, 0.3, 0.9][seed % 3], seed, missing=0.05 * (seed % 2))
        X[:, ::3] *= rng.random((600, 4))
        y = targets(X, 2 if is_classifier(type(model)) else 0, seed)
        order = {"monotonic_cst": rng.choice([-1, 0, 1], 12).tolist()}
        meet = {"interaction_cst": [[(0, 1, 2), (2, 3, 4, 5)], "pairwise", "no_interactions"][seed % 3]}
        weight = rng.integers(1, 4, 600).astype(float) if seed > 2 else None
        for wanted, columns in ((order, None), (meet, 0.6), (order | meet, None)):
            model.set_params(monotonic_cst=None, interaction_cst=None).set_params(**wanted, max_features=columns, random_state=seed)
            trees_of_dense = trees(model.set_params(n_jobs=1).fit(X, y, weight))
            assert max(tree.node_count for tree in trees_of_dense) > 1
            for n_jobs in (1, 3):
                found = trees(model.set_params(n_jobs=n_jobs).fit(sparse.csr_array(X), y, weight))
                assert all(tree.equals(twin) for tree, twin in zip(found, trees_of_dense, strict=True)), (seed, wanted)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("suffix", ["array", "matrix"])
def test_every_format(form: str, suffix: str) -> None:
    X = table(40, 6, 0.4, 0)
    y = targets(X, 0, 0)
    S = getattr(sparse, f"{form}_{suffix}")(X)
    model = dtrees.DecisionTreeRegressor(max_depth=4, random_state=0).fit(S, y)
    assert model.predict(S).tobytes() == dtrees.DecisionTreeRegressor(max_depth=4, random_state=0).fit(X, y).predict(X).tobytes()


def test_indices_of_64_bits_and_read_only_arrays() -> None:
    X = table(40, 6, 0.4, 0)
    y = targets(X, 0, 0)
    S = sparse.csr_array(X)
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    for array in (S.data, S.indices, S.indptr):
        array.flags.writeable = False
    model = dtrees.DecisionTreeRegressor(random_state=0).fit(S, y)
    assert (model.predict(S) == dtrees.DecisionTreeRegressor(random_state=0).fit(X, y).predict(X)).all()


@every_kind
def test_every_method(kind: type) -> None:
    X = table(200, 10, 0.2, 3)
    y, S = targets(X, 3 if is_classifier(kind) else 0, 3), sparse.csc_matrix(X)
    summed = {"bootstrap": True, "oob_score": True} if kind in FORESTS else {}
    dense, model = make(kind, **summed).fit(X, y), make(kind, **summed).fit(S, y)
    assert model.score(S, y) == dense.score(X, y)
    if summed:
        assert model.oob_score_ == dense.oob_score_
    if hasattr(model, "decision_path"):
        ours, theirs = model.decision_path(S), dense.decision_path(X)
        if isinstance(theirs, tuple):
            assert (ours[1] == theirs[1]).all()
            ours, theirs = ours[0], theirs[0]
        assert (ours != theirs).nnz == 0
    for name in ("predict_log_proba", "decision_function"):
        if hasattr(model, name):
            assert getattr(model, name)(S).tobytes() == getattr(dense, name)(X).tobytes()
    for name in ("staged_predict", "staged_predict_proba", "staged_decision_function"):
        if hasattr(model, name):
            ours, theirs = list(getattr(model, name)(S)), list(getattr(dense, name)(X))
            assert [one.tobytes() for one in ours] == [one.tobytes() for one in theirs]


@pytest.mark.parametrize("kind", BOOSTING, ids=lambda kind: kind.__name__)
def test_evaluation_sets(kind: type) -> None:
    X = table(200, 10, 0.2, 3)
    y, scores = targets(X, 3 if is_classifier(kind) else 0, 3), []
    for one in (X, sparse.csr_array(X)):
        model = kind(n_estimators=10, early_stopping_rounds=3, random_state=0)
        model.fit(one[:150], y[:150], eval_set=[(one[150:], y[150:])])
        scores.append((str(model.evals_result_), len(trees(model))))
    assert scores[0] == scores[1]
    with pytest.raises(ValueError, match="eval_set 'validation_0'"):
        kind().fit(sparse.csr_array(X), y, eval_set=[(sparse.csr_array(X[:, :3]), y)])


@every_ensemble
def test_warm_start(kind: type) -> None:
    X = table(200, 10, 0.2, 3)
    y = targets(X, 3 if is_classifier(kind) else 0, 3)
    models = []
    for one in (X, sparse.csr_array(X)):
        model = make(kind, n_estimators=3, warm_start=True, max_depth=4).fit(one, y)
        models.append(model.set_params(n_estimators=6).fit(one, y))
    assert_same_trees(*models)
    # A fit may continue with the other kind of table.
    model = make(kind, n_estimators=3, warm_start=True, max_depth=4).fit(X, y)
    assert_same_trees(model.set_params(n_estimators=6).fit(sparse.csc_array(X), y), models[0])


def test_checkpoint(tmp_path: Any) -> None:
    X = table(200, 10, 0.2, 3)
    y, S = targets(X, 0, 3), sparse.csr_array(X)
    path = tmp_path / "fit.ckpt"

    def stop(progress: Any) -> bool:
        return bool(progress.done == 4)

    model = regressor(n_estimators=8, random_state=0)
    model.fit(S, y, checkpoint=path, callbacks=[stop])
    model = regressor(n_estimators=8, random_state=0).fit(S, y, checkpoint=path)
    assert_same_trees(model, regressor(n_estimators=8, random_state=0).fit(X, y))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_predictions_do_not_depend_on_blocks(n_jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X = table(3000, 40, 0.1, 4, missing=0.01)
    model = dtrees.RandomForestRegressor(20, n_jobs=n_jobs, random_state=0).fit(X, targets(X, 0, 4))
    monkeypatch.setattr(predict, "_DENSE_BYTES", 10_000)
    S = sparse.csr_array(X)
    assert model.predict(S).tobytes() == model.predict(X).tobytes()
    assert (model.apply(S) == model.apply(X)).all()


def test_a_row_at_a_time_and_many() -> None:
    X = table(5000, 40, 0.1, 4)
    y, S = targets(X, 0, 4), sparse.csr_array(X)
    model = dtrees.RandomForestRegressor(5, n_jobs=2, random_state=0).fit(S, y)
    wanted = model.predict(X)
    assert (model.predict(S) == wanted).all()
    assert [float(model.predict(S[[i]])[0]) for i in range(20)] == wanted[:20].tolist()
    with pytest.raises(ValueError, match="no rows"):
        model.predict(S[:0])


def test_memory_is_in_proportion_to_what_is_stored() -> None:
    rng = np.random.default_rng(0)
    n_rows, n_columns = 20_000, 50_000  # dense, codes alone would take 4 GB
    S = sparse.random_array((n_rows, n_columns), density=2e-4, random_state=rng, format="csr")
    y = S @ rng.normal(size=n_columns)
    model = dtrees.RandomForestRegressor(2, max_depth=6, random_state=0).fit(S[:500], y[:500])
    tracemalloc.start()
    try:
        model.fit(S, y).predict(S)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 80 * (S.nnz + 2 * n_rows + 2 * n_columns)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (sparse.csr_array(np.array([[2**60, 1], [0, 1]])), "X contains the integer"),
        (sparse.csr_array(np.array([[1j, 0], [0, 1]])), "Complex data not supported"),
        (sparse.coo_array(np.array([1.0, 0.0])), "Expected 2D array"),
        (sparse.csr_array((2, 0)), "0 feature"),
        (sparse.csr_array((0, 2)), "no rows"),
    ],
)
def test_bad_tables(X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dtrees.DecisionTreeRegressor().fit(X, np.array([0.0, 1.0]))


def test_sparse_columns_are_numbers() -> None:
    X = table(40, 3, 0.8, 0)
    y, S = targets(X, 0, 0), sparse.csr_array(X)
    model = dtrees.DecisionTreeRegressor(categorical_features=[1])
    with pytest.raises(ValueError, match="categorical_features names 1 column.*but X is sparse"):
        model.fit(S, y)
    with pytest.raises(ValueError, match="X is sparse, but some columns held categories"):
        model.fit(abs(X), y).predict(S)


def test_other_columns_than_at_fit() -> None:
    X = table(40, 6, 0.4, 0)
    model = dtrees.DecisionTreeRegressor().fit(X, targets(X, 0, 0))
    with pytest.raises(ValueError, match="X has 5 features"):
        model.predict(sparse.csr_array(X[:, :5]))


@pytest.mark.parametrize("fill_value", [0, np.nan])
def test_frames_of_sparse_columns_grow_the_trees_of_the_dense_table(fill_value):
    X = table(80, 5, 0.3, 1)
    y, names = targets(X, 0, 2), [f"c{j}" for j in range(5)]
    frame = pd.DataFrame(X, columns=names).astype(pd.SparseDtype(float, fill_value))
    model = regressor().fit(frame, y)
    assert list(model.feature_names_in_) == names
    assert_same_trees(model, regressor().fit(X, y))
    np.testing.assert_array_equal(model.predict(frame), model.predict(pd.DataFrame(X, columns=names)))
