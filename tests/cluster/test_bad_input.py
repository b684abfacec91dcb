"""Invalid input: the error says what is wrong, and the cluster is unchanged."""

import contextlib
import functools
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from scipy.sparse import csr_array

import dtrees
from dtrees import submit
from dtrees.cluster.errors import ClusterError, NotEnoughMemory, WorkerLost
from tests.cluster.clusters import cluster_of
from tests.cluster.samples import FRAME, LENGTHS, NUMBERS, REGRESSION, WEIGHTS, assert_clean, in_partitions, wait_until
from tests.slow import one_of_each, one_quick, slow_for


def with_value(data: Any, row: int, value: Any) -> Any:
    changed = data.copy()
    if isinstance(changed, pd.DataFrame):
        changed.loc[row, "rounded"] = value
    else:
        changed.iloc[row] = value
    return changed


def parts(data: Any) -> Any:
    return in_partitions(data, LENGTHS[3])


CASES: dict[str, tuple[Callable[[], tuple[Any, ...]], str]] = {
    "NaN in y": (lambda: (parts(FRAME), parts(with_value(REGRESSION, 400, np.nan))), "y contains NaN"),
    "zero weights": (lambda: (parts(FRAME), parts(REGRESSION), parts(WEIGHTS * 0)), "all weights are zero"),
    "no rows": (lambda: (in_partitions(FRAME.iloc[:0], [0, 0]), in_partitions(REGRESSION.iloc[:0], [0, 0])), "X has no rows"),
    "rows of a partition": (
        lambda: (in_partitions(FRAME, [200, 220]), in_partitions(REGRESSION, [210, 210])),
        "differ in partition 0: X has 200 rows there but y has 210",
    ),
    "rows in another number of partitions": (
        lambda: (in_partitions(FRAME, [200, 220]), in_partitions(REGRESSION.iloc[:-1], [100, 100, 219])),
        "X has 420 rows but y has 419; both",
    ),
    "rows of an array": (
        lambda: (da.from_array(NUMBERS, chunks=(100, 5)), da.from_array(REGRESSION.to_numpy()[:-1], chunks=100)),
        "X has 420 rows but y has 419; both",
    ),
    "rows of a local y": (lambda: (parts(FRAME), REGRESSION.to_numpy()[:-2]), "X has 420 rows but y has 418"),
    "rows of weights": (lambda: (parts(FRAME), parts(REGRESSION), WEIGHTS[:5]), "X has 420 rows but sample_weight has 5"),
    "no target": (lambda: (parts(FRAME), None), "requires y to be passed"),
    "one dimension": (lambda: (parts(FRAME)["wide"], parts(REGRESSION)), "wants rows and columns"),
}


#: Cases that differ from others in the check, not in where it is done.
MORE = {"zero weights", "rows in another number of partitions", "rows of an array", "rows of a local y", "rows of weights", "one dimension"}


@pytest.mark.parametrize("case", slow_for(MORE, CASES))
def test_messages(client: Client, case: str) -> None:
    """Loading a table is the same for all models: they are used in turn."""
    make, message = CASES[case]
    model = dtrees.DecisionTreeRegressor() if list(CASES).index(case) % 2 else dtrees.GradientBoostingRegressor()
    with pytest.raises(ValueError, match=message):
        model.fit(*make())
    assert_clean(client)


def test_sparse_blocks(client: Client) -> None:
    """They need all columns on a worker, and all blocks of the same kind."""
    X = da.from_array(np.nan_to_num(NUMBERS.astype(float)), chunks=(200, -1))
    sparse, y = X.map_blocks(csr_array), da.from_array(REGRESSION.to_numpy(), chunks=200)
    model = dtrees.RandomForestRegressor(2)
    with pytest.raises(ValueError, match="placement is 'sharded', but X is sparse, .* wants one of auto, one-worker, replicated"):
        model.fit(sparse, y, placement="sharded")
    mixed = X.map_blocks(lambda block, block_info: csr_array(block) if block_info[0]["chunk-location"][0] else block, meta=sparse._meta)
    with pytest.raises(TypeError, match="X has a sparse block for its partition 1, and a dense one for 0"):
        model.fit(mixed, y)
    with pytest.raises(TypeError, match="y is a Dask collection with sparse blocks; wants dense ones"):
        model.fit(X, y[:, np.newaxis].map_blocks(csr_array))
    with pytest.raises(ValueError, match="categorical_features names 1 column.*, but X is sparse"):
        model.set_params(categorical_features=[0]).fit(sparse, y)
    model = dtrees.DecisionTreeRegressor(max_depth=4).fit(sparse, y)
    np.testing.assert_array_equal(model.predict(sparse).compute(), model.predict(X.compute()))
    assert model.score(sparse, y) == model.score(X.compute(), REGRESSION)
    assert_clean(client)


def test_one_class_is_as_in_one_process(client: Client) -> None:
    y = pd.Series(["only"] * 420)
    for make in (dtrees.DecisionTreeClassifier, dtrees.GradientBoostingClassifier):
        outcomes = []
        for arguments in ((FRAME, y), (parts(FRAME), parts(y))):
            try:
                outcomes.append(make().fit(*arguments).classes_.tolist())
            except ValueError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def usable(client: Client) -> None:
    """Check that the cluster is in the same state as before a failed fit."""
    assert_clean(client)
    dtrees.DecisionTreeRegressor(max_depth=2).fit(parts(FRAME), parts(REGRESSION))
    assert_clean(client)


def account_of(error: BaseException) -> str:
    """Return the text of an error that the user sees."""
    return "".join(traceback.format_exception(error))


def forest(n_estimators: int = 12) -> Any:
    return dtrees.RandomForestRegressor(n_estimators, max_depth=3, categorical_features=None)


def boosting(n_estimators: int = 4, **parameters: Any) -> Any:
    return dtrees.GradientBoostingRegressor(n_estimators=n_estimators, **parameters)


def read(part: pd.DataFrame) -> pd.DataFrame:
    if part.index[0] == 100:
        raise FileNotFoundError("part-7.parquet is gone")
    return part


@pytest.mark.parametrize("role", slow_for({"y", "sample_weight"}, ["X", "y", "sample_weight", "eval_set"]))
def test_a_partition_that_raises(client: Client, role: str) -> None:
    """Loading a table is the same for all models: they are used in turn."""
    data = {"X": FRAME, "y": REGRESSION, "sample_weight": WEIGHTS}
    given = {name: parts(values) for name, values in data.items()}
    broken = {name: given[name].map_partitions(read, meta=values.iloc[:0]) for name, values in data.items()}
    options = {role: broken[role]} if role in given else {"eval_set": [(broken["X"], given["y"])]}
    model = boosting() if role in ("y", "eval_set") else forest()
    with pytest.raises(FileNotFoundError, match=r"^part-7\.parquet is gone$") as caught:
        model.fit(**given | options)
    assert "in read" in account_of(caught.value)
    usable(client)


@pytest.mark.parametrize("placement", one_quick(["sharded", "one-worker"]))
def test_a_callback_or_metric_that_raises(client: Client, placement: str) -> None:
    def fail(*given: Any) -> None:
        if len(given) == 3 or given[0].done == 2:
            raise KeyError("mine")

    calls, scores = {"callbacks": [fail]}, {"eval_set": [(parts(FRAME), parts(REGRESSION))]}
    with dask.config.set({"dtrees.placement": placement}):
        for model, options in ((forest(), calls), (boosting(), calls), (boosting(eval_metric=fail), scores)):
            with pytest.raises(KeyError, match="mine") as caught:
                model.fit(parts(FRAME), parts(REGRESSION), **options)
            assert "in fail" in account_of(caught.value)
        usable(client)


@pytest.mark.parametrize(("placement", "role"), one_of_each(one_quick(["sharded", "one-worker"]), one_quick(["callbacks", "eval_metric"])))
@pytest.mark.parametrize("kind", one_quick([SystemExit, KeyboardInterrupt]))
def test_what_would_end_a_process_ends_the_fit_alone(client: Client, placement: str, role: str, kind: type[BaseException]) -> None:
    """Otherwise Dask would lose one worker after another."""
    workers = client.run(os.getpid)

    def end(*_: Any) -> float:
        raise kind(3)

    given = {"eval_set": [(parts(FRAME), parts(REGRESSION))]} if role == "eval_metric" else {"callbacks": [end]}
    model = boosting(eval_metric=end) if role == "eval_metric" else boosting()
    with dask.config.set({"dtrees.placement": placement}), pytest.raises(RuntimeError, match=rf"raised {kind.__name__}\(3\)") as caught:
        model.fit(parts(FRAME), parts(REGRESSION), **given)
    assert type(caught.value) is RuntimeError
    assert client.run(os.getpid) == workers
    assert_clean(client)


async def test_an_asynchronous_client(cluster_of_1: Any) -> None:
    async with Client(cluster_of_1.scheduler_address, asynchronous=True, set_as_default=False) as client:
        with client.as_current(), pytest.raises(ClusterError, match="asynchronous"):
            dtrees.DecisionTreeRegressor().fit(parts(FRAME), parts(REGRESSION))


def broken(*args: Any, **options: Any) -> Any:
    raise ZeroDivisionError("mine")


@contextlib.contextmanager
def broken_on_one_worker(client: Client, where: str) -> Iterator[str]:
    """Make a function raise on one worker; yield the worker's address."""
    worker = min(client.nthreads())
    client.run(lambda: mock.patch(where, broken).start() and None, workers=[worker])
    try:
        yield worker
    finally:
        client.run(mock.patch.stopall, workers=[worker])


@pytest.mark.parametrize(
    ("where", "make", "placement"),
    [
        ("dtrees.engine.shard.targets.boosting_target.BoostingTarget.start", boosting, "sharded"),
        ("dtrees.ensemble.objective.regression.SquaredError.initial", boosting, "sharded"),
        ("dtrees.ensemble.evaluation_sets.Scorer.score", boosting, "sharded"),
        ("dtrees.cluster.growing.fits.grow_here", forest, "replicated"),
        ("dtrees.engine.shard.targets.forest_target.ForestTarget.start", forest, "sharded"),
        ("dtrees.engine.shard.tree.ColumnTree.share_rows", forest, "sharded"),
        ("dtrees.engine.shard.tree.ColumnTree.grow_delegated", forest, "sharded"),
        ("dtrees.engine.shard.tree.measure_leaves", forest, "sharded"),
        ("dtrees.split.table.columns.Assembly.finished", boosting, "sharded"),
    ],
)
@pytest.mark.slow
def test_what_raises_on_one_worker(client: Client, where: str, make: Callable[[], Any], placement: str) -> None:
    with dask.config.set({"dtrees.placement": placement}), broken_on_one_worker(client, where) as worker:
        options = {"eval_set": [(parts(FRAME), parts(REGRESSION))]} if "evaluation" in where else {}
        with pytest.raises(ZeroDivisionError) as caught:
            make().fit(parts(FRAME), parts(REGRESSION), **options)
        assert str(caught.value) == "mine"
        assert "in broken" in account_of(caught.value)
        if "columns" not in where and "growing" not in where:  # shards and scorers report their location
            assert worker in account_of(caught.value)
        assert_clean(client)
    usable(client)


def test_no_memory(client: Client) -> None:
    """Workers that run out of memory are killed, like these: the two cannot be distinguished."""

    def die(part: pd.DataFrame) -> pd.DataFrame:
        os._exit(137)

    greedy = parts(FRAME).map_partitions(die, meta=FRAME.iloc[:0])
    with pytest.raises(WorkerLost, match="Workers died 4 times over the same task, .* their logs say why") as caught:
        forest().fit(greedy, parts(REGRESSION))
    assert "it takes more memory than they have: give them more" in str(caught.value)
    assert "a call of os._exit" in str(caught.value)
    # Not wait_for_workers: it replaces the LocalCluster's information about workers, which then fails for a worker that has already
    # gone.
    wait_until(lambda: len(client.nthreads()) == 3, 100)
    usable(client)


def test_workers_too_small_for_anything() -> None:
    """The check takes no time."""
    with cluster_of(1, memory_limit="300MB") as client:
        for act in (forest().fit, functools.partial(submit, forest())):
            with pytest.raises(NotEnoughMemory, match=r"may use 2\d\d\.\d* MiB \(of a limit of 286.10 MiB\), and Python with dtrees"):
                act(parts(FRAME), parts(REGRESSION))
        assert_clean(client)


@pytest.mark.parametrize("name", one_quick(["X", "y"]))
def test_a_partition_that_is_none(client: Client, name: str) -> None:
    data = {"X": parts(FRAME), "y": parts(REGRESSION)}
    meta = {"X": FRAME.iloc[:0], "y": REGRESSION.iloc[:0]}[name]
    data[name] = data[name].map_partitions(_none_of_last, meta=meta, enforce_metadata=False)
    with pytest.raises(TypeError, match=f"^{name} has None for its partition"):
        forest().fit(**data)
    assert_clean(client)


def _none_of_last(part: Any, partition_info: Any = None) -> Any:
    return part if partition_info is None or partition_info["number"] == 0 else None


def test_an_array_beyond_memory(client: Client) -> None:
    def allocate(part: pd.DataFrame) -> pd.DataFrame:
        np.empty(2**50)
        return part

    with pytest.raises(MemoryError, match="Unable to allocate"):
        boosting().fit(parts(FRAME).map_partitions(allocate, meta=FRAME.iloc[:0]), parts(REGRESSION))
    usable(client)
