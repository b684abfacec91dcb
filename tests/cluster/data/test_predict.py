"""Predictions for Dask collections, and by models from another process."""

import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, wait
from distributed.protocol import deserialize, serialize
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray
from scipy.sparse import csr_array

import dtrees
from tests.cluster.samples import LENGTHS, in_partitions, numbers, table, targets, wait_until

# --- predictions for Dask collections ---


FRAME = table().set_index(pd.Index([f"row {i}" for i in range(420)], name="id"))
NUMBERS = numbers(FRAME)
TARGETS = targets(FRAME)


@pytest.fixture(scope="module")
def classifier() -> dtrees.RandomForestClassifier:
    return dtrees.RandomForestClassifier(4, random_state=0).fit(FRAME, TARGETS["binary"])


@pytest.fixture(scope="module")
def regressor() -> dtrees.GradientBoostingRegressor:
    return dtrees.GradientBoostingRegressor(n_estimators=4).fit(NUMBERS, TARGETS["regression"])


@pytest.mark.parametrize("n_partitions", LENGTHS)
def test_a_frame_gives_a_series_with_its_partitions_and_index(classifier: dtrees.RandomForestClassifier, n_partitions: int) -> None:
    lazy = in_partitions(FRAME, LENGTHS[n_partitions])
    predicted = classifier.predict(lazy)
    assert predicted.npartitions == n_partitions
    computed = predicted.compute()
    np.testing.assert_array_equal(computed.to_numpy(), classifier.predict(FRAME))
    assert computed.index.equals(lazy.index.compute())
    assert computed.dtype == predicted.dtype


@pytest.mark.parametrize("n_partitions", LENGTHS)
def test_refitted_leaves(client: Client, classifier: dtrees.RandomForestClassifier, regressor: Any, n_partitions: int) -> None:
    """They are the same for any partitions, wherever rows are computed."""
    lengths = LENGTHS[n_partitions]
    for model, X, y in ((classifier, FRAME, TARGETS["binary"]), (regressor, NUMBERS, TARGETS["regression"])):
        lazy = in_partitions(pd.DataFrame(X), lengths)
        made = model.refit_leaves(lazy if model is classifier else lazy.to_dask_array(), in_partitions(y, lengths), decay=0.5)
        assert pickle.dumps(made._trees.groups) == pickle.dumps(model.refit_leaves(X, y, decay=0.5)._trees.groups)


def test_probabilities_of_a_frame_have_a_column_for_each_class(classifier: dtrees.RandomForestClassifier) -> None:
    for method in ("predict_proba", "predict_log_proba"):
        lazy = in_partitions(FRAME, LENGTHS[7])
        predicted = getattr(classifier, method)(lazy)
        assert list(predicted.columns) == ["no", "yes"]
        computed = predicted.compute()
        assert computed.index.equals(lazy.index.compute())
        np.testing.assert_array_equal(computed.to_numpy(), getattr(classifier, method)(FRAME))


@pytest.mark.parametrize("several", [False, True], ids=["one target", "two targets"])
def test_labels_can_be_written_to_parquet(tmp_path: Path, several: bool) -> None:
    """Labels of dtype object are text, and columns of several targets have a dtype each."""
    words = TARGETS["binary"].astype(object)
    y = pd.DataFrame({"word": words, "number": TARGETS["multiclass"].to_numpy()}, index=words.index) if several else words
    model = dtrees.DecisionTreeClassifier(max_depth=2).fit(FRAME, y)
    assert model.predict(FRAME).dtype == object
    predicted = model.predict(in_partitions(FRAME, LENGTHS[7]))
    frame = predicted.rename(columns={0: "word", 1: "number"}) if several else predicted.to_frame()
    frame.to_parquet(tmp_path)
    read = pd.read_parquet(tmp_path)
    assert list(read.dtypes) == list(frame.dtypes)
    np.testing.assert_array_equal(read.to_numpy().reshape(model.predict(FRAME).shape), model.predict(FRAME))


def test_known_divisions_stay_known(classifier: dtrees.RandomForestClassifier) -> None:
    X = dd.from_pandas(FRAME.reset_index(drop=True), npartitions=3)
    assert X.known_divisions
    for predicted in (classifier.predict(X), classifier.predict_proba(X)):
        assert predicted.divisions == X.divisions


@pytest.mark.parametrize("chunks", [(420, 5), (100, 2)], ids=str)
def test_an_array_gives_an_array(regressor: dtrees.GradientBoostingRegressor, chunks: tuple[int, int]) -> None:
    X = da.from_array(NUMBERS, chunks=chunks)
    predicted = regressor.predict(X)
    assert predicted.chunks == (X.chunks[0],)
    assert predicted.dtype == np.float64
    np.testing.assert_array_equal(predicted.compute(), regressor.predict(NUMBERS))
    leaves = regressor.apply(X)
    assert leaves.chunks == (X.chunks[0], (4,))
    np.testing.assert_array_equal(leaves.compute().reshape(420, -1), regressor.apply(NUMBERS).reshape(420, -1))


def test_decision_function_of_an_array() -> None:
    model = dtrees.GradientBoostingClassifier(n_estimators=3).fit(NUMBERS, TARGETS["multiclass"])
    X = da.from_array(NUMBERS, chunks=(100, 5))
    np.testing.assert_array_equal(model.decision_function(X).compute(), model.decision_function(NUMBERS))
    np.testing.assert_array_equal(model.predict(X).compute(), model.predict(NUMBERS))


def test_unknown_chunk_sizes(regressor: dtrees.GradientBoostingRegressor) -> None:
    X = in_partitions(FRAME.drop(columns="word").astype(float), LENGTHS[7]).to_dask_array()
    np.testing.assert_array_equal(regressor.predict(X).compute(), regressor.predict(NUMBERS))


def test_nothing_is_computed_before_it_is_asked_for(client: Client, classifier: dtrees.RandomForestClassifier) -> None:
    def fail(part: pd.DataFrame) -> pd.DataFrame:
        raise RuntimeError("computed")

    lazy = in_partitions(FRAME, LENGTHS[3]).map_partitions(fail, meta=FRAME.iloc[:0])
    predicted = classifier.predict(lazy)
    with pytest.raises(RuntimeError, match="computed"):
        predicted.compute()


def test_the_model_is_in_the_graph_once(client: Client) -> None:
    model = dtrees.DecisionTreeRegressor(max_depth=2).fit(FRAME, TARGETS["regression"])
    size = len(pickle.dumps(model._trees))
    for X in (in_partitions(FRAME, [10] * 42), da.from_array(NUMBERS, chunks=(10, 5))):
        if isinstance(X, da.Array):
            model.fit(NUMBERS, TARGETS["regression"])
        predicted = client.persist(model.predict(X))
        wait(predicted)
        held = client.run_on_scheduler(_bytes_of_models)
        assert len(held) == 1
        assert sum(held) > size / 2
        del predicted
        wait_until(lambda: not client.run_on_scheduler(_bytes_of_models))


@pytest.mark.parametrize("kind", ["frame", "array"])
def test_large_models_are_no_part_of_graphs(client: Client, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Dask does not warn about them, they travel with the predictions, and without a client predictions are lazy."""
    model = dtrees.RandomForestRegressor(20, random_state=0).fit(NUMBERS, TARGETS["regression"])
    X = da.from_array(NUMBERS, chunks=(100, 5)) if kind == "array" else in_partitions(pd.DataFrame(NUMBERS), LENGTHS[7])
    limit = 100_000
    assert len(pickle.dumps(model._predictor())) > limit
    monkeypatch.setattr("dtrees.cluster.data.predict._LARGE", limit)
    with warnings.catch_warnings(), dask.config.set({"distributed.admin.large-graph-warning-threshold": limit}):
        warnings.simplefilter("error")
        predicted = model.predict(X)
        computed = predicted.compute()
        np.testing.assert_array_equal(computed, model.predict(NUMBERS))
        np.testing.assert_array_equal(predicted.compute(), computed)
        model.score(X, da.from_array(TARGETS["regression"].to_numpy(), chunks=100))
    del predicted
    wait_until(lambda: not [key for key in client.run_on_scheduler(_keys) if "dtrees-model" in key])
    with dask.config.set(scheduler="threads"):
        np.testing.assert_array_equal(model.predict(X).compute(), computed)


def _keys(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks]


def _bytes_of_models(dask_scheduler: Any) -> list[int]:
    return [
        len(pickle.dumps(task.run_spec)) for key, task in dask_scheduler.tasks.items() if str(key).startswith(("Predict-", "('Predict-"))
    ]


def test_predictions_do_not_get_mixed_up(client: Client) -> None:
    shallow, deep = (dtrees.DecisionTreeRegressor(max_depth=depth).fit(NUMBERS, TARGETS["regression"]) for depth in (1, 5))
    for X in (in_partitions(pd.DataFrame(NUMBERS), LENGTHS[3]), da.from_array(NUMBERS, chunks=(100, 5))):
        lazy = [model.predict(X) for model in (shallow, deep)]
        for model, computed in zip((shallow, deep), client.gather(client.compute(lazy)), strict=True):
            np.testing.assert_array_equal(computed, model.predict(NUMBERS))


def test_score_of_collections(client: Client, classifier: dtrees.RandomForestClassifier) -> None:
    score = classifier.score(in_partitions(FRAME, LENGTHS[3]), in_partitions(TARGETS["binary"], LENGTHS[3]))
    assert score == classifier.score(FRAME, TARGETS["binary"])


def test_other_columns_are_refused_before_anything_is_computed(classifier: dtrees.RandomForestClassifier) -> None:
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(in_partitions(FRAME.rename(columns={"wide": "broad"}), LENGTHS[3]))
    with pytest.raises(ValueError, match="unknown number of columns"):
        classifier.predict(da.from_array(NUMBERS)[:, da.from_array(np.ones(5, bool))])
    with pytest.raises(ValueError, match="1 dimension"):
        classifier.predict(in_partitions(FRAME, LENGTHS[3])["wide"])


def test_explanations_of_a_frame(classifier: dtrees.RandomForestClassifier) -> None:
    boosted = dtrees.GradientBoostingRegressor(n_estimators=3).fit(FRAME, TARGETS["regression"])
    lazy = in_partitions(FRAME, LENGTHS[7])
    background = in_partitions(FRAME.head(20), (12, 8))
    for rows in (None, background):
        values = boosted.shap_values(lazy, rows)
        assert list(values.columns) == list(FRAME.columns)
        assert values.npartitions == 7
        computed = values.compute()
        assert computed.index.equals(lazy.index.compute())
        local = None if rows is None else FRAME.head(20)
        np.testing.assert_array_equal(computed.to_numpy(), boosted.shap_values(FRAME, local))
        assert boosted.shap_expected_value(rows) == boosted.shap_expected_value(local)
    of_classes, pairs = classifier.shap_values(lazy), classifier.shap_interaction_values(lazy)
    width = FRAME.shape[1]
    for values, shape in ((of_classes, (width, 2)), (pairs, (width, width, 2))):
        assert values.shape[1:] == shape
        assert len(values.chunks[0]) == 7
        assert values.dtype == np.float64
    np.testing.assert_array_equal(of_classes.compute(), classifier.shap_values(FRAME))
    np.testing.assert_array_equal(pairs.compute(), classifier.shap_interaction_values(FRAME))


def test_explanations_of_an_array(regressor: dtrees.GradientBoostingRegressor) -> None:
    X = da.from_array(NUMBERS, chunks=(100, 2))
    values, pairs = regressor.shap_values(X), regressor.shap_interaction_values(X)
    width = NUMBERS.shape[1]
    assert values.chunks == (X.chunks[0], (width,))
    assert pairs.chunks == (X.chunks[0], (width,), (width,))
    np.testing.assert_array_equal(values.compute(), regressor.shap_values(NUMBERS))
    np.testing.assert_array_equal(pairs[150:160].compute(), regressor.shap_interaction_values(NUMBERS[150:160]))
    forest = dtrees.ExtraTreesClassifier(3, random_state=0).fit(NUMBERS, TARGETS["binary"])
    assert forest.shap_values(X).chunks == (X.chunks[0], (width,), (2,))
    np.testing.assert_array_equal(forest.shap_values(X).compute(), forest.shap_values(NUMBERS))


# --- models from another process ---


def n_compiled() -> int:
    modules = [module for name, module in sys.modules.items() if name.startswith("dtrees.")]
    found = {id(kernel): kernel for module in modules for kernel in vars(module).values() if isinstance(kernel, Dispatcher)}
    return sum(len(kernel.overloads) for kernel in found.values())


def received(thing: Any) -> Any:
    """Return an object as it arrives: with read-only arrays at arbitrary addresses."""
    header, frames = serialize(thing)
    return deserialize(header, [memoryview(b"." + bytes(frame))[1:] for frame in frames])


def tables(X: NDArray[np.float64]) -> tuple[Any, ...]:
    """Return a table, and sparse blocks of different numbers of rows and columns."""
    return X, X[:1], csr_array(X), csr_array(X[:1]), csr_array(X[:, :1] * np.ones(2))


def received_table(table: Any) -> Any:
    """Return a table as it arrives, with arrays that are neither aligned nor writeable."""
    if isinstance(table, csr_array):
        parts = [received_table(part) for part in (table.data, table.indices, table.indptr)]
        sparse = csr_array(tuple(parts), shape=table.shape, copy=False)
        assert not sparse.data.flags.aligned
        return sparse
    read_only = np.array(table)
    read_only.flags.writeable = False
    there = received(read_only)
    assert not there.flags.writeable
    assert not there.flags.aligned
    return there


@pytest.mark.parametrize("n_rows", [60, 3000])
def test_no_kernel_is_compiled_for_where_arrays_lie(n_rows: int) -> None:
    """Neither for arrays of trees, small or pickled compactly, nor for those of tables."""
    X = np.random.default_rng(0).random((n_rows, 2))
    model = dtrees.DecisionTreeRegressor().fit(X, X[:, 0])
    expected = [(model.predict(table), model.apply(table)) for table in tables(X)]
    pickle.loads(pickle.dumps(model)).apply(X)
    before = n_compiled()
    other = received(pickle.loads(pickle.dumps(received(model))))
    if n_rows < 1000:
        assert not other.tree_.threshold.flags.writeable
    for arrived, (values, leaves) in zip(map(received_table, tables(X)), expected, strict=True):
        np.testing.assert_array_equal(other.predict(arrived), values)
        np.testing.assert_array_equal(other.apply(arrived), leaves)
    pickle.dumps(other)
    assert n_compiled() == before
