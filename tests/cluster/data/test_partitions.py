"""Collections of different kinds, sparse ones, and those with common partitions, are never swapped or mixed."""

import contextlib
import itertools
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from scipy import sparse

import dtrees
from dtrees.cluster.backend import DaskBackend
from dtrees.cluster.data.columns import _cells, _presort_cells
from dtrees.cluster.data.partitions import computed, partitions_of
from dtrees.ensemble.in_process import LOCAL
from dtrees.ensemble.input.column import Column
from dtrees.ensemble.input.schema import Schema
from dtrees.split.table.sparse_columns import presort_sparse
from tests.cluster.samples import assert_same_model, numbers, table, targets, weights
from tests.plain import regressor
from tests.slow import one_of_each

# --- collections of different kinds, and collections with common partitions, are never swapped or mixed ---


FRAME = pd.DataFrame(numbers(table(200)))
TARGET, WEIGHT = targets(table(200))["regression"], weights(200)
MARGIN = TARGET.round() / 2
LENGTH = 70
#: Kinds of X, y and weights: each is a frame or an array. (Those with an even number of arrays have all pairs.)
MIXTURES = list(itertools.product(["frame", "array"], repeat=3))


def lazy(values: Any, kind: str) -> Any:
    if kind == "frame":
        return dd.from_pandas(values, chunksize=LENGTH, sort=False)
    return da.from_array(values.to_numpy(), chunks=(LENGTH, *values.shape[1:]))


def of_kinds(kinds: tuple[str, str, str]) -> list[Any]:
    return [lazy(values, kind) for values, kind in zip((FRAME, TARGET, WEIGHT), kinds, strict=True)]


def local(kind: str) -> Any:
    return FRAME if kind == "frame" else FRAME.to_numpy()


@contextlib.contextmanager
def around(client: Client | None) -> Any:
    """Return a context with a client, or without one."""
    with contextlib.nullcontext() if client is None else client.as_current():
        yield


@pytest.mark.parametrize(
    ("kinds", "there"), [(kinds, there) for kinds in MIXTURES for there in (False, True) if not there or kinds.count("array") % 2 == 0]
)
def test_mixtures(request: pytest.FixtureRequest, kinds: tuple[str, str, str], there: bool) -> None:
    """Arrays and frames to fit, to evaluate, as initial scores, to score and to predict."""
    X, y, weight = of_kinds(kinds)
    here, margin = local(kinds[0]), lazy(MARGIN, kinds[1])
    wanted = regressor(n_estimators=2).fit(here, TARGET, WEIGHT, eval_set=[(here, TARGET, WEIGHT)])
    with around(request.getfixturevalue("client") if there else None):
        found = regressor(n_estimators=2).fit(X, y, weight, eval_set=[(X, y, weight)])
        assert_same_model(found, wanted)
        assert found.evals_result_["validation_0"]["rmse"].tobytes() == wanted.evals_result_["validation_0"]["rmse"].tobytes()
        assert found.score(X, y, weight) == wanted.score(here, TARGET, WEIGHT)
        np.testing.assert_array_equal(found.predict(X).compute(), wanted.predict(here))
        started = regressor(n_estimators=2).fit(X, y, weight, base_margin=margin)
    assert_same_model(started, regressor(n_estimators=2).fit(here, TARGET, WEIGHT, base_margin=MARGIN))


def test_places() -> None:
    """Each collection keeps its role, even if it is given twice or missing."""
    y, weight = lazy(TARGET, "frame"), lazy(WEIGHT, "array")
    found = computed(weight, y, None, weight + 1, y, 3)
    assert [type(one) for one in found] == [np.ndarray, pd.Series, type(None), np.ndarray, pd.Series, int]
    for one, other in zip(found[::3] + found[1::3], [WEIGHT, WEIGHT + 1, TARGET, TARGET], strict=True):
        np.testing.assert_array_equal(one, other)
    parts = [np.concatenate(some) for some in dask.compute(*partitions_of([weight, y, weight + 1]))]
    np.testing.assert_array_equal(parts, [WEIGHT, TARGET, WEIGHT + 1])


def shuffled(part: Any) -> Any:
    """Return the rows in an unpredictable order."""
    order = np.random.default_rng().permutation(len(part))
    return part.iloc[order] if hasattr(part, "iloc") else part[order]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("kind", ["frame", "array"])
def test_partitions_that_are_another_time_others(request: pytest.FixtureRequest, kind: str, there: bool) -> None:
    """X, y and weights of one collection are of the same computation of it, so that their rows belong together."""
    values = pd.DataFrame({"x": np.arange(200.0), "y": np.arange(200.0), "weight": 1.0 + np.arange(200)})
    if kind == "frame":
        whole = lazy(values, kind).map_partitions(shuffled, meta=values.iloc[:0])
        given = whole[["x"]], whole["y"], whole["weight"]
    else:
        whole = lazy(values, kind).map_blocks(shuffled, dtype=float)
        given = whole[:, :1], whole[:, 1], whole[:, 2]
    with around(request.getfixturevalue("client") if there else None):
        model = dtrees.DecisionTreeRegressor().fit(*given)
        assert model.score(*given) == 1.0
    assert model.tree_.weighted_n_node_samples[0] == values["weight"].sum()
    np.testing.assert_array_equal(model.predict(values[["x"]].to_numpy() if kind == "array" else values[["x"]]), values["y"])


def test_wide_tables(client: Client) -> None:
    """Names of columns that exceed the size that Dask sends with each task."""
    wide = FRAME.iloc[:, :3].set_axis([f"{name} {'long' * 20_000}" for name in "abc"], axis=1)
    assert_same_model(regressor(n_estimators=2).fit(lazy(wide, "frame"), TARGET), regressor(n_estimators=2).fit(wide, TARGET))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "placement"),
    one_of_each(["columns", "categories", "partitions"], ["sharded", "rows", "one-worker"], others=pytest.mark.thorough),
)
def test_much_of_something(client: Client, what: str, placement: str) -> None:
    random = np.random.default_rng(0)
    match what:
        case "columns":
            X = pd.DataFrame(random.normal(size=(150, 5000)).astype(np.float32), columns=[f"{'column' * 5} {i}" for i in range(5000)])
        case "categories":
            levels = [f"level {i}" for i in range(100_000)]
            X = pd.DataFrame({"level": pd.Categorical(levels[:2000], levels), "x": random.normal(size=2000)})
        case _:
            X = pd.DataFrame({"x": random.normal(size=2200), "other": random.normal(size=2200)})
    y = X.iloc[:, -1] + random.normal(size=len(X))
    n = 1100 if what == "partitions" else 3  # more than Python's limit of recursion
    collections = [dd.from_pandas(values, npartitions=n) for values in (X, y)]
    found = regressor(n_estimators=2).fit(*collections, placement=placement)
    assert_same_model(found, regressor(n_estimators=2).fit(X, y))


# --- some rows, drawn ---

DRAWN = pd.DataFrame({"a": np.arange(100), "b": [f"t{k % 7}" for k in range(100)]})
OF_DRAWN, THIRDS = pd.Series(np.arange(100) * 2.0), np.arange(100) / 3


@pytest.mark.parametrize("n", [None, 1, 17, 100, 1000])
def test_rows_of_frames(n):
    n_rows, (x, y, weight, none) = LOCAL.draw_rows(n, 5, DRAWN, OF_DRAWN, THIRDS, None)
    assert n_rows == 100
    assert none is None
    assert len(x) == len(y) == min(n or 100, 100)
    assert (x["a"] * 2 == y).all()
    np.testing.assert_array_equal(weight, x["a"] / 3)
    lazy = dd.from_pandas(DRAWN, npartitions=4), dd.from_pandas(OF_DRAWN, npartitions=3), THIRDS, None
    found = DaskBackend().draw_rows(n, 5, *lazy)
    assert found[0] == 100
    pd.testing.assert_frame_equal(found[1][0].astype({"b": str}), x.astype({"b": str}))
    pd.testing.assert_series_equal(found[1][1], y)
    np.testing.assert_array_equal(found[1][2], weight)
    assert found[1][3] is None


def test_rows_of_arrays():
    values = np.random.default_rng(0).normal(size=(60, 4))
    lazy = da.from_array(values, chunks=(7, 2)), da.from_array(values[:, :2], chunks=(20, 1))
    n_rows, (x, y) = DaskBackend().draw_rows(9, 0, *lazy)
    _, (wanted, _) = LOCAL.draw_rows(9, 0, values, values[:, 0])
    assert n_rows == 60
    np.testing.assert_array_equal(x, wanted)
    np.testing.assert_array_equal(y, wanted[:, :2])


def test_rows_that_do_not_match():
    for backend, x, y in (
        (LOCAL, DRAWN, OF_DRAWN[:9]),
        (DaskBackend(), dd.from_pandas(DRAWN, npartitions=2), dd.from_pandas(OF_DRAWN[:9], npartitions=2)),
        (DaskBackend(), dd.from_pandas(DRAWN, npartitions=2), THIRDS[:9]),
    ):
        with pytest.raises(ValueError, match="X has 100 rows but y or sample_weight has 9"):
            backend.draw_rows(5, 0, x, y)


# --- sparse partitions, put together and presorted: the columns of the whole table, in memory for what is stored ---


def test_sparse_partitions_are_never_dense() -> None:
    """Dense, the table would take 16 GB; cells come in no order, some twice, some as zeros."""
    random = np.random.default_rng(0)
    n_rows, n_columns, n_cells = 2_000, 1_000_000, 500
    rows, columns = random.integers(0, n_rows, n_cells), random.integers(0, n_columns, n_cells)
    rows[:50], columns[:50] = rows[50:100], columns[50:100]
    values = random.integers(-2, 3, n_cells).astype(np.float64)
    values[0] = np.nan
    table = sparse.coo_array((values, (rows, columns)), shape=(n_rows, n_columns)).tocsr()
    schema = Schema((Column(None, "numeric", "float64"),) * n_columns)
    chunks = [_cells(part, schema) for part in (table[:700].tocsc(), table[700:700], table[700:])]
    found = _presort_cells(chunks, n_rows)
    cells = schema.cells(table)
    for own, wanted in zip(found, presort_sparse(cells.data, cells.indices, cells.indptr, n_rows), strict=True):
        np.testing.assert_array_equal(own, wanted)
        assert own.dtype == wanted.dtype
