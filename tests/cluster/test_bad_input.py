"""Input that cannot be learnt from: the error says what is wrong, and the cluster is as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import dtrees
from dtrees.cluster.errors import ClusterError
from tests.cluster.samples import LENGTHS, assert_clean, in_partitions, numbers, table, targets, weights

FRAME = table()
NUMBERS = numbers(FRAME)
TARGETS = targets(FRAME)
WEIGHTS = weights()


def with_value(data: Any, row: int, value: Any) -> Any:
    changed = data.copy()
    if isinstance(changed, pd.DataFrame):
        changed.loc[row, "rounded"] = value
    else:
        changed.iloc[row] = value
    return changed


def parts(data: Any) -> Any:
    return in_partitions(data, LENGTHS[3])


REGRESSION = TARGETS["regression"]
CASES: dict[str, tuple[Callable[[], tuple[Any, ...]], str]] = {
    "NaN in y": (lambda: (parts(FRAME), parts(with_value(REGRESSION, 400, np.nan))), "y contains NaN"),
    "infinity in y": (lambda: (parts(FRAME), parts(with_value(REGRESSION, 110, np.inf))), "y contains infinity"),
    "infinity in X": (lambda: (parts(with_value(FRAME, 400, -np.inf)), parts(REGRESSION)), "X column 'rounded' contains infinity"),
    "infinity in an array": (
        lambda: (da.from_array(np.where(NUMBERS > 2, np.inf, NUMBERS), chunks=(99, 5)), da.from_array(REGRESSION.to_numpy(), chunks=99)),
        "X contains infinity",
    ),
    "negative weight": (lambda: (parts(FRAME), parts(REGRESSION), parts(with_value(WEIGHTS, 3, -1.0))), "negative value -1.0"),
    "NaN weight": (lambda: (parts(FRAME), parts(REGRESSION), parts(with_value(WEIGHTS, 3, np.nan))), "sample_weight contains NaN"),
    "zero weights": (lambda: (parts(FRAME), parts(REGRESSION), parts(WEIGHTS * 0)), "all weights are zero"),
    "no rows": (lambda: (in_partitions(FRAME.iloc[:0], [0, 0]), in_partitions(REGRESSION.iloc[:0], [0, 0])), "X has no rows"),
    "rows of a partition": (
        lambda: (in_partitions(FRAME, [200, 220]), in_partitions(REGRESSION, [210, 210])),
        "differ in partition 0: X has 200 rows there but y has 210",
    ),
    "number of partitions": (
        lambda: (in_partitions(FRAME, [200, 220]), parts(REGRESSION)),
        "420 rows in 2 partitions but y has 420 rows in 3",
    ),
    "rows of an array": (
        lambda: (da.from_array(NUMBERS, chunks=(100, 5)), da.from_array(REGRESSION.to_numpy()[:-1], chunks=100)),
        "differ in partition 4: X has 20 rows there but y has 19",
    ),
    "rows of a local y": (lambda: (parts(FRAME), REGRESSION.to_numpy()[:-2]), "X has 420 rows but y has 418"),
    "rows of weights": (lambda: (parts(FRAME), parts(REGRESSION), WEIGHTS[:5]), "X has 420 rows but sample_weight has 5"),
    "no target": (lambda: (parts(FRAME), None), "requires y to be passed"),
    "text as a target": (lambda: (parts(FRAME), parts(TARGETS["binary"])), "cannot be turned into numbers"),
    "one dimension": (lambda: (parts(FRAME)["wide"], parts(REGRESSION)), "wants rows and columns"),
}


@pytest.mark.parametrize("case", CASES)
def test_messages(client: Client, case: str) -> None:
    make, message = CASES[case]
    for model in (dtrees.DecisionTreeRegressor(), dtrees.GradientBoostingRegressor()):
        with pytest.raises(ValueError, match=message):
            model.fit(*make())
    assert_clean(client)


def test_continuous_labels(client: Client) -> None:
    with pytest.raises(ValueError, match="Unknown label type"):
        dtrees.RandomForestClassifier().fit(parts(FRAME), parts(REGRESSION))


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


def test_a_partition_that_raises(client: Client) -> None:
    def read(part: pd.DataFrame) -> pd.DataFrame:
        raise FileNotFoundError("part-7.parquet is gone")

    broken = parts(FRAME).map_partitions(read, meta=FRAME.iloc[:0])
    with pytest.raises(FileNotFoundError, match=r"part-7\.parquet is gone"):
        dtrees.DecisionTreeRegressor().fit(broken, parts(REGRESSION))
    assert_clean(client)
    dtrees.DecisionTreeRegressor().fit(parts(FRAME), parts(REGRESSION))


def test_a_callback_that_raises(client: Client) -> None:
    def fail(progress: Any) -> None:
        raise KeyError("mine")

    for model in (dtrees.RandomForestRegressor(5), dtrees.GradientBoostingRegressor()):
        with pytest.raises(KeyError, match="mine"):
            model.fit(parts(FRAME), parts(REGRESSION), callbacks=[fail])
        assert_clean(client)


async def test_an_asynchronous_client(cluster_of_1: Any) -> None:
    async with Client(cluster_of_1.scheduler_address, asynchronous=True, set_as_default=False) as client:
        with client.as_current(), pytest.raises(ClusterError, match="asynchronous"):
            dtrees.DecisionTreeRegressor().fit(parts(FRAME), parts(REGRESSION))


def test_an_objective_that_raises_on_one_worker(client: Client) -> None:
    with dask.config.set({"dtrees.placement": "sharded"}):
        client.run(_break_gradients, workers=[min(client.nthreads())])
        try:
            with pytest.raises(ZeroDivisionError, match="mine") as caught:
                dtrees.GradientBoostingRegressor().fit(parts(FRAME), parts(REGRESSION))
            assert min(client.nthreads()) in "".join(caught.value.__notes__)
            assert_clean(client)
        finally:
            client.run(_mend_gradients)
        dtrees.GradientBoostingRegressor(n_estimators=2).fit(parts(FRAME), parts(REGRESSION))
    assert_clean(client)


def _break_gradients() -> None:
    from dtrees.engine.targets import BoostingTarget

    def start(self: BoostingTarget, tree: int, output: int) -> Any:
        if tree == 3:
            raise ZeroDivisionError("mine")
        return original(self, tree, output)

    original = BoostingTarget.start
    BoostingTarget.start = start  # type: ignore[method-assign]
    BoostingTarget.unbroken = original  # type: ignore[attr-defined]


def _mend_gradients() -> None:
    from dtrees.engine.targets import BoostingTarget

    BoostingTarget.start = getattr(BoostingTarget, "unbroken", BoostingTarget.start)  # type: ignore[method-assign]
