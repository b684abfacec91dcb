"""Collections of all kinds: the model equals that of the same table in memory, byte for byte, or the error says what is wrong.

A tree on all columns of a table shows whether each was loaded correctly: targets depend on all columns, and all must be split on.
"""

import contextlib
import functools
import itertools
import warnings
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from distributed import Client
from sklearn.base import clone
from sklearn.dummy import DummyRegressor

import dtrees
from tests.cluster.samples import LENGTHS, N_ROWS, assert_same_model, in_partitions, trees_of
from tests.plain import regressor
from tests.slow import one_of_each, one_quick, slow_for

RNG = np.random.default_rng(7)
COUNTS = RNG.integers(0, 40, N_ROWS)
REALS = RNG.normal(size=N_ROWS).round(2)
FLAGS = RNG.random(N_ROWS) < 0.4
WORDS = RNG.choice(["ash", "birch", "elm", "oak"], N_ROWS).astype(object)
ARRAY = np.column_stack([REALS, COUNTS, FLAGS, RNG.normal(size=(N_ROWS, 2))])
TARGET = (ARRAY * [1, 0.05, 1, 1, 1]).sum(axis=1) + (WORDS == "elm")
WEIGHT = RNG.integers(0, 4, N_ROWS) / 2
MASK = COUNTS > 9
SEVEN = LENGTHS[7]


def shuffled(values: Any, dtype: Any, *, missing: bool = True) -> pd.Series:
    """Return the values in random order (so that columns are worth splitting on), some of them missing."""
    rng = np.random.default_rng(zlib.crc32(repr(dtype).encode()))
    series = pd.Series(rng.permutation(np.asarray(values))).astype(dtype)
    return series.where(rng.random(N_ROWS) > 0.1) if missing else series


def arrow(kind: pa.DataType) -> pd.ArrowDtype:
    return pd.ArrowDtype(kind)


def numeric_table() -> pd.DataFrame:
    whole = ["Int64", "Int8", "UInt16", "int64[pyarrow]", "uint8[pyarrow]"]
    real = ["float32", "Float32", "Float64", "double[pyarrow]", "float[pyarrow]"]
    columns = {dtype: shuffled(COUNTS, dtype) for dtype in whole} | {dtype: shuffled(REALS, dtype) for dtype in real}
    columns |= {dtype: shuffled(FLAGS, dtype) for dtype in ("boolean", "bool[pyarrow]")} | {"bool": shuffled(FLAGS, "bool", missing=False)}
    columns |= {dtype: shuffled(COUNTS, dtype, missing=False) for dtype in ("int16", "uint64", "float16")}
    tenths = pd.Series([Decimal(int(10 * value)) / 10 for value in REALS])
    return pd.DataFrame(columns | {"decimal": shuffled(tenths, arrow(pa.decimal128(10, 2)))})


def text_table() -> pd.DataFrame:
    dtypes = [object, "str", "string[python]", "string[pyarrow]", "category"]
    dtypes += [arrow(pa.string()), arrow(pa.large_string()), arrow(pa.dictionary(pa.int32(), pa.string()))]
    words = {f"words {i}": shuffled(WORDS, dtype) for i, dtype in enumerate(dtypes)}
    return pd.DataFrame(words | {"categories of numbers": shuffled(COUNTS, "category"), "nothing": np.nan})


def target_of(frame: pd.DataFrame) -> pd.Series:
    """A target to which all columns contribute."""
    parts = [pd.factorize(frame[name], sort=True)[0] for name in frame]
    return pd.Series(sum((part / max(1, part.max()) for part in parts), np.zeros(len(frame))), name="target")


TABLES: dict[str, Callable[[], pd.DataFrame]] = {"numbers": numeric_table, "text": text_table}


def tree() -> Any:
    return dtrees.DecisionTreeRegressor(random_state=0, categorical_features=None)


@functools.cache
def fitted(table: str) -> tuple[pd.DataFrame, pd.Series, Any]:
    X = TABLES[table]()
    y = target_of(X)
    model = tree().fit(X, y)
    used = set(trees_of(model)[0].feature) - {-2}
    assert used == set(range(X.shape[1])) - {list(X).index("nothing") if "nothing" in X else -1}
    return X, y, model


def assert_same(found: Any, wanted: Any) -> None:
    assert_same_model(found, wanted)
    assert found._schema == wanted._schema


@pytest.mark.parametrize(("table", "divisions"), one_of_each([*TABLES], ["known", "unknown"]))
def test_dtypes_of_columns(client: Client, table: str, divisions: str) -> None:
    X, y, wanted = fitted(table)
    with dask.config.set({"dataframe.convert-string": divisions == "known"}):
        if divisions == "known":
            lazy = [dd.from_pandas(data, npartitions=5) for data in (X, y)]
        else:
            lazy = [in_partitions(data, SEVEN) for data in (X, y)]
        assert lazy[0].known_divisions == (divisions == "known")
        found = tree().fit(*lazy)
        assert_same(found, wanted)
        np.testing.assert_array_equal(found.predict(lazy[0]).compute(), wanted.predict(X))


def test_unknown_categories(client: Client) -> None:
    X, y, wanted = fitted("text")
    lazy = dd.from_pandas(X.astype({"words 4": "string"}), npartitions=5).astype({"words 4": "category"})
    assert not lazy["words 4"].cat.known
    lazy["categories of numbers"] = lazy["categories of numbers"].cat.as_unknown()
    found = tree().fit(lazy, dd.from_pandas(y, npartitions=5))
    assert_same(found, wanted)
    np.testing.assert_array_equal(found.predict(lazy).compute(), wanted.predict(X))


#: The contents of each column's partitions, in turn, and of the whole column.
DIFFERENT: dict[str, tuple[list[Callable[[Any], Any]], Any]] = {
    "int, float": ([lambda v: v, lambda v: v.astype(float), lambda v: pd.array(v, "Int64")], COUNTS),
    "float32, float64": ([lambda v: v.astype("f4"), lambda v: v, lambda v: pd.array(v, "Float32")], REALS.astype("f4").astype("f8")),
    "bool, int": ([lambda v: v, lambda v: v.astype(int), lambda v: v.astype(object)], FLAGS),
    "int, none": ([lambda v: v, lambda v: np.full(len(v), None), lambda v: v.astype("i1")], COUNTS),
    "bool, NaN": ([lambda v: v, lambda v: np.full(len(v), np.nan), lambda v: pd.array(v, "boolean")], FLAGS),
    "text": ([lambda v: v, lambda v: pd.array(v, "string[pyarrow]"), pd.Categorical, lambda v: pd.array(v, "string[python]")], WORDS),
    "text, none": ([lambda v: v, lambda v: np.full(len(v), None), lambda v: pd.array(v, "str")], WORDS),
    "text, NaN": ([lambda v: pd.array(v, "str"), lambda v: np.full(len(v), np.nan), pd.Categorical], WORDS),
    "order of categories": (
        [lambda v: pd.Categorical(v, ["oak", "elm", "birch", "ash"]), lambda v: pd.Categorical(v, ["elm", "x", "ash", "oak", "birch"])],
        WORDS,
    ),
}


def different_parts() -> list[pd.DataFrame]:
    """Partitions that differ in the dtypes and in the order of their columns."""
    parts = []
    bounds = np.concatenate([[0], np.cumsum(SEVEN)])
    for i, (a, b) in enumerate(itertools.pairwise(bounds)):
        columns = {
            name: kinds[i % len(kinds)](np.random.default_rng(len(name)).permutation(values)[a:b])
            for name, (kinds, values) in DIFFERENT.items()
        }
        parts.append(pd.DataFrame(dict(sorted(columns.items(), reverse=i % 2 == 1)), index=range(a, b)))
    return parts


def test_partitions_that_differ(client: Client) -> None:
    parts = different_parts()
    names = list(parts[0])
    whole = pd.concat([part.astype(object) for part in parts if len(part)])[names]
    assert [list(part) == names for part in parts] == [True, False, True, False, True, False, True]
    y = target_of(whole) + TARGET
    wanted = tree().fit(whole, y)
    assert len(set(trees_of(wanted)[0].feature)) == len(names) + 1
    with dask.config.set({"dataframe.convert-string": False}):
        X = dd.from_map(lambda part: part, parts, meta=parts[0].iloc[:0])
    found = tree().fit(X, in_partitions(y, SEVEN))
    assert_same_model(found, wanted)
    assert found.feature_names_in_.tolist() == names
    assert [column.categories for column in found._schema.columns] == [column.categories for column in wanted._schema.columns]
    np.testing.assert_array_equal(found.predict(X).compute(), wanted.predict(whole))


def test_order_of_columns_without_a_cluster() -> None:
    parts = [FRAME[::2][["word", "real", "count"]], FRAME[1::2]]
    y = np.concatenate([TARGET[::2], TARGET[1::2]])
    found = tree().fit(dd.from_map(lambda part: part, parts, meta=FRAME.iloc[:0]), y)
    assert_same(found, tree().fit(pd.concat([part[list(FRAME)] for part in parts]), y))
    assert found.feature_names_in_.tolist() == list(FRAME)


FRAME = pd.DataFrame({"count": COUNTS, "real": REALS, "word": WORDS})
Y = pd.Series(TARGET)


def with_part(i: int, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Any:
    """Return a collection of three partitions, one of which is different."""
    parts = np.split(np.arange(N_ROWS), [100, 120])
    frames = [FRAME.iloc[part] for part in parts]
    return dd.from_map(lambda part: part, [change(frame) if k == i else frame for k, frame in enumerate(frames)], meta=FRAME.iloc[:0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda part: part.drop(columns="real"),
            r"X has in partition 1 the columns \['count', 'word'\]; wants .* \['count', 'real', 'word'\]",
        ),
        (lambda part: part.assign(more=1), r"X has in partition 1 the columns .*'more'\]; wants"),
        (lambda part: part.assign(real="text"), "X column 'real' holds text or categories in some partitions and numbers in others"),
        (lambda part: part.assign(word=pd.Categorical(range(20))), "X column 'word' has partitions with categories of numbers and text"),
    ],
)
def test_partitions_that_do_not_go_together(client: Client, change: Callable[[pd.DataFrame], pd.DataFrame], message: str) -> None:
    X, y = with_part(1, change), in_partitions(Y, LENGTHS[3])
    with pytest.raises(ValueError, match=message):
        tree().fit(X, y)
    if "columns" in message:
        with pytest.raises(ValueError, match=f"eval_set 'validation_0': {message}"):
            dtrees.GradientBoostingRegressor(n_estimators=1).fit(in_partitions(FRAME, SEVEN), in_partitions(Y, SEVEN), eval_set=[(X, y)])
        predicted = tree().fit(FRAME, Y).predict(X)
        with pytest.raises(ValueError, match="X has in a partition the columns"):
            predicted.compute()


def array(values: Any, *chunks: int) -> Any:
    return da.from_array(values, chunks=chunks)


@functools.cache
def fitted_array(masked: bool = False, weighted: bool = True, dtype: str = "f8") -> Any:
    rows = MASK if masked else np.ones(N_ROWS, bool)
    model = tree().fit(ARRAY[rows].astype(dtype), TARGET[rows], WEIGHT[rows] if weighted else None)
    assert set(trees_of(model)[0].feature) == {-2, 0, 1, 2, 3, 4}
    return model


@pytest.mark.parametrize("chunks", one_quick([(100, 2, 77, 13), (420, 5, 420, 420), (1, 1, 420, 60), (333, 4, 1, 333)]), ids=str)
def test_chunks_of_arrays(client: Client, chunks: tuple[int, ...]) -> None:
    n, n_columns, n_target, n_weight = (max(size, 20) if i != 1 else size for i, size in enumerate(chunks))
    X = array(ARRAY, n, n_columns)
    found = tree().fit(X, array(TARGET, n_target), array(WEIGHT, n_weight))
    assert_same(found, fitted_array())
    np.testing.assert_array_equal(found.predict(X).compute(), fitted_array().predict(ARRAY))


@pytest.mark.parametrize(("n", "n_columns", "n_target"), slow_for({420, 333}, [(100, 2, 77), (333, 5, 100), (420, 1, 60)]))
def test_unknown_chunks(client: Client, n: int, n_columns: int, n_target: int) -> None:
    X, y, weight = (a[array(MASK, a.chunks[0][0])] for a in (array(ARRAY, n, n_columns), array(TARGET, n_target), array(WEIGHT, 33)))
    assert np.isnan(X.shape[0])
    assert np.isnan(y.shape[0])
    found = tree().fit(X, y, weight)
    assert_same(found, fitted_array(masked=True))
    np.testing.assert_array_equal(found.predict(X).compute(), fitted_array(masked=True).predict(ARRAY[MASK]))
    local = tree().fit(X, TARGET[MASK], WEIGHT[MASK])
    assert_same(local, fitted_array(masked=True))


@pytest.mark.parametrize("dtype", slow_for({"f2", "f4"}, ["f2", "f4", ">f8", "O"]))
def test_dtypes_of_arrays(client: Client, dtype: str) -> None:
    found = tree().fit(array(ARRAY, 100, 3).astype(dtype), array(TARGET, 100), array(WEIGHT, 100))
    assert_same(found, fitted_array(dtype=dtype))


def test_chunks_of_no_rows(client: Client) -> None:
    X, empty = array(ARRAY, 100, 5), array(ARRAY[:0], 1, 5)
    assert_same(tree().fit(da.concatenate([empty, X, empty]), array(TARGET, 77), 2.0), tree().fit(ARRAY, TARGET, 2.0))


@pytest.mark.parametrize("n_partitions", one_quick([3, 1]))
def test_one_row(client: Client, n_partitions: int) -> None:
    lengths = [1] if n_partitions == 1 else [0, 1, 0]
    for model in (tree(), dtrees.GradientBoostingRegressor(n_estimators=2), dtrees.RandomForestRegressor(2)):
        found = model.fit(in_partitions(FRAME[:1], lengths), in_partitions(Y[:1], lengths))
        assert found.predict(in_partitions(FRAME[:1], lengths)).compute().tolist() == [Y[0]]


@pytest.mark.parametrize("y", one_quick([pd.Series(WORDS), Y]), ids=["words", "numbers"])
def test_frames_of_different_numbers_of_partitions(client: Client, y: pd.Series) -> None:
    """They have the same rows in total."""
    kind = dtrees.DecisionTreeRegressor if y is Y else dtrees.DecisionTreeClassifier
    weight = in_partitions(pd.Series(WEIGHT), [210, 210])
    fitted = kind(random_state=0).fit(in_partitions(FRAME, [84] * 5), in_partitions(y, [105] * 4), sample_weight=weight)
    assert_same(fitted, kind(random_state=0).fit(FRAME, y, sample_weight=WEIGHT))


@pytest.mark.parametrize("kind", one_quick(["series", "frame", "array", "series here", "array here"]))
def test_filtered_frames(client: Client, kind: str) -> None:
    lazy = in_partitions(FRAME.assign(y=Y), SEVEN)
    lazy, here = (frame[frame["count"] > 9] for frame in (lazy, FRAME.assign(y=Y)))
    wanted = tree().fit(here.drop(columns="y"), here["y"])
    y = {
        "series": lazy["y"],
        "frame": lazy[["y"]],
        "array": lazy["y"].to_dask_array(),
        "series here": here["y"],
        "array here": here["y"].to_numpy(),
    }[kind]
    assert_same(tree().fit(lazy.drop(columns="y"), y), wanted)


@pytest.mark.parametrize(
    "data",
    one_quick(
        [
            lambda: (in_partitions(FRAME, SEVEN), array(TARGET, 77), in_partitions(pd.Series(WEIGHT), LENGTHS[3]).to_dask_array()),
            lambda: (FRAME, in_partitions(Y, SEVEN), array(WEIGHT, 50)),
            lambda: (in_partitions(FRAME, SEVEN), array(TARGET[:, np.newaxis], 60, 1), pd.Series(WEIGHT, index=range(9, N_ROWS + 9))),
            lambda: (in_partitions(FRAME, SEVEN), TARGET.tolist(), array(WEIGHT, 420)),
            lambda: (FRAME, array(TARGET, 77), in_partitions(pd.Series(WEIGHT), SEVEN)),
        ]
    ),
    ids=["frame", "here", "column", "list", "here-array"],
)
def test_mixed_kinds(client: Client, data: Callable[[], tuple[Any, ...]]) -> None:
    assert_same(tree().fit(*data()), tree().fit(FRAME, TARGET, WEIGHT))


@pytest.mark.parametrize("dtype", one_quick(["Int64", "double[pyarrow]", "boolean"]))
def test_dtypes_of_targets_and_weights(client: Client, dtype: str) -> None:
    values, weight = (pd.Series(rows > 0 if dtype == "boolean" else rows.round()).astype(dtype) for rows in (TARGET, WEIGHT))
    found = tree().fit(*(in_partitions(data, SEVEN) for data in (FRAME, values, weight)))
    assert_same(found, tree().fit(FRAME, values.astype(float), weight.astype(float)))
    for y, weight_of_rows, name in ((values.where(COUNTS > 3), weight, "y"), (values, weight.where(COUNTS > 3), "sample_weight")):
        with pytest.raises(ValueError, match=f"{name} contains NaN"):
            tree().fit(*(in_partitions(data, SEVEN) for data in (FRAME, y, weight_of_rows)))


LABELS = {"str": WORDS, "category": WORDS, "Int64": COUNTS // 10, "bool[pyarrow]": FLAGS}


@pytest.mark.parametrize("dtype", slow_for({"category", "bool[pyarrow]"}, LABELS))
def test_dtypes_of_labels(client: Client, dtype: str) -> None:
    y = pd.Series(LABELS[dtype]).astype(dtype)
    found, wanted = (
        dtrees.DecisionTreeClassifier().fit(X, labels) for X, labels in ((in_partitions(FRAME, SEVEN), in_partitions(y, SEVEN)), (FRAME, y))
    )
    assert_same(found, wanted)
    assert found.classes_.dtype == wanted.classes_.dtype
    assert found.predict(in_partitions(FRAME, SEVEN)).compute().tolist() == wanted.predict(FRAME).tolist()
    with pytest.raises(ValueError, match="y contains (NaN|missing values)"):
        dtrees.DecisionTreeClassifier().fit(in_partitions(FRAME, SEVEN), in_partitions(y.where(COUNTS > 3), SEVEN))


HIDDEN = np.random.default_rng(5).random((420, 3)) < 0.2
FLOATS = np.random.default_rng(6).normal(size=(420, 3))


def lazy_masked(values: Any, mask: Any, *, chunks: int = 100) -> Any:
    return da.from_array(np.ma.masked_array(values, mask), chunks=(chunks, *values.shape[1:]))


@pytest.mark.parametrize("there", [True, False])
def test_masked_values_of_X_are_missing(request: pytest.FixtureRequest, there: bool) -> None:
    """At fit, in evaluation sets, at predict and in an initial estimator."""
    y = FLOATS.sum(axis=1)
    X, missing = lazy_masked(FLOATS, HIDDEN), np.where(HIDDEN, np.nan, FLOATS)
    model = regressor(n_estimators=2, init=DummyRegressor())
    wanted = clone(model).fit(missing, y, eval_set=[(missing, y)])
    with request.getfixturevalue("client").as_current() if there else contextlib.nullcontext():
        target = da.from_array(y, chunks=170)
        found = model.fit(X, target, eval_set=[(X, target), (X.compute(), y)])
        assert_same_model(found, wanted)
        for scores in found.evals_result_.values():
            np.testing.assert_array_equal(scores["rmse"], wanted.evals_result_["validation_0"]["rmse"])
        np.testing.assert_array_equal(found.predict(X).compute(), wanted.predict(missing))
        assert found.score(X, target) == wanted.score(missing, y)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("name", ["y", "sample_weight", "base_margin"])
def test_masked_values_of_others_are_refused(request: pytest.FixtureRequest, name: str, there: bool) -> None:
    """Chunks of other lengths than those of X are rechunked, with their masks."""
    here = {"y": FLOATS.sum(axis=1)} | {name: np.abs(FLOATS[:, 0])}
    lazy = {other: da.from_array(values, chunks=100) for other, values in here.items()}
    X = da.from_array(FLOATS, chunks=(100, 3))
    with request.getfixturevalue("client").as_current() if there else contextlib.nullcontext():
        with pytest.raises(ValueError, match=f"{name} is a masked array with .* masked value"):
            regressor(n_estimators=2).fit(X, **lazy | {name: lazy_masked(here[name], HIDDEN[:, 0], chunks=70)})
        none_masked = lazy | {name: lazy_masked(here[name], np.zeros(420, bool), chunks=70)}
        assert_same_model(regressor(n_estimators=2).fit(X, **none_masked), regressor(n_estimators=2).fit(FLOATS, **here))


@pytest.mark.parametrize(("n_rows", "n_warnings"), [(400, 0), (50, 1)])
def test_warning_of_many_classes(client: Client, n_rows: int, n_warnings: int) -> None:
    """It concerns all rows, not each partition."""
    labels = np.arange(n_rows) % 30
    collections = [da.from_array(array, chunks=n_rows // 8) for array in (labels.astype(float), labels)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dtrees.DecisionTreeClassifier(max_depth=2).fit(collections[0][:, None], collections[1])
    assert len([one for one in caught if "classes" in str(one.message)]) == n_warnings


def test_labels_of_different_dtypes(client: Client) -> None:
    parts = [pd.Series(WORDS[:100], dtype="str"), pd.Series(WORDS[100:120], dtype="category"), pd.Series(WORDS[120:], dtype=object)]
    y = dd.from_map(lambda part: part, parts, meta=pd.Series(dtype=object))
    assert_same_model(
        dtrees.DecisionTreeClassifier().fit(in_partitions(FRAME, LENGTHS[3]), y), dtrees.DecisionTreeClassifier().fit(FRAME, WORDS)
    )


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (lambda: (dask.delayed(ARRAY), TARGET), TypeError, "X is of type dask.*wants a Dask DataFrame or a 2-D Dask Array"),
        (lambda: (db.from_sequence([1, 2]), TARGET), TypeError, "X is of type dask.bag.*wants a Dask DataFrame"),
        (lambda: (array(ARRAY, 100, 5), dask.delayed(TARGET)), TypeError, "y is of type dask.*wants a Dask Series or Array"),
        (lambda: (array(ARRAY, 100, 5), TARGET, db.from_sequence([1])), TypeError, "sample_weight is of type dask.bag"),
        (lambda: (array(ARRAY, 100, 5)[:, :, None], TARGET), ValueError, "X is a Dask collection of 3 dimension"),
        (lambda: (array(ARRAY, 100, 5) * 1j, TARGET), ValueError, "Complex data not supported: X is an array of dtype complex128"),
        (lambda: (array(ARRAY[:0], 100, 5), TARGET[:0]), ValueError, "X has no rows"),
        (lambda: (array(ARRAY, 100, 5)[array(COUNTS > 99, 100)], array(TARGET[:0], 1)), ValueError, "X has no rows"),
    ],
)
def test_collections_that_cannot_be_used(client: Client, data: Callable[[], tuple[Any, ...]], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tree().fit(*data())


@pytest.mark.parametrize("kind", one_quick(["mixed", "frames", "arrays"]))
def test_evaluation_sets(client: Client, kind: str) -> None:
    """Their dtypes, kinds and chunks differ from those of the training set."""
    frame = FRAME.drop(columns="word").assign(y=Y, weight=WEIGHT)
    lazy, rest = in_partitions(frame, SEVEN), frame[MASK]
    lazy_rest = lazy[lazy["count"] > 9]
    X = ["count", "real"]
    numbers = array(frame[X].to_numpy(), 100, 1)[array(MASK, 100)]
    given = {
        "frames": (
            lazy_rest[X].astype({"count": "Int64"}),
            lazy_rest["y"].astype("double[pyarrow]"),
            lazy_rest["weight"].astype("Float32"),
        ),
        "arrays": (numbers, array(TARGET, 33)[array(MASK, 33)], array(WEIGHT, 60)[array(MASK, 60)]),
        "mixed": (lazy_rest[X], TARGET[MASK], array(WEIGHT, 60)[array(MASK, 60)]),
    }[kind]
    here, there = (regressor(n_estimators=3, eval_metric=["rmse", "mae"]) for _ in range(2))
    if kind == "arrays":
        here.fit(frame[X].to_numpy(), Y, eval_set=[(rest[X].to_numpy(), rest["y"], rest["weight"])])
        there.fit(array(frame[X].to_numpy(), 60, 2), array(TARGET, 60), eval_set=[given])
    else:
        here.fit(frame[X], Y, eval_set=[(rest[X], rest["y"], rest["weight"])])
        there.fit(lazy[X], lazy["y"], eval_set=[given])
    assert_same_model(there, here)
    for metric, values in here.evals_result_["validation_0"].items():
        assert there.evals_result_["validation_0"][metric].tobytes() == values.tobytes()


def test_infinities_in_partitions_of_two_dtypes(client: Client) -> None:
    table = np.where(np.abs(ARRAY) > 1.5, np.copysign(np.inf, ARRAY), ARRAY.astype(np.float32))
    half = N_ROWS // 2
    lazy = da.concatenate([da.from_array(table[:half].astype(np.float32), (50, -1)), da.from_array(table[half:], (50, -1))])
    lazy = da.map_blocks(lambda block: block, lazy, dtype=np.float64)
    wanted = tree().fit(table, TARGET)
    found = tree().fit(lazy, da.from_array(TARGET, 50))
    assert_same_model(found, wanted)
    np.testing.assert_array_equal(found.predict(lazy).compute(), wanted.predict(table))
